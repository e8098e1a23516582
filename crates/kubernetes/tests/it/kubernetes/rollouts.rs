//! Waiting for readiness on a real control plane, whose pods become ready on a fake node.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use konverge_base::model::{
    apply_result::{ResourceResult, StackOutcome, StackResult, WaitReason},
    health::Health,
    plan::Action,
};
use konverge_engine::runtime::{Item, Needs, Runtime as _, StackScope};
use konverge_secrets::StackReferences;
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    objects::{Objects, path},
    service::eventually,
    stack::{TestStack, action, cluster as its_cluster, id},
};

/// A Deployment; `nobody` as scheduler leaves its pods where they are.
fn deployment(namespace: &str, name: &str, scheduler: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": 2, "progressDeadlineSeconds": 600, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"schedulerName": scheduler,
                "containers": [{"name": "app", "image": "example.com/app:1"}]}}}})
}

const SCHEDULED: &str = "default-scheduler";
const STUCK: &str = "nobody";

fn stack(cluster: &Cluster, name: &str) -> TestStack {
    let mut stack = TestStack::new(name, cluster.kubeconfig());
    stack.options.wait = true;
    stack.options.ready_timeout = Duration::from_secs(120);
    stack.options.fail_early_after = Duration::from_secs(3);
    stack
}

async fn apply(stack: &mut TestStack, objects: &[Value]) -> StackOutcome {
    let plan = stack.plan_well(objects).await;
    stack.carry_out(plan).await
}

/// Why a resource failed.
fn why(outcome: &StackOutcome, object: &Value) -> String {
    let found = outcome
        .resources
        .iter()
        .find(|one| one.id.as_str() == id(object))
        .unwrap();
    assert_eq!(found.result, ResourceResult::Failed, "{outcome:?}");
    found.message.clone().unwrap()
}

#[tokio::test]
async fn a_rollout_is_waited_for_and_its_update_too() {
    let cluster = Cluster::with_controllers();
    let (ns, objects) = (cluster.namespace("ready").await, Objects::of(cluster).await);
    let mut stack = stack(cluster, "ready");
    let mut web = deployment(&ns, "web", SCHEDULED);
    for image in ["example.com/app:1", "example.com/app:2"] {
        web["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        stack.apply(std::slice::from_ref(&web)).await;
        let live = objects.get(&web).await.unwrap();
        let status = &live["status"];
        assert_eq!(status["observedGeneration"], live["metadata"]["generation"]);
        let counts = [
            &status["replicas"],
            &status["updatedReplicas"],
            &status["availableReplicas"],
        ];
        assert_eq!(counts, [2, 2, 2], "{status}");
    }
}

#[tokio::test]
async fn a_rollout_that_gets_stuck_fails_at_its_own_deadline() {
    let cluster = Cluster::with_controllers();
    let ns = cluster.namespace("stuck").await;
    let mut web = deployment(&ns, "web", STUCK);
    web["spec"]["progressDeadlineSeconds"] = json!(3);
    let outcome = apply(&mut stack(cluster, "stuck"), std::slice::from_ref(&web)).await;
    let why = why(&outcome, &web);
    assert!(why.contains("ProgressDeadlineExceeded"), "{why}");
}

#[tokio::test]
async fn pods_that_can_not_start_fail_the_rollout_early_and_are_named() {
    let cluster = Cluster::with_controllers();
    let (ns, objects) = (cluster.namespace("failing").await, Objects::of(cluster).await);
    let web = deployment(&ns, "web", STUCK);
    let pods = format!("/api/v1/namespaces/{ns}/pods");
    let kubelet = async {
        let found = eventually("the pods are there", Duration::from_secs(60), || async {
            let found = objects.labelled(&pods, "app=web").await;
            (found.len() == 2).then_some(found)
        });
        for pod in found.await {
            let path = format!("{pods}/{}", pod["metadata"]["name"].as_str().unwrap());
            let waiting = json!({"reason": "ImagePullBackOff", "message": "no such tag"});
            let container = json!({"name": "app", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": waiting}});
            objects
                .report(&path, &json!({"containerStatuses": [container]}))
                .await;
        }
    };
    let mut stack = stack(cluster, "failing");
    let (outcome, ()) = tokio::join!(apply(&mut stack, std::slice::from_ref(&web)), kubelet);
    let why = why(&outcome, &web);
    assert!(
        why.contains("(and 1 more): container app: ImagePullBackOff: no such tag"),
        "{why}"
    );
    assert!(!why.contains("not ready after"), "{why}");
}

#[tokio::test]
async fn a_quota_that_is_used_up_fails_the_rollout_early() {
    let cluster = Cluster::with_controllers();
    let ns = cluster.namespace("quota").await;
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": ns},
        "spec": {"hard": {"pods": "0"}}});
    Objects::of(cluster).await.create(&quota).await;
    let web = deployment(&ns, "web", SCHEDULED);
    let outcome = apply(&mut stack(cluster, "quota"), std::slice::from_ref(&web)).await;
    let why = why(&outcome, &web);
    assert!(why.contains("exceeded quota: none"), "{why}");
}

#[tokio::test]
async fn a_paused_rollout_is_not_waited_for() {
    let cluster = Cluster::with_controllers();
    let (ns, objects) = (cluster.namespace("paused").await, Objects::of(cluster).await);
    let mut web = deployment(&ns, "web", STUCK);
    web["spec"]["paused"] = json!(true);
    stack(cluster, "paused").apply(std::slice::from_ref(&web)).await;
    let live = objects.get(&web).await.unwrap();
    assert_eq!(live["status"]["readyReplicas"], Value::Null);
}

#[tokio::test]
async fn a_partitioned_set_is_ready_when_its_part_is() {
    let cluster = Cluster::with_controllers();
    let (ns, objects) = (cluster.namespace("partition").await, Objects::of(cluster).await);
    let mut db = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": ns},
        "spec": {"replicas": 3, "serviceName": "db", "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "db"}}, "template": {"metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "app", "image": "example.com/db:1"}]}}}});
    let mut stack = stack(cluster, "partition");
    stack.apply(std::slice::from_ref(&db)).await;
    assert_eq!(objects.get(&db).await.unwrap()["status"]["readyReplicas"], 3);

    db["spec"]["template"]["spec"]["containers"][0]["image"] = json!("example.com/db:2");
    db["spec"]["updateStrategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 2}});
    stack.apply(std::slice::from_ref(&db)).await;
    let status = objects.get(&db).await.unwrap()["status"].clone();
    assert_eq!(
        (&status["updatedReplicas"], &status["readyReplicas"]),
        (&json!(1), &json!(3)),
        "{status}"
    );
    assert_ne!(status["currentRevision"], status["updateRevision"]);
}

