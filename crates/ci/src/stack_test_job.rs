//! Stack tests of a pull request (`konverge ci --tests`), with a check run and a comment of their own. The job has its
//! own login and environment, which the preview does not have.
//!
//! | code | offline tests | live tests |
//! |---|---|---|
//! | a pull request of this repository into the default branch | run | run, after the policy sets passed |
//! | a pull request into another branch | run | not run |
//! | a pull request from outside | run, nothing is published | not run |
//! | a merge group | not run | not run |

use std::sync::Arc;

use crate::{
    checks::mask_check,
    connect,
    job::{CiOptions, CommentRule, Job, JobResult, marker},
    job_warnings::JobWarnings,
    newer_status::newest_status,
    open_job,
    open_revisions::{EffectiveConfig, PreviewCommits, compilers},
    preview_events,
    publisher::Publisher,
    trust::{authority::Task, job_trust::Trust},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        CommitId,
        check_run::CheckRun,
        comment_marker::{CommentMarker, MarkerKind},
        stack_test::StackTestReport,
    },
};
use konverge_config::Config;
use konverge_forge::{CiJob, JobEvent, PullRequestEvent, StatusState, preview_of};
use konverge_report::{
    SUMMARY_BUDGET,
    markdown::{self, TestPage},
    stack_test_results as report,
    terminal::Style,
    test_check,
};
use konverge_run::{ComparedRevisions, KeyUse, RevisionSpec, RunBuilder, RunContext, forge};
use konverge_secrets::redact;
use konverge_stack_tests::{self as stack_tests, live};

/// The result of the stack tests of a change.
struct TestedStacks {
    report: StackTestReport,
    /// The error that prevented live tests which this job should run: the check fails.
    failure: Option<UserError>,
    /// The reason why a job of this kind runs no live tests.
    skipped: Option<String>,
}

/// Tests the stacks that the change of the event affects.
///
/// # Errors
/// The environment is not that of a CI job, the event is not that of a change, or the forge refuses the token.
pub async fn run(run: &RunContext, options: &CiOptions) -> Result<JobResult, UserError> {
    let mut runner = forge::open_job(&run.env)?;
    let (warnings, run) = JobWarnings::of_run(run);
    let result = run_event(&run, options, &mut runner).await;
    warnings.annotate(runner.as_ref());
    result
}

async fn run_event(
    run: &RunContext,
    options: &CiOptions,
    runner: &mut Arc<dyn CiJob>,
) -> Result<JobResult, UserError> {
    let event = runner.event()?;
    // `pull_request_target` runs with the rights of the default branch, where code of a pull request must not run.
    if runner.info().event_name == "pull_request_target"
        || !matches!(event, JobEvent::PullRequest(_) | JobEvent::MergeGroup { .. })
    {
        let what = format!(
            "stack tests run on `pull_request`, not on `{}`",
            runner.info().event_name.escape_debug()
        );
        return Err(UserError::new(ErrorKind::Usage, what).hint(
            "give the job `if: github.event_name == 'pull_request'`; `konverge test --live` runs live tests elsewhere",
        ));
    }
    let client = connect(run, runner).await?;
    let Some(job) = open_job(run, options, runner, &event, client).await? else {
        return Ok(JobResult::SUCCESS);
    };
    let publisher = Publisher::new(&job);
    match &job.authority.task {
        Task::PullRequest { event, .. } => {
            let tested = test(&job, event).await;
            // An error is published as a failed check, so that the pull request shows it.
            let tested = tested.unwrap_or_else(|failure| TestedStacks {
                report: StackTestReport::new(0, Vec::new()),
                failure: Some(failure),
                skipped: None,
            });
            Ok(publish(&publisher, event, tested).await)
        }
        Task::MergeGroup { head, .. } => {
            let why = "stack tests run on pull requests, not in the merge queue";
            publisher.test_check(head, test_check::skipped(why)).await;
            run.notes.note(why);
            Ok(JobResult::SUCCESS)
        }
        Task::Outside { .. } | Task::Apply(_) | Task::Drift(_) | Task::Restore { .. } => {
            Ok(JobResult::SUCCESS)
        }
    }
}

/// Runs those tests of a pull request that the trust in its code allows.
async fn test(job: &Job, event: &PullRequestEvent) -> Result<TestedStacks, UserError> {
    let (base, content) = preview_events::compared_commits(job, event).await?;
    let branch = job.authority.branch().map(|branch| &branch.tip);
    let commits = PreviewCommits {
        trusted: preview_events::trusted_commit(branch, event, &base, &content).clone(),
        base,
        content,
    };
    let EffectiveConfig {
        mut config,
        proposed,
        protected,
        trust,
    } = job.effective_config(&commits).await?;
    // A test may expect a denial by a policy set of its own pull request. Policy sets grant nothing, and live tests
    // also check those of the default branch.
    config.policy.sets = proposed.policy.sets;
    let at = RevisionSpec::Commit(commits.content.clone());
    let revisions = ComparedRevisions::open(&job.run, &job.repository, &at, Some(&config))?;
    let revisions = revisions.with_base(&job.repository, commits.base.clone())?;
    let targets = revisions.targets(&revisions.affected()).into_iter();
    let stacks: Vec<_> = targets.filter_map(|target| target.head).collect();
    let builder = RunBuilder::new(&job.run, config);
    // The trust in the change limits what a compilation may do.
    let compilers = compilers(&builder, trust, None, revisions.base.as_ref())?;
    // Offline tests need no trust. Live tests write to a cluster, so they run only for a change that is proposed for
    // the default branch, after the policy sets passed.
    let revision = &revisions.head;
    let mut results = stack_tests::run_in(&job.run, &compilers, revision, &stacks).await?;
    let live = live::count(revision, &stacks)?;
    let run_live = async || {
        if live > 0 {
            require_passed_policies(job, event, &protected).await?;
        } else if !protected.clusters.values().any(|cluster| cluster.tests) {
            return Ok(Vec::new());
        }
        // Without live tests, this only cleans up.
        live::run_of_job(&job.run, &compilers, revision, &stacks, &commits.trusted).await
    };
    let (mut failure, mut skipped) = (None, None);
    match why_not_live(trust) {
        Some(why) => skipped = (live > 0).then(|| why.to_owned()),
        None => match run_live().await {
            Ok(more) => results.extend(more),
            Err(error) => failure = Some(error),
        },
    }
    job.run.check_interrupted()?;
    Ok(TestedStacks {
        report: StackTestReport::new(stacks.len(), results),
        failure,
        skipped,
    })
}

