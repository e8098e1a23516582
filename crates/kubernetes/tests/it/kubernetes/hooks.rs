//! Hooks on a real API server. The test plays the controllers of Jobs and Deployments, and counts the runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use konverge_base::model::{
    apply_result::{ResourceResult, StackOutcome, StackResult},
    hook::HOOK_STAMP,
    plan::Action,
};
use konverge_engine::EnginePlan;
use serde_json::{Value, json};

use crate::support::{
    cluster::{Cluster, EVICTED},
    faulty_api_server::{Faults, Proxy},
    objects::{Objects, path},
    service::eventually,
    stack::{TestStack, action, planned},
};

const LONG: Duration = Duration::from_secs(60);

fn deployment(ns: &str, version: u32) -> Value {
    let pod = json!({"containers": [{"name": "app", "image": format!("example.com/web:{version}")}]});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": ns},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod}}})
}

fn job(ns: &str, name: &str, annotations: Value) -> Value {
    let pod =
        json!({"restartPolicy": "Never", "containers": [{"name": "job", "image": "example.com/job:1"}]});
    json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": ns, "annotations": annotations},
        "spec": {"backoffLimit": 0, "template": {"spec": pod}}})
}

fn pre(ns: &str) -> Value {
    job(ns, "migrate", json!({"konverge/hook": "pre"}))
}

fn post(ns: &str) -> Value {
    job(ns, "smoke", json!({"konverge/hook": "post"}))
}

fn stack(name: &str, cluster: &Cluster) -> TestStack {
    let mut stack = TestStack::new(name, cluster.kubeconfig());
    stack.hooks.service_accounts = vec!["default".to_owned()];
    stack
}

/// How the Jobs of a name end.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Completes,
    Fails,
    Hangs,
}

/// The controllers of a namespace, until it is dropped.
struct Controllers {
    shared: Arc<Seen>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    ends: Mutex<BTreeMap<String, End>>,
    /// The name, the stamp and the UID of each Job that ran.
    runs: Mutex<BTreeSet<(String, String, String)>>,
    /// Those that completed.
    completed: Mutex<BTreeSet<(String, String, String)>>,
    /// The image of the Deployment when a `migrate` began and when it ended.
    broken_promises: Mutex<Vec<String>>,
}

