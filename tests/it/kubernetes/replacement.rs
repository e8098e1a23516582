//! Replacements that did not come to their end: the old object is gone, and what is left is a mere creation. The next
//! run finishes the approved replacement.

use std::time::Duration;

use konverge_base::model::{
    apply_result::StackResult,
    plan::{Action, ResourcePlan},
};
use konverge_config::DriftPolicy;
use konverge_engine::EnginePlan;
use konverge_policy::ReviewedUnits;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::support::{
    cluster::Cluster,
    faulty_api_server::{Faults, Proxy},
    git::Repository,
    objects::Objects,
    process::Konverge,
    service::eventually,
    stack::{TestStack, action, id, planned},
};

/// What cannot be changed in place.
fn map(ns: &str, word: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": ns}, "data": {"word": word}, "immutable": true})
}

/// The rest of a replacement is shown as the whole was, and nobody has to agree to it once more.
fn is_the_rest(rest: &EnginePlan, whole: &ResourcePlan, agreed: &ReviewedUnits, object: &Value) {
    let shown = planned(rest, object).expect("there is something to do");
    assert_eq!(
        (shown.action, shown.digest),
        (Action::Replace, whole.digest),
        "{shown:?}"
    );
    assert_eq!((&shown.changes, &shown.replace), (&whole.changes, &whole.replace));
    let notes = shown.notes.join("\n");
    assert!(
        notes.contains("started to replace it") && !notes.contains("it is deleted, and recreated"),
        "{notes}"
    );
    let objections = agreed.objections(&rest.public, DriftPolicy::Stop);
    assert!(objections.is_empty(), "{objections:?}");
}

#[tokio::test]
async fn killed_anywhere_it_is_brought_to_its_end_as_what_was_agreed_to() {
    let cluster = Cluster::shared();
    let (ns, objects) = (cluster.namespace("replacement").await, Objects::of(cluster).await);
    let proxy = Proxy::start(cluster, Faults::none()).await;
    let mut stack = TestStack::new("replacement", proxy.kubeconfig());
    stack.apply(&[map(&ns, "0")]).await;
    let (mut version, mut rests) = (0, 0);
    for before in [true, false] {
        for kill_at in 1.. {
            version += 1;
            let object = map(&ns, &version.to_string());
            let plan = stack.plan_well(std::slice::from_ref(&object)).await;
            let whole = planned(&plan, &object).unwrap().clone();
            assert_eq!(whole.action, Action::Replace);
            let agreed = ReviewedUnits::default().with_agreed(&plan.public);
            proxy.kill_at(kill_at, before);
            let killed = stack.carry_out_until(plan, proxy.killed()).await.is_none();
            proxy.calm();
            let rest = stack.plan_well(std::slice::from_ref(&object)).await;
            if objects.get(&object).await.is_none() {
                rests += 1;
                is_the_rest(&rest, &whole, &agreed, &object);
                // Something else is wanted now: that is a change of its own.
                let other = stack.plan_well(&[map(&ns, "other")]).await;
                assert_eq!(action(&other, &object), Action::Create);
            }
            let outcome = stack.carry_out(rest).await;
            assert!(outcome.error.is_none(), "{outcome:?}");
            assert_eq!(objects.get(&object).await.unwrap()["data"], object["data"]);
            let after = stack.plan_well(std::slice::from_ref(&object)).await;
            assert_eq!(after.public.summary.unchanged, 1, "{:?}", after.public);
            assert!(stack.state.begun.is_empty());
            if !killed {
                break;
            }
        }
    }
    assert!(rests >= 2, "it was never killed between the two");
    // Deleted by somebody later, it is made like any other.
    let object = map(&ns, &version.to_string());
    objects.delete(&object).await;
    let plan = stack.plan_well(std::slice::from_ref(&object)).await;
    assert_eq!(action(&plan, &object), Action::Create);
}

