//! Rollouts that wait for promotion: the apply stops waiting, and the next one takes them up. The test plays Argo's
//! controller.

use std::time::Duration;

use konverge_base::model::{
    apply_result::{ResourceResult, StackOutcome, StackResult, WaitReason},
    plan::Action,
};
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    objects::{Objects, path},
    service::eventually,
    stack::{TestStack, action, id},
};

/// The definition of Argo's Rollout, as far as a test needs it.
pub fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "rollouts.argoproj.io"},
        "spec": {"group": "argoproj.io", "scope": "Namespaced", "names": {"kind": "Rollout", "plural": "rollouts", "singular": "rollout"},
            "versions": [{"name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

/// A Rollout whose second step is a pause.
pub fn rollout(ns: &str, image: &str, pause: &Value) -> Value {
    json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "web", "namespace": ns},
        "spec": {"replicas": 1, "image": image, "strategy": {"canary": {"steps": [{"setWeight": 20}, {"pause": pause}]}}}})
}

/// Its status at the pause.
pub fn paused(generation: u64, since: jiff::Timestamp) -> Value {
    json!({"observedGeneration": generation.to_string(), "phase": "Paused", "message": "CanaryPauseStep", "currentStepIndex": 1,
        "pauseConditions": [{"reason": "CanaryPauseStep", "startTime": since.to_string()}]})
}

/// Its status when it is rolled out.
pub fn healthy(generation: u64) -> Value {
    json!({"observedGeneration": generation.to_string(), "phase": "Healthy", "message": null, "currentStepIndex": 2,
        "pauseConditions": null})
}

/// Plays the controller: once the generation is there, its status.
pub async fn report(objects: &Objects, web: &Value, generation: u64, status: &Value) {
    eventually("the generation is there", Duration::from_secs(120), || async {
        let live = objects.get(web).await?;
        (live["metadata"]["generation"] == generation).then_some(())
    })
    .await;
    objects.report(&path(web, true), status).await;
}

fn result_of(outcome: &StackOutcome, object: &Value) -> Option<ResourceResult> {
    let found = outcome.resources.iter().find(|one| one.id.as_str() == id(object));
    found.map(|one| one.result)
}

#[tokio::test]
async fn a_paused_rollout_ends_the_apply_as_waiting_until_it_is_promoted() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("waiting").await, Objects::of(cluster).await);
    let mut stack = TestStack::new("waiting", cluster.kubeconfig());
    stack.options.wait = true;
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": ns}});
    let (first, old) = (rollout(&ns, "web:1", &json!({})), map("old"));
    let plan = stack.plan_well(&[definition(), first.clone(), old.clone()]).await;
    let up = healthy(1);
    let (outcome, ()) = tokio::join!(stack.carry_out(plan), report(&objects, &first, 1, &up));
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");

    // It pauses. What depends on it is not tried, what does not is, and nothing is deleted.
    let next = rollout(&ns, "web:2", &json!({}));
    let mut after = map("after");
    after["$dependsOn"] = json!([id(&next)]);
    let wanted = [definition(), next.clone(), after.clone(), map("beside")];
    let plan = stack.plan_well(&wanted).await;
    let at_step = paused(2, jiff::Timestamp::now());
    let (outcome, ()) = tokio::join!(stack.carry_out(plan), report(&objects, &next, 2, &at_step));
    assert_eq!(
        (outcome.result, &outcome.error),
        (StackResult::Waiting, &None),
        "{outcome:?}"
    );
    let waiting = outcome.waiting.unwrap();
    assert_eq!((waiting.reason, waiting.until), (WaitReason::Promotion, None));
    assert_eq!(result_of(&outcome, &next), Some(ResourceResult::Waiting));
    assert_eq!(result_of(&outcome, &map("beside")), Some(ResourceResult::Done));
    assert_eq!(result_of(&outcome, &after), Some(ResourceResult::Skipped));
    let told = format!("{:?}", outcome.resources);
    assert!(
        told.contains("paused, waits for promotion: CanaryPauseStep"),
        "{told}"
    );
    assert!(
        told.contains("not tried: `argoproj.io/v1alpha1:Rollout:waiting")
            && told.contains("` waits for promotion"),
        "{told}"
    );
    assert!(objects.get(&after).await.is_none() && objects.get(&old).await.is_some());

    // The next apply takes it up, though nothing of it is to be written.
    let plan = stack.plan_well(&wanted).await;
    assert_eq!(action(&plan, &next), Action::Unchanged);
    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Waiting, "{outcome:?}");
    assert_eq!(result_of(&outcome, &next), Some(ResourceResult::Waiting));

    // Somebody promotes it while an apply waits.
    let plan = stack.plan_well(&wanted).await;
    objects
        .report(
            &path(&next, true),
            &json!({"phase": "Progressing", "pauseConditions": null}),
        )
        .await;
    let up = healthy(2);
    let (outcome, ()) = tokio::join!(stack.carry_out(plan), report(&objects, &next, 2, &up));
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    assert!(objects.get(&after).await.is_some() && objects.get(&old).await.is_none());
    let plan = stack.plan_well(&wanted).await;
    assert_eq!(stack.carry_out(plan).await.result, StackResult::Unchanged);
}

/// A pause that ends soon is waited for. One that ends later than the apply waits is told with its time.
#[tokio::test]
async fn a_pause_with_a_duration_is_waited_for_if_it_ends_in_time() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("timed").await, Objects::of(cluster).await);
    objects.create_definition(&definition()).await;
    let mut stack = TestStack::new("timed", cluster.kubeconfig());
    stack.options.wait = true;
    let short = rollout(&ns, "web:1", &json!({"duration": "90s"}));
    let plan = stack.plan_well(std::slice::from_ref(&short)).await;
    let controller = async {
        report(&objects, &short, 1, &paused(1, jiff::Timestamp::now())).await;
        // The apply sees the pause, and continues.
        tokio::time::sleep(Duration::from_secs(2)).await;
        report(&objects, &short, 1, &healthy(1)).await;
    };
    let (outcome, ()) = tokio::join!(stack.carry_out(plan), controller);
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");

    let long = rollout(&ns, "web:2", &json!({"duration": "5h"}));
    let plan = stack.plan_well(std::slice::from_ref(&long)).await;
    let since: jiff::Timestamp = jiff::Timestamp::now();
    let at_step = paused(2, since);
    let (outcome, ()) = tokio::join!(stack.carry_out(plan), report(&objects, &long, 2, &at_step));
    assert_eq!(outcome.result, StackResult::Waiting, "{outcome:?}");
    let waiting = outcome.waiting.unwrap();
    assert_eq!(waiting.reason, WaitReason::Time);
    assert_eq!(waiting.until, since.checked_add(jiff::Span::new().hours(5)).ok());
}
