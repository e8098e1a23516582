//! Regression tests: one per bug that other server-side apply tools have had, on a real API server. See
//! `docs/design/002-server-side-apply.md`.

use std::time::Duration;

use konverge_base::model::{
    FieldPath,
    apply_result::StackResult,
    plan::{Action, ChangeOrigin},
};
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    objects::Objects,
    stack::{TestStack, action, planned},
};

fn deployment(ns: &str, name: &str, container: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": ns},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}}})
}

fn paths(plan: &konverge_engine::EnginePlan, object: &Value) -> Vec<FieldPath> {
    let changes = planned(plan, object)
        .map(|p| p.changes.as_slice())
        .unwrap_or_default();
    changes.iter().map(|change| change.path.clone()).collect()
}

/// The number of replicas that an autoscaler set stays its own, and giving it up shows what happens.
#[tokio::test]
async fn replicas_are_left_to_the_autoscaler() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-hpa").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("trap-hpa", cluster.kubeconfig());
    let mut web = deployment(&ns, "web", json!({"name": "web", "image": "a:1"}));
    web["spec"]["replicas"] = json!(2);
    stack.apply(std::slice::from_ref(&web)).await;
    objects.scale(&web, "kube-controller-manager", 7).await;
    let plan = stack.plan_well(std::slice::from_ref(&web)).await;
    assert_eq!(action(&plan, &web), Action::Unchanged, "{:?}", plan.public);

    web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("a:2");
    let plan = stack.plan_well(std::slice::from_ref(&web)).await;
    assert_eq!(
        paths(&plan, &web),
        ["/spec/template/spec/containers/name=web/image"]
    );
    assert!(planned(&plan, &web).unwrap().notes[0].contains("left to the autoscaler"));
    stack.carry_out(plan).await;
    assert_eq!(objects.get(&web).await.unwrap()["spec"]["replicas"], 7);
}

/// A field that leaves the Spec while only we own it falls back to its default, and is shown.
#[tokio::test]
async fn a_field_that_leaves_the_spec_shows_its_default() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-default").await;
    let mut stack = TestStack::new("trap-default", cluster.kubeconfig());
    let mut web = deployment(&ns, "web", json!({"name": "web", "image": "a:1"}));
    web["spec"]["replicas"] = json!(7);
    stack.apply(std::slice::from_ref(&web)).await;
    web["spec"].as_object_mut().unwrap().remove("replicas");
    let plan = stack.plan_well(std::slice::from_ref(&web)).await;
    let change = &planned(&plan, &web).unwrap().changes[0];
    assert_eq!(
        (change.path.as_str(), &change.from, &change.to),
        ("/spec/replicas", &Some(json!(7)), &Some(json!(1)))
    );
    assert_eq!(change.origin, ChangeOrigin::Change);
}

/// A port edited under the same name is another list item, not a duplicate.
#[tokio::test]
async fn a_port_number_changes_under_its_name() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-port").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("trap-port", cluster.kubeconfig());
    let service = |port: u16| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": ns}, "spec": {"selector": {"a": "b"}, "ports": [{"name": "http", "port": port}]}});
    stack.apply(&[service(80)]).await;
    stack.apply(&[service(81)]).await;
    let ports = objects.get(&service(81)).await.unwrap()["spec"]["ports"].clone();
    assert_eq!(
        (ports.as_array().unwrap().len(), &ports[0]["port"]),
        (1, &json!(81))
    );
    assert_eq!(
        action(&stack.plan_well(&[service(81)]).await, &service(81)),
        Action::Unchanged
    );
}