/// What holds the old one is gone only after the run gave up: while it goes and when it is gone, it is the same.
#[tokio::test]
async fn one_that_gave_up_waiting_goes_on_as_what_was_agreed_to() {
    let cluster = Cluster::shared();
    let (ns, objects) = (
        cluster.namespace("replacement-held").await,
        Objects::of(cluster).await,
    );
    let mut stack = TestStack::new("replacement-held", cluster.kubeconfig());
    stack.apply(&[map(&ns, "one")]).await;
    let object = map(&ns, "two");
    let finalizers = |held: &[&str]| json!({"metadata": {"finalizers": held}});
    objects
        .merge(&object, "somebody", &finalizers(&["example.com/hold"]))
        .await;
    stack.options.ready_timeout = Duration::from_millis(200);
    let plan = stack.plan_well(std::slice::from_ref(&object)).await;
    let whole = planned(&plan, &object).unwrap().clone();
    let agreed = ReviewedUnits::default().with_agreed(&plan.public);
    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Failed, "{outcome:?}");

    let rest = stack.plan_well(std::slice::from_ref(&object)).await;
    is_the_rest(&rest, &whole, &agreed, &object);
    assert_eq!(
        stack.carry_out(rest).await.result,
        StackResult::Failed,
        "it is still held"
    );
    objects.merge(&object, "somebody", &finalizers(&[])).await;
    let rest = stack.plan_well(std::slice::from_ref(&object)).await;
    is_the_rest(&rest, &whole, &agreed, &object);
    stack.carry_out(rest).await;
    assert_eq!(objects.get(&object).await.unwrap()["data"], object["data"]);
    assert!(stack.state.begun.is_empty());
}

/// The command itself, its state in a store, ended by SIGKILL when the old object is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_leaves_what_was_agreed_to_in_the_store() {
    let cluster = Cluster::shared();
    let (ns, objects) = (
        cluster.namespace("replacement-sigkill").await,
        Objects::of(cluster).await,
    );
    let proxy = Proxy::start(cluster, Faults::none()).await;
    let (repository, store) = (Repository::init(), tempfile::TempDir::new().unwrap());
    // A killed run's lease is waited for.
    let url = format!("file://{}", store.path().display());
    let config = json!({"version": 1, "state": {"url": url, "id": "replacement-sigkill", "lease": {"term": "15s", "wait": "300s"}}});
    repository
        .write("konverge.yaml", config.to_string())
        .commit("Configuration");
    let want = |object: &Value| {
        let resource = json!({"id": id(object), "type": "Kubernetes", "attributes": object});
        repository.write("spec.json", json!({"resources": [resource]}).to_string());
    };
    let run = |command: &str, more: &[&str]| {
        let run = Konverge::new([command, "--spec", "spec.json", "--stack", "shop/prod"]);
        run.arg_all(more)
            .arg("--kubeconfig")
            .arg(proxy.kubeconfig())
            .dir(repository.path())
    };
    let preview = || {
        let plan = run("preview", &["--output", "json"]).run().expect(0).json();
        plan["stacks"][0].clone()
    };
    want(&map(&ns, "one"));
    run("apply", &["--yes"]).run().expect(0);
    let object = map(&ns, "two");
    want(&object);
    let whole = preview();
    assert_eq!(whole["summary"]["replace"], 1, "{whole}");
    proxy.kill_at_write(2);
    let running = run("apply", &["--yes"]).start();
    tokio::time::timeout(Duration::from_secs(120), proxy.killed())
        .await
        .expect("it comes to the creation");
    running.signal(Signal::SIGKILL);
    assert_eq!(running.wait().code, None);
    proxy.calm();
    assert!(objects.get(&object).await.is_none());

    let rest = preview();
    assert_eq!(
        (&rest["digest"], &rest["summary"]),
        (&whole["digest"], &whole["summary"]),
        "{rest}"
    );
    assert!(
        rest["resources"][0]["notes"]
            .to_string()
            .contains("started to replace it"),
        "{rest}"
    );
    run("apply", &["--yes"])
        .limit(Duration::from_secs(300))
        .run()
        .expect(0);
    let live = eventually("it is there", Duration::from_secs(60), || objects.get(&object)).await;
    assert_eq!(live["data"], object["data"]);
    assert_eq!(preview()["summary"]["unchanged"], 1);
}
