//! The event that started a job, as every forge tells it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::ForgeError;
use konverge_base::model::CommitId;

/// An event that Konverge handles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEvent {
    /// A pull request was opened, updated or closed.
    PullRequest(PullRequestEvent),
    /// Commits were pushed to a branch.
    Push(PushEvent),
    /// A merge queue asks whether a group may be merged.
    MergeGroup {
        /// The group's parent, which may be another group.
        base: CommitId,
        /// The group's head.
        head: CommitId,
        /// The target branch.
        base_branch: String,
        /// The repository's default branch.
        default_branch: String,
        /// The last pull request of the group, from the name of its ref.
        pull_request: Option<u64>,
    },
    /// A schedule.
    Schedule {
        /// The cron expression.
        cron: String,
    },
    /// The workflow was started manually.
    WorkflowDispatch {
        /// The inputs.
        inputs: BTreeMap<String, String>,
        /// The ref that was chosen; it may be any branch.
        ref_name: String,
        /// The default branch of the repository.
        default_branch: String,
    },
    /// Another workflow ended: this is how the preview of a fork is published.
    WorkflowRun(WorkflowRunEvent),
    /// A call through the API.
    RepositoryDispatch {
        /// The event type.
        action: String,
        /// The client payload.
        payload: Value,
    },
}

impl JobEvent {
    /// Returns true if the job may have secrets and write access although the content may come from outside.
    pub fn is_privileged(&self) -> bool {
        match self {
            Self::PullRequest(pr) => !pr.is_from_outside(),
            _ => true,
        }
    }
}

/// A pull request as its event shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestEvent {
    /// `opened`, `synchronize`, `edited`, `closed`, …
    pub action: String,
    /// True if an edit changed the target branch.
    pub base_changed: bool,
    /// Number of the pull request.
    pub number: u64,
    /// The author.
    pub author: String,
    /// The tip of the base branch at the time of the event; the merge commit may be newer.
    pub base: CommitId,
    /// The target branch.
    pub base_branch: String,
    /// The repository's default branch.
    pub default_branch: String,
    /// The head, which identifies the change.
    pub head: CommitId,
    /// The source branch.
    pub head_branch: String,
    /// The test merge of head into base (`GITHUB_SHA`), if the event has one: the content to preview.
    pub merge_commit: Option<CommitId>,
    /// True if the head is in another repository: no secrets, a read-only token.
    pub from_fork: bool,
    /// True if Dependabot started the run: as restricted as a fork.
    pub dependabot: bool,
    /// True if it was merged (with `closed`).
    pub merged: bool,
}

impl PullRequestEvent {
    /// Returns true if its runs have as few permissions as those of a fork.
    pub fn is_from_outside(&self) -> bool {
        self.from_fork || self.dependabot
    }

    /// Returns the target branch, unless it is the default branch.
    pub fn elsewhere(&self) -> Option<&str> {
        other_branch(&self.base_branch, &self.default_branch)
    }

    /// Returns the reason why there is nothing to preview; `None` if there is something.
    pub fn nothing_to_preview(&self) -> Option<&'static str> {
        match self.action.as_str() {
            "closed" => Some("the pull request is closed: nothing to preview"),
            "edited" if !self.base_changed => {
                Some("only the title or description was edited: the last preview is still valid")
            }
            _ => None,
        }
    }
}

/// Commits that were pushed to a branch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushEvent {
    /// The ref that was pushed, in full.
    pub ref_name: String,
    /// The tip before; `None` for a new branch. After a forced push it may be unreachable.
    pub before: Option<CommitId>,
    /// The tip after; `None` if the branch was deleted.
    pub after: Option<CommitId>,
    /// True if the history was rewritten.
    pub forced: bool,
    /// The repository's default branch.
    pub default_branch: String,
}

impl PushEvent {
    /// Returns true for the default branch.
    pub fn is_default_branch(&self) -> bool {
        self.ref_name.strip_prefix("refs/heads/") == Some(&self.default_branch)
    }
}

/// Another workflow that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowRunEvent {
    /// The id of its run.
    pub run_id: u64,
    /// The event that started it.
    pub event: String,
    /// Its conclusion.
    pub conclusion: String,
    /// The commit it ran for.
    pub head: CommitId,
    /// The branch it ran for.
    pub head_branch: String,
    /// `owner/name` of the repository with that commit; empty if it was deleted.
    pub head_repository: String,
    /// The repository's default branch.
    pub default_branch: String,
    /// True if `head_repository` is another repository.
    pub from_fork: bool,
    /// True if Dependabot started it, whose runs have as few permissions as a fork's.
    pub dependabot: bool,
    /// The pull request that it ran for, from a forge that names it and no branch.
    pub pull_request: Option<u64>,
}

impl WorkflowRunEvent {
    /// Returns true if that run was for a fork or Dependabot. It could not publish its preview.
    pub fn from_outside(&self) -> bool {
        self.from_fork || self.dependabot
    }

    /// Refuses a checkout of a fork's code in this privileged job: everything that the job runs from its
    /// working tree would be the fork's. Konverge itself reads a fork's commits from git and compiles them in
    /// the sandbox. `common` is the best common ancestor of the checked-out commit and the run's head.
    ///
    /// # Errors
    /// The checked-out commit contains the run's head: `common` is that head itself.
    pub fn refuse_checkout_on(&self, common: &CommitId) -> Result<(), ForgeError> {
        if !self.from_outside() || self.head != *common {
            return Ok(());
        }
        Err(ForgeError::Runner {
            message: format!(
                "the working tree contains {}, a commit from a fork or Dependabot, in a job with the secrets of this repository",
                self.head.short()
            ),
            hint: "check out the default branch (leave `ref:` out of actions/checkout); Konverge fetches that commit by itself, as data".to_owned(),
        })
    }
}

/// Returns `branch` unless it is the default branch.
pub fn other_branch<'a>(branch: &'a str, default: &str) -> Option<&'a str> {
    (branch != default).then_some(branch)
}
