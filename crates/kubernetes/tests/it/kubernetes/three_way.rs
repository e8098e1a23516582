//! The actions for all combinations of recorded, desired and live object, on a real API server.

use konverge_base::model::{
    apply_result::StackResult,
    plan::{Action, ChangeOrigin, Validation},
};
use serde_json::{Value, json};

use crate::support::{
    cluster::{Cluster, User},
    objects::Objects,
    stack::{TestStack, action, id, planned},
};

/// A ConfigMap of this data.
pub fn config_map(namespace: &str, name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data})
}

/// A Deployment of one container.
pub fn deployment(namespace: &str, name: &str, image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "web", "image": image, "ports": [{"containerPort": 80}], "env": [{"name": "A", "value": "1"}],
                "resources": {"requests": {"cpu": "1000m"}}}]}}}})
}

#[tokio::test]
async fn every_row_of_the_three_way_table() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("table").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("table", cluster.kubeconfig());
    let map = |name: &str, value: &str| config_map(&ns, name, json!({"k": value}));
    stack
        .apply(&[
            map("same", "1"),
            map("changed", "1"),
            map("vanished", "1"),
            map("dropped", "1"),
            map("forgotten", "1"),
        ])
        .await;
    objects.delete(&map("vanished", "")).await;
    objects.delete(&map("forgotten", "")).await;
    objects.create(&map("found", "0")).await;
    objects.create(&map("bystander", "0")).await;

    let wanted = [
        map("same", "1"),
        map("changed", "2"),
        map("vanished", "1"),
        map("found", "1"),
        map("new", "1"),
    ];
    let plan = stack.plan_well(&wanted).await;
    let expected = [
        ("same", Action::Unchanged),
        ("changed", Action::Update),
        ("vanished", Action::Create),
        ("dropped", Action::Delete),
        ("forgotten", Action::Forget),
        ("found", Action::Adopt),
        ("new", Action::Create),
        ("bystander", Action::Unchanged),
    ];
    for (name, wanted) in expected {
        assert_eq!(action(&plan, &map(name, "")), wanted, "{name}");
    }
    assert_eq!(
        plan.public.summary.unchanged, 1,
        "what was never ours is not even counted"
    );

    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    for (name, value) in [
        ("same", "1"),
        ("changed", "2"),
        ("vanished", "1"),
        ("found", "1"),
        ("new", "1"),
        ("bystander", "0"),
    ] {
        assert_eq!(
            objects.get(&map(name, "")).await.unwrap()["data"]["k"],
            value,
            "{name}"
        );
    }
    assert!(objects.get(&map("dropped", "")).await.is_none());
    let mut recorded: Vec<_> = stack
        .state
        .resources
        .iter()
        .map(|r| r.id.as_str().to_owned())
        .collect();
    recorded.sort();
    let mut ids: Vec<_> = wanted.iter().map(id).collect();
    ids.sort();
    assert_eq!(recorded, ids);
}

#[tokio::test]
async fn a_second_preview_is_the_same_and_a_second_apply_writes_nothing() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("twice").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("twice", cluster.kubeconfig());
    let wanted = [
        config_map(&ns, "c", json!({"k": "v"})),
        deployment(&ns, "web", "nginx:1"),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": ns},
            "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": ns}, "stringData": {"p": "very-secret-word"}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "n", "namespace": ns},
            "spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 80}]}]}}),
    ];
    let bytes = |plan: &konverge_engine::EnginePlan| serde_json::to_string(&plan.public).unwrap();
    let first = stack.plan_well(&wanted).await;
    assert_eq!(bytes(&first), bytes(&stack.plan_well(&wanted).await));
    assert!(
        first
            .public
            .resources
            .iter()
            .all(|r| r.validated == Validation::Server),
        "{:?}",
        first.public
    );
    stack.carry_out(first).await;

    let mut versions = Vec::new();
    for object in &wanted {
        versions.push(objects.get(object).await.unwrap()["metadata"]["resourceVersion"].clone());
    }
    let kubernetes = stack.kubernetes().await;
    let runtimes = konverge_engine::RuntimeRegistry::new().with(kubernetes.clone());
    let again = stack
        .plan_on(&runtimes, crate::support::stack::spec(&wanted))
        .await
        .unwrap();
    assert_eq!(again.public.summary.unchanged, wanted.len(), "{:?}", again.public);
    assert!(
        kubernetes.requests() <= 2 + 2 + 5,
        "discovery, environment, one read per kind; an object that is found proves which cluster it is: {}",
        kubernetes.requests()
    );
    let outcome = stack.carry_out(again).await;
    assert_eq!(outcome.result, StackResult::Unchanged);
    for (object, version) in wanted.iter().zip(versions) {
        assert_eq!(
            objects.get(object).await.unwrap()["metadata"]["resourceVersion"],
            version,
            "{}",
            id(object)
        );
    }
}