impl Drop for Controllers {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn is(job: &Value, kind: &str) -> bool {
    let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
    conditions
        .into_iter()
        .any(|condition| condition["type"] == kind && condition["status"] == "True")
}

impl Controllers {
    async fn of(cluster: &'static Cluster, ns: &str) -> Self {
        let objects = Objects::of(cluster).await;
        let (shared, ns) = (Arc::new(Seen::default()), ns.to_owned());
        let seen = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            loop {
                for job in objects
                    .list(&format!("/apis/batch/v1/namespaces/{ns}/jobs"))
                    .await
                {
                    seen.control(&objects, &ns, job).await;
                }
                let web = deployment(&ns, 0);
                if let Some(live) = objects.get(&web).await {
                    let condition = |kind: &str, reason: &str| {
                        json!({"type": kind, "status": "True", "reason": reason,
                        "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z"})
                    };
                    let ready = json!({"observedGeneration": live["metadata"]["generation"], "replicas": 1, "updatedReplicas": 1,
                        "readyReplicas": 1, "availableReplicas": 1,
                        "conditions": [condition("Available", "MinimumReplicasAvailable"), condition("Progressing", "NewReplicaSetAvailable")]});
                    if live["status"]["observedGeneration"] != live["metadata"]["generation"] {
                        objects.report(&path(&web, true), &ready).await;
                    }
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        Self { shared, task }
    }

    fn set(&self, name: &str, end: End) {
        self.shared.ends.lock().unwrap().insert(name.to_owned(), end);
    }

    /// The runs of a name, and how many of them completed.
    fn runs(&self, name: &str) -> (usize, usize) {
        let count = |runs: &Mutex<BTreeSet<(String, String, String)>>| {
            let runs = runs.lock().unwrap();
            runs.iter().filter(|(job, ..)| job == name).count()
        };
        (count(&self.shared.runs), count(&self.shared.completed))
    }

    /// No stamp completed in two Jobs, and no guarded workload changed before a `pre` hook had ended.
    fn check(&self) {
        let completed = self.shared.completed.lock().unwrap();
        let stamps: BTreeSet<_> = completed.iter().map(|(name, stamp, _)| (name, stamp)).collect();
        assert_eq!(
            stamps.len(),
            completed.len(),
            "twice for one digest: {completed:?}"
        );
        let broken = self.shared.broken_promises.lock().unwrap();
        assert!(broken.is_empty(), "{broken:?}");
    }
}

impl Seen {
    async fn control(&self, objects: &Objects, ns: &str, mut job: Value) {
        (job["apiVersion"], job["kind"]) = (json!("batch/v1"), json!("Job"));
        if !job["metadata"]["deletionTimestamp"].is_null() {
            // The garbage collector: its pods are gone.
            let _ = objects
                .try_merge(&job, &json!({"metadata": {"finalizers": null}}))
                .await;
            return;
        }
        let (name, uid) = (text(&job["metadata"]["name"]), text(&job["metadata"]["uid"]));
        let stamp = text(&job["metadata"]["annotations"][HOOK_STAMP]);
        let run = (name.clone(), stamp, uid);
        let is_new = self.runs.lock().unwrap().insert(run.clone());
        if is_new && name == "migrate" {
            let live = objects.get(&deployment(ns, 0)).await.unwrap_or_default();
            let image = text(&live["spec"]["template"]["spec"]["containers"][0]["image"]);
            let wanted = text(&job["spec"]["template"]["spec"]["containers"][0]["env"][0]["value"]);
            if !wanted.is_empty() && image == wanted {
                self.broken_promises
                    .lock()
                    .unwrap()
                    .push(format!("{image} came before its `pre` hook"));
            }
        }
        if is_new && name == "backup" && objects.get(&deployment(ns, 0)).await.is_none() {
            let mut broken = self.broken_promises.lock().unwrap();
            broken.push("the workload was deleted before its `pre-destroy` hook".to_owned());
        }
        if is(&job, "Complete") || is(&job, "Failed") || job["spec"]["suspend"] == json!(true) {
            return;
        }
        let end = self
            .ends
            .lock()
            .unwrap()
            .get(&name)
            .copied()
            .unwrap_or(End::Completes);
        let condition = |kind: &str| {
            json!({"type": kind, "status": "True", "reason": "Test", "message": "as the test says",
            "lastTransitionTime": "2026-01-01T00:00:02Z", "lastProbeTime": "2026-01-01T00:00:02Z"})
        };
        let status = match end {
            End::Hangs => return,
            End::Completes => {
                json!({"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:02Z", "succeeded": 1,
                "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]})
            }
            End::Fails => json!({"startTime": "2026-01-01T00:00:00Z", "failed": 1,
                "conditions": [condition("FailureTarget"), condition("Failed")]}),
        };
        if objects.try_report(&path(&job, true), &status).await && end == End::Completes {
            self.completed.lock().unwrap().insert(run);
        }
    }
}

async fn apply(stack: &mut TestStack, wanted: &[Value]) -> StackOutcome {
    let plan = stack.plan_well(wanted).await;
    stack.carry_out(plan).await
}

fn message(outcome: &StackOutcome, name: &str) -> String {
    let suffix = format!(":{name}");
    let found = outcome
        .resources
        .iter()
        .find(|one| one.id.as_str().ends_with(&suffix));
    found.and_then(|one| one.message.clone()).unwrap_or_default()
}

fn result(outcome: &StackOutcome, name: &str) -> Option<ResourceResult> {
    let suffix = format!(":{name}");
    let found = outcome
        .resources
        .iter()
        .find(|one| one.id.as_str().ends_with(&suffix));
    found.map(|one| one.result)
}

#[tokio::test]
async fn hooks_run_around_a_change_and_a_changed_job_is_made_anew() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("hooks").await;
    let objects = Objects::of(cluster).await;
    let controllers = Controllers::of(cluster, &ns).await;
    let mut stack = stack("hooks", cluster);
    let wanted = |version| [deployment(&ns, version), pre(&ns), post(&ns)];
    let plan = stack.plan_well(&wanted(1)).await;
    assert_eq!(action(&plan, &pre(&ns)), Action::Run);
    assert_eq!((plan.public.summary.run, plan.public.summary.create), (2, 1));
    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    let first = objects.get(&pre(&ns)).await.unwrap()["metadata"]["uid"].clone();
    let plan = stack.plan_well(&wanted(1)).await;
    assert_eq!(plan.public.summary.changed(), 0, "{:?}", plan.public);
    assert_eq!(stack.carry_out(plan).await.result, StackResult::Unchanged);

    let mut changed = wanted(1);
    changed[1]["spec"]["template"]["spec"]["containers"][0]["image"] = json!("example.com/job:2");
    let plan = stack.plan_well(&changed).await;
    let run = planned(&plan, &changed[1]).unwrap();
    assert_eq!(
        (run.action, run.replace.is_empty(), run.data_loss),
        (Action::Run, true, false)
    );
    assert_eq!(action(&plan, &changed[0]), Action::Unchanged);
    assert_eq!(
        action(&plan, &changed[2]),
        Action::Unchanged,
        "what it guards stays"
    );
    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    assert_ne!(objects.get(&pre(&ns)).await.unwrap()["metadata"]["uid"], first);
    assert_eq!(
        (controllers.runs("migrate"), controllers.runs("smoke")),
        ((2, 2), (1, 1))
    );

    // Somebody deletes them, or time does: nothing is due.
    objects.delete(&pre(&ns)).await;
    objects.delete(&post(&ns)).await;
    eventually("they are gone", LONG, || async {
        objects.get(&post(&ns)).await.is_none().then_some(())
    })
    .await;
    assert_eq!(stack.plan_well(&changed).await.public.summary.changed(), 0);
    let outcome = apply(&mut stack, &[deployment(&ns, 2), changed[1].clone(), post(&ns)]).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    controllers.check();

    // Without its annotation it is a plain Job again; without its resource it is deleted.
    let plain = job(&ns, "migrate", json!({}));
    assert_ne!(
        action(
            &stack.plan_well(&[deployment(&ns, 2), plain.clone()]).await,
            &plain
        ),
        Action::Run
    );
    assert_eq!(
        action(&stack.plan_well(&[deployment(&ns, 2)]).await, &plain),
        Action::Delete
    );
}

#[tokio::test]
async fn a_failed_pre_hook_holds_everything_behind_it_back_and_says_why() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("hook-fails").await;
    let objects = Objects::of(cluster).await;
    let controllers = Controllers::of(cluster, &ns).await;
    controllers.set("migrate", End::Fails);
    let mut stack = stack("hook-fails", cluster);
    let tell = job(
        &ns,
        "tell",
        json!({"konverge/hook": "failed", "konverge/hook-keep": "none"}),
    );
    let wanted = [deployment(&ns, 1), pre(&ns), post(&ns), tell.clone()];
    let outcome = apply(&mut stack, &wanted).await;
    assert_eq!(outcome.result, StackResult::Failed);
    let error = outcome.error.clone().unwrap();
    assert!(
        error.message.contains("Job `") && error.message.contains("as the test says"),
        "{error:?}"
    );
    assert_eq!(result(&outcome, "web"), Some(ResourceResult::Skipped));
    assert_eq!(
        result(&outcome, "tell"),
        Some(ResourceResult::Done),
        "{outcome:?}"
    );
    assert!(objects.get(&wanted[0]).await.is_none() && objects.get(&post(&ns)).await.is_none());
    assert!(objects.get(&tell).await.is_none(), "nothing of it stays");
    assert!(
        objects.get(&pre(&ns)).await.is_some(),
        "the last one stays, to be read"
    );

    // The next apply tries once more, in a new Job.
    controllers.set("migrate", End::Completes);
    let outcome = apply(&mut stack, &wanted).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    assert_eq!(
        (controllers.runs("migrate"), controllers.runs("tell")),
        ((2, 1), (1, 1))
    );
    controllers.check();
}

#[tokio::test]
async fn a_hook_that_hangs_is_stopped_by_its_limit() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("hook-hangs").await;
    let objects = Objects::of(cluster).await;
    let controllers = Controllers::of(cluster, &ns).await;
    controllers.set("smoke", End::Hangs);
    let mut stack = stack("hook-hangs", cluster);
    stack.options.hook_timeout = Duration::from_secs(1);
    let outcome = apply(&mut stack, &[deployment(&ns, 1), post(&ns)]).await;
    assert_eq!(
        (outcome.result, result(&outcome, "web")),
        (StackResult::Failed, Some(ResourceResult::Done))
    );
    let why = message(&outcome, "smoke");
    assert!(
        why.contains("has not ended after 1 s") && why.contains("apply.hooks.timeout"),
        "{why}"
    );
    assert_eq!(
        objects.get(&post(&ns)).await.unwrap()["spec"]["suspend"],
        true,
        "nothing of it runs on"
    );
    controllers.set("smoke", End::Completes);
    let outcome = apply(&mut stack, &[deployment(&ns, 1), post(&ns)]).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    assert_eq!(controllers.runs("smoke"), (2, 1));
}

#[tokio::test]
async fn a_job_that_is_gone_before_its_end_was_seen_fails_once() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("hook-lost").await;
    let objects = Objects::of(cluster).await;
    let controllers = Controllers::of(cluster, &ns).await;
    controllers.set("migrate", End::Hangs);
    let mut stack = stack("hook-lost", cluster);
    let wanted = [deployment(&ns, 1), pre(&ns)];
    let plan = stack.plan_well(&wanted).await;
    let migrate = pre(&ns);
    let killed = async {
        eventually("the Job runs", LONG, || objects.get(&migrate)).await;
    };
    assert!(stack.carry_out_until(plan, killed).await.is_none());
    objects.delete(&pre(&ns)).await;
    eventually("it is gone", LONG, || async {
        objects.get(&pre(&ns)).await.is_none().then_some(())
    })
    .await;
    controllers.set("migrate", End::Completes);
    let outcome = apply(&mut stack, &wanted).await;
    assert_eq!(result(&outcome, "migrate"), Some(ResourceResult::Failed));
    assert!(
        message(&outcome, "migrate").contains("may have run"),
        "{outcome:?}"
    );
    assert!(objects.get(&wanted[0]).await.is_none());
    let outcome = apply(&mut stack, &wanted).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    assert_eq!(controllers.runs("migrate"), (2, 1));
}

#[tokio::test]
async fn a_job_of_somebody_else_is_not_deleted_for_a_hook() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("hook-foreign").await;
    let objects = Objects::of(cluster).await;
    objects.create(&job(&ns, "migrate", json!({}))).await;
    let plan = stack("hook-foreign", cluster)
        .plan(&[deployment(&ns, 1), pre(&ns)])
        .await;
    let (_, failure) = plan.failures.first().unwrap();
    assert!(failure.message.contains("no stack owns it"), "{failure}");
}

