use std::collections::BTreeSet;

use super::*;

fn resource(object: Value) -> Resource {
    let key = object_key(object.as_object().unwrap());
    let api_version = object["apiVersion"].as_str().unwrap();
    let id = format!("{api_version}:{}:{}:{}", key.kind, key.namespace, key.name);
    Resource {
        id: id.parse().unwrap(),
        runtime: RuntimeKind::Kubernetes,
        attributes: object.as_object().unwrap().clone(),
        depends_on: Vec::new(),
        extensions: Map::new(),
        sharing: Sharing::default(),
    }
}

fn spec(objects: &[Value]) -> Spec {
    Spec {
        resources: objects.iter().cloned().map(resource).collect(),
        ..Spec::default()
    }
}

fn shop() -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "annotations": {"konverge/keep": "true"}}}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"}, "spec": {"ports": [{"port": 80}]}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"rules": [{"host": "shop.example.com"}], "tls": [{"hosts": ["shop.example.com", "*.example.com"]}]}}),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "shop"}, "data": {
            "url": "https://shop.example.com/a?b=myshop.example.com",
            "db": "db.data.svc.cluster.local:5432, web.shop.svc, web.shopping.svc",
            "ip": "$kusion_path.v1:Service:shop:web.spec.clusterIP",
        }}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "web", "namespace": "data"}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "shop-reader"}, "rules": []}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "shop-reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "web", "namespace": "data"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "shop-reader"}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "data"}}}]}]}}),
    ]
}

fn object<'m>(moved: &'m MovedSpec, kind: &str) -> &'m Map<String, Value> {
    let mut resources = moved.spec.resources.iter();
    let found = resources.find(|one| one.attributes["kind"] == kind);
    &found.unwrap_or_else(|| panic!("no {kind}")).attributes
}

#[test]
fn names_references_subjects_and_hosts_move_together() {
    let moved = move_spec(&spec(&shop()), "t1").unwrap();
    let names: Vec<_> = moved.spec.resources.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(
        names,
        [
            "v1:Namespace:data-t1",
            "v1:Namespace:shop-t1",
            "v1:Service:shop-t1:web",
            "networking.k8s.io/v1:Ingress:shop-t1:web",
            "v1:ConfigMap:shop-t1:web",
            "v1:ServiceAccount:data-t1:web",
            "rbac.authorization.k8s.io/v1:ClusterRole:shop-reader-t1",
            "rbac.authorization.k8s.io/v1:ClusterRoleBinding:shop-reader-t1",
            "networking.k8s.io/v1:NetworkPolicy:shop-t1:web",
        ]
    );
    let namespace = &moved.spec.resources[1].attributes["metadata"];
    assert_eq!(namespace["labels"][TEST_LABEL], "t1");
    assert_eq!(namespace["annotations"], json!({}));
    let ingress = &object(&moved, "Ingress")["spec"];
    assert_eq!(ingress["rules"][0]["host"], "shop-t1.example.com");
    assert_eq!(
        ingress["tls"][0]["hosts"],
        json!(["shop-t1.example.com", "*.t1.example.com"])
    );
    let data = &object(&moved, "ConfigMap")["data"];
    assert_eq!(data["url"], "https://shop-t1.example.com/a?b=myshop.example.com");
    assert_eq!(
        data["db"],
        "db.data-t1.svc.cluster.local:5432, web.shop-t1.svc, web.shopping.svc"
    );
    assert_eq!(data["ip"], "$kusion_path.v1:Service:shop-t1:web.spec.clusterIP");
    let binding = object(&moved, "ClusterRoleBinding");
    assert_eq!(binding["subjects"][0]["namespace"], "data-t1");
    assert_eq!(binding["roleRef"]["name"], "shop-reader-t1");
    let from = &object(&moved, "NetworkPolicy")["spec"]["ingress"][0]["from"][0];
    assert_eq!(
        from["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"],
        "data-t1"
    );
    let key = owned_key(object(&moved, "Service"));
    assert_eq!(moved.originals[&key], ("shop".to_owned(), "web".to_owned()));
}