#[tokio::test]
async fn a_preview_with_a_read_only_role_writes_nothing() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("readonly").await;
    let mut stack = TestStack::new("readonly", cluster.kubeconfig());
    stack.apply(&[config_map(&ns, "c", json!({"k": "1"}))]).await;
    let before = cluster.audit().len();
    let plan = stack
        .plan(&[
            config_map(&ns, "c", json!({"k": "2"})),
            config_map(&ns, "new", json!({})),
        ])
        .await;
    assert_eq!(plan.public.summary.changed(), 2);
    let written: Vec<_> = cluster
        .audit()
        .split_off(before)
        .into_iter()
        .filter(|e| e.is_in(&ns) && e.writes())
        .collect();
    assert!(written.is_empty(), "{written:?}");

    stack.act_as(cluster.kubeconfig_of(User::Reader));
    let unchanged = stack.plan_well(&[config_map(&ns, "c", json!({"k": "1"}))]).await;
    assert_eq!(
        unchanged.public.summary.unchanged, 1,
        "what is unchanged needs no right to write"
    );
    let denied = stack.plan(&[config_map(&ns, "c", json!({"k": "2"}))]).await;
    let (_, failure) = &denied.failures[0];
    assert!(
        failure.message.contains("cannot patch") && !failure.hints.is_empty(),
        "{failure:?}"
    );
}

#[tokio::test]
async fn secrets_are_never_in_clear() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("secrets").await;
    let mut stack = TestStack::new("secrets", cluster.kubeconfig());
    let secret = |value: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": ns}, "stringData": {"password": value, "same": "constant-value"}});
    let hidden = |text: &str| {
        for clear in [
            "first-password",
            "Zmlyc3QtcGFzc3dvcmQ",
            "second-password",
            "c2Vjb25kLXBhc3N3b3Jk",
            "constant-value",
        ] {
            assert!(!text.contains(clear), "{clear} in {text}");
        }
    };
    let first = stack.plan_well(&[secret("first-password")]).await;
    hidden(&serde_json::to_string(&first.public).unwrap());
    stack.carry_out(first).await;
    hidden(&serde_json::to_string(&stack.state).unwrap());

    let change = stack.plan_well(&[secret("second-password")]).await;
    let text = serde_json::to_string(&change.public).unwrap();
    hidden(&text);
    let paths: Vec<_> = planned(&change, &secret(""))
        .unwrap()
        .changes
        .iter()
        .map(|c| c.path.as_str())
        .collect();
    assert_eq!(paths, ["/data/password"], "{text}");
    stack.carry_out(change).await;
    hidden(&serde_json::to_string(&stack.state).unwrap());
    let live = Objects::of(cluster).await.get(&secret("")).await.unwrap();
    assert_eq!(live["data"]["password"], "c2Vjb25kLXBhc3N3b3Jk");

    // Refused by the server with the value in the message: still hidden.
    let bad = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": ns}, "type": "kubernetes.io/tls", "stringData": {"password": "second-password"}});
    let refused = stack.plan(&[bad]).await;
    hidden(&format!("{:?} {:?}", refused.failures, refused.public));
}

