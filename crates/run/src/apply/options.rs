//! The options of an apply, and who approves it.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use super::{consent::Approver, workflow_hooks::WorkflowStarter};
use konverge_base::{
    error::UserError,
    model::{CommitId, StackId},
};

/// Checks whether a newer commit than the current one was applied to a stack.
#[async_trait]
pub trait NewerCommitCheck: Send + Sync {
    /// Returns true if one of these commits is newer than the current one. They were applied to the stack, or tried,
    /// and its state has this serial.
    ///
    /// # Errors
    /// It is not known.
    async fn has_newer(&self, stack: &StackId, serial: u64, commits: &[CommitId]) -> Result<bool, UserError>;
}

/// The options of an apply.
pub struct ApplyOptions {
    /// Approves the plans.
    pub approver: Arc<dyn Approver>,
    /// Selects the stacks to skip because a newer commit was applied to them.
    pub newer: Option<Arc<dyn NewerCommitCheck>>,
    /// The commit that is applied, if there is one. A target with a recorded Spec has its own commit.
    pub commit: Option<CommitId>,
    /// The time of that commit, if a job applies it after a merge.
    pub merged: Option<Timestamp>,
    /// The merged pull requests whose reviews a successful stack uses, including those that did not show the
    /// stack: it now contains all of their changes. A preview of them that is recorded later (by a late shard
    /// or a re-run job) was not visible when they were merged, so it authorizes nothing.
    pub pull_requests: Vec<u64>,
    /// Restore what was applied last. A stack with other recorded inputs is stopped, because another run has
    /// applied something else in the meantime.
    pub restore: bool,
    /// Allows the deletion of a whole stack whose Spec has become empty. Removed stacks may always be
    /// deleted, because their review says so.
    pub allow_empty: bool,
    /// The serial that is restored, for the history.
    pub rolled_back_to: Option<u64>,
    /// Starts the workflows of `apply.hooks.workflows`; `None` outside of GitHub Actions.
    pub workflows: Option<Arc<dyn WorkflowStarter>>,
}

impl ApplyOptions {
    /// Creates options that only name the approver: no commit, no pull request, and no stack may become empty.
    pub fn new(approver: Arc<dyn Approver>) -> Self {
        Self {
            approver,
            newer: None,
            commit: None,
            merged: None,
            pull_requests: Vec::new(),
            restore: false,
            allow_empty: false,
            rolled_back_to: None,
            workflows: None,
        }
    }
}
