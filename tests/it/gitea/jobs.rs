//! What `konverge ci` does in the jobs of a real Gitea. What holds at a Forgejo, too, is a function of the stage.

use konverge_forge::StatusState;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::support::{
    gitea::Gitea,
    gitea_jobs::{JobStage, WORKFLOW},
    gitea_stage::KONFIG,
};

/// The workflow that follows, for pull requests from outside.
pub(super) const OUTSIDE: &str = "name: konverge-outside
on:
  workflow_run:
    workflows: [konverge]
    types: [completed]
jobs:
  outside:
    runs-on: LABEL
    steps:
      - run: konverge ci
";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn a_pull_request_is_previewed_and_after_its_merge_exactly_that_is_applied() {
    reviewed_changes(JobStage::start("").await).await;
}

pub(super) async fn reviewed_changes(mut jobs: JobStage) {
    let map = jobs.map("reviewed");
    for (style, value) in [("merge", "one"), ("squash", "two"), ("rebase", "three")] {
        let bob = jobs.stage.bob.clone();
        let (number, head) = jobs.propose(&bob, style, &map, value).await;
        let opened = jobs.next("pull_request").await;
        opened.outcome.check(0);
        let comments = jobs.comments(number).await;
        assert_eq!(comments.len(), 1, "{comments:?}");
        assert!(
            comments[0].contains("shop/dev") && comments[0].contains(&map),
            "{comments:?}"
        );
        assert_eq!(
            jobs.status(&head, "konverge/preview").await,
            Some(StatusState::Success)
        );
        assert!(opened.summary.is_empty(), "nobody would be shown it");
        assert_eq!(opened.output("failed-stacks"), "[]");

        // Another push: the same comment.
        jobs.stage.konfig.write("notes.md", format!("{style}\n"));
        let head = jobs.stage.commit_as(&bob, "Notes");
        jobs.stage.gitea.push(&jobs.stage.konfig, &bob, KONFIG, &[style]);
        jobs.next("pull_request").await.outcome.check(0);
        let comments = jobs.comments(number).await;
        assert_eq!(comments.len(), 1);
        assert!(comments[0].contains(&head[..7]), "{}", comments[0]);

        let before = jobs.value(&map).await;
        assert_ne!(
            before.as_deref(),
            Some(value),
            "nothing is applied before the merge"
        );
        let ada = jobs.stage.ada.clone();
        let merge = jobs.stage.gitea.merge(&ada, KONFIG, number, style).await;
        let applied = jobs.next("push").await;
        applied.outcome.check(0);
        assert_eq!(
            jobs.value(&map).await.as_deref(),
            Some(value),
            "{}",
            applied.outcome.stderr
        );
        assert_eq!(
            jobs.status(&merge, "konverge/apply").await,
            Some(StatusState::Success)
        );
        let outcome = jobs.comments(number).await;
        assert!(outcome.iter().any(|body| body.contains("applied")), "{outcome:?}");
    }
    assert!(jobs.issues("konverge-unreviewed").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn what_nobody_reviewed_is_stopped_until_somebody_who_may_push_approves_its_digest() {
    unreviewed_change(JobStage::start("").await).await;
}

pub(super) async fn unreviewed_change(mut jobs: JobStage) {
    let (ada, map) = (jobs.stage.ada.clone(), jobs.map("unreviewed"));
    jobs.stage.fetched_main();
    jobs.stack("shop/dev", &map, "one");
    jobs.stage.commit_as(&ada, "Straight to main");
    jobs.stage.gitea.push(&jobs.stage.konfig, &ada, KONFIG, &["main"]);
    let stopped = jobs.next("push").await;
    assert_ne!(stopped.outcome.code, Some(0), "{}", stopped.outcome.stderr);
    assert_eq!(jobs.value(&map).await, None);
    let issues = jobs.issues("konverge-unreviewed").await;
    assert_eq!(issues.len(), 1, "{issues:?}");
    let digest = stopped.output("unreviewed");
    assert!(
        issues[0]["body"].as_str().unwrap().contains(&digest),
        "{}",
        issues[0]
    );

    // A team that may start workflows, and no more.
    let grace = jobs.stage.gitea.user("grace").await;
    let units = [("repo.code", "read"), ("repo.actions", "write")];
    let gitea = &jobs.stage.gitea;
    gitea.team_for(&ada, "acme", "starters", &units, &[&grace]).await;
    jobs.dispatch(&grace, json!({"approve": digest, "reason": "I may start it"}))
        .await;
    let refused = jobs.next("workflow_dispatch").await;
    refused.outcome.check(3);
    assert!(
        refused
            .outcome
            .stderr
            .contains("grace started this run, and is not known to be allowed to push"),
        "{}",
        refused.outcome.stderr
    );
    assert_eq!(jobs.value(&map).await, None);

    let bob = jobs.stage.bob.clone();
    jobs.dispatch(&bob, json!({"approve": digest, "reason": "it is what we want"}))
        .await;
    jobs.next("workflow_dispatch").await.outcome.check(0);
    assert_eq!(jobs.value(&map).await.as_deref(), Some("one"));
    assert!(jobs.issues("konverge-unreviewed").await.is_empty());

    // Drift: one issue for the stack, closed when it is gone.
    let patch = Patch::Merge(json!({"data": {"value": "by hand"}}));
    jobs.maps()
        .await
        .patch(&map, &PatchParams::default(), &patch)
        .await
        .unwrap();
    jobs.dispatch(&ada, json!({})).await;
    let drifted = jobs.next("workflow_dispatch").await;
    drifted.outcome.check(0);
    assert_eq!(drifted.output("has-drift"), "true");
    let issues = jobs.issues("konverge-drift").await;
    assert_eq!(issues.len(), 1);
    assert!(issues[0]["title"].as_str().unwrap().contains("shop/dev"));
    let back = Patch::Merge(json!({"data": {"value": "one"}}));
    jobs.maps()
        .await
        .patch(&map, &PatchParams::default(), &back)
        .await
        .unwrap();
    jobs.dispatch(&ada, json!({})).await;
    jobs.next("workflow_dispatch").await.outcome.check(0);
    assert!(jobs.issues("konverge-drift").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn the_job_of_a_fork_has_no_secret_and_the_workflow_after_it_comments() {
    let workflows = [("konverge.yml", WORKFLOW), ("konverge-outside.yml", OUTSIDE)];
    let mut jobs = JobStage::at(Gitea::start().await, "", &workflows).await;
    // A run of this repository's own has ended: nothing is to be done about it.
    let idle = jobs.next("workflow_run").await;
    idle.outcome.check(0);
    let map = jobs.map("fork");
    let (number, head) = pull_request_of_fork(&mut jobs, &map).await;

    // The workflow that follows runs here, with the secret, on what the default branch says.
    let task = jobs.task("workflow_run").await;
    assert_eq!(task.context["event"]["workflow_run"]["event"], "pull_request");
    jobs.run(&task).await.outcome.check(0);
    let comments = jobs.comments(number).await;
    assert_eq!(comments.len(), 1, "{comments:?}");
    assert!(
        comments[0].contains(&map) && comments[0].contains(&head[..7]),
        "{comments:?}"
    );
    assert_eq!(
        jobs.status(&head, "konverge/preview").await,
        Some(StatusState::Success)
    );
    assert_eq!(jobs.value(&map).await, None);
}

/// Opens a pull request from a fork and runs its job, which has no secret: the number and the head.
pub(super) async fn pull_request_of_fork(jobs: &mut JobStage, map: &str) -> (u64, String) {
    let (ada, eve) = (jobs.stage.ada.clone(), jobs.stage.eve.clone());
    // Otherwise somebody would have to let the first run of a stranger begin.
    let units = [("repo.code", "read"), ("repo.actions", "write")];
    let gitea = &jobs.stage.gitea;
    gitea.team_for(&ada, "acme", "starters", &units, &[&eve]).await;
    gitea
        .post(&eve.token, &format!("/repos/{KONFIG}/forks"), json!({}))
        .await;
    jobs.stage.fetched_main();
    jobs.stage.konfig.branch("fix");
    jobs.stack("shop/dev", map, "from outside");
    let head = jobs.stage.commit_as(&eve, "Fix");
    jobs.stage
        .gitea
        .push(&jobs.stage.konfig, &eve, "eve/konfig", &["fix"]);
    let number = jobs.stage.gitea.pull_request(&eve, KONFIG, "eve:fix").await;
    let task = jobs.task("pull_request").await;
    assert!(!task.secrets.contains_key("KONVERGE_TOKEN"));
    assert_eq!(
        task.context["event"]["pull_request"]["head"]["repo"]["full_name"],
        "eve/konfig"
    );
    let ran = jobs.run(&task).await;
    ran.outcome.check(0);
    assert!(jobs.comments(number).await.is_empty(), "its token may not write");
    (number, head)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn what_gitea_has_not_stops_the_apply_until_the_default_branch_does_without() {
    asked_for_deployments(JobStage::start("").await).await;
}

pub(super) async fn asked_for_deployments(mut jobs: JobStage) {
    let (bob, map) = (jobs.stage.bob.clone(), jobs.map("deployed"));
    jobs.stage.fetched_main();
    jobs.stage.konfig.branch("first").replace(
        "konverge.yaml",
        "clusters:",
        "apply: {deployments: true}\nclusters:",
    );
    jobs.stack("shop/dev", &map, "one");
    jobs.stage.commit_as(&bob, "First");
    jobs.stage
        .gitea
        .push(&jobs.stage.konfig, &bob, KONFIG, &["first"]);
    let number = jobs.stage.gitea.pull_request(&bob, KONFIG, "first").await;
    jobs.next("pull_request").await.outcome.check(0);
    let ada = jobs.stage.ada.clone();
    jobs.stage.gitea.merge(&ada, KONFIG, number, "merge").await;
    let stopped = jobs.next("push").await;
    assert_ne!(stopped.outcome.code, Some(0));
    let said = &stopped.outcome.stderr;
    assert!(
        said.contains("Gitea has no deployments") && said.contains("apply.deployments: false"),
        "{said}"
    );
    assert_eq!(jobs.value(&map).await, None);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn a_schedule_checks_the_default_branch_for_drift() {
    scheduled_drift_check(JobStage::start("").await).await;
}

pub(super) async fn scheduled_drift_check(mut jobs: JobStage) {
    let (ada, bob, map) = (
        jobs.stage.ada.clone(),
        jobs.stage.bob.clone(),
        jobs.map("scheduled"),
    );
    let (number, _) = jobs.propose(&bob, "first", &map, "one").await;
    jobs.next("pull_request").await.outcome.check(0);
    jobs.stage.gitea.merge(&ada, KONFIG, number, "merge").await;
    jobs.next("push").await.outcome.check(0);
    let patch = Patch::Merge(json!({"data": {"value": "by hand"}}));
    jobs.maps()
        .await
        .patch(&map, &PatchParams::default(), &patch)
        .await
        .unwrap();

    jobs.stage.fetched_main();
    let schedule = "on:\n  schedule:\n    - cron: '@every 1s'\n";
    jobs.stage
        .konfig
        .replace(".gitea/workflows/konverge.yml", "on:\n", schedule);
    jobs.stage.commit_as(&ada, "By a schedule");
    jobs.stage.gitea.push(&jobs.stage.konfig, &ada, KONFIG, &["main"]);
    jobs.next("push").await.outcome.check(0);
    let task = jobs.scheduled().await;
    assert_eq!(task.text("event_name"), "schedule");
    let branch = if jobs.stage.gitea.is_forgejo() {
        "main"
    } else {
        "refs/heads/main"
    };
    assert_eq!(task.text("ref"), branch);
    let checked = jobs.run(&task).await;
    checked.outcome.check(0);
    assert_eq!(checked.output("has-drift"), "true");
    assert_eq!(jobs.issues("konverge-drift").await.len(), 1);
}

/// The setting of the story of approvals.
pub(super) const APPROVALS: &str = "policy: {approvals: 1}\n";

/// Approvals rest on who pushed, which Gitea does not say.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn an_approval_is_asked_for_and_counts_where_pushers_may_be_unknown() {
    approvals(JobStage::start(APPROVALS).await).await;
}

pub(super) async fn approvals(mut jobs: JobStage) {
    let (ada, bob) = (jobs.stage.ada.clone(), jobs.stage.bob.clone());
    let map = jobs.map("approved");
    let (number, _) = jobs.propose(&bob, "first", &map, "one").await;
    jobs.next("pull_request").await.outcome.check(0);
    jobs.stage
        .gitea
        .review(&ada, KONFIG, number, "APPROVED", "")
        .await;
    jobs.stage.gitea.merge(&ada, KONFIG, number, "merge").await;
    let stopped = jobs.next("push").await;
    assert_ne!(stopped.outcome.code, Some(0));
    let said = format!("{}{}", stopped.outcome.stdout, stopped.outcome.stderr);
    assert!(said.contains("policy.unknown_pushers: true"), "{said}");
    assert_eq!(jobs.value(&map).await, None);

    // The default branch does without it: the approval counts. Without one it is stopped.
    jobs.stage.fetched_main();
    jobs.stage.konfig.branch("do-without");
    jobs.stage.konfig.replace(
        "konverge.yaml",
        "approvals: 1",
        "approvals: 1, unknown_pushers: true",
    );
    jobs.stage.commit_as(&ada, "Do without it");
    jobs.stage
        .gitea
        .push(&jobs.stage.konfig, &ada, KONFIG, &["do-without"]);
    let second = jobs.stage.gitea.pull_request(&ada, KONFIG, "do-without").await;
    jobs.next("pull_request").await.outcome.check(0);
    jobs.stage
        .gitea
        .review(&bob, KONFIG, second, "APPROVED", "")
        .await;
    jobs.stage.gitea.merge(&ada, KONFIG, second, "merge").await;
    jobs.next("push").await.outcome.check(0);
    assert_eq!(jobs.value(&map).await.as_deref(), Some("one"));

    let (third, _) = jobs.propose(&bob, "third", &map, "two").await;
    jobs.next("pull_request").await.outcome.check(0);
    jobs.stage.gitea.merge(&ada, KONFIG, third, "merge").await;
    let stopped = jobs.next("push").await;
    assert_ne!(stopped.outcome.code, Some(0));
    assert_eq!(jobs.value(&map).await.as_deref(), Some("one"));
}
