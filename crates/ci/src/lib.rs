//! The `ci` use case: handles the event of a CI job. Only `trust::authority` decides what the job may do.
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
mod apply_feedback;
mod apply_input;
mod apply_job;
mod apply_stages;
mod artifacts;
mod checks;
mod commits_since_apply;
mod deployments;
mod drift_job;
mod drift_schedule;
mod forge_history;
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
mod publisher;
mod queued_deployments;
mod reconcile;
mod restore;
mod rolled_back;
mod rollout;
mod shard_mode;
mod stack_test_job;
mod summary;
mod trust;
mod unprotected_merge;
pub mod workflow_coverage;
mod workflow_starter;

use std::sync::Arc;

use job::Job;
pub use job::{CiOptions, CommentRule, JobResult};
use job_warnings::JobWarnings;
pub use page_link::link_page;
pub use permission_changes::permission_changes;
pub use policy::{policy_config, unapproved::unapproved_findings};
pub use shard_mode::ShardMode;
pub use stack_test_job::run as run_tests;
use summary::RunSummary;
pub use trust::authority::ScheduledTask;
use trust::authority::{Authority, BranchAnswer, Caller, Decision, Task, Upstream};

use konverge_base::error::UserError;
use konverge_forge::{CiJob, Forge, JobEvent};
use konverge_repo::git::{GitError, Repository};
use konverge_run::{RunContext, forge, sandbox_rule};

/// Handles the event.
///
/// # Errors
/// The environment is not that of a CI job, the event is refused, or the repository or configuration is unusable.
pub async fn run(run: &RunContext, options: &CiOptions) -> Result<JobResult, UserError> {
    let mut runner = forge::open_job(&run.env)?;
    let (warnings, run) = JobWarnings::of_run(run);
    let summary = runner.summary_length();
    let mut client = None;
    let result = begin(&run, options, &mut runner, &mut client).await;
    let ending = RunSummary::new(&run, runner.as_ref(), summary);
    ending.write(client.as_deref(), options, &result).await;
    warnings.annotate(runner.as_ref());
    result
}

async fn begin(
    run: &RunContext,
    options: &CiOptions,
    runner: &mut Arc<dyn CiJob>,
    connected: &mut Option<Arc<dyn Forge>>,
) -> Result<JobResult, UserError> {
    sandbox_rule::require_for_jobs()?;
    let event = runner.event()?;
    let client = connect(run, runner).await?;
    // The caller needs the client for the summary, even if everything after this fails.
    connected.clone_from(&client);
    if options.part != ShardMode::Whole {
        shard_mode::refuse_for(&event)?;
    }
    // The combined status needs no checkout, so no job is opened for it.
    if let ShardMode::Verdict(of) = options.part {
        return aggregate_status::run(
            run,
            runner.as_ref(),
            &event,
            client.as_deref(),
            of,
            options.shards_succeeded,
        )
        .await;
    }
    match open_job(run, options, runner, &event, client).await? {
        Some(job) => run_task(&job).await,
        None => Ok(JobResult::SUCCESS),
    }
}

/// Connects to the repository at its forge, if there is a token, and reads the number of the job's attempt. Without a
/// token the number is not read: such a job publishes nothing that another attempt could overwrite.
async fn connect(run: &RunContext, runner: &mut Arc<dyn CiJob>) -> Result<Option<Arc<dyn Forge>>, UserError> {
    let client = forge::connect(run, &runner.info().repository)?;
    match &client {
        // The attempt is read before anything is written, because it distinguishes the comment and the status of this
        // job from those of a retry.
        Some(client) => *runner = runner.of_attempt(client.attempt(runner.info()).await?),
        None => run.notes.warning(&format!(
            "no token: neither comment nor status is written ({})",
            runner.kind().token_hint()
        )),
    }
    Ok(client)
}

/// Opens the job of an event; `None` if the event needs none.
async fn open_job(
    run: &RunContext,
    options: &CiOptions,
    runner: &Arc<dyn CiJob>,
    event: &JobEvent,
    client: Option<Arc<dyn Forge>>,
) -> Result<Option<Job>, UserError> {
    let starter = starter(runner.as_ref(), event, client.as_deref()).await?;
    let caller = Caller {
        for_environment: options.for_environment.as_deref(),
        on_schedule: options.on_schedule,
        starter: &starter,
        ..Caller::new(runner.as_ref(), &options.approve, options.environment.as_deref())
    };
    let Some(authority) = authority(run, event, caller, client.as_ref()).await? else {
        return Ok(None);
    };
    let job = Job {
        run: run.clone(),
        repository: checkout(run)?,
        credentials: run.git_credentials().await?,
        client,
        options: options.clone(),
        runner: Arc::clone(runner),
        authority,
    };
    if job.repository.is_dirty()? {
        run.notes
            .warning("the working tree has uncommitted changes; only commits are read");
    }
    Ok(Some(job))
}

/// Returns the user who started the run. A preview does not depend on this user, so the forge is not asked.
async fn starter(
    runner: &dyn CiJob,
    event: &JobEvent,
    client: Option<&dyn Forge>,
) -> Result<String, UserError> {
    let job = runner.info();
    match (event, client) {
        (JobEvent::PullRequest(_) | JobEvent::MergeGroup { .. }, _) | (_, None) => Ok(job.starter.clone()),
        (_, Some(client)) => Ok(client.starter(job).await?),
    }
}

/// Decides what the job may do, and reads the default branch from the forge if needed. `None` if there is nothing to
/// do.
async fn authority(
    run: &RunContext,
    event: &JobEvent,
    caller: Caller<'_>,
    client: Option<&Arc<dyn Forge>>,
) -> Result<Option<Authority>, UserError> {
    let question = match Authority::decide(event, caller)? {
        Decision::Granted(authority) => return Ok(Some(authority)),
        Decision::Nothing(why) => {
            run.notes.info(&why);
            return Ok(None);
        }
        Decision::Ask(question) => question,
    };
    let Some(client) = client else {
        return question.decide(None).map(Some);
    };
    let branch = client.default_branch().await?;
    // The branch may have been rewritten since the push. If the commit is its tip, no second request is needed.
    let holds = match Authority::commit_of(event) {
        Some(commit) if *commit != branch.tip => client.commits_after(commit, &branch.tip).await?.is_some(),
        _ => true,
    };
    let client = Arc::clone(client);
    let upstream = Upstream { branch, client };
    question.decide(Some(BranchAnswer { upstream, holds })).map(Some)
}

async fn run_task(job: &Job) -> Result<JobResult, UserError> {
    match &job.authority.task {
        Task::PullRequest { event, .. } => preview_events::pull_request(job, event).await,
        Task::MergeGroup { base, head, .. } => preview_events::merge_group(job, base, head).await,
        Task::Outside { event, upstream } => preview_events::preview_outside(job, upstream, event).await,
        Task::Apply(target) => apply_job::run(job, target).await,
        Task::Drift(upstream) => drift_job::run(job, &upstream.branch.tip).await,
        Task::Restore { upstream, approved } => restore::run(job, upstream, approved).await,
    }
}

/// Opens the checkout of the job.
fn checkout(run: &RunContext) -> Result<Repository, UserError> {
    Repository::discover(&run.dir).map_err(|error| match error {
        GitError::NotARepository(_) => UserError::from(error).hint(
            "if `actions/checkout` runs before Konverge: install git in the job's image, because without git it downloads an archive without history",
        ),
        error => error.into(),
    })
}
