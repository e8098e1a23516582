//! The `ci` use case: handles the event of a GitHub Actions run. `trust::authority` alone decides what the job may
//! do.
//!
//! | event | what happens |
//! |---|---|
//! | `pull_request`, `merge_group` | `preview`: comment, status, summary, review record; for a shard ([`ShardMode`]) or for the combination of all shards (`aggregate_status`) |
//! | `workflow_run` of a pull request from outside | `preview` of its Specs, by this repository's own job |
//! | `push` to the default branch | `apply`: apply what was reviewed, or what an environment's reviewers approved |
//! | `workflow_dispatch` with `approve` | `apply`, with those digests approved; `restore` if they stand for drift |
//! | `schedule` in a job with `KONVERGE_ON_SCHEDULE: apply` | `apply` |
//! | other `schedule`, other `workflow_dispatch` | `drift`; `restore` in a later job of the run, whose environment's reviewers approved digests |
//! | `repository_dispatch` | by its type: `konverge-apply`, `konverge-drift` |
//!
//! With `--tests` a job runs stack tests instead ([`run_tests`]): a job of its own, with its own login and environment.

mod adoption;
mod aggregate_status;
mod apply;
mod apply_lane;
mod artifacts;
mod checks;
mod commits_since_apply;
mod deployments;
mod drift;
mod drift_schedule;
mod environments;
mod github_history;
mod job;
pub mod job_conditions;
mod job_warnings;
mod newer_status;
mod news;
mod notifications;
mod open_revisions;
mod page_link;
mod permission_changes;
mod policy;
mod preview;
mod preview_events;
mod preview_feedback;
mod preview_target;
mod publisher;
mod queued_deployments;
mod reconcile;
mod restore;
mod result_counts;
mod rolled_back;
mod rollout;
mod scheduled_task;
mod shard_mode;
mod stack_tests;
mod summary;
mod timings;
mod trust;
mod unprotected_merge;
pub mod workflow_coverage;
mod workflow_starter;

use std::collections::HashMap;

use job::Job;
pub use job::{CiOptions, CommentRule, JobResult};
use job_warnings::JobWarnings;
pub use page_link::link_page;
pub use permission_changes::permission_changes;
pub use policy::{policy_config, unapproved::unapproved_findings};
pub use rollout::sentences as rollout_sentences;
pub use scheduled_task::ScheduledTask;
pub use shard_mode::ShardMode;
pub use stack_tests::{StackTester, TestedChange, run as run_tests};
use summary::RunSummary;
use trust::authority::{Authority, Caller, Decision, DefaultBranchAnswer, Task};

use konverge_base::error::{ErrorKind, UserError};
use konverge_github::{Client, GithubEvent, Runner};
use konverge_repo::git::{GitCredentials, GitError, Repository};
use konverge_run::{RunContext, sandbox_rule};

/// Handles the event.
///
/// # Errors
/// No GitHub Actions environment, an event that is refused, an unusable repository or configuration.
pub async fn run(run: &RunContext, options: &CiOptions) -> Result<JobResult, UserError> {
    let env: HashMap<String, String> = run.env.clone().into_iter().collect();
    let runner = Runner::from_env(&env)?;
    let (warnings, run) = JobWarnings::of_run(run);
    let ending = RunSummary::begin(&run, &runner);
    let mut client = None;
    let result = begin(&run, options, &runner, &mut client).await;
    ending.write(client.as_ref(), options, &result).await;
    warnings.annotate();
    result
}

async fn begin(
    run: &RunContext,
    options: &CiOptions,
    runner: &Runner,
    told: &mut Option<Client>,
) -> Result<JobResult, UserError> {
    sandbox_rule::require_for_jobs()?;
    let event = runner.event()?;
    let client = connect(run, runner)?;
    told.clone_from(&client);
    if options.part != ShardMode::Whole {
        shard_mode::refuse_for(&event)?;
    }
    if let ShardMode::Verdict(of) = options.part {
        return aggregate_status::run(run, runner, &event, client.as_ref(), of, options.shards_succeeded)
            .await;
    }
    match open_job(run, options, runner, &event, client).await? {
        Some(job) => run_task(&job).await,
        None => Ok(JobResult::WELL),
    }
}

