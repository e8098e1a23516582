//! The engine on a real API server: what is known only on the way, what continues when something fails, and what stops.

use std::sync::Mutex;

use async_trait::async_trait;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        apply_result::{ResourceResult, StackOutcome, StackResult},
        masked_value,
        plan::{Action, ResourcePlan},
    },
};
use konverge_engine::{LatePlan, Review};
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    objects::Objects,
    stack::{TestStack, action, id, planned},
};

fn config_map(ns: &str, name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": ns}, "data": data})
}

fn after(mut object: Value, dependency: &Value) -> Value {
    object["$dependsOn"] = json!([id(dependency)]);
    object
}

/// What an outcome says of an object.
fn result<'a>(outcome: &'a StackOutcome, object: &Value) -> (ResourceResult, &'a str) {
    let id = id(object);
    let found = outcome.resources.iter().find(|r| r.id.as_str() == id).unwrap();
    (found.result, found.message.as_deref().unwrap_or_default())
}

/// Remembers what it was asked, and refuses if told so.
struct Reviewer {
    refuses: bool,
    asked: Mutex<Vec<ResourcePlan>>,
}

#[async_trait]
impl Review for Reviewer {
    async fn check(&self, plan: LatePlan<'_>) -> Result<(), UserError> {
        self.asked.lock().unwrap().push(plan.shown.clone());
        if self.refuses {
            Err(UserError::new(ErrorKind::Unreviewed, "nobody reviewed this"))
        } else {
            Ok(())
        }
    }
}

#[tokio::test]
async fn what_only_the_server_knows_is_planned_again_and_held_against_the_review() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("engine-late").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("engine-late", cluster.kubeconfig());
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": ns}, "spec": {"ports": [{"name": "http", "port": 8080}]}});
    let url = format!(
        "http://$kusion_path.{0}.spec.clusterIP:$kusion_path.{0}.spec.ports[0].port/",
        id(&service)
    );
    let reader = config_map(&ns, "reader", json!({"url": url}));
    let wanted = [reader.clone(), service.clone()];

    let plan = stack.plan_well(&wanted).await;
    let change = planned(&plan, &reader).unwrap();
    assert_eq!(change.action, Action::Create);
    assert!(
        masked_value::is_unknown(&change.changes[0].to.as_ref().unwrap()["data"]["url"]),
        "{change:?}"
    );
    let refusing = Reviewer {
        refuses: true,
        asked: Mutex::default(),
    };
    let outcome = stack.carry_out_reviewed(plan, &refusing).await;
    assert_eq!(result(&outcome, &service).0, ResourceResult::Done);
    assert_eq!(
        result(&outcome, &reader),
        (ResourceResult::Failed, "nobody reviewed this")
    );
    assert!(
        objects.get(&reader).await.is_none(),
        "what nobody reviewed is not written"
    );

    let address = objects.get(&service).await.unwrap()["spec"]["clusterIP"]
        .as_str()
        .unwrap()
        .to_owned();
    let expected = format!("http://{address}:8080/");
    let known = stack.plan_well(&wanted).await;
    let change = planned(&known, &reader).unwrap();
    assert_eq!(
        change.changes[0].to.as_ref().unwrap()["data"]["url"],
        expected,
        "the service is there by now"
    );
    stack.carry_out(known).await;
    assert_eq!(objects.get(&reader).await.unwrap()["data"]["url"], expected);

    let mut other = TestStack::new("engine-late-two", cluster.kubeconfig());
    let ns = cluster.namespace("engine-late").await;
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": ns}, "spec": {"ports": [{"port": 80}]}});
    let reader = config_map(
        &ns,
        "reader",
        json!({"ip": format!("$kusion_path.{}.spec.clusterIP", id(&service))}),
    );
    let plan = other.plan_well(&[reader.clone(), service.clone()]).await;
    let agreeing = Reviewer {
        refuses: false,
        asked: Mutex::default(),
    };
    let outcome = other.carry_out_reviewed(plan, &agreeing).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    let asked = agreeing.asked.into_inner().unwrap();
    assert_eq!(asked.len(), 1, "only what was not known is asked again");
    let live = objects.get(&service).await.unwrap();
    assert_eq!(
        asked[0].changes[0].to.as_ref().unwrap()["data"]["ip"],
        live["spec"]["clusterIP"]
    );
}