#[test]
fn what_acts_on_others_is_refused_by_name() {
    let namespaced = |kind: &str, api_version: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "namespace": "shop"}, "spec": spec});
    let wide = |kind: &str, api_version: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}});
    let binding = |subject: Value| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "x", "namespace": "shop"}, "subjects": [subject], "roleRef": {"kind": "Role", "name": "x"}})
    };
    for (object, expected) in [
        (
            wide("CustomResourceDefinition", "apiextensions.k8s.io/v1"),
            "acts on the whole cluster",
        ),
        (wide("PersistentVolume", "v1"), "acts on the whole cluster"),
        (
            wide(
                "ValidatingWebhookConfiguration",
                "admissionregistration.k8s.io/v1",
            ),
            "acts on the whole cluster",
        ),
        (
            wide("ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1"),
            "acts on the whole cluster",
        ),
        (
            wide("CSIDriver", "storage.k8s.io/v1"),
            "acts on the whole cluster",
        ),
        (
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "x"}, "globalDefault": true}),
            "a default PriorityClass acts",
        ),
        (
            wide("PriorityClass", "scheduling.k8s.io/v1"),
            "its pods may evict the pods of others",
        ),
        (
            json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "x"},
                "preemptionPolicy": "PreemptLowerPriority"}),
            "its pods may evict the pods of others",
        ),
        (
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "x",
                "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}),
            "a default StorageClass acts",
        ),
        (
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "x"}, "reclaimPolicy": "Retain"}),
            "the volumes of this class stay",
        ),
        (
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "x"},
                "spec": {"parameters": {"kind": "P", "name": "p"}}}),
            "its parameters are",
        ),
        (
            wide("Thing", "example.com/v1"),
            "unknown if its kind is namespaced",
        ),
        (
            namespaced("Service", "v1", json!({"externalIPs": ["192.0.2.1"]})),
            "`spec.externalIPs` names",
        ),
        (
            namespaced("PersistentVolumeClaim", "v1", json!({"volumeName": "v"})),
            "`spec.volumeName` names",
        ),
        (
            binding(json!({"kind": "Group", "name": "everybody"})),
            "gives rights to `everybody`",
        ),
        (
            binding(json!({"kind": "ServiceAccount", "name": "root", "namespace": "kube-system"})),
            "gives rights to `root`",
        ),
        (
            json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "x",
                "labels": {"rbac.authorization.k8s.io/aggregate-to-admin": "true"}}}),
            "added to other roles",
        ),
    ] {
        let refusals = move_spec(&spec(std::slice::from_ref(&object)), "t1").unwrap_err();
        assert!(refusals[0].why.contains(expected), "{object}: {refusals:?}");
    }
    let mut terraform = resource(json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}}));
    terraform.runtime = RuntimeKind::Terraform;
    let spec = Spec {
        resources: vec![terraform],
        ..Spec::default()
    };
    assert!(move_spec(&spec, "t1").unwrap_err()[0].why.contains("Terraform"));
}

#[test]
fn classes_move_with_what_names_them() {
    let class =
        |kind: &str, group: &str| json!({"apiVersion": group, "kind": kind, "metadata": {"name": "fast"}});
    let pod = json!({"priorityClassName": "fast", "runtimeClassName": "fast", "containers": []});
    let objects = [
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "fast"}, "preemptionPolicy": "Never"}),
        class("IngressClass", "networking.k8s.io/v1"),
        class("StorageClass", "storage.k8s.io/v1"),
        class("VolumeAttributesClass", "storage.k8s.io/v1"),
        class("RuntimeClass", "node.k8s.io/v1"),
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "shop"},
            "spec": {"template": {"spec": pod}, "volumeClaimTemplates": [{"spec": {"storageClassName": "fast", "volumeAttributesClassName": "fast"}},
                {"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "slow"}}, "spec": {"storageClassName": "slow"}}]}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "web", "namespace": "shop",
            "annotations": {"kubernetes.io/ingress.class": "fast"}}, "spec": {"ingressClassName": "fast"}}),
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "all", "namespace": "shop"}, "spec": {
            "hard": {"fast.storageclass.storage.k8s.io/requests.storage": "1Gi", "slow.storageclass.storage.k8s.io/requests.storage": "1Gi"},
            "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["fast", "other"]}]}}}),
    ];
    let moved = move_spec(&spec(&objects), "t1").unwrap();
    for kind in [
        "PriorityClass",
        "IngressClass",
        "StorageClass",
        "VolumeAttributesClass",
        "RuntimeClass",
    ] {
        assert_eq!(object(&moved, kind)["metadata"]["name"], "fast-t1", "{kind}");
    }
    let set = &object(&moved, "StatefulSet")["spec"];
    let pod = &set["template"]["spec"];
    assert_eq!(
        [&pod["priorityClassName"], &pod["runtimeClassName"]],
        ["fast-t1", "fast-t1"]
    );
    let claims = &set["volumeClaimTemplates"];
    assert_eq!(
        claims[0]["spec"],
        json!({"storageClassName": "fast-t1", "volumeAttributesClassName": "fast-t1"})
    );
    // A class that the stack does not have is the cluster's.
    assert_eq!(claims[1]["spec"]["storageClassName"], "slow");
    let ingress = object(&moved, "Ingress");
    assert_eq!(ingress["spec"]["ingressClassName"], "fast-t1");
    assert_eq!(
        ingress["metadata"]["annotations"]["kubernetes.io/ingress.class"],
        "fast-t1"
    );
    let quota = &object(&moved, "ResourceQuota")["spec"];
    let keys: BTreeSet<_> = quota["hard"]
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    let expected =
        ["fast-t1", "slow"].map(|class| format!("{class}.storageclass.storage.k8s.io/requests.storage"));
    assert_eq!(keys, expected.iter().map(String::as_str).collect());
    let scope = &quota["scopeSelector"]["matchExpressions"][0]["values"];
    assert_eq!(scope, &json!(["fast-t1", "other"]));
}