#[tokio::test]
async fn what_an_autoscaler_wants_is_waited_for_and_its_own_errors_are_not() {
    let cluster = Cluster::with_controllers();
    let (ns, objects) = (cluster.namespace("scaled").await, Objects::of(cluster).await);
    let mut web = deployment(&ns, "web", SCHEDULED);
    web["spec"].as_object_mut().unwrap().remove("replicas");
    // There are no metrics here, which the autoscaler reports as a failure.
    let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": ns}, "spec": {"minReplicas": 1, "maxReplicas": 5,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}});
    let mut stack = stack(cluster, "scaled");
    stack.apply(&[web.clone(), scaler.clone()]).await;
    objects.scale(&web, "autoscaler", 3).await;

    web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("example.com/app:2");
    stack.apply(&[web.clone(), scaler]).await;
    let status = objects.get(&web).await.unwrap()["status"].clone();
    assert_eq!(
        (&status["updatedReplicas"], &status["availableReplicas"]),
        (&json!(3), &json!(3)),
        "{status}"
    );
}

#[tokio::test]
async fn a_job_is_ready_when_it_has_completed() {
    let cluster = Cluster::with_controllers();
    let (ns, objects) = (cluster.namespace("job").await, Objects::of(cluster).await);
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once", "namespace": ns},
        "spec": {"completions": 2, "template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "app", "image": "example.com/app:1"}]}}}});
    stack(cluster, "job").apply(std::slice::from_ref(&job)).await;
    assert_eq!(objects.get(&job).await.unwrap()["status"]["succeeded"], 2);
}

/// One that its time to live takes away as soon as it has completed did so, and is not done once more; one that
/// somebody deletes did not.
#[tokio::test]
async fn a_job_that_is_gone_has_completed_only_if_it_was_seen_to() {
    let cluster = Cluster::with_controllers();
    let (ns, objects) = (cluster.namespace("job-gone").await, Objects::of(cluster).await);
    let job = |name: &str, scheduler: &str, time_to_live: u64| {
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": ns},
            "spec": {"ttlSecondsAfterFinished": time_to_live, "template": {"spec": {"restartPolicy": "Never", "schedulerName": scheduler,
                "containers": [{"name": "app", "image": "example.com/app:1"}]}}}})
    };
    let brief = job("brief", SCHEDULED, 0);
    let mut done = stack(cluster, "job-brief");
    let outcome = apply(&mut done, std::slice::from_ref(&brief)).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    eventually("its time is over", Duration::from_secs(60), || async {
        objects.get(&brief).await.is_none().then_some(())
    })
    .await;

    let plan = done.plan_well(std::slice::from_ref(&brief)).await;
    assert_eq!(action(&plan, &brief), Action::Unchanged);
    let outcome = done.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Unchanged, "{outcome:?}");
    let items = [Item {
        id: id(&brief).parse().unwrap(),
        cluster: Some(its_cluster()),
        prior: done.state.resources.first().cloned(),
        desired: None,
        needs: Needs::default(),
    }];
    let scope = StackScope {
        stack: done.id.clone(),
        earlier: Vec::new(),
        data: BTreeMap::new(),
        ignore: Vec::new(),
        read: Arc::default(),
        pending: Arc::default(),
        hooks: Arc::default(),
        references: StackReferences::default(),
        only_compares: false,
    };
    let seen = done.kubernetes().await.observe(&scope, &items).await.unwrap();
    assert_eq!(seen[0].health.0, Health::Ready, "{seen:?}");
    // Something else of it is wanted, or nothing.
    let mut other = brief.clone();
    other["spec"]["template"]["spec"]["containers"][0]["image"] = json!("example.com/app:2");
    assert_eq!(action(&done.plan_well(&[other]).await, &brief), Action::Create);
    assert_eq!(action(&done.plan_well(&[]).await, &brief), Action::Forget);

    let stuck = job("stuck", STUCK, 600);
    let mut waiting = stack(cluster, "job-stuck");
    let deleted = async {
        eventually("the job is there", Duration::from_secs(60), || {
            objects.get(&stuck)
        })
        .await;
        objects.delete(&stuck).await;
    };
    let (outcome, ()) = tokio::join!(apply(&mut waiting, std::slice::from_ref(&stuck)), deleted);
    let why = why(&outcome, &stuck);
    assert!(
        why.contains("was deleted during the wait for its readiness"),
        "{why}"
    );
}