/// With the controllers of a real cluster: its Job controller runs the pods, and its garbage collector and its time to
/// live take the Jobs away.
#[tokio::test]
async fn real_controllers_run_a_hook_and_its_time_to_live_takes_it_away() {
    let cluster = Cluster::with_controllers();
    let ns = cluster.namespace("hook-real").await;
    let objects = Objects::of(cluster).await;
    let mut stack = stack("hook-real", cluster);
    let mut migrate = pre(&ns);
    migrate["spec"]["ttlSecondsAfterFinished"] = json!(0);
    for version in [1, 2] {
        let wanted = [deployment(&ns, version), migrate.clone(), post(&ns)];
        let outcome = apply(&mut stack, &wanted).await;
        assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
        eventually("its time is over", LONG, || async {
            objects.get(&migrate).await.is_none().then_some(())
        })
        .await;
        assert_eq!(stack.plan_well(&wanted).await.public.summary.changed(), 0);
        assert_eq!(objects.get(&post(&ns)).await.unwrap()["status"]["succeeded"], 1);
    }
}

/// Killed at each request in turn: no digest completes twice, no workload changes before its `pre` hook has ended, and
/// the next run brings everything to its end.
#[tokio::test]
async fn killed_at_each_request_a_hook_runs_once_for_each_digest() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("hook-killed").await;
    let objects = Objects::of(cluster).await;
    let controllers = Controllers::of(cluster, &ns).await;
    let proxy = Proxy::start(cluster, Faults::none()).await;
    let mut stack = stack("hook-killed", cluster);
    stack.act_as(proxy.kubeconfig());
    let mut version = 0;
    for before in [false, true] {
        for kill_at in 1.. {
            version += 1;
            let mut migrate = pre(&ns);
            let image = json!({"name": "VERSION", "value": format!("example.com/web:{version}")});
            migrate["spec"]["template"]["spec"]["containers"][0]["env"] = json!([image]);
            let wanted = [deployment(&ns, version), migrate, post(&ns)];
            let plan = stack.plan_well(&wanted).await;
            proxy.kill_at(kill_at, before);
            let killed = stack.carry_out_until(plan, proxy.killed()).await.is_none();
            proxy.calm();
            let mut outcome = apply(&mut stack, &wanted).await;
            if says_that_it_may_have_run(&outcome, &["migrate", "smoke"]) {
                outcome = apply(&mut stack, &wanted).await;
            }
            let has_succeeded = matches!(outcome.result, StackResult::Applied | StackResult::Unchanged);
            assert!(has_succeeded, "killed at {kill_at}, {before}: {outcome:?}");
            controllers.check();
            let runs = (controllers.runs("migrate"), controllers.runs("smoke"));
            let all = version as usize;
            assert_eq!(runs, ((all, all), (all, all)), "killed at {kill_at}, {before}");
            let live = objects.get(&wanted[0]).await.unwrap();
            assert_eq!(live["spec"]["template"]["spec"], merged(&live, &wanted[0]));
            assert_eq!(stack.plan_well(&wanted).await.public.summary.changed(), 0);
            if !killed {
                assert!(kill_at > 8, "an apply with hooks has more requests than that");
                break;
            }
        }
    }
}