#[tokio::test]
async fn a_removed_key_of_string_data_is_removed_from_the_object() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("stringdata").await;
    let mut stack = TestStack::new("stringdata", cluster.kubeconfig());
    let secret = |data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": ns}, "stringData": data});
    stack
        .apply(&[secret(json!({"a": "one-value", "b": "two-value"}))])
        .await;
    let outcome = stack.apply(&[secret(json!({"a": "one-value"}))]).await;
    assert_eq!(outcome.result, StackResult::Applied);
    let live = Objects::of(cluster).await.get(&secret(json!({}))).await.unwrap();
    assert!(live["data"].get("b").is_none(), "{live}");

    // It wins over `data`, and an empty value is one.
    let mut both = secret(json!({"a": "one-value", "empty": ""}));
    both["data"] = json!({"a": "b3RoZXI=", "c": ""});
    stack.apply(std::slice::from_ref(&both)).await;
    let live = Objects::of(cluster).await.get(&both).await.unwrap();
    assert_eq!(live["data"], json!({"a": "b25lLXZhbHVl", "c": "", "empty": ""}));
    assert_eq!(stack.plan_well(&[both]).await.public.summary.unchanged, 1);
}

#[tokio::test]
async fn drift_is_blamed_and_put_back() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("drift").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("drift", cluster.kubeconfig());
    let mut web = deployment(&ns, "web", "nginx:1");
    stack.apply(std::slice::from_ref(&web)).await;
    objects
        .merge(
            &web,
            "kubectl-edit",
            &json!({"spec": {"replicas": 5}, "metadata": {"labels": {"hand": "made"}}}),
        )
        .await;
    web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("nginx:2");
    let plan = stack.plan_well(std::slice::from_ref(&web)).await;
    let change = planned(&plan, &web).unwrap();
    let origins: Vec<_> = change
        .changes
        .iter()
        .map(|c| (c.path.as_str(), c.origin.clone()))
        .collect();
    assert_eq!(
        origins,
        [
            ("/spec/replicas", ChangeOrigin::Manager("kubectl-edit".to_owned())),
            (
                "/spec/template/spec/containers/name=web/image",
                ChangeOrigin::Change
            ),
        ]
    );
    let [impact, blame] = change.notes.as_slice() else {
        panic!("{:?}", change.notes)
    };
    assert_eq!(impact, "restarts 2 pods by rolling update; ends 3 pods");
    assert!(
        blame.starts_with("`kubectl-edit` wrote /spec/replicas at 20"),
        "{blame}"
    );
    stack.carry_out(plan).await;
    let live = objects.get(&web).await.unwrap();
    assert_eq!(
        (&live["spec"]["replicas"], &live["metadata"]["labels"]["hand"]),
        (&json!(2), &json!("made"))
    );
}

#[tokio::test]
async fn a_field_that_was_never_ours_is_not_taken_unless_told() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("conflict").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("conflict", cluster.kubeconfig());
    let mine = config_map(&ns, "c", json!({"mine": "1"}));
    let wanted = config_map(&ns, "c", json!({"mine": "1", "theirs": "mine now"}));
    stack.apply(std::slice::from_ref(&mine)).await;
    objects
        .merge(&mine, "somebody", &json!({"data": {"theirs": "theirs"}}))
        .await;
    let stopped = stack.plan(std::slice::from_ref(&wanted)).await;
    let failure = &stopped.failures[0].1;
    assert!(
        failure.message.contains("`/data/theirs` (owned by `somebody`)"),
        "{failure:?}"
    );

    stack.options.conflicts = konverge_kubernetes::Conflicts::Leave;
    let left = stack.plan_well(std::slice::from_ref(&wanted)).await;
    assert_eq!(action(&left, &wanted), Action::Unchanged, "{:?}", left.public);
    stack.options.conflicts = konverge_kubernetes::Conflicts::Write;
    stack.apply(std::slice::from_ref(&wanted)).await;
    assert_eq!(objects.get(&wanted).await.unwrap()["data"]["theirs"], "mine now");
}

