//! What stands in the way of a Spec and is not in it: an item whose key somebody changed, the old branch of a one-of,
//! which the server or an earlier manager has filled in.

use konverge_base::model::plan::{Action, ChangeOrigin};
use konverge_kubernetes::Conflicts;
use serde_json::{Value, json};

use super::three_way::deployment;
use crate::support::{
    cluster::Cluster,
    objects::Objects,
    random_kills::Dice,
    stack::{TestStack, action, planned},
};

fn service(ns: &str, name: &str, ports: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": ns}, "spec": {"selector": {"app": "x"}, "ports": ports}})
}

/// A Deployment with an edited pod.
fn with_pod(ns: &str, name: &str, edit: impl FnOnce(&mut Value)) -> Value {
    let mut object = deployment(ns, name, "web:1");
    edit(&mut object["spec"]["template"]["spec"]);
    object
}

/// Only one manager has a part of an object: `konverge`, which applies it.
fn assert_is_ours_alone(live: &Value, part: &str) {
    let entries = live["metadata"]["managedFields"].as_array().unwrap();
    let updates = entries.iter().filter(|entry| entry["operation"] == "Update");
    for entry in updates.filter(|entry| entry["subresource"].as_str().unwrap_or_default().is_empty()) {
        let text = entry["fieldsV1"].to_string();
        assert!(
            !text.contains(part) && entry["manager"] != "konverge",
            "{part}: {entry}"
        );
    }
}

/// Plans, applies and plans again: then nothing is left to do.
async fn settles(stack: &mut TestStack, wanted: &Value, title: &str) {
    let plan = stack.plan(std::slice::from_ref(wanted)).await;
    assert!(plan.failures.is_empty(), "{title}: {:?}", plan.failures);
    let outcome = stack.carry_out(plan).await;
    assert!(outcome.error.is_none(), "{title}: {outcome:?}");
    let again = stack.plan_well(std::slice::from_ref(wanted)).await;
    assert_eq!(
        action(&again, wanted),
        Action::Unchanged,
        "{title}: {:?}",
        again.public.resources
    );
}

#[tokio::test]
async fn the_key_of_an_item_that_somebody_changed_is_drift_and_is_restored() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("rekeyed").await, Objects::of(cluster).await);
    let mut stack = TestStack::new("rekeyed", cluster.kubeconfig());
    let web = service(
        &ns,
        "web",
        json!([{"name": "web", "port": 80}, {"name": "tls", "port": 443}]),
    );
    stack.apply(std::slice::from_ref(&web)).await;
    let theirs = json!({"spec": {"ports": [{"name": "web", "port": 8181, "protocol": "TCP", "targetPort": 80},
        {"name": "tls", "port": 443, "protocol": "TCP", "targetPort": 443}]}});
    objects.merge(&web, "kubectl-patch", &theirs).await;

    let plan = stack.plan_well(std::slice::from_ref(&web)).await;
    let shown = planned(&plan, &web).unwrap();
    assert_eq!(shown.action, Action::Update);
    let theirs = ChangeOrigin::Manager("kubectl-patch".to_owned());
    let removed = shown
        .changes
        .iter()
        .find(|change| change.path == "/spec/ports/port=8181")
        .unwrap();
    assert_eq!((&removed.origin, &removed.to), (&theirs, &None));
    let added = shown
        .changes
        .iter()
        .find(|change| change.path == "/spec/ports/port=80")
        .unwrap();
    assert!(
        added.from.is_none() && added.origin != ChangeOrigin::Change,
        "{added:?}"
    );
    assert!(
        shown.notes.iter().any(|note| note.contains("`kubectl-patch`")),
        "{:?}",
        shown.notes
    );

    settles(&mut stack, &web, "restored").await;
    let live = objects.get(&web).await.unwrap();
    let ports: Vec<_> = live["spec"]["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| port["port"].clone())
        .collect();
    assert_eq!(ports, [80, 443]);
    assert_is_ours_alone(&live, "8181");
}