/// Returns true if an apply failed because the end of an earlier run of one of these hooks is not known.
fn says_that_it_may_have_run(outcome: &StackOutcome, hooks: &[&str]) -> bool {
    hooks.iter().any(|hook| {
        result(outcome, hook) == Some(ResourceResult::Failed)
            && message(outcome, hook).contains("may have run")
    })
}

/// What becomes of the Job of a hook between a kill and the next apply.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    StillRuns,
    Ended,
    EndedAndDeleted,
    Deleted,
}

/// Killed while the hook runs: the next apply finds the run, or fails once and says that it may have run.
#[tokio::test]
async fn killed_while_it_runs_a_hook_runs_once_or_the_next_apply_says_that_it_may_have_run() {
    let cluster = Cluster::shared();
    for time in ["pre", "post", "pre-destroy"] {
        for fate in [Fate::StillRuns, Fate::Ended, Fate::EndedAndDeleted, Fate::Deleted] {
            let ns = cluster.namespace("hook-fate").await;
            let objects = Objects::of(cluster).await;
            let controllers = Controllers::of(cluster, &ns).await;
            let mut stack = stack("hook-fate", cluster);
            // The first run is the first of its stack, the second one has an older digest before it.
            for version in [1, 2] {
                let mut hook = job(&ns, "hook", json!({"konverge/hook": time}));
                hook["spec"]["template"]["spec"]["containers"][0]["env"] =
                    json!([{"name": "VERSION", "value": version.to_string()}]);
                let mut wanted = vec![deployment(&ns, version), hook.clone()];
                if time == "pre-destroy" {
                    assert_eq!(apply(&mut stack, &wanted).await.result, StackResult::Applied);
                    wanted.clear();
                }
                let case = format!("{time}, {fate:?}, version {version}");
                let before = controllers.runs("hook").0;
                controllers.set("hook", End::Hangs);
                let plan = stack.plan_well(&wanted).await;
                let killed = eventually("the hook runs", LONG, || async {
                    (controllers.runs("hook").0 > before).then_some(())
                });
                assert!(stack.carry_out_until(plan, killed).await.is_none(), "{case}");
                if fate != Fate::Deleted {
                    controllers.set("hook", End::Completes);
                }
                if matches!(fate, Fate::Ended | Fate::EndedAndDeleted) {
                    eventually("it ends", LONG, || async {
                        objects
                            .get(&hook)
                            .await
                            .filter(|job| is(job, "Complete"))
                            .map(drop)
                    })
                    .await;
                }
                if matches!(fate, Fate::EndedAndDeleted | Fate::Deleted) {
                    objects.delete(&hook).await;
                    eventually("it is gone", LONG, || async {
                        objects.get(&hook).await.is_none().then_some(())
                    })
                    .await;
                    controllers.set("hook", End::Completes);
                    let outcome = apply(&mut stack, &wanted).await;
                    assert!(
                        says_that_it_may_have_run(&outcome, &["hook"]),
                        "{case}: {outcome:?}"
                    );
                    assert_eq!(controllers.runs("hook").0, before + 1, "{case}");
                }
                let outcome = apply(&mut stack, &wanted).await;
                assert_eq!(outcome.result, StackResult::Applied, "{case}: {outcome:?}");
                let runs = controllers.runs("hook").0 - before;
                let is_repeated = matches!(fate, Fate::EndedAndDeleted | Fate::Deleted);
                assert_eq!(runs, 1 + usize::from(is_repeated), "{case}");
            }
        }
    }
}

