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
    /// Returns true if one of `commits` is newer than the current commit. `commits` were applied to the stack, or their
    /// apply failed; `serial` is that of its state.
    ///
    /// # Errors
    /// The order of the commits cannot be determined.
    async fn has_newer(&self, stack: &StackId, serial: u64, commits: &[CommitId]) -> Result<bool, UserError>;
}

/// The options of an apply.
#[derive(Clone)]
pub struct ApplyOptions {
    /// Approves the plans.
    pub approver: Arc<dyn Approver>,
    /// Selects the stacks to skip because a newer commit was applied to them.
    pub newer: Option<Arc<dyn NewerCommitCheck>>,
    /// The commit that is applied, if there is one. A target with a recorded Spec has a commit of its own.
    pub commit: Option<CommitId>,
    /// The time of `commit`, if a job applies it after a merge.
    pub merged: Option<Timestamp>,
    /// The merged pull requests whose reviews a successful stack uses, including those that did not show the
    /// stack: it now contains all of their changes. A preview of them that is recorded later (by a late shard
    /// or a re-run job) was not visible when they were merged, so it authorizes nothing.
    pub pull_requests: Vec<u64>,
    /// Restore the Spec that was applied last. A stack whose recorded inputs differ is stopped, because another run has
    /// applied another Spec in the meantime.
    pub restore: bool,
    /// Allow the deletion of a whole stack whose Spec has become empty. A removed stack may always be deleted, because
    /// its review shows the deletion.
    pub allow_empty: bool,
    /// The serial that is restored, for the history.
    pub rolled_back_to: Option<u64>,
    /// Starts the workflows of `apply.hooks.workflows`; `None` outside of a job that can start workflows.
    pub workflows: Option<Arc<dyn WorkflowStarter>>,
}

impl ApplyOptions {
    /// Creates options with only an approver: without a commit and pull requests, and no stack may become empty.
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
