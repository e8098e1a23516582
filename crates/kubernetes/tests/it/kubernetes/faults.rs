//! An API server that drops, delays, cuts and refuses at random, and an apply that is killed between any two requests:
//! a plain second run ends with the cluster as the Spec says, the state as the cluster is, and nothing left over.
//!
//! `KONVERGE_SEED` repeats a run.

use std::sync::Arc;

use konverge_base::model::{
    apply_result::{ResourceResult, StackResult},
    plan::Action,
};
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    faulty_api_server::{Faults, Proxy},
    objects::Objects,
    stack::{TestStack, action, id},
};

fn wanted(ns: &str, version: u32, count: usize) -> Vec<Value> {
    let mut objects: Vec<Value> = (0..count)
        .map(|n| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("c{n}"), "namespace": ns}, "data": {"version": version.to_string()}}))
        .collect();
    objects.push(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": ns}, "spec": {"ports": [{"port": 80}]}}));
    let service = format!("v1:Service:{ns}:s");
    objects.push(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "address", "namespace": ns},
        "data": {"url": format!("http://$kusion_path.{service}.spec.clusterIP:80/{version}")}}),
    );
    objects
}

/// The cluster holds what is wanted and nothing else; the state records exactly that, by UID.
async fn assert_converged(stack: &TestStack, objects: &Objects, ns: &str, wanted: &[Value]) {
    let listed = objects.list(&format!("/api/v1/namespaces/{ns}/configmaps")).await;
    let ours: Vec<_> = listed
        .into_iter()
        .filter(|o| o["metadata"]["annotations"]["konverge/stack"].is_string())
        .collect();
    let mut names: Vec<_> = ours
        .iter()
        .map(|o| o["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    let maps = wanted.iter().filter(|o| o["kind"] == "ConfigMap");
    let mut expected: Vec<_> = maps
        .map(|o| o["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    expected.sort();
    assert_eq!(names, expected);
    let ids: Vec<_> = stack
        .state
        .resources
        .iter()
        .map(|r| r.id.as_str().to_owned())
        .collect();
    let mut expected: Vec<_> = wanted.iter().map(id).collect();
    expected.sort();
    assert_eq!(ids, expected);
    for object in wanted {
        let live = objects.get(object).await.unwrap();
        let recorded = stack.state.resource(&id(object).parse().unwrap()).unwrap();
        let recorded: Value = recorded.private.decode().unwrap();
        assert_eq!(recorded["uid"], live["metadata"]["uid"], "{}", id(object));
    }
    let plan = stack.plan_well(wanted).await;
    assert_eq!(plan.public.summary.unchanged, wanted.len(), "{:?}", plan.public);
}

#[tokio::test]
async fn an_unreliable_server_only_costs_time() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("faults").await;
    let objects = Objects::of(cluster).await;
    let proxy = Proxy::start(
        cluster,
        Faults::random(crate::support::faulty_api_server::seed(), 20),
    )
    .await;
    let mut stack = TestStack::new("faults", proxy.kubeconfig());
    let steps = [wanted(&ns, 1, 12), wanted(&ns, 2, 8), wanted(&ns, 3, 10)];
    for wanted in &steps {
        let mut done = false;
        for _ in 0..10 {
            let Ok(plan) = stack.try_plan(&crate::support::stack::spec(wanted)).await else {
                continue;
            };
            if !plan.failures.is_empty() {
                continue;
            }
            let outcome = stack.carry_out(plan).await;
            done = matches!(outcome.result, StackResult::Applied | StackResult::Unchanged);
            if done {
                break;
            }
        }
        assert!(done, "ten runs were not enough");
        proxy.calm();
        assert_converged(&stack, &objects, &ns, wanted).await;
        proxy.rage();
    }
    assert!(
        proxy.faults() > 20,
        "the proxy did not do its part: {}",
        proxy.faults()
    );
}

#[tokio::test]
async fn killed_between_any_two_requests_the_next_run_converges() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("killed").await;
    let objects = Objects::of(cluster).await;
    let proxy = Arc::new(Proxy::start(cluster, Faults::none()).await);
    let mut stack = TestStack::new("killed", proxy.kubeconfig());
    let mut version = 0;
    for before in [false, true] {
        for kill_at in 1.. {
            version += 1;
            let count = if version % 2 == 0 { 3 } else { 5 };
            let wanted = wanted(&ns, version, count);
            let plan = stack.plan_well(&wanted).await;
            proxy.kill_at(kill_at, before);
            let killed = stack.carry_out_until(plan, proxy.killed()).await.is_none();
            proxy.calm();
            stack.apply(&wanted).await;
            assert_converged(&stack, &objects, &ns, &wanted).await;
            if !killed {
                assert!(kill_at > 4, "an apply has more requests than that");
                break;
            }
        }
    }
}

fn map(ns: &str, name: &str, word: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": ns}, "data": {"word": word}})
}

#[tokio::test]
async fn what_was_made_is_remembered_though_no_answer_came() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("unheard").await;
    let objects = Objects::of(cluster).await;
    let proxy = Proxy::start(cluster, Faults::lost_answers()).await;
    let mut stack = TestStack::new("unheard", proxy.kubeconfig());
    let wanted = map(&ns, "a", "x");
    let plan = stack.plan_well(std::slice::from_ref(&wanted)).await;
    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.resources[0].result, ResourceResult::Failed, "{outcome:?}");
    assert!(objects.get(&wanted).await.is_some(), "it was made all the same");

    proxy.calm();
    let plan = stack.plan_well(std::slice::from_ref(&wanted)).await;
    assert_eq!(action(&plan, &wanted), Action::Unchanged);
    let plan = stack.plan_well(&[]).await;
    assert_eq!(action(&plan, &wanted), Action::Delete);
}

#[tokio::test]
async fn what_was_never_tried_stays_somebody_elses() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("untried").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("untried", cluster.kubeconfig());
    let (first, taken, new) = (
        map(&ns, "first", "x"),
        map(&ns, "taken", "x"),
        map(&ns, "new", "x"),
    );
    let behind = |object: &Value| {
        let mut object = object.clone();
        object["$dependsOn"] = json!([id(&first)]);
        object
    };
    objects.create(&map(&ns, "taken", "theirs")).await;
    let wanted = [first.clone(), behind(&taken), behind(&new)];
    let plan = stack.plan_well(&wanted).await;
    assert_eq!(action(&plan, &taken), Action::Adopt);
    // Somebody is faster, with a value of their own.
    objects.create(&map(&ns, "first", "theirs")).await;
    let outcome = stack.carry_out(plan).await;
    let results: Vec<_> = outcome.resources.iter().map(|one| one.result).collect();
    assert_eq!(
        results,
        [
            ResourceResult::Failed,
            ResourceResult::Skipped,
            ResourceResult::Skipped
        ],
        "{outcome:?}"
    );
    let recorded: Vec<_> = stack.state.resources.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(recorded, [id(&first)], "it may have been made");

    // It was not, and what stands there names nobody: without its resource it is forgotten, never deleted.
    let plan = stack.plan_well(&[]).await;
    assert_eq!(action(&plan, &first), Action::Forget);
    stack.carry_out(plan).await;
    for object in [&first, &taken] {
        assert_eq!(objects.get(object).await.unwrap()["data"]["word"], "theirs");
    }
    assert!(stack.state.resources.is_empty());
}