/// The client of GitHub, if there is a token.
fn connect(run: &RunContext, runner: &Runner) -> Result<Option<Client>, UserError> {
    let Some(token) = run.github_token() else {
        run.notes
            .warning("no token: neither comment nor status is written (set the input `github-token`)");
        return Ok(None);
    };
    let client = Client::new(&runner.api_url, &runner.repository, token, run.secrets.clone())?;
    Ok(Some(client.with_stop(run.cancel.clone())))
}

/// Opens the job of an event. `None`: there is nothing to do.
async fn open_job(
    run: &RunContext,
    options: &CiOptions,
    runner: &Runner,
    event: &GithubEvent,
    client: Option<Client>,
) -> Result<Option<Job>, UserError> {
    let caller = Caller {
        for_environment: options.for_environment.as_deref(),
        on_schedule: options.on_schedule,
        ..Caller::new(runner, &options.approve, options.environment.as_deref())
    };
    let Some(authority) = authority(run, event, caller, client.as_ref()).await? else {
        return Ok(None);
    };
    let token = run.github_token();
    let job = Job {
        run: run.clone(),
        repository: checkout(run)?,
        credentials: token.map(|token| GitCredentials::from_token(token.to_owned().into())),
        client,
        options: options.clone(),
        runner: runner.clone(),
        authority,
    };
    if job.repository.is_dirty()? {
        run.notes
            .warning("the working tree has uncommitted changes; only commits are read");
    }
    Ok(Some(job))
}

/// Decides what the job may do; asks GitHub for the default branch if needed. `None`: there is nothing to do.
async fn authority(
    run: &RunContext,
    event: &GithubEvent,
    caller: Caller<'_>,
    client: Option<&Client>,
) -> Result<Option<Authority>, UserError> {
    let mut decision = Authority::decide(event, caller, DefaultBranchAnswer::NotYet)?;
    if matches!(decision, Decision::Ask) {
        decision = match client {
            None => Authority::decide(event, caller, DefaultBranchAnswer::Never)?,
            Some(client) => {
                let branch = client.default_branch().await?;
                let holds = match Authority::commit_of(event) {
                    Some(commit) if *commit != branch.tip => {
                        client.commits_after(commit, &branch.tip).await?.is_some()
                    }
                    _ => true,
                };
                Authority::decide(event, caller, DefaultBranchAnswer::Is(&branch, holds))?
            }
        };
    }
    match decision {
        Decision::Granted(authority) => Ok(Some(authority)),
        Decision::Nothing(why) => {
            run.notes.note(&why);
            Ok(None)
        }
        Decision::Ask => Err(UserError::new(
            ErrorKind::Github,
            "internal error: the permissions of this job were not determined",
        )
        .hint("report it with the event's payload")),
    }
}

async fn run_task(job: &Job) -> Result<JobResult, UserError> {
    let Job {
        authority, client, ..
    } = job;
    match (&authority.task, &authority.branch, client) {
        (Task::PullRequest(event), ..) => preview_events::pull_request(job, event).await,
        (Task::MergeGroup { base, head, .. }, ..) => preview_events::merge_group(job, base, head).await,
        (Task::Outside(event), Some(branch), Some(client)) => {
            preview_events::preview_outside(job, client, branch, event).await
        }
        (
            Task::Apply {
                head,
                approved,
                agreeing,
            },
            Some(branch),
            _,
        ) => apply::run(job, branch, head, approved.clone(), agreeing.clone()).await,
        (Task::Drift { head }, Some(_), _) => drift::run(job, head).await,
        (Task::Restore { approved }, Some(branch), _) => restore::run(job, branch, approved.clone()).await,
        // `Authority::decide` grants none of them without an answer from GitHub.
        (Task::Outside(_) | Task::Apply { .. } | Task::Drift { .. } | Task::Restore { .. }, ..) => {
            Err(UserError::new(
                ErrorKind::Github,
                "the default branch is unknown, so nothing is applied and drift is not checked",
            )
            .hint("set the input `github-token`"))
        }
    }
}

/// The repository that the job has checked out.
fn checkout(run: &RunContext) -> Result<Repository, UserError> {
    Repository::discover(&run.dir).map_err(|error| match error {
        GitError::NotARepository(_) => UserError::from(error).hint(
            "with `actions/checkout` before it: install git in the job's image, or it downloads an archive without history",
        ),
        error => error.into(),
    })
}
