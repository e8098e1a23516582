//! What happens to an object between its plan and the write: one that only changed is written all the same, one that
//! changed hands is left alone, and without a change, no additional request is sent.

use konverge_base::model::{apply_result::StackResult, plan::Action};
use serde_json::{Value, json};

use crate::support::{
    cluster::{AuditEvent, Cluster},
    objects::Objects,
    stack::{TestStack, action},
};

/// An object that cannot be changed in place if `immutable`.
fn map(ns: &str, word: &str, immutable: bool) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": ns}, "data": {"word": word}, "immutable": immutable})
}

/// What is wanted after `map(_, "one", _)`, and what the plan makes of it.
fn changes(ns: &str) -> [(&'static str, bool, Vec<Value>, Action); 3] {
    [
        ("update", false, vec![map(ns, "two", false)], Action::Update),
        ("replace", true, vec![map(ns, "two", true)], Action::Replace),
        ("delete", false, Vec::new(), Action::Delete),
    ]
}

/// What another stack makes of it: its field manager is the same.
async fn claim(objects: &Objects, object: &Value) {
    let mut claimed = object.clone();
    claimed["metadata"]["annotations"] = json!({"konverge/stack": "test/another"});
    objects.apply_as(&claimed, "konverge").await;
}

#[tokio::test]
async fn what_changed_hands_since_the_plan_is_left_alone() {
    let cluster = Cluster::shared();
    let objects = Objects::of(cluster).await;
    let ns = cluster.namespace("since-hands").await;
    for (name, immutable, wanted, expected) in changes(&ns) {
        let mut marks = vec![("konverge/stack", "test/another")];
        if expected != Action::Update {
            marks.extend([("konverge/protect", "true"), ("konverge/keep", "true")]);
        }
        for (mark, value) in marks {
            let mut stack = TestStack::new(&format!("since-{name}"), cluster.kubeconfig());
            let object = map(&ns, "one", immutable);
            stack.apply(std::slice::from_ref(&object)).await;
            let plan = stack.plan_well(&wanted).await;
            assert_eq!(action(&plan, &object), expected);
            match mark {
                "konverge/stack" => claim(&objects, &object).await,
                _ => {
                    let marked = json!({"metadata": {"annotations": {mark: value}}});
                    objects.merge(&object, "somebody", &marked).await;
                }
            }
            let before = objects.get(&object).await;
            let outcome = stack.carry_out(plan).await;
            assert_eq!(outcome.result, StackResult::Failed, "{name} {mark}: {outcome:?}");
            let said = outcome.error.unwrap().message;
            assert!(
                said.contains(&format!("`{mark}`")) && said.contains(&format!("`{value}`")),
                "{name}: {said}"
            );
            assert_eq!(objects.get(&object).await, before, "{name} {mark}");
            objects.delete(&object).await;
        }
    }
}

/// What was asked of the server about the object since: the verbs, with the codes of the answers.
fn asked(cluster: &Cluster, ns: &str, before: usize) -> Vec<String> {
    let mut events = cluster.audit().split_off(before);
    let is_apply = |event: &AuditEvent| {
        event
            .object_ref
            .as_ref()
            .is_some_and(|of| of.resource == "configmaps")
    };
    events.retain(|event| event.is_in(ns) && is_apply(event));
    let told = |event: &AuditEvent| {
        format!(
            "{} {}",
            event.verb,
            event.response_status.as_ref().map_or(0, |status| status.code)
        )
    };
    events.iter().map(told).collect()
}

#[tokio::test]
async fn what_only_changed_since_the_plan_costs_two_requests_more() {
    let cluster = Cluster::shared();
    let objects = Objects::of(cluster).await;
    let ns = cluster.namespace("since-changed").await;
    for (name, immutable, wanted, expected) in changes(&ns) {
        for touched in [false, true] {
            let mut stack = TestStack::new(&format!("since-{name}"), cluster.kubeconfig());
            let object = map(&ns, "one", immutable);
            stack.apply(std::slice::from_ref(&object)).await;
            let plan = stack.plan_well(&wanted).await;
            assert_eq!(action(&plan, &object), expected);
            if touched {
                objects
                    .merge(
                        &object,
                        "somebody",
                        &json!({"metadata": {"labels": {"seen": "yes"}}}),
                    )
                    .await;
            }
            let before = cluster.audit().len();
            let outcome = stack.carry_out(plan).await;
            assert_eq!(outcome.result, StackResult::Applied, "{name}: {outcome:?}");
            let told = asked(cluster, &ns, before);
            let usual = match expected {
                Action::Update => vec!["patch 200"],
                Action::Delete => vec!["delete 200", "get 404"],
                _ => vec!["delete 200", "get 404", "patch 201"],
            };
            let verb = usual[0].split(' ').next().unwrap();
            let mut all = if touched {
                vec![format!("{verb} 409"), "get 200".to_owned()]
            } else {
                Vec::new()
            };
            all.extend(usual.iter().map(|told| (*told).to_owned()));
            assert_eq!(told, all, "{name}");
            let word = objects
                .get(&object)
                .await
                .map(|live| live["data"]["word"].clone());
            assert_eq!(word, (expected != Action::Delete).then(|| json!("two")), "{name}");
            if word.is_some() {
                objects.delete(&object).await;
            }
        }
    }
}

/// An adoption gives up `kubectl`'s ownership first: that makes a version of its own, and is bound to the owner, too.
#[tokio::test]
async fn an_adoption_takes_nothing_that_got_an_owner_since() {
    let cluster = Cluster::shared();
    let objects = Objects::of(cluster).await;
    let ns = cluster.namespace("since-adopted").await;
    let copy = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
    for claimed in [false, true] {
        let mut stack = TestStack::new("since-adopted", cluster.kubeconfig());
        let mut theirs = map(&ns, "one", false);
        theirs["metadata"]["annotations"] = copy.clone();
        objects.create_as(&theirs, "kubectl-client-side-apply").await;
        let object = map(&ns, "two", false);
        let plan = stack.plan_well(std::slice::from_ref(&object)).await;
        assert_eq!(action(&plan, &object), Action::Adopt);
        if claimed {
            claim(&objects, &object).await;
        }
        let was = objects.get(&object).await.unwrap();
        let before = cluster.audit().len();
        let outcome = stack.carry_out(plan).await;
        let told = asked(cluster, &ns, before);
        if claimed {
            let said = outcome.error.unwrap().message;
            assert!(said.contains("`test/another`"), "{said}");
            assert_eq!(objects.get(&object).await.unwrap(), was);
        } else {
            assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
            assert_eq!(told, ["get 200", "patch 200", "patch 200"]);
        }
        objects.delete(&object).await;
    }
}
