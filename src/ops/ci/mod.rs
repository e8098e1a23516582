//! `ci`: what the event of a GitHub Actions run asks for.
//!
//! | event | what happens |
//! |---|---|
//! | `pull_request`, `merge_group` | [`preview`]: comment, status, summary, review record; a [`Part`] of it, or the [`verdict`] on the parts |
//! | `workflow_run` of a pull request from outside | [`preview`] of its Specs, by this repository's own job |
//! | `push` to the default branch | [`merge`]: apply what was reviewed, or what an environment's reviewers let through |
//! | `workflow_dispatch` with `approve` | [`merge`], with those digests approved |
//! | `schedule`, other `workflow_dispatch` | [`drift`] |
//! | `repository_dispatch` | by its type: `konverge-apply`, `konverge-drift` |

mod checks;
mod consent;
mod deployments;
mod drift;
mod feedback;
mod files;
mod guardrails;
mod merge;
mod notices;
mod opening;
mod part;
mod people;
mod preview;
mod reconcile;
mod reviews;
mod rounds;
pub(super) mod rules;
mod showing;
mod stopwatch;
mod verdict;

use std::collections::HashMap;

pub use part::Part;
use serde_json::Value;

use super::{Run, clusters::Live};
use crate::{
    error::{ErrorKind, Failure},
    git::{Credentials, GitError, Repository},
    github::{Client, Event, Runner, other_branch},
    report::RunInfo,
};

/// What may be said besides the environment.
#[derive(Debug, Clone, Default)]
pub struct CiOptions {
    /// Whether the real infrastructure is asked; `None` is `required`, and `never` for forks.
    pub live: Option<Live>,
    /// Which part of the preview this job is.
    pub part: Part,
    /// Digests that whoever let this job go on in its environment agrees to; empty if there are none.
    pub approve: String,
    /// The job's environment, which GitHub tells no job: only whoever let the run go on in it agrees to digests.
    pub environment: Option<String>,
}

/// How a run of `ci` ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The exit code.
    pub code: u8,
    /// What the log shows, without colour.
    pub text: String,
}

impl Ended {
    const WELL: Self = Self {
        code: 0,
        text: String::new(),
    };
}

/// One run in GitHub Actions.
pub(super) struct Job {
    run: Run,
    runner: Runner,
    repository: Repository,
    credentials: Option<Credentials>,
    client: Option<Client>,
    options: CiOptions,
}

/// Does what the event asks for.
///
/// # Errors
/// No GitHub Actions environment, an event that is refused, a repository or configuration that can not be used.
pub async fn run(run: &Run, options: &CiOptions) -> Result<Ended, Failure> {
    let env: HashMap<String, String> = run.env.clone().into_iter().collect();
    let runner = Runner::from_env(&env)?;
    let event = runner.event()?;
    let token = run.github_token();
    let client = match token {
        Some(token) => {
            let (api, repository) = (&runner.api_url, &runner.repository);
            let client = Client::new(api, repository, token, run.secrets.clone())?;
            Some(client.with_stop(run.cancel.clone()))
        }
        None => {
            run.notes.note(
                "warning: no token: neither comment nor status is written (set the input `github-token`)",
            );
            None
        }
    };
    if options.part != Part::Whole {
        part::refuse_for(&event)?;
    }
    if let Part::Verdict(of) = options.part {
        return verdict::run(run, &runner, &event, client.as_ref(), of).await;
    }
    let job = Job {
        run: run.clone(),
        repository: checkout(run)?,
        credentials: token.map(|token| Credentials::from_token(token.to_owned().into())),
        client,
        options: options.clone(),
        runner,
    };
    if job.repository.is_dirty()? {
        run.notes
            .note("warning: the working tree has changes of its own; only commits are read");
    }
    match event {
        Event::PullRequest(event) => preview::pull_request(&job, &event).await,
        Event::MergeGroup {
            base,
            head,
            base_branch,
            default_branch,
            ..
        } => {
            let into = other_branch(&base_branch, &default_branch);
            preview::merge_group(&job, &base, &head, into).await
        }
        Event::WorkflowRun(event) => preview::outside(&job, &event).await,
        Event::Push(event) => merge::push(&job, &event, &job.options.approve).await,
        Event::WorkflowDispatch {
            inputs,
            ref_name,
            default_branch,
        } => {
            only_from(&ref_name, &default_branch)?;
            match inputs
                .get("approve")
                .map(|text| text.trim())
                .filter(|text| !text.is_empty())
            {
                Some(digests) => merge::approved(&job, digests).await,
                None => drift::run(&job).await,
            }
        }
        Event::Schedule { .. } => drift::run(&job).await,
        Event::RepositoryDispatch { action, payload } => called(&job, &action, &payload).await,
    }
}

/// The repository that the job has checked out.
fn checkout(run: &Run) -> Result<Repository, Failure> {
    Repository::discover(&run.dir).map_err(|error| match error {
        GitError::NotARepository(_) => Failure::from(error).hint(
            "with `actions/checkout` before it: install git in the job's image, or it downloads an archive without history",
        ),
        error => error.into(),
    })
}

/// A call from another system. GitHub starts it on the default branch alone, and who called is the run's actor.
async fn called(job: &Job, action: &str, payload: &Value) -> Result<Ended, Failure> {
    match action {
        "konverge-drift" => drift::run(job).await,
        "konverge-apply" => merge::approved(job, payload["approve"].as_str().unwrap_or_default()).await,
        other => Err(Failure::new(
            ErrorKind::Github,
            format!(
                "repository_dispatch `{}` asks for nothing known",
                other.escape_debug()
            ),
        )
        .hint("known are `konverge-apply`, which may name digests as `approve`, and `konverge-drift`")),
    }
}

/// A person may start a workflow on any branch; state is changed from the default branch only.
fn only_from(ref_name: &str, default_branch: &str) -> Result<(), Failure> {
    if ref_name.strip_prefix("refs/heads/").unwrap_or(ref_name) == default_branch {
        return Ok(());
    }
    Err(Failure::new(
        ErrorKind::Policy,
        format!("the workflow was started on `{}`", ref_name.escape_debug()),
    )
    .hint(format!(
        "start it on `{default_branch}`: only what is merged is applied or looked at"
    )))
}

impl Job {
    fn info(&self) -> RunInfo {
        RunInfo {
            repository: self.runner.repository.clone(),
            server_url: self.runner.server_url.clone(),
            run_url: Some(self.runner.run_url()),
            run: self.runner.run_id,
            attempt: self.runner.run_attempt,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..RunInfo::default()
        }
    }
}
