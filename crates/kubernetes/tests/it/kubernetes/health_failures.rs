//! Which failures end a wait early, which are waited for, and what a failure says. The test plays the controllers and
//! the kubelet.

use std::time::Duration;

use konverge_base::model::apply_result::{ResourceResult, StackOutcome, StackResult};
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    objects::{Objects, path},
    service::eventually,
    stack::TestStack,
};

const LONG: Duration = Duration::from_secs(60);

fn waiting(name: &str, cluster: &Cluster) -> TestStack {
    let mut stack = TestStack::new(name, cluster.kubeconfig());
    stack.options.wait = true;
    stack.options.ready_timeout = Duration::from_secs(120);
    // A failure that ends a wait early ends it at once.
    stack.options.fail_early_after = Duration::ZERO;
    stack
}

fn stateful_set(ns: &str, name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name, "namespace": ns},
        "spec": {"replicas": 1, "serviceName": name, "selector": {"matchLabels": {"app": name}}, "template": {"metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "db", "image": "a:1"}]}}}})
}

/// The status of a set of one replica, ready or not.
fn replicas(ready: u32) -> Value {
    json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": ready,
        "availableReplicas": ready, "currentRevision": "a", "updateRevision": "a"})
}

/// Makes a pod of an owner that is there, and gives it a status.
async fn pod_of(objects: &Objects, owner: &Value, mut pod: Value, status: &Value) {
    let live = eventually("the owner is there", LONG, || objects.get(owner)).await;
    let (name, namespace) = (&live["metadata"]["name"], &live["metadata"]["namespace"]);
    let reference = json!({"apiVersion": live["apiVersion"], "kind": live["kind"], "name": name, "uid": live["metadata"]["uid"], "controller": true});
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["namespace"] = namespace.clone();
    pod["metadata"]["labels"] = live["spec"]["template"]["metadata"]["labels"].clone();
    pod["metadata"]["ownerReferences"] = json!([reference]);
    objects.create(&pod).await;
    objects.report(&path(&pod, true), status).await;
}

/// A node whose kubelet answers for logs, and the account of the pods on it.
async fn node(cluster: &Cluster, objects: &Objects, ns: &str, name: &str) {
    let (port, _) = cluster.https();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    objects.create(&node).await;
    let kubelet = json!({"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}});
    objects.report(&path(&node, true), &kubelet).await;
    account(objects, ns).await;
}

async fn account(objects: &Objects, ns: &str) {
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": ns}});
    objects.create(&account).await;
}

fn why(outcome: &StackOutcome) -> String {
    assert_eq!(outcome.resources[0].result, ResourceResult::Failed, "{outcome:?}");
    outcome.resources[0].message.clone().unwrap()
}

/// What is said when time is up. A first apply gives up before anything is reported; the next one waits again.
async fn given_up(stack: &mut TestStack, object: &Value, report: impl Future<Output = ()>) -> String {
    stack.options.ready_timeout = Duration::from_secs(1);
    let plan = stack.plan_well(std::slice::from_ref(object)).await;
    assert_eq!(stack.carry_out(plan).await.result, StackResult::Failed);
    report.await;
    let plan = stack.plan_well(std::slice::from_ref(object)).await;
    why(&stack.carry_out(plan).await)
}

/// How often the pods of a label were listed: a wait lists them every few seconds.
fn count_reads(cluster: &Cluster, ns: &str, name: &str) -> usize {
    let lists = |uri: &str| uri.contains("/pods?") && uri.contains(&format!("app%3D{name}"));
    let events = cluster.audit();
    events
        .iter()
        .filter(|event| event.is_in(ns) && lists(&event.uri))
        .count()
}

#[tokio::test]
async fn what_may_heal_is_waited_for_however_long_it_lasts() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("heals").await, Objects::of(cluster).await);
    account(&objects, &ns).await;
    let unschedulable = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/1 nodes are available", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let waits = |reason: &str, message: &str| {
        json!({"phase": "Pending", "containerStatuses": [{"name": "db", "image": "a:1", "imageID": "", "ready": false,
            "restartCount": 1, "state": {"waiting": {"reason": reason, "message": message}}}]})
    };
    let cases = [
        ("node", unschedulable),
        ("crash", waits("CrashLoopBackOff", "back-off 10s")),
        ("registry", waits("ImagePullBackOff", "429 Too Many Requests")),
        (
            "secret",
            waits("CreateContainerConfigError", "secret \"key\" not found"),
        ),
    ];
    let one = async |(name, status): (&str, Value)| {
        let set = stateful_set(&ns, name);
        let mut stack = waiting(&format!("heals-{name}"), cluster);
        let plan = stack.plan_well(std::slice::from_ref(&set)).await;
        let controller = async {
            let pod = json!({"metadata": {"name": format!("{name}-0")}, "spec": {"containers": [{"name": "db", "image": "a:1"}]}});
            pod_of(&objects, &set, pod, &status).await;
            objects.report(&path(&set, true), &replicas(0)).await;
            let before = count_reads(cluster, &ns, name);
            eventually("it was looked at twice", LONG, || async {
                (count_reads(cluster, &ns, name) >= before + 2).then_some(())
            })
            .await;
            objects.report(&path(&set, true), &replicas(1)).await;
        };
        let (outcome, ()) = tokio::join!(stack.carry_out(plan), controller);
        assert_eq!(outcome.result, StackResult::Applied, "{name}: {outcome:?}");
    };
    futures::future::join_all(cases.map(one)).await;
}