#[tokio::test]
async fn other_keys_than_a_port_are_restored_too() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("rekeyed-too").await, Objects::of(cluster).await);
    let mut stack = TestStack::new("rekeyed-too", cluster.kubeconfig());
    let dns = service(&ns, "dns", json!([{"name": "dns", "port": 53}]));
    let unnamed = service(&ns, "unnamed", json!([{"port": 80}]));
    let pod = with_pod(&ns, "pod", |pod| {
        pod["containers"][0]["ports"] = json!([{"name": "http", "containerPort": 80}]);
    });
    let udp = json!({"spec": {"ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]}});
    let other = json!({"spec": {"ports": [{"port": 81}]}});
    let container = json!({"spec": {"template": {"spec": {"containers": [
        {"name": "web", "image": "web:1", "ports": [{"name": "http", "containerPort": 8080}]}]}}}});
    for (wanted, theirs) in [(dns, udp), (unnamed, other), (pod, container)] {
        stack.apply(std::slice::from_ref(&wanted)).await;
        objects.merge(&wanted, "kubectl-patch", &theirs).await;
        settles(&mut stack, &wanted, wanted["metadata"]["name"].as_str().unwrap()).await;
        let live = objects.get(&wanted).await.unwrap().to_string();
        assert!(
            !live.contains("8080") && !live.contains("\"UDP\"") && !live.contains(":81,"),
            "{live}"
        );
    }
}

#[tokio::test]
async fn a_kill_between_the_two_writes_is_safe() {
    let cluster = Cluster::shared();
    let (ns, objects) = (
        cluster.namespace("rekeyed-kills").await,
        Objects::of(cluster).await,
    );
    for seed in [1, 2, 3, 5, 8, 13] {
        let mut dice = Dice(seed);
        let mut stack = TestStack::new(&format!("rekeyed-kills-{seed}"), cluster.kubeconfig());
        let web = service(&ns, &format!("web-{seed}"), json!([{"name": "web", "port": 80}]));
        stack.apply(std::slice::from_ref(&web)).await;
        objects
            .merge(
                &web,
                "kubectl-patch",
                &json!({"spec": {"ports": [{"name": "web", "port": 8181}]}}),
            )
            .await;
        for _ in 0..4 {
            let plan = stack.plan_well(std::slice::from_ref(&web)).await;
            if stack.carry_out_until(plan, dice.kill(true)).await.is_some() {
                break;
            }
        }
        settles(&mut stack, &web, &format!("seed {seed}")).await;
        let live = objects.get(&web).await.unwrap();
        assert_eq!(live["spec"]["ports"].as_array().unwrap().len(), 1, "{live}");
        assert_eq!(live["spec"]["ports"][0]["port"], 80);
    }
}

#[tokio::test]
async fn a_branch_that_the_server_filled_in_goes_with_its_discriminator() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("branches").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("branches", cluster.kubeconfig());
    let plain = deployment(&ns, "d", "web:1");
    let mut recreate = plain.clone();
    recreate["spec"]["strategy"] = json!({"type": "Recreate"});
    let mut set = deployment(&ns, "s", "web:1");
    (set["kind"], set["spec"]["serviceName"]) = (json!("StatefulSet"), json!("s"));
    let mut on_delete = set.clone();
    on_delete["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    let volume = |volume: Value| with_pod(&ns, "v", |pod| pod["volumes"] = json!([volume]));
    let empty = volume(json!({"name": "config"}));
    let from_map = volume(json!({"name": "config", "configMap": {"name": "c"}}));
    for (before, after, gone) in [
        (plain, recreate, "/spec/strategy/rollingUpdate"),
        (set, on_delete, "/spec/updateStrategy/rollingUpdate"),
        (empty, from_map, "/spec/template/spec/volumes/0/emptyDir"),
    ] {
        stack.apply(std::slice::from_ref(&before)).await;
        assert!(
            objects.get(&before).await.unwrap().pointer(gone).is_some(),
            "{gone}"
        );
        settles(&mut stack, &after, gone).await;
        let live = objects.get(&after).await.unwrap();
        assert!(live.pointer(gone).is_none(), "{live}");
    }
}

#[tokio::test]
async fn an_object_is_taken_over_and_changed_in_one_step() {
    let cluster = Cluster::shared();
    let (ns, objects) = (
        cluster.namespace("adopted-changed").await,
        Objects::of(cluster).await,
    );
    let secret = json!({"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
    let env = |one: Value| with_pod(&ns, "env", |pod| pod["containers"][0]["env"] = json!([one]));
    let probe = |handler: Value| {
        with_pod(&ns, "probe", |pod| {
            pod["containers"][0]["livenessProbe"] = handler
        })
    };
    let volume = |source: Value| with_pod(&ns, "volume", |pod| pod["volumes"] = json!([source]));
    let budget = |spec: Value| json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "budget", "namespace": ns}, "spec": spec});
    let selector = json!({"matchLabels": {"app": "x"}});
    let cases = [
        (
            service(&ns, "web", json!([{"name": "web", "port": 8080}])),
            service(&ns, "web", json!([{"name": "web", "port": 9090}])),
        ),
        (env(json!({"name": "A", "value": "1"})), env(secret)),
        (
            probe(json!({"httpGet": {"path": "/", "port": 80}, "periodSeconds": 7})),
            probe(json!({"tcpSocket": {"port": 80}})),
        ),
        (
            volume(json!({"name": "v", "emptyDir": {"medium": "Memory"}})),
            volume(json!({"name": "v", "configMap": {"name": "c"}})),
        ),
        (
            budget(json!({"minAvailable": 1, "selector": selector})),
            budget(json!({"maxUnavailable": 1, "selector": selector})),
        ),
    ];
    for (number, (theirs, wanted)) in cases.iter().enumerate() {
        let mut stack = TestStack::new(&format!("adopted-changed-{number}"), cluster.kubeconfig());
        objects.create_as(theirs, "kubectl-client-side-apply").await;
        let plan = stack.plan_well(std::slice::from_ref(wanted)).await;
        assert_eq!(action(&plan, wanted), Action::Adopt);
        settles(&mut stack, wanted, &format!("{number}")).await;
        let live = objects.get(wanted).await.unwrap();
        assert_is_ours_alone(&live, "8080");
        if number == 2 {
            let probe = live
                .pointer("/spec/template/spec/containers/0/livenessProbe")
                .unwrap();
            assert_eq!(
                (&probe["periodSeconds"], &probe["httpGet"]),
                (&json!(7), &Value::Null),
                "{probe}"
            );
        }
    }
}

#[tokio::test]
async fn fields_that_another_manager_applies_are_never_taken() {
    let cluster = Cluster::shared();
    let (ns, objects) = (
        cluster.namespace("applied-by-others").await,
        Objects::of(cluster).await,
    );
    let mut stack = TestStack::new("applied-by-others", cluster.kubeconfig());
    let theirs = service(&ns, "web", json!([{"name": "web", "port": 8080}]));
    objects.apply_as(&theirs, "helm").await;
    let wanted = service(&ns, "web", json!([{"name": "web", "port": 9090}]));
    let plan = stack.plan(std::slice::from_ref(&wanted)).await;
    let said = &plan.failures[0].1;
    assert!(
        said.message
            .contains("`/spec/ports/port=8080`, which `helm` applies"),
        "{}",
        said.message
    );
    assert!(
        said.hints.iter().any(|hint| hint.contains("`helm`")),
        "{:?}",
        said.hints
    );
    // The way that the message names.
    objects.apply_as(&wanted, "helm").await;
    settles(&mut stack, &wanted, "after helm").await;
}

#[tokio::test]
async fn what_the_policy_leaves_to_others_is_not_removed() {
    let cluster = Cluster::shared();
    let (ns, objects) = (
        cluster.namespace("rekeyed-policy").await,
        Objects::of(cluster).await,
    );
    for policy in [Conflicts::Stop, Conflicts::Leave] {
        let mut stack = TestStack::new(&format!("rekeyed-policy-{policy:?}"), cluster.kubeconfig());
        let web = service(
            &ns,
            &format!("{policy:?}").to_lowercase(),
            json!([{"name": "web", "port": 80}]),
        );
        stack.apply(std::slice::from_ref(&web)).await;
        objects
            .merge(
                &web,
                "kubectl-patch",
                &json!({"spec": {"ports": [{"name": "web", "port": 8181}]}}),
            )
            .await;
        stack.options.conflicts = policy;
        let plan = stack.plan(std::slice::from_ref(&web)).await;
        let said = &plan.failures[0].1.message;
        assert!(
            said.contains("`/spec/ports/port=8181` (owned by `kubectl-patch`)"),
            "{said}"
        );
    }
}

/// A drift check says how an object differs, though an apply could not bring it back.
#[tokio::test]
async fn what_the_server_would_refuse_is_reported_as_drift_all_the_same() {
    let cluster = Cluster::shared();
    let (ns, objects) = (
        cluster.namespace("rekeyed-by-others").await,
        Objects::of(cluster).await,
    );
    let mut stack = TestStack::new("rekeyed-by-others", cluster.kubeconfig());
    let web = service(&ns, "web", json!([{"name": "web", "port": 80}]));
    stack.apply(std::slice::from_ref(&web)).await;
    objects
        .merge(
            &web,
            "kubectl-patch",
            &json!({"spec": {"ports": [{"name": "other", "port": 1}]}}),
        )
        .await;
    let theirs = service(
        &ns,
        "web",
        json!([{"name": "other", "port": 1}, {"name": "web", "port": 8181}]),
    );
    objects.apply_as(&theirs, "flux").await;
    stack.only_compares = true;
    let plan = stack.plan_well(std::slice::from_ref(&web)).await;
    let shown = planned(&plan, &web).unwrap();
    assert!(
        shown
            .changes
            .iter()
            .any(|change| change.path == "/spec/ports/port=80" && change.from.is_none()),
        "{:?}",
        shown.changes
    );
    assert!(
        shown.notes.iter().any(|note| note.contains("`flux`")),
        "{:?}",
        shown.notes
    );
}