/// The live template with the wanted image.
fn merged(live: &Value, wanted: &Value) -> Value {
    let mut template = live["spec"]["template"]["spec"].clone();
    let image = &wanted["spec"]["template"]["spec"]["containers"][0]["image"];
    template["containers"][0]["image"] = image.clone();
    template
}

/// The node evicts the pod of a hook: the hook has failed, the evidence says why, and nothing behind it is touched.
#[tokio::test]
async fn an_evicted_hook_fails_and_says_so() {
    let cluster = Cluster::with_controllers();
    let ns = cluster.namespace("hook-evicted").await;
    let objects = Objects::of(cluster).await;
    let mut stack = stack("hook-evicted", cluster);
    let mut migrate = pre(&ns);
    migrate["spec"]["template"]["metadata"] = json!({"labels": {EVICTED: "true"}});
    let wanted = [deployment(&ns, 1), migrate.clone(), post(&ns)];
    let outcome = apply(&mut stack, &wanted).await;
    assert_eq!(outcome.result, StackResult::Failed);
    let why = message(&outcome, "migrate");
    assert!(
        why.contains("Evicted") && why.contains("low on resource"),
        "{why}"
    );
    assert!(objects.get(&wanted[0]).await.is_none() && objects.get(&post(&ns)).await.is_none());
    let evicted = objects.get(&migrate).await.unwrap()["metadata"]["uid"].clone();

    // The same again is another Job; a node with room lets it end.
    let outcome = apply(&mut stack, &wanted).await;
    assert_eq!(outcome.result, StackResult::Failed);
    assert_ne!(objects.get(&migrate).await.unwrap()["metadata"]["uid"], evicted);
    let outcome = apply(&mut stack, &[deployment(&ns, 1), pre(&ns), post(&ns)]).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    assert_eq!(objects.get(&pre(&ns)).await.unwrap()["status"]["succeeded"], 1);
}

