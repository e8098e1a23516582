//! What `konverge ci` does in the jobs of a real Forgejo: the stories of Gitea's jobs, and what a Forgejo does in its
//! own way.

use konverge_forge::Publishing as _;

use super::jobs::{self, OUTSIDE};
use crate::support::{
    gitea::Gitea,
    gitea_jobs::{JobStage, WORKFLOW},
    gitea_runner::LABEL,
    gitea_stage::{KONFIG, id},
};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn a_pull_request_is_previewed_and_after_its_merge_exactly_that_is_applied() {
    jobs::reviewed_changes(JobStage::start_forgejo("").await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn what_nobody_reviewed_is_stopped_until_its_digest_is_approved() {
    jobs::unreviewed_change(JobStage::start_forgejo("").await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn an_apply_that_asks_for_deployments_is_stopped() {
    jobs::asked_for_deployments(JobStage::start_forgejo("").await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn an_approval_counts_where_pushers_may_be_unknown() {
    jobs::approvals(JobStage::start_forgejo(jobs::APPROVALS).await).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn a_schedule_checks_the_default_branch_for_drift() {
    jobs::scheduled_drift_check(JobStage::start_forgejo("").await).await;
}

/// A Forgejo starts no workflow by the end of another one. So nothing is written for a fork, and nothing applied.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn the_job_of_a_fork_has_no_secret_and_no_workflow_comments_after_it() {
    let workflows = [("konverge.yml", WORKFLOW), ("konverge-outside.yml", OUTSIDE)];
    let mut jobs = JobStage::at(Gitea::start_forgejo().await, "", &workflows).await;
    let map = jobs.map("fork");
    let (number, head) = jobs::pull_request_of_fork(&mut jobs, &map).await;

    // The next job is that of another pull request: had a `workflow_run` been started, it would be first.
    let bob = jobs.stage.bob.clone();
    let (ours, _) = jobs.propose(&bob, "ours", &jobs.map("home"), "one").await;
    jobs.next("pull_request").await.outcome.check(0);
    assert_eq!(jobs.comments(ours).await.len(), 1);
    assert!(jobs.comments(number).await.is_empty());
    assert_eq!(jobs.status(&head, "konverge/preview").await, None);

    // The merge is what nobody reviewed here.
    let ada = jobs.stage.ada.clone();
    jobs.stage.gitea.merge(&ada, KONFIG, number, "merge").await;
    let stopped = jobs.next("push").await;
    assert_ne!(stopped.outcome.code, Some(0), "{}", stopped.outcome.stderr);
    assert_eq!(jobs.value(&map).await, None);
    assert_eq!(jobs.issues("konverge-unreviewed").await.len(), 1);
}

/// A job whose `if` is false is given to the runner, too, which skips it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn the_workflow_of_init_starts_its_jobs() {
    let workflow =
        include_str!("../../../src/commands/init/gitea-workflow.yml").replace("ubuntu-latest", LABEL);
    let gitea = Gitea::start_forgejo().await;
    let jobs = JobStage::at(gitea, "", &[("konverge.yml", &workflow)]).await;
    for (job, condition) in [("apply", "github.event_name == 'push'"), ("drift", "schedule")] {
        let task = jobs.task("push").await;
        assert!(task.workflow.contains(&format!("{job}:\n")), "{}", task.workflow);
        assert!(task.workflow.contains(condition), "{}", task.workflow);
        assert_eq!(task.secrets["KONVERGE_TOKEN"], jobs.stage.bot.token);
    }
}

/// A run has a number in its repository, which is in its URL, and an id in the whole instance.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn the_status_and_the_comment_link_to_the_run() {
    let mut jobs = JobStage::start_forgejo("").await;
    let (ada, bob) = (jobs.stage.ada.clone(), jobs.stage.bob.clone());
    // A run of another repository, so that the two numbers differ. No runner takes its job.
    let stage = &jobs.stage;
    stage.gitea.repository(&ada, "acme", "other").await;
    stage.gitea.push(&stage.konfig, &ada, "acme/other", &["main"]);
    stage.gitea.is_filled("acme/other").await;
    stage.konfig.checkout("main");
    stage.commit_as(&ada, "Another run there");
    stage.gitea.push(&stage.konfig, &ada, "acme/other", &["main"]);

    let (number, head) = jobs.propose(&bob, "first", &jobs.map("linked"), "one").await;
    let task = jobs.task("pull_request").await;
    let run = task.text("run_number").to_owned();
    assert_ne!(run, task.text("run_id"));
    jobs.run(&task).await.outcome.check(0);
    let page = format!("{}/{KONFIG}/actions/runs/{run}", jobs.stage.gitea.url());
    let statuses = jobs.stage.client().newest_statuses(&id(&head)).await.unwrap();
    let preview = statuses.iter().find(|one| one.context == "konverge/preview");
    assert_eq!(preview.unwrap().target_url.as_deref(), Some(page.as_str()));
    let comments = jobs.comments(number).await;
    assert!(comments[0].contains(&format!("({page})")), "{comments:?}");
    let answer = reqwest::get(&page).await.unwrap();
    assert!(answer.status().is_success(), "{page}: {}", answer.status());
    let by_id = format!(
        "{}/{KONFIG}/actions/runs/{}",
        jobs.stage.gitea.url(),
        task.text("run_id")
    );
    let answer = reqwest::get(&by_id).await.unwrap();
    assert_eq!(answer.status(), reqwest::StatusCode::NOT_FOUND, "{by_id}");
}

/// A push cancels the jobs of earlier pushes to the branch, also one that runs. The job after it applies what both
/// merged.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn a_merge_whose_job_a_newer_merge_cancels_is_applied_by_the_newer_job() {
    let mut jobs = JobStage::start_forgejo("").await;
    let (ada, bob) = (jobs.stage.ada.clone(), jobs.stage.bob.clone());
    let maps = [jobs.map("cancelled"), jobs.map("newer")];
    let mut numbers = Vec::new();
    for (stack, map) in ["shop/dev", "shop/prod"].into_iter().zip(&maps) {
        jobs.stage.fetched_main();
        jobs.stage.konfig.branch(map);
        jobs.stack(stack, map, "one");
        jobs.stage.commit_as(&bob, map);
        jobs.stage.gitea.push(&jobs.stage.konfig, &bob, KONFIG, &[map]);
        numbers.push(jobs.stage.gitea.pull_request(&bob, KONFIG, map).await);
        jobs.next("pull_request").await.outcome.check(0);
    }
    jobs.stage.gitea.merge(&ada, KONFIG, numbers[0], "merge").await;
    let cancelled = jobs.task("push").await;
    assert!(!jobs.is_cancelled(&cancelled).await);
    jobs.stage.gitea.merge(&ada, KONFIG, numbers[1], "merge").await;
    let newer = jobs.task("push").await;
    assert!(jobs.is_cancelled(&cancelled).await);
    jobs.run(&newer).await.outcome.check(0);
    for map in &maps {
        assert_eq!(jobs.value(map).await.as_deref(), Some("one"), "{map}");
    }
    assert!(jobs.issues("konverge-unreviewed").await.is_empty());
}
