//! The event that started a job, in one form for all forges.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::error::{ForgeError, Result};
use konverge_base::model::CommitId;

/// An event that Konverge handles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEvent {
    /// A pull request was opened, updated or closed.
    PullRequest(PullRequestEvent),
    /// Commits were pushed to a branch.
    Push(PushEvent),
    /// A merge queue asks for a check of a group of pull requests.
    MergeGroup {
        /// The group's parent, which may be another group.
        base: CommitId,
        /// The group's head.
        head: CommitId,
        /// The target branch.
        base_branch: String,
        /// The repository's default branch.
        default_branch: String,
        /// The last pull request of the group, parsed from the ref name.
        pull_request: Option<u64>,
    },
    /// A schedule started the job.
    Schedule {
        /// The cron expression.
        cron: String,
    },
    /// The workflow was started manually.
    WorkflowDispatch {
        /// The inputs of the workflow, by name.
        inputs: BTreeMap<String, String>,
        /// The ref that the user chose; any branch is possible.
        ref_name: String,
        /// The default branch of the repository.
        default_branch: String,
    },
    /// Another workflow ended. Konverge uses this event to publish the preview of a fork's pull request.
    WorkflowRun(WorkflowRunEvent),
    /// A program started the job through the API.
    RepositoryDispatch {
        /// The event type that the caller chose.
        action: String,
        /// The client payload.
        payload: Value,
    },
}

impl JobEvent {
    /// Returns true if the job may have secrets and write access although it handles content from outside the
    /// repository.
    pub fn is_privileged(&self) -> bool {
        match self {
            Self::PullRequest(pr) => !pr.is_from_outside(),
            _ => true,
        }
    }
}

/// A pull request with the fields that its event contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequestEvent {
    /// `opened`, `synchronize`, `edited`, `closed`, …
    pub action: String,
    /// True if an edit changed the target branch.
    pub base_changed: bool,
    /// Number of the pull request.
    pub number: u64,
    /// The login of the author.
    pub author: String,
    /// The tip of the target branch at the time of the event. The merge commit may have a newer tip as its parent.
    pub base: CommitId,
    /// The target branch.
    pub base_branch: String,
    /// The repository's default branch.
    pub default_branch: String,
    /// The head. A change is identified by its head, not by its merge commit.
    pub head: CommitId,
    /// The source branch.
    pub head_branch: String,
    /// The test merge of head into base (`GITHUB_SHA`), if the event has one: the content that a preview shows.
    pub merge_commit: Option<CommitId>,
    /// True if the head is in another repository: then the job has no secrets and a read-only token.
    pub from_fork: bool,
    /// True if Dependabot started the run, which is then as restricted as a fork's.
    pub dependabot: bool,
    /// True if the pull request was merged (with action `closed`).
    pub merged: bool,
}

impl PullRequestEvent {
    /// Returns true if the runs of this pull request have as few permissions as a fork's.
    pub fn is_from_outside(&self) -> bool {
        self.from_fork || self.dependabot
    }

    /// Returns the target branch, unless it is the default branch.
    pub fn elsewhere(&self) -> Option<&str> {
        other_branch(&self.base_branch, &self.default_branch)
    }

    /// Returns the reason why no preview is necessary; `None` if one is.
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
    /// The full ref that was pushed.
    pub ref_name: String,
    /// The tip before the push; `None` for a new branch. After a forced push this commit may be unreachable.
    pub before: Option<CommitId>,
    /// The tip after the push; `None` if the branch was deleted.
    pub after: Option<CommitId>,
    /// True if the push rewrote the history.
    pub forced: bool,
    /// The repository's default branch.
    pub default_branch: String,
}

impl PushEvent {
    /// Returns true if the push was to the default branch.
    pub fn is_default_branch(&self) -> bool {
        self.ref_name.strip_prefix("refs/heads/") == Some(&self.default_branch)
    }
}

/// Another workflow that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkflowRunEvent {
    /// The id of the workflow's run.
    pub run_id: u64,
    /// The event that started the workflow.
    pub event: String,
    /// The conclusion of the run, such as `success`.
    pub conclusion: String,
    /// The commit of the run.
    pub head: CommitId,
    /// The branch of the run.
    pub head_branch: String,
    /// `owner/name` of the repository that contains the commit; empty if that repository was deleted.
    pub head_repository: String,
    /// The repository's default branch.
    pub default_branch: String,
    /// True if `head_repository` is another repository.
    pub from_fork: bool,
    /// True if Dependabot started the run, which is then as restricted as a fork's.
    pub dependabot: bool,
    /// The pull request of the run, if the forge reports it in place of a branch.
    pub pull_request: Option<u64>,
}

impl WorkflowRunEvent {
    /// Returns true if the run was for a fork or for Dependabot, and so could not publish its preview.
    pub fn from_outside(&self) -> bool {
        self.from_fork || self.dependabot
    }

    /// Returns an error if the working tree contains a fork's code: this job has secrets, and everything it
    /// executes from the working tree would come from the fork. Konverge itself reads a fork's commits from git and
    /// compiles them in the sandbox. `common` is the best common ancestor of the checked-out commit and the run's
    /// head.
    ///
    /// # Errors
    /// The checked-out commit contains the run's head, so `common` is the head itself.
    pub fn refuse_checkout_on(&self, common: &CommitId) -> Result<()> {
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