/// A name twice in `env` is refused or applied as the server decides, and what was applied stays unchanged.
#[tokio::test]
async fn duplicate_environment_names_do_not_confuse_the_plan() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-env").await;
    let mut stack = TestStack::new("trap-env", cluster.kubeconfig());
    let web = deployment(
        &ns,
        "web",
        json!({"name": "web", "image": "a:1", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}),
    );
    let plan = stack.plan(std::slice::from_ref(&web)).await;
    if let Some((_, failure)) = plan.failures.first() {
        assert!(failure.message.contains("env"), "{failure:?}");
        return;
    }
    stack.carry_out(plan).await;
    assert_eq!(
        action(&stack.plan_well(std::slice::from_ref(&web)).await, &web),
        Action::Unchanged
    );
}

/// Quantities and int-or-string compare as the server reads them.
#[tokio::test]
async fn quantities_compare_by_value() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-quantity").await;
    let mut stack = TestStack::new("trap-quantity", cluster.kubeconfig());
    let web = |cpu: Value, port: Value| {
        deployment(
            &ns,
            "web",
            json!({"name": "web", "image": "a:1", "resources": {"requests": {"cpu": cpu, "memory": "1024Mi"}},
            "readinessProbe": {"httpGet": {"port": port}}, "ports": [{"containerPort": 80, "name": "http"}]}),
        )
    };
    stack.apply(&[web(json!("1000m"), json!(80))]).await;
    assert_eq!(
        action(
            &stack.plan_well(&[web(json!("1000m"), json!(80))]).await,
            &web(json!(""), json!(0))
        ),
        Action::Unchanged
    );
    assert_eq!(
        action(
            &stack.plan_well(&[web(json!("1"), json!(80))]).await,
            &web(json!(""), json!(0))
        ),
        Action::Unchanged
    );
    assert_eq!(
        action(
            &stack.plan_well(&[web(json!("1"), json!("http"))]).await,
            &web(json!(""), json!(0))
        ),
        Action::Update
    );
}

/// Nulls and empty values.
#[tokio::test]
async fn nulls_and_empty_values_are_no_change() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-null").await;
    let mut stack = TestStack::new("trap-null", cluster.kubeconfig());
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r", "namespace": ns, "creationTimestamp": null, "labels": null, "annotations": {}}, "rules": []});
    let mut web = deployment(
        &ns,
        "web",
        json!({"name": "web", "image": "a:1", "resources": {}, "args": [], "env": null}),
    );
    web["spec"]["template"]["metadata"]["creationTimestamp"] = Value::Null;
    web["status"] = json!({});
    let wanted = [role, web];
    stack.apply(&wanted).await;
    assert_eq!(stack.plan_well(&wanted).await.public.summary.unchanged, 2);
}

/// Trap 15: `status` in a manifest is not a change.
#[tokio::test]
async fn status_in_a_manifest_is_ignored() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-status").await;
    let mut stack = TestStack::new("trap-status", cluster.kubeconfig());
    let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": ns}, "spec": {"ports": [{"port": 80}]}});
    stack.apply(std::slice::from_ref(&service)).await;
    service["status"] = json!({"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}});
    assert_eq!(
        action(&stack.plan_well(std::slice::from_ref(&service)).await, &service),
        Action::Unchanged
    );
}

/// A Job's template cannot be changed in place.
#[tokio::test]
async fn a_changed_job_is_replaced() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-job").await;
    let mut stack = TestStack::new("trap-job", cluster.kubeconfig());
    let job = |image: &str| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": ns},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": image}]}}}})
    };
    stack.apply(&[job("a:1")]).await;
    assert_eq!(
        action(&stack.plan_well(&[job("a:1")]).await, &job("")),
        Action::Unchanged
    );
    let plan = stack.plan_well(&[job("a:2")]).await;
    let change = planned(&plan, &job("")).unwrap();
    assert_eq!(change.action, Action::Replace);
    assert_eq!(change.replace, ["/spec/template"]);
    assert_eq!(stack.carry_out(plan).await.result, StackResult::Applied);
}

