//! An apply that GitHub's runner cancels: SIGINT, then SIGTERM, and SIGKILL after ten seconds. The state and the
//! comments on GitHub must afterwards describe what really happened.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal::{SIGINT, SIGTERM};
use serde_json::{Value, json};

use crate::support::{
    ci_stage::{Ran, Stage},
    git::Repository,
    github::{Act, FakeGithub},
    objects::Objects,
    payloads,
    process::Outcome,
    service::eventually,
    tiny_monorepo,
};

const NAMESPACE: &str = "cancelled-slow-dev";

/// A Deployment that is ready as soon as its pod finds a node, if any node will do.
fn slow(repository: &Repository, version: &str, node: &str) {
    let deployment = format!(
        r#"    {{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {{"name": "slow", "namespace": "{NAMESPACE}"}}, "spec": {{
        "selector": {{"matchLabels": {{"app": "slow"}}}},
        "template": {{"metadata": {{"labels": {{"app": "slow", "version": "{version}"}}}}, "spec": {{"nodeSelector": {node}, "containers": [{{"name": "main", "image": "example/slow:{version}"}}]}}}}
    }}}}
"#
    );
    tiny_monorepo::write_resources(repository, "slow/dev", NAMESPACE, &deployment);
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "slow", "namespace": NAMESPACE}})
}

/// Previews and merges a version that no node will take, and cancels its apply when the cluster has it. `just_before`
/// may still change what GitHub does.
async fn merged_and_cancelled(
    stage: &mut Stage,
    number: u64,
    version: &str,
    just_before: impl FnOnce(&FakeGithub),
) -> (String, Outcome) {
    let branch = format!("slow-{version}");
    stage.propose(&branch, |repository| {
        slow(repository, version, "{\"no\": \"such\"}")
    });
    stage.pull_request(number, &branch, "opened").outcome.check(0);
    let (before, after) = stage.press_merge(number, &branch);
    stage.monorepo.checkout(&after);
    let checkout = stage.monorepo.path().to_owned();
    let payload = payloads::push("main", &before, &after, false);
    let (konverge, _) = stage.prepared(&checkout, "push", &payload, &after, "refs/heads/main");
    let running = konverge.start();
    let objects = Objects::of(stage.cluster).await;
    let what = deployment();
    eventually(
        "it is applied and waited for",
        Duration::from_secs(60),
        || async {
            let live = objects.get(&what).await?;
            let image = live["spec"]["template"]["spec"]["containers"][0]["image"].as_str()?;
            image.ends_with(&format!(":{version}")).then_some(())
        },
    )
    .await;
    just_before(&stage.github);
    let asked = Instant::now();
    running.signal(SIGINT);
    running.signal(SIGTERM);
    let outcome = running.wait();
    let took = asked.elapsed();
    assert!(took < Duration::from_secs(7), "{took:?}\n{}", outcome.stderr);
    outcome.check(130);
    (after, outcome)
}

/// The ids that the state of the stack holds.
fn recorded(stage: &Stage) -> Vec<String> {
    let outcome = stage
        .konverge(["state", "show", "slow/dev", "--output", "json"])
        .run();
    outcome.check(0);
    let resources = outcome.json()["state"]["resources"].as_array().unwrap().clone();
    resources
        .iter()
        .map(|one| one["id"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn state_comment_and_status_are_true_after_a_cancelled_apply() {
    // The webhook receiver accepts the connection and never answers.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let notify = "notify:\n- {kind: webhook, url_env: HOOK_URL, key_env: HOOK_KEY}\n";
    let mut stage = Stage::with("cancelled", tiny_monorepo::monorepo(), notify).await;
    stage.env = vec![
        (
            "HOOK_URL",
            format!("http://{}/hook", silent.local_addr().unwrap()),
        ),
        ("HOOK_KEY", "signing-key".to_owned()),
    ];
    let (tip, outcome) = merged_and_cancelled(&mut stage, 7, "1", |_| {}).await;
    let unheard = "a notification was not delivered: no answer came, and the run was asked to stop";
    assert!(outcome.stderr.contains(unheard), "{}", outcome.stderr);
    let apply = |stage: &Stage, tip: &str| stage.status(tip, "konverge/apply");
    assert_eq!(apply(&stage, &tip).as_deref(), Some("failure"));
    let (_, comment) = stage.comments().pop().unwrap();
    assert!(
        comment.contains("1 failed") && comment.contains("readiness was not waited for"),
        "{comment}"
    );
    let ids = recorded(&stage);
    assert!(ids.iter().any(|id| id.contains("Deployment")), "{ids:?}");

    // GitHub stops answering at this moment. The status is still set, and the process ends in time.
    let silence = |github: &FakeGithub| github.next("GET", "/issues/8/comments", Act::Hang);
    let before = stage.comments();
    let (tip, outcome) = merged_and_cancelled(&mut stage, 8, "2", silence).await;
    assert_eq!(apply(&stage, &tip).as_deref(), Some("failure"));
    assert!(
        outcome.stderr.contains("the comment could not be written"),
        "{}",
        outcome.stderr
    );
    assert_eq!(stage.comments().len(), before.len() + 1, "the preview's alone");

    stage.env.clear();
    // Nothing stands in the way of the next one: no lease is left.
    stage.propose("ready", |repository| slow(repository, "3", "{}"));
    stage.pull_request(9, "ready", "opened").outcome.check(0);
    let merged: Ran = stage.merge(9, "ready");
    merged.outcome.check(0);
    assert_eq!(
        apply(&stage, &stage.monorepo.rev("main")).as_deref(),
        Some("success")
    );
    assert_eq!(recorded(&stage), ids);
}