#[tokio::test]
async fn objects_of_another_stack_stop_the_plan() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("owner").await;
    let object = config_map(&ns, "c", json!({}));
    let mut one = TestStack::new("owner-one", cluster.kubeconfig());
    one.apply(std::slice::from_ref(&object)).await;
    let other = TestStack::new("owner-two", cluster.kubeconfig());
    let refused = other.plan(std::slice::from_ref(&object)).await;
    assert!(
        refused.failures[0]
            .1
            .message
            .contains("belongs to stack `test/owner-one`"),
        "{:?}",
        refused.failures
    );
}

#[tokio::test]
async fn prune_spares_what_is_not_ours_any_more() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("prune").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("prune", cluster.kubeconfig());
    let mut kept = config_map(&ns, "kept", json!({}));
    kept["metadata"]["annotations"] = json!({"konverge/keep": "true"});
    let remade = config_map(&ns, "remade", json!({}));
    let gone = config_map(&ns, "gone", json!({}));
    stack.apply(&[kept.clone(), remade.clone(), gone.clone()]).await;
    objects.delete(&remade).await;
    objects.create(&remade).await;
    let plan = stack.plan_well(&[]).await;
    let actions = [action(&plan, &kept), action(&plan, &remade), action(&plan, &gone)];
    assert_eq!(actions, [Action::Forget, Action::Forget, Action::Delete]);
    stack.carry_out(plan).await;
    assert!(objects.get(&kept).await.is_some() && objects.get(&remade).await.is_some());
    assert!(objects.get(&gone).await.is_none() && stack.state.resources.is_empty());
}

#[tokio::test]
async fn an_object_made_anew_since_the_plan_is_not_touched() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("uid").await;
    let objects = Objects::of(cluster).await;
    for (name, wanted) in [
        ("uid-update", vec![config_map(&ns, "c", json!({"k": "2"}))]),
        ("uid-delete", vec![]),
    ] {
        let mut stack = TestStack::new(name, cluster.kubeconfig());
        let object = config_map(&ns, "c", json!({"k": "1"}));
        stack.apply(std::slice::from_ref(&object)).await;
        let plan = stack.plan_well(&wanted).await;
        objects.delete(&object).await;
        objects.create(&config_map(&ns, "c", json!({"other": "x"}))).await;
        let outcome = stack.carry_out(plan).await;
        assert_eq!(outcome.result, StackResult::Failed);
        let message = outcome.error.unwrap().message;
        assert!(message.contains("no longer the object"), "{name}: {message}");
        assert_eq!(
            objects.get(&object).await.unwrap()["data"],
            json!({"other": "x"}),
            "{name}"
        );
        objects.delete(&object).await;
    }
}

#[tokio::test]
async fn a_namespace_and_a_kind_that_are_only_about_to_be_made() {
    let cluster = Cluster::shared();
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("bootstrap", cluster.kubeconfig());
    let ns = "bootstrap-namespace";
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.bootstrap.example.com"},
        "spec": {"group": "bootstrap.example.com", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things", "singular": "thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                "spec": {"type": "object", "properties": {"size": {"type": "integer"}, "color": {"type": "string", "default": "blue"}}}}}}}]}});
    let thing = |size: Value| json!({"apiVersion": "bootstrap.example.com/v1", "kind": "Thing", "metadata": {"name": "t", "namespace": ns}, "spec": {"size": size}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ns}});
    let map = config_map(ns, "c", json!({"k": "v"}));
    let wrong = stack
        .plan(&[thing(json!("big")), definition.clone(), namespace.clone()])
        .await;
    assert!(
        wrong.failures[0]
            .1
            .message
            .contains("`/spec/size` must be of type integer"),
        "{:?}",
        wrong.failures
    );

    let wanted = [
        thing(json!(3)),
        map.clone(),
        definition.clone(),
        namespace.clone(),
    ];
    let plan = stack.plan_well(&wanted).await;
    let validated = |object: &Value| planned(&plan, object).unwrap().validated;
    assert_eq!(validated(&thing(json!(3))), Validation::Schema);
    assert_eq!(validated(&map), Validation::Server);
    assert!(
        planned(&plan, &map).unwrap().notes[0].contains("this plan creates it"),
        "{:?}",
        plan.public
    );
    stack.options.wait = true;
    let plan = stack.plan_well(&wanted).await;
    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    assert_eq!(
        objects.get(&thing(json!(3))).await.unwrap()["spec"]["color"],
        "blue"
    );
    assert_eq!(stack.plan_well(&wanted).await.public.summary.unchanged, 4);
    let plan = stack.plan_well(&[]).await;
    assert!(planned(&plan, &definition).unwrap().data_loss && planned(&plan, &namespace).unwrap().data_loss);
}