/// An empty `clusterIP` is what the server chose, not a change.
#[tokio::test]
async fn an_empty_cluster_ip_is_no_change() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-ip").await;
    let mut stack = TestStack::new("trap-ip", cluster.kubeconfig());
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": ns}, "spec": {"clusterIP": "", "ports": [{"port": 80}]}});
    stack.apply(std::slice::from_ref(&service)).await;
    let plan = stack.plan(std::slice::from_ref(&service)).await;
    assert!(plan.failures.is_empty(), "{:?}", plan.failures);
    assert_eq!(action(&plan, &service), Action::Unchanged, "{:?}", plan.public);
}

/// Storage of a StatefulSet that does not just grow can only be changed by a replacement; its data is at
/// stake.
#[tokio::test]
async fn storage_of_a_stateful_set_is_a_replacement_that_says_so() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-sts").await;
    let mut stack = TestStack::new("trap-sts", cluster.kubeconfig());
    let set = |size: &str| {
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": ns}, "spec": {
        "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "db", "image": "db:1"}]}},
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}}]}})
    };
    stack.apply(&[set("1Gi")]).await;
    assert_eq!(
        action(&stack.plan_well(&[set("1Gi")]).await, &set("")),
        Action::Unchanged,
        "defaults inside an atomic list"
    );
    let plan = stack.plan_well(&[set("512Mi")]).await;
    let change = planned(&plan, &set("")).unwrap();
    assert_eq!(
        (change.action, change.data_loss),
        (Action::Replace, true),
        "{change:?}"
    );
    assert!(
        change
            .notes
            .iter()
            .any(|note| note.contains("volume claims remain")),
        "{change:?}"
    );
}

/// What holds a deletion is named, and nothing is forgotten.
#[tokio::test]
async fn a_deletion_that_hangs_names_its_finalizers() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-finalizer").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("trap-finalizer", cluster.kubeconfig());
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": ns}});
    stack.apply(std::slice::from_ref(&map)).await;
    objects
        .merge(
            &map,
            "somebody",
            &json!({"metadata": {"finalizers": ["example.com/held"]}}),
        )
        .await;
    stack.options.ready_timeout = Duration::from_millis(300);
    let plan = stack.plan_well(&[]).await;
    let outcome = stack.carry_out(plan).await;
    assert!(outcome.error.unwrap().message.contains("example.com/held"));
    assert_eq!(stack.state.resources.len(), 1, "it is still remembered");
    let again = stack.plan_well(std::slice::from_ref(&map)).await;
    assert!(
        planned(&again, &map).unwrap().notes[0].contains("held by: example.com/held"),
        "{:?}",
        again.public
    );
    objects
        .merge(&map, "somebody", &json!({"metadata": {"finalizers": null}}))
        .await;
    let plan = stack.plan_well(&[]).await;
    assert_eq!(stack.carry_out(plan).await.error, None);
    assert!(stack.state.resources.is_empty());
}

/// A version that the server no longer serves, in the state.
#[tokio::test]
async fn a_recorded_version_that_is_gone_is_found_in_todays() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-version").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("trap-version", cluster.kubeconfig());
    let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h", "namespace": ns},
        "spec": {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}}});
    stack.apply(std::slice::from_ref(&scaler)).await;
    let mut old = stack.state.resources[0].clone();
    old.id = old.id.as_str().replace("v2", "v2beta2").parse().unwrap();
    std::sync::Arc::make_mut(&mut old.attributes)
        .insert("apiVersion".to_owned(), json!("autoscaling/v2beta2"));
    // An imported record names no cluster.
    let mut imported = old.clone();
    imported.cluster = None;
    for recorded in [imported, old.clone()] {
        stack.state.resources = vec![recorded];
        let plan = stack.plan_well(std::slice::from_ref(&scaler)).await;
        assert_eq!(plan.public.summary.delete, 0, "{:?}", plan.public);
    }
    stack.state.resources = vec![old];
    let plan = stack.plan_well(&[]).await;
    assert_eq!(plan.public.summary.delete, 1, "{:?}", plan.public);
    stack.carry_out(plan).await;
    assert!(objects.get(&scaler).await.is_none());
}