/// KusionStack's Rollout does not say that it is paused: its run does. The test plays the controller.
#[tokio::test]
async fn a_kusionstack_rollout_waits_where_its_run_is_paused() {
    let cluster = Cluster::with_controllers();
    let (ns, objects) = (cluster.namespace("kusion-run").await, Objects::of(cluster).await);
    let group = "rollout.kusionstack.io";
    for (kind, plural) in [("Rollout", "rollouts"), ("RolloutRun", "rolloutruns")] {
        let schema =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let version = json!({"name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}}, "schema": schema});
        let names = json!({"kind": kind, "plural": plural, "singular": kind.to_lowercase()});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]}});
        objects.create_definition(&definition).await;
    }
    let object = |kind: &str, name: &str, spec: Value| json!({"apiVersion": format!("{group}/v1alpha1"), "kind": kind, "metadata": {"name": name, "namespace": ns}, "spec": spec});
    let web = object("Rollout", "web", json!({"strategyRef": "halves"}));
    let run = object("RolloutRun", "web-x1", json!({}));
    objects.create(&run).await;
    let batch = json!({"currentBatchIndex": 1, "currentBatchState": "Pending"});
    let paused = json!({"observedGeneration": 1, "phase": "Paused", "batchStatus": batch});
    objects.report(&path(&run, true), &paused).await;
    let controller = async {
        eventually("the rollout is there", Duration::from_secs(60), || {
            objects.get(&web)
        })
        .await;
        let under_way = json!({"observedGeneration": 1, "phase": "Progressing", "rolloutID": "web-x1"});
        objects.report(&path(&web, true), &under_way).await;
    };
    let mut stack = stack(cluster, "kusion-run");
    let (outcome, ()) = tokio::join!(apply(&mut stack, std::slice::from_ref(&web)), controller);
    assert_eq!(outcome.result, StackResult::Waiting, "{outcome:?}");
    assert_eq!(outcome.waiting.unwrap().reason, WaitReason::Promotion);
    let told = format!("{:?}", outcome.resources);
    assert!(told.contains("paused, waits for promotion: batch 2"), "{told}");
}