/// A `pre-destroy` hook is recorded with its stack, and its Job is created when the stack leaves, before anything is
/// deleted.
#[tokio::test]
async fn a_pre_destroy_hook_runs_before_anything_is_deleted() {
    let cluster = Cluster::shared();
    let ns = cluster.namespace("hook-leaves").await;
    let objects = Objects::of(cluster).await;
    let controllers = Controllers::of(cluster, &ns).await;
    let mut stack = stack("hook-leaves", cluster);
    let backup = job(&ns, "backup", json!({"konverge/hook": "pre-destroy"}));
    let wanted = [deployment(&ns, 1), backup.clone()];
    // Whoever reviews the stack sees what will run, and that it does not run now.
    let shown = |plan: &EnginePlan| {
        let run = plan
            .public
            .resources
            .iter()
            .find(|one| one.action == Action::Run)
            .unwrap();
        assert!(
            run.notes[0].contains("this apply only records it"),
            "{:?}",
            run.notes
        );
        run.changes[0].to.clone().unwrap()
    };
    let plan = stack.plan_well(&wanted).await;
    assert_eq!(shown(&plan)["metadata"]["name"], "backup");
    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    assert!(objects.get(&backup).await.is_none(), "it runs at the end alone");
    assert_eq!(stack.plan_well(&wanted).await.public.summary.changed(), 0);
    // A change of what it guards changes nothing about it; a change of its own is shown.
    let plan = stack.plan_well(&[deployment(&ns, 2), backup.clone()]).await;
    assert_eq!(action(&plan, &backup), Action::Unchanged);
    let mut edited = backup.clone();
    edited["spec"]["template"]["spec"]["containers"][0]["args"] = json!(["--all"]);
    let plan = stack.plan_well(&[deployment(&ns, 1), edited]).await;
    assert_eq!(
        shown(&plan)["spec"]["template"]["spec"]["containers"][0]["args"],
        json!(["--all"])
    );

    // It fails: everything stays.
    controllers.set("backup", End::Fails);
    let plan = stack.plan_well(&[]).await;
    assert_eq!(
        (action(&plan, &backup), action(&plan, &wanted[0])),
        (Action::Run, Action::Delete)
    );
    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Failed);
    assert!(
        message(&outcome, "backup").contains("as the test says"),
        "{outcome:?}"
    );
    assert!(objects.get(&wanted[0]).await.is_some(), "nothing is deleted");

    controllers.set("backup", End::Completes);
    let outcome = apply(&mut stack, &[]).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    assert_eq!(controllers.runs("backup"), (2, 1));
    assert!(stack.state.resources.is_empty(), "{:?}", stack.state.resources);
    eventually("everything is gone", LONG, || async {
        objects.get(&wanted[0]).await.is_none().then_some(())
    })
    .await;
    controllers.check();
}