#[tokio::test]
async fn adoption_migrates_what_kubectl_applied() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("migrate").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("migrate", cluster.kubeconfig());
    let mut old = config_map(&ns, "c", json!({"a": "1", "b": "1"}));
    old["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/last-applied-configuration": "{\"data\":{\"a\":\"1\",\"b\":\"1\"}}"});
    objects.create_as(&old, "kubectl-client-side-apply").await;
    let plan = stack
        .plan_well(&[config_map(&ns, "c", json!({"a": "1", "b": "1"}))])
        .await;
    assert_eq!(action(&plan, &old), Action::Adopt);
    stack.carry_out(plan).await;
    stack.apply(&[config_map(&ns, "c", json!({"a": "1"}))]).await;
    let live = objects.get(&old).await.unwrap();
    assert_eq!(
        live["data"],
        json!({"a": "1"}),
        "a field that left the Spec leaves the object: {live}"
    );
}

#[tokio::test]
async fn adoption_takes_nothing_away_that_the_plan_did_not_show() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("adopt-less").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("adopt-less", cluster.kubeconfig());
    let mut map = config_map(&ns, "c", json!({"a": "1", "precious": "1"}));
    let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": ns},
        "spec": {"selector": {"app": "a"}, "ports": [{"name": "web", "port": 80}, {"name": "more", "port": 81}]}});
    for object in [&mut map, &mut service] {
        object["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
        objects.create_as(object, "kubectl-client-side-apply").await;
    }
    let wanted = |data: Value, ports: Value| {
        let mut service = service.clone();
        service["metadata"]["annotations"] = json!({});
        service["spec"]["ports"] = ports;
        [config_map(&ns, "c", data), service]
    };
    let web = json!({"name": "web", "port": 80});
    let plan = stack.plan_well(&wanted(json!({"a": "1"}), json!([web]))).await;
    for object in [&map, &service] {
        let shown = planned(&plan, object).unwrap();
        let paths: Vec<_> = shown.changes.iter().map(|change| change.path.as_str()).collect();
        assert_eq!(
            (shown.action, paths),
            (Action::Adopt, vec!["/metadata/annotations/konverge~1stack"])
        );
    }
    stack.carry_out(plan).await;
    let ports = |service: &Value| -> Vec<_> {
        let ports = service["spec"]["ports"].as_array().unwrap();
        ports.iter().map(|port| port["port"].clone()).collect()
    };
    assert_eq!(objects.get(&map).await.unwrap()["data"], map["data"]);
    assert_eq!(ports(&objects.get(&service).await.unwrap()), [80, 81]);

    // What was in the Spec is ours alone: it leaves with the Spec, whatever `kubectl apply` once owned.
    let new = json!({"name": "new", "port": 82});
    stack.apply(&wanted(json!({"b": "1"}), json!([new]))).await;
    assert_eq!(
        objects.get(&map).await.unwrap()["data"],
        json!({"precious": "1", "b": "1"})
    );
    let mut left = ports(&objects.get(&service).await.unwrap());
    left.sort_by_key(ToString::to_string);
    assert_eq!(left, [81, 82]);
}