#[tokio::test]
async fn independent_branches_go_on_and_nothing_is_deleted_after_a_failure() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("engine-branches").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("engine-branches", cluster.kubeconfig());
    let old = config_map(&ns, "old", json!({}));
    stack.apply(std::slice::from_ref(&old)).await;
    let broken = config_map("engine-branches-nowhere", "broken", json!({}));
    let needs_it = after(config_map(&ns, "needs-it", json!({})), &broken);
    let indirectly = after(config_map(&ns, "indirectly", json!({})), &needs_it);
    let free = config_map(&ns, "free", json!({}));
    let plan = stack
        .plan_well(&[broken.clone(), needs_it.clone(), indirectly.clone(), free.clone()])
        .await;
    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Failed);
    assert_eq!(result(&outcome, &broken).0, ResourceResult::Failed);
    assert!(result(&outcome, &broken).1.contains("not found"), "{outcome:?}");
    let blame = format!("not tried: `{}` failed", id(&broken));
    assert_eq!(
        result(&outcome, &needs_it),
        (ResourceResult::Skipped, blame.as_str())
    );
    assert_eq!(
        result(&outcome, &indirectly),
        (ResourceResult::Skipped, blame.as_str())
    );
    assert_eq!(result(&outcome, &free).0, ResourceResult::Done);
    assert!(
        result(&outcome, &old).1.starts_with("not deleted: "),
        "{outcome:?}"
    );
    assert!(objects.get(&old).await.is_some());

    let plan = stack.plan_well(std::slice::from_ref(&free)).await;
    assert_eq!(action(&plan, &old), Action::Delete);
    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    assert!(objects.get(&old).await.is_none());
    assert_eq!(stack.state.resources.len(), 1, "{:?}", stack.state.resources);
}

#[tokio::test]
async fn dropping_an_edge_and_reversing_one_are_no_errors() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("engine-edges").await;
    let mut stack = TestStack::new("engine-edges", cluster.kubeconfig());
    let (a, b) = (config_map(&ns, "a", json!({})), config_map(&ns, "b", json!({})));
    stack.apply(&[after(a.clone(), &b), b.clone()]).await;
    stack.apply(&[a.clone(), after(b.clone(), &a)]).await;
    let outcome = stack.apply(std::slice::from_ref(&a)).await;
    assert_eq!(
        outcome.result,
        StackResult::Applied,
        "the edge and its target left in one change"
    );
    let cycle = [after(a.clone(), &b), after(b.clone(), &a)];
    let error = stack
        .try_plan(&crate::support::stack::spec(&cycle))
        .await
        .err()
        .unwrap();
    assert!(
        error.message.contains(" → ") && !error.hints.is_empty(),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_secret_carried_by_a_reference_stays_hidden() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("engine-carried").await;
    let objects = Objects::of(cluster).await;
    let mut stack = TestStack::new("engine-carried", cluster.kubeconfig());
    let secret = |value: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": ns}, "stringData": {"p": value}});
    let reader = config_map(
        &ns,
        "reader",
        json!({"url": format!("x?p=$kusion_path.{}.data.p", id(&secret("")))}),
    );
    let mut shown = Vec::new();
    for value in ["carried-word-one", "carried-word-two"] {
        let wanted = [secret(value), reader.clone()];
        let plan = stack.plan_well(&wanted).await;
        let text = serde_json::to_string(&plan.public).unwrap();
        shown.push(planned(&plan, &reader).unwrap().digest);
        stack.carry_out(plan).await;
        let state = serde_json::to_string(&stack.state).unwrap();
        for clear in [value, "Y2FycmllZC13b3Jk"] {
            assert!(
                !text.contains(clear) && !state.contains(clear),
                "{clear} in {text} or {state}"
            );
        }
        assert_eq!(stack.plan_well(&wanted).await.public.summary.unchanged, 2);
    }
    assert_ne!(shown[0], shown[1], "a reviewer sees that it changed");
    assert!(
        objects.get(&reader).await.unwrap()["data"]["url"]
            .as_str()
            .unwrap()
            .starts_with("x?p=Y2Fycm")
    );
}

/// Someone who puts a part of another field's text into a Secret, and lets the same resource read that Secret, hides
/// nothing: what the code says itself was carried by no reference.
#[tokio::test]
async fn what_the_code_says_itself_is_not_hidden_as_carried() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("engine-literal").await;
    let mut stack = TestStack::new("engine-literal", cluster.kubeconfig());
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": ns}, "data": {"p": "bWluZXI="}});
    let carried = format!("$kusion_path.{}.data.p", id(&secret));
    for image in ["evil/bWluZXI=:1", "evil/bWluZXI=:2"] {
        let reader = config_map(&ns, "reader", json!({"image": image, "user": carried}));
        let wanted = [secret.clone(), reader.clone()];
        let plan = stack.plan_well(&wanted).await;
        let text = serde_json::to_string(planned(&plan, &reader).unwrap()).unwrap();
        assert!(text.contains(image), "{text}");
        assert!(!text.contains("\"bWluZXI=\""), "{text}");
        stack.carry_out(plan).await;
        assert_eq!(stack.plan_well(&wanted).await.public.summary.unchanged, 2);
    }
}