/// 422 triage: what a policy of the cluster denies says so, with the policy's own words.
#[tokio::test]
async fn what_a_policy_denies_is_said_in_its_words() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-policy").await;
    let objects = Objects::of(cluster).await;
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "trap-policy"}, "spec": {
        "failurePolicy": "Fail", "matchConstraints": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": ns}}, "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}]},
        "validations": [{"expression": "!has(object.data) || !('forbidden' in object.data)", "message": "no forbidden keys here"}]}});
    let mut binding = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "trap-policy"}, "spec": {"policyName": "trap-policy", "validationActions": ["Deny"]}});
    binding["spec"]["matchResources"] = json!({});
    objects
        .create_at(
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
            &policy,
        )
        .await;
    objects
        .create_at(
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
            &binding,
        )
        .await;
    let stack = TestStack::new("trap-policy", cluster.kubeconfig());
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": ns}, "data": {"forbidden": "1"}});
    let mut seen = None;
    for _ in 0..100 {
        let plan = stack.plan(std::slice::from_ref(&map)).await;
        seen = plan.failures.into_iter().next();
        if seen.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (_, failure) = seen.expect("the policy is in force within ten seconds");
    assert!(failure.message.contains("no forbidden keys here"), "{failure:?}");
    assert_eq!(failure.kind, konverge_base::error::ErrorKind::Policy);
}

/// `stacks[].ignore`: set when the object is made, then left to those who change it, and never a change or a conflict.
#[tokio::test]
async fn paths_that_are_not_compared_are_left_alone() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-ignore").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("trap-ignore", cluster.kubeconfig());
    stack.ignore = vec![
        "/spec/replicas".into(),
        "/spec/template/spec/containers/name=web/image".into(),
    ];
    let mut web = deployment(
        &ns,
        "web",
        json!({"name": "web", "image": "a:1", "env": [{"name": "A", "value": "1"}]}),
    );
    web["spec"]["replicas"] = json!(2);
    stack.apply(std::slice::from_ref(&web)).await;
    assert_eq!(objects.get(&web).await.unwrap()["spec"]["replicas"], 2);
    let theirs = json!({"spec": {"replicas": 5, "template": {"spec": {"containers": [{"name": "web", "image": "b:9", "env": [{"name": "A", "value": "1"}]}]}}}});
    objects.merge(&web, "somebody", &theirs).await;
    let plan = stack.plan_well(std::slice::from_ref(&web)).await;
    assert_eq!(action(&plan, &web), Action::Unchanged, "{:?}", plan.public);

    web["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"] = json!("2");
    let plan = stack.plan_well(std::slice::from_ref(&web)).await;
    assert_eq!(
        paths(&plan, &web),
        ["/spec/template/spec/containers/name=web/env/name=A/value"]
    );
    stack.carry_out(plan).await;
    let live = objects.get(&web).await.unwrap();
    let container = &live["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        (&live["spec"]["replicas"], &container["image"]),
        (&json!(5), &json!("b:9"))
    );
    assert_eq!(container["env"][0]["value"], "2");
    assert_eq!(
        stack
            .plan_well(std::slice::from_ref(&web))
            .await
            .public
            .summary
            .unchanged,
        1
    );
}

/// A policy that says nothing about readiness is said to say nothing.
#[tokio::test]
async fn a_health_policy_without_assertions_is_said() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("trap-policy-note").await;
    let stack = TestStack::new("trap-policy-note", cluster.kubeconfig());
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": ns}});
    let mut spec = crate::support::stack::spec(std::slice::from_ref(&map));
    let policy = json!({"kind": "ConfigMap"});
    spec.resources[0]
        .extensions
        .insert("healthPolicy".to_owned(), policy);
    let plan = stack.try_plan(&spec).await.unwrap();
    let notes = &planned(&plan, &map).unwrap().notes;
    assert!(
        notes.iter().any(|note| note.contains("has no assertions in KCL")),
        "{notes:?}"
    );
}