#[test]
fn given_values_replace_resources_of_terraform() {
    let database = "hashicorp:local:local_file:db";
    let mut terraform = resource(json!({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}}));
    terraform.id = database.parse().unwrap();
    terraform.runtime = RuntimeKind::Terraform;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web", "namespace": "shop"}, "data": {
        "url": format!("db://$kusion_path.{database}.endpoint[0].host/a"), "web": "$kusion_path.v1:Service:shop:web.spec.clusterIP"}});
    let service =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"}});
    let mut own = spec(&[map, service]);
    own.resources[0].depends_on = vec![terraform.id.clone(), own.resources[1].id.clone()];
    own.resources.push(terraform.clone());
    let given = |values: Value| StandIns::from([(terraform.id.clone(), values.as_object().unwrap().clone())]);
    let replaced = replace_resources(&own, &given(json!({"endpoint": [{"host": "db.test"}]}))).unwrap();
    assert_eq!(replaced.resources.len(), 2);
    assert_eq!(replaced.resources[0].depends_on, [own.resources[1].id.clone()]);
    let data = &replaced.resources[0].attributes["data"];
    assert_eq!(data["url"], "db://db.test/a");
    assert_eq!(data["web"], "$kusion_path.v1:Service:shop:web.spec.clusterIP");
    assert!(move_spec(&replaced, "t1").is_ok());
    // A value that is not given, and a resource that is not there.
    let missing = replace_resources(&own, &given(json!({"port": 1}))).unwrap_err();
    assert_eq!(missing[0].id, own.resources[0].id);
    assert!(
        missing[0]
            .why
            .contains("has nothing at `endpoint.0.host` (there are: port)"),
        "{missing:?}"
    );
    for wrong in ["hashicorp:local:local_file:other", "v1:Service:shop:web"] {
        let values = StandIns::from([(wrong.parse().unwrap(), Map::new())]);
        let unknown = replace_resources(&own, &values).unwrap_err();
        assert!(
            unknown[0].why.contains("no such Terraform resource"),
            "{unknown:?}"
        );
    }
}

#[test]
fn long_names_stay_short_and_different() {
    let long = "a".repeat(60);
    let (one, two) = (
        suffixed(&format!("{long}b"), "t1"),
        suffixed(&format!("{long}c"), "t1"),
    );
    assert!(one.len() <= 63 && two.len() <= 63 && one != two, "{one} {two}");
    assert!(one.ends_with("-t1"));
}

/// Whatever a stack is called: no object of a test is one of the stack, or one of another test.
#[test]
fn tests_meet_neither_the_stack_nor_each_other() {
    let names = ["default", "shop", "shop-t1", "t1", "shop-t2", "a-t1-t2", "web"];
    let seed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos() as u64;
    let mut state = seed | 1;
    let mut next = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n as u64) as usize
    };
    for _ in 0..500 {
        let objects: Vec<Value> = (0..1 + next(6))
            .map(|_| match next(3) {
                0 => json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names[next(7)]}}),
                1 => json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
                    "metadata": {"name": names[next(7)]}, "rules": []}),
                _ => json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": names[next(7)], "namespace": names[next(7)]}}),
            })
            .collect();
        let mut unique: Vec<Value> = Vec::new();
        for object in objects {
            if !unique.contains(&object) {
                unique.push(object);
            }
        }
        let own = spec(&unique);
        let keys = |spec: &Spec| -> BTreeSet<ObjectKey> {
            spec.resources
                .iter()
                .map(|one| owned_key(&one.attributes))
                .collect()
        };
        let runs: Vec<_> = ["x7k2m9q4", "b3n8v1c6"]
            .map(|run| keys(&move_spec(&own, run).unwrap().spec))
            .into();
        assert!(keys(&own).is_disjoint(&runs[0]), "seed {seed}: {unique:?}");
        assert!(runs[0].is_disjoint(&runs[1]), "seed {seed}: {unique:?}");
        assert!(runs[0].len() >= unique.len(), "seed {seed}: {unique:?}");
    }
}
