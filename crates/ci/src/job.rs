//! [`Job`]: one run in a job of a forge, with its options and its result.

use std::sync::Arc;

use crate::{
    shard_mode::ShardMode,
    trust::authority::{Authority, ScheduledTask},
};
use konverge_base::model::{
    CommitId,
    comment_marker::{CommentMarker, MarkerKind},
};
use konverge_forge::{CiJob, Forge};
use konverge_repo::git::{GitCredentials, Repository};
use konverge_report::RunInfo;
use konverge_run::{RunContext, cluster_selection::Live};

/// The options of `konverge ci` that do not come from the environment.
#[derive(Debug, Clone, Default)]
pub struct CiOptions {
    /// The setting that decides if plans query the live infrastructure; `None` means `required`, and `never` for forks.
    pub live: Option<Live>,
    /// The part of the preview that this job does.
    pub part: ShardMode,
    /// True if GitHub reports that the last job of every shard succeeded, in this attempt of the run or an earlier one.
    pub shards_succeeded: bool,
    /// The digests of plans that a person approves by approving the environment of the job. Empty if there are none.
    pub approve: String,
    /// The environment of the job, which GitHub does not show to jobs. Only users who approve the run in this
    /// environment approve the digests.
    pub environment: Option<String>,
    /// The only environment whose stacks the job applies; `None` for all stacks.
    pub for_environment: Option<String>,
    /// The task of the job on a schedule.
    pub on_schedule: ScheduledTask,
    /// The rule that decides if a comment is written on the pull request.
    pub comment: CommentRule,
    /// True if a later step uploads the page of the preview as an artifact of the run.
    pub page_artifact: bool,
}

/// The rule that decides if a comment is written on a pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CommentRule {
    /// Writes a comment for each preview and each apply.
    #[default]
    Always,
    /// Writes a comment only if a preview has changes, failures or denials. Otherwise it deletes the comment of an
    /// earlier push.
    Changes,
    /// Writes no comment.
    Never,
}

/// The result of a `ci` run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobResult {
    /// The exit code.
    pub code: u8,
    /// The text for the log, without color.
    pub text: String,
}

impl JobResult {
    pub(super) const SUCCESS: Self = Self {
        code: 0,
        text: String::new(),
    };

    /// Combines two results. The first exit code that is not 0 wins.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            code: match self.code {
                0 => other.code,
                code => code,
            },
            text: self.text + &other.text,
        }
    }
}

/// One run in a job of a forge.
pub(crate) struct Job {
    pub(super) run: RunContext,
    pub(super) runner: Arc<dyn CiJob>,
    pub(super) repository: Repository,
    pub(super) credentials: Option<GitCredentials>,
    pub(super) client: Option<Arc<dyn Forge>>,
    pub(super) options: CiOptions,
    pub(super) authority: Authority,
}

impl Job {
    /// Returns the scope of the comments about an apply: each environment has its own comment.
    pub(super) fn scope(&self) -> &str {
        self.authority.environment.as_deref().unwrap_or_default()
    }

    /// Returns the name of the status of the apply.
    pub(super) fn apply_status(&self) -> String {
        konverge_forge::apply_of(self.authority.environment.as_deref())
    }

    /// Returns what texts say about the run and the commit that it is for.
    pub(super) fn info(&self, head: &CommitId) -> RunInfo {
        RunInfo {
            head: Some(head.clone()),
            repository: self.runner.info().repository.clone(),
            server_url: self.runner.info().server_url.clone(),
            run_url: Some(self.runner.run_url()),
            run: self.runner.info().run_id,
            attempt: self.runner.info().run_attempt,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            timeline: self.run.timeline(),
            ..RunInfo::default()
        }
    }
}

/// Creates the marker of a comment or issue that this attempt of a run writes.
pub(super) fn marker(runner: &dyn CiJob, kind: MarkerKind, scope: impl Into<String>) -> CommentMarker {
    CommentMarker {
        run: runner.info().run_id,
        attempt: runner.info().run_attempt,
        ..CommentMarker::new(kind, scope)
    }
}
