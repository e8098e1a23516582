//! How many requests an apply takes: two for each new object, its dry run and its creation, wherever its namespace
//! comes from; none for an unchanged one.

use std::collections::BTreeMap;

use konverge_base::model::apply_result::StackResult;
use konverge_engine::RuntimeRegistry;
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    stack::{TestStack, spec},
};

const OBJECTS: usize = 80;
/// What a run asks for besides: kinds, version, admission, lists.
const ONCE: u64 = 24;

fn config_maps(ns: &str) -> impl Iterator<Item = Value> {
    (0..OBJECTS).map(move |n| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("o{n}"), "namespace": ns}, "data": {"n": n.to_string()}})
    })
}

/// Applies objects for the first time and then once more; the requests of each.
async fn counted(name: &str, objects: &[Value]) -> [u64; 2] {
    let mut stack = TestStack::new(name, Cluster::shared().kubeconfig());
    let mut counts = [0; 2];
    for count in &mut counts {
        let kubernetes = stack.kubernetes().await;
        let runtimes = RuntimeRegistry::new().with(kubernetes.clone());
        let plan = stack.plan_on(&runtimes, spec(objects)).await.unwrap();
        assert!(plan.failures.is_empty(), "{:?}", plan.failures);
        let outcome = stack.carry_out(plan).await;
        assert_ne!(outcome.result, StackResult::Failed, "{outcome:?}");
        *count = kubernetes.requests();
    }
    counts
}

fn check([first, again]: [u64; 2]) {
    assert!(first <= 2 * OBJECTS as u64 + ONCE, "{first} requests");
    assert!(again <= ONCE, "{again} requests where nothing changed");
}

#[tokio::test]
async fn a_first_apply_takes_two_requests_an_object() {
    let ns = Cluster::shared().namespace("counted").await;
    let objects: Vec<_> = config_maps(&ns).collect();
    check(counted("counted", &objects).await);
}

#[tokio::test]
async fn so_does_one_whose_spec_makes_its_own_namespace() {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "counted-own"}});
    let objects: Vec<_> = std::iter::once(namespace)
        .chain(config_maps("counted-own"))
        .collect();
    check(counted("counted-own", &objects).await);
}

/// Before it says *applied*, an apply looks at all of them once more, and lists them as the plan does.
#[tokio::test]
async fn one_change_among_many_takes_no_request_for_each_of_the_others() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("counted-change").await;
    let mut objects: Vec<_> = config_maps(&ns).collect();
    let mut stack = TestStack::new("counted-change", cluster.kubeconfig());
    stack.apply(&objects).await;
    objects[0]["data"]["n"] = json!("another");
    let kubernetes = stack.kubernetes().await;
    let runtimes = RuntimeRegistry::new().with(kubernetes.clone());
    let plan = stack.plan_on(&runtimes, spec(&objects)).await.unwrap();
    let planning = kubernetes.requests();
    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    let applying = kubernetes.requests() - planning;
    assert!(planning <= ONCE, "{planning} requests of the plan");
    // The cluster's identity, the write and the list.
    assert!(applying <= 3, "{applying} requests of the apply");
}

/// An apply without hooks sends the same requests, whether the configuration lets hooks run or not: no question about
/// Jobs or pods, and one write for each object.
#[tokio::test]
async fn an_apply_without_hooks_sends_no_request_more() {
    const MANY: usize = 1000;
    let cluster = Cluster::shared();
    let mut counts = Vec::new();
    for accounts in [Vec::new(), vec!["default".to_owned()]] {
        let ns = cluster.namespace("hook-none").await;
        let map = |at: usize| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("map-{at}"), "namespace": ns},
                "data": {"at": at.to_string()}})
        };
        let wanted: Vec<_> = (0..MANY).map(map).collect();
        let mut stack = TestStack::new(&ns, cluster.kubeconfig());
        stack.hooks.service_accounts = accounts;
        let plan = stack.plan_well(&wanted).await;
        let outcome = stack.carry_out(plan).await;
        assert_eq!(outcome.result, StackResult::Applied, "{:?}", outcome.error);
        assert_eq!(stack.plan_well(&wanted).await.public.summary.changed(), 0);
        let in_ns = format!("/namespaces/{ns}/");
        let requests = cluster.audit().into_iter();
        let requests: Vec<_> = requests.filter(|event| event.uri.contains(&in_ns)).collect();
        let others = requests.iter().find(|event| !event.uri.contains("/configmaps"));
        assert!(others.is_none(), "{others:?}");
        assert_eq!(requests.iter().filter(|event| event.writes()).count(), MANY);
        let mut by_verb: BTreeMap<String, usize> = BTreeMap::new();
        for request in requests {
            *by_verb.entry(request.verb).or_default() += 1;
        }
        counts.push(by_verb);
    }
    assert_eq!(counts[0], counts[1]);
}