/// Returns why a job with this trust runs no live tests; `None` if it runs them.
fn why_not_live(trust: Trust) -> Option<&'static str> {
    match trust {
        Trust::Proposed => None,
        Trust::Untrusted | Trust::Recorded => {
            Some("live tests are not run: the pull request comes from outside")
        }
        Trust::Own => Some("live tests are not run: the pull request does not target the default branch"),
        Trust::Merged => Some("live tests are not run: they are for pull requests"),
    }
}

/// Returns an error unless the last preview of this head succeeded and no policy set denied anything in it.
async fn require_passed_policies(
    job: &Job,
    event: &PullRequestEvent,
    protected: &Config,
) -> Result<(), UserError> {
    let refuse = |why: String| {
        let what = format!("live tests are not run: {why}");
        Err(UserError::new(ErrorKind::Policy, what)
            .hint("make this job wait for the job that previews the same commit: `needs: preview`"))
    };
    let context = preview_of(None, None);
    let status = newest_status(job.client.as_deref(), &event.head, &context).await?;
    match status.map(|status| status.state) {
        Some(StatusState::Success) => {}
        Some(StatusState::Pending) => return refuse(format!("`{context}` of this commit is pending")),
        Some(StatusState::Failure | StatusState::Error) => {
            return refuse(format!("`{context}` of this commit failed"));
        }
        None => return refuse(format!("this commit has no status `{context}`")),
    }
    let Some(backend) = job.backend(protected, KeyUse::Look).await? else {
        return refuse(
            "no store is configured (`state.url` in konverge.yaml), so no preview is recorded".to_owned(),
        );
    };
    // The status shows only that the preview succeeded. Its record shows whether a policy set denied something.
    let records = backend.states.reviews().latest(event.number, &event.head).await?;
    if records.is_empty() {
        return refuse("no preview of this commit is recorded".to_owned());
    }
    if records.iter().any(|record| !record.findings.is_empty()) {
        return refuse("a policy set denies the plan of this commit".to_owned());
    }
    Ok(())
}

/// Publishes the results in the check run, the comment, the summary and the log.
async fn publish(publisher: &Publisher<'_>, event: &PullRequestEvent, tested: TestedStacks) -> JobResult {
    let job = publisher.job;
    let failure = tested.failure.as_ref();
    let failure = failure.map(|failure| redact::failure(failure, &job.run.secrets));
    let page = TestPage {
        report: &tested.report,
        failure: failure.as_ref(),
        skipped: tested.skipped.as_deref(),
    };
    if let Some(failure) = &failure {
        publisher.publish_failure(failure);
    }
    if let Some(skipped) = page.skipped {
        job.run.notes.note(skipped);
    }
    let info = job.info(&event.head);
    publisher.test_check(&event.head, test_check::check(&page)).await;
    publisher.annotate_lines(test_check::annotations(&page));
    publisher.summary(&markdown::stack_tests(&page, &info, None, SUMMARY_BUDGET));
    let marker = CommentMarker {
        head: event.head.to_string(),
        ..marker(job.runner.as_ref(), MarkerKind::Tests, "")
    };
    let says_nothing = page.says_nothing() || (job.options.comment == CommentRule::Changes && !page.fails());
    if says_nothing {
        publisher.no_comment(event.number, &marker).await
    } else {
        let render = |budget| markdown::stack_tests(&page, &info, Some(&marker), budget);
        publisher.comment(event.number, &marker, render).await;
    }
    JobResult {
        code: u8::from(page.fails()),
        text: report::text(&tested.report, Style::default()),
    }
}

impl Publisher<'_> {
    /// Creates the check run of the tests.
    async fn test_check(&self, head: &CommitId, check: CheckRun) {
        let Some(Ok(forge)) = self.client.map(|client| client.checks()) else {
            return;
        };
        let runner = &self.job.runner;
        let external = format!("tests/{}/{}", runner.info().run_id, runner.info().run_attempt);
        let check = mask_check(check, &self.job.run.secrets);
        let made = forge
            .create_check(head, &check, &external, Some(&runner.run_url()))
            .await;
        if let Err(error) = made {
            self.warn(
                &format!("the check run {} could not be created", test_check::NAME),
                error,
            );
        }
    }
}
