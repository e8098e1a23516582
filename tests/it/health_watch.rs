//! What a wait hangs on: watches that expire, answers that are stale (`reference/kubernetes.md` 2, trap 22), and the
//! evidence of a failure. The test plays the controllers.

use std::time::Duration;

use konverge::model::outcome::{ResourceResult, StackResult};
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    faults::{Faults, Proxy},
    objects::{Objects, path},
    service::eventually,
    stack::TestStack,
};

fn deployment(ns: &str, image: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": ns},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": image}]}}}})
}

/// The status of a Deployment that is there, of a generation.
fn rolled_out(generation: u64) -> Value {
    let condition =
        |kind: &str, reason: &str| json!({"type": kind, "status": "True", "reason": reason, "message": ""});
    json!({"observedGeneration": generation, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
        "conditions": [condition("Available", "MinimumReplicasAvailable"), condition("Progressing", "NewReplicaSetAvailable")]})
}

/// Plays the Deployment's controller: once the generation is there, its status.
async fn report(objects: &Objects, web: &Value, generation: u64, status: &Value) {
    eventually("the generation is there", Duration::from_secs(60), || async {
        let live = objects.get(web).await?;
        (live["metadata"]["generation"] == generation).then_some(())
    })
    .await;
    objects.report(&path(web, true), status).await;
}

fn waiting(name: &str, kubeconfig: std::path::PathBuf) -> TestStack {
    let mut stack = TestStack::new(name, kubeconfig);
    stack.options.wait = true;
    stack.options.ready_timeout = Duration::from_secs(90);
    stack
}

#[tokio::test]
async fn watches_that_expire_only_cost_time() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("trap-watch").await, Objects::of(cluster).await);
    let proxy = Proxy::start(cluster, Faults::expired_watches()).await;
    let mut stack = waiting("trap-watch", proxy.kubeconfig());
    let web = deployment(&ns, "a:1");
    let plan = stack.plan_well(std::slice::from_ref(&web)).await;
    let status = rolled_out(1);
    let (outcome, ()) = tokio::join!(stack.carry_out(plan), report(&objects, &web, 1, &status));
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    assert!(proxy.faults() > 0, "no watch was opened");
}

#[tokio::test]
async fn a_status_of_the_generation_before_is_not_believed() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("trap-stale").await, Objects::of(cluster).await);
    let mut stack = waiting("trap-stale", cluster.kubeconfig());
    let web = deployment(&ns, "a:1");
    let plan = stack.plan_well(std::slice::from_ref(&web)).await;
    let status = rolled_out(1);
    let (outcome, ()) = tokio::join!(stack.carry_out(plan), report(&objects, &web, 1, &status));
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");

    // The status still says that all is well, but of the generation before. What comes of the new one is a failure.
    let web = deployment(&ns, "a:2");
    let plan = stack.plan_well(std::slice::from_ref(&web)).await;
    let mut status = rolled_out(2);
    status["conditions"][1] = json!({"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "too slow"});
    let (outcome, ()) = tokio::join!(stack.carry_out(plan), report(&objects, &web, 2, &status));
    assert_eq!(outcome.result, StackResult::Failed, "{outcome:?}");
    let why = outcome.resources[0].message.clone().unwrap();
    assert!(why.contains("ProgressDeadlineExceeded"), "{why}");
}

/// What a person would look for next is in the message: the events about the pod, and the last lines of its log.
#[tokio::test(flavor = "multi_thread")]
async fn a_crashing_pod_fails_with_its_events_and_the_end_of_its_log() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("evidence").await, Objects::of(cluster).await);
    let (port, _) = cluster.https();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "evidence"}});
    objects.create(&node).await;
    let kubelet = json!({"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}});
    objects.report("/api/v1/nodes/evidence", &kubelet).await;
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": ns}});
    objects.create(&account).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": ns},
        "spec": {"nodeName": "evidence", "containers": [{"name": "app", "image": "a:1"}]}});
    let mut stack = waiting("evidence", cluster.kubeconfig());
    let plan = stack.plan_well(std::slice::from_ref(&pod)).await;
    let crashing = async {
        let live = eventually("the pod is there", Duration::from_secs(60), || objects.get(&pod)).await;
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1", "namespace": ns}, "type": "Warning",
            "reason": "BackOff", "message": "Back-off restarting failed container app",
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": ns, "uid": live["metadata"]["uid"]}});
        objects.create(&event).await;
        let ended = json!({"exitCode": 3, "reason": "Error", "startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:01Z", "containerID": "x://1"});
        let container = json!({"name": "app", "image": "a:1", "imageID": "", "ready": false, "restartCount": 3, "lastState": {"terminated": ended},
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}});
        let status = json!({"phase": "Running", "containerStatuses": [container]});
        objects.report(&path(&pod, true), &status).await;
    };
    let (outcome, ()) = tokio::join!(stack.carry_out(plan), crashing);
    assert_eq!(outcome.resources[0].result, ResourceResult::Failed, "{outcome:?}");
    let why = outcome.resources[0].message.clone().unwrap();
    assert!(
        why.contains("CrashLoopBackOff") && why.contains("exit code 3"),
        "{why}"
    );
    assert!(
        why.contains("event BackOff: Back-off restarting failed container app"),
        "{why}"
    );
    assert!(
        why.contains("last lines of pod web, container app:\nprevious run\nno such table: orders"),
        "{why}"
    );
}