#[tokio::test]
async fn what_waiting_does_not_help_ends_the_wait_early() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("early").await, Objects::of(cluster).await);
    account(&objects, &ns).await;
    let set = stateful_set(&ns, "db");
    let mut stack = waiting("early", cluster);
    let plan = stack.plan_well(std::slice::from_ref(&set)).await;
    let waits =
        json!({"reason": "ErrImagePull", "message": "code = NotFound desc = example.com/db:9: not found"});
    let status = json!({"phase": "Pending", "containerStatuses": [{"name": "db", "image": "a:1", "imageID": "", "ready": false,
        "restartCount": 0, "state": {"waiting": waits}}]});
    let controller = async {
        let pod =
            json!({"metadata": {"name": "db-0"}, "spec": {"containers": [{"name": "db", "image": "a:1"}]}});
        pod_of(&objects, &set, pod, &status).await;
        objects.report(&path(&set, true), &replicas(0)).await;
    };
    let (outcome, ()) = tokio::join!(stack.carry_out(plan), controller);
    let why = why(&outcome);
    assert!(
        why.contains("pod db-0: container db: ErrImagePull") && !why.contains("is not ready after"),
        "{why}"
    );
}

/// A pod that never becomes ready: which container, which probe, what the kubelet said of it, and the end of the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_does_not_become_ready_says_which_container_and_probe() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("probe").await, Objects::of(cluster).await);
    node(cluster, &objects, &ns, "probe").await;
    let set = stateful_set(&ns, "db");
    let mut stack = waiting("probe", cluster);
    let probe = json!({"httpGet": {"path": "/ready", "port": 8080}});
    let containers =
        json!([{"name": "side", "image": "b:1"}, {"name": "db", "image": "a:1", "readinessProbe": probe}]);
    let container = |name: &str, ready: bool| {
        json!({"name": name, "image": "a:1", "imageID": "", "ready": ready, "started": true, "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}})
    };
    let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
        "containerStatuses": [container("side", true), container("db", false)]});
    let report = async {
        let event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "db-0.1", "namespace": ns}, "type": "Warning",
            "reason": "Unhealthy", "message": "Readiness probe failed: connection refused",
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": "db-0", "namespace": ns, "fieldPath": "spec.containers{db}"}});
        objects.create(&event).await;
        let pod =
            json!({"metadata": {"name": "db-0"}, "spec": {"nodeName": "probe", "containers": containers}});
        pod_of(&objects, &set, pod, &status).await;
        objects.report(&path(&set, true), &replicas(0)).await;
    };
    let why = given_up(&mut stack, &set, report).await;
    for part in [
        "is not ready after 1 s: 0 of 1 replicas ready",
        "pod db-0: container db: its readiness probe (GET :8080/ready) has not succeeded",
        "event Unhealthy (container db): Readiness probe failed: connection refused",
        "last lines of pod db-0, container db:\ncurrent run",
    ] {
        assert!(why.contains(part), "{part:?} in {why}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_job_says_pod_exit_code_termination_message_and_log() {
    let cluster = Cluster::shared();
    let mut stack = waiting("job-fails", cluster);
    let why = failed_job(&mut stack, cluster, ("job-fails", json!({})), |_| Vec::new()).await;
    for part in [
        "BackoffLimitExceeded: Job has reached the specified backoff limit",
        "pod once-a: container app ended with exit code 3: migration 7 is missing",
        "last lines of pod once-a, container app:\ncurrent run\nno such table: orders",
    ] {
        assert!(why.contains(part), "{part:?} in {why}");
    }
}

/// What a hook writes into its log and its termination message is text of the cluster: secrets in it are masked.
#[tokio::test(flavor = "multi_thread")]
async fn the_log_and_the_message_of_a_failed_hook_hold_no_secret() {
    let cluster = Cluster::shared();
    let mut stack = waiting("hook-log", cluster);
    stack.hooks.service_accounts = vec!["default".to_owned()];
    for secret in ["no such table: orders", "migration 7"] {
        stack.secrets.learn(secret);
    }
    let guarded = |ns: &str| {
        let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": "a:1"}]}});
        vec![
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": ns},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template}}),
        ]
    };
    let pre = json!({"konverge/hook": "pre"});
    let why = failed_job(&mut stack, cluster, ("hook-log", pre), guarded).await;
    for part in [
        "container app ended with exit code 3: ",
        " is missing",
        "last lines of pod once-a, container app:\ncurrent run\n",
    ] {
        assert!(why.contains(part), "{part:?} in {why}");
    }
    for secret in ["no such table: orders", "migration 7"] {
        assert!(!why.contains(secret), "{why}");
    }
}

/// Applies a Job with these annotations beside other objects, lets it fail, and returns what is said of it.
async fn failed_job(
    stack: &mut TestStack,
    cluster: &Cluster,
    (name, annotations): (&str, Value),
    beside: impl FnOnce(&str) -> Vec<Value>,
) -> String {
    let (ns, objects) = (cluster.namespace(name).await, Objects::of(cluster).await);
    node(cluster, &objects, &ns, name).await;
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once", "namespace": ns, "annotations": annotations},
        "spec": {"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "app", "image": "a:1"}]}}}});
    let wanted = [vec![job.clone()], beside(&ns)].concat();
    let plan = stack.plan_well(&wanted).await;
    let controller = async {
        let ended = json!({"exitCode": 3, "reason": "Error", "message": "migration 7 is missing", "startedAt": "2026-01-01T00:00:00Z",
            "finishedAt": "2026-01-01T00:00:01Z", "containerID": "x://1"});
        let status = json!({"phase": "Failed", "containerStatuses": [{"name": "app", "image": "a:1", "imageID": "", "ready": false,
            "restartCount": 0, "state": {"terminated": ended}}]});
        let pod = json!({"metadata": {"name": "once-a"}, "spec": {"nodeName": name, "restartPolicy": "Never", "containers": [{"name": "app", "image": "a:1"}]}});
        pod_of(&objects, &job, pod, &status).await;
        let condition = |kind: &str| {
            json!({"type": kind, "status": "True", "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit",
                "lastTransitionTime": "2026-01-01T00:00:02Z", "lastProbeTime": "2026-01-01T00:00:02Z"})
        };
        let failed = json!({"startTime": "2026-01-01T00:00:00Z", "failed": 1, "conditions": [condition("FailureTarget"), condition("Failed")]});
        objects.report(&path(&job, true), &failed).await;
    };
    let (outcome, ()) = tokio::join!(stack.carry_out(plan), controller);
    let mut results = outcome.resources.iter();
    let failed = results
        .find(|result| result.id.as_str().starts_with("batch/v1:Job:"))
        .unwrap();
    assert_eq!(failed.result, ResourceResult::Failed, "{outcome:?}");
    failed.message.clone().unwrap()
}

/// What a person would look for next is in the message: the events about the pod, and the last lines of its log.
#[tokio::test(flavor = "multi_thread")]
async fn a_crashing_pod_fails_with_its_events_and_the_end_of_its_log() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("evidence").await, Objects::of(cluster).await);
    node(cluster, &objects, &ns, "evidence").await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": ns},
        "spec": {"nodeName": "evidence", "containers": [{"name": "app", "image": "a:1"}]}});
    let report = async {
        let live = eventually("the pod is there", LONG, || objects.get(&pod)).await;
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
    let why = given_up(&mut waiting("evidence", cluster), &pod, report).await;
    for part in [
        "is not ready after 1 s: container app: CrashLoopBackOff: container app ended with exit code 3",
        "event BackOff: Back-off restarting failed container app",
        "last lines of pod web, container app:\nprevious run\nno such table: orders",
    ] {
        assert!(why.contains(part), "{part:?} in {why}");
    }
}
