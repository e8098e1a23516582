//! The results of an apply.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Digest, RepoPath, ResourceId, StackId, authorization::Authorization, plan::Action};
use crate::error::{ErrorBody, UserError};

/// The output of `konverge apply --output json`. The JSON has `"version":1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApplyReport {
    /// Version of this format.
    pub version: u32,
    /// The results, sorted by folder.
    pub stacks: Vec<StackOutcome>,
}

/// The result of the apply of one stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StackResult {
    /// Every resource succeeded. The input digest is recorded.
    Applied,
    /// There was nothing to do. The input digest is recorded.
    Unchanged,
    /// Everything that this run could do is done. The rest waits for an event outside of this run. The input digest
    /// is not recorded, so that the next run continues.
    Waiting,
    /// Something failed. Completed changes are in the state.
    Failed,
    /// The stack was stopped before any change (review, policy or lease).
    Stopped,
    /// The stack was skipped, because a stack that it depends on failed or waits.
    HeldBack,
}

/// The result of the apply of one stack, with its resources.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StackOutcome {
    /// Folder of the stack.
    pub stack: RepoPath,
    /// Identity of the stack.
    pub id: StackId,
    /// The result of the apply of the stack.
    pub result: StackResult,
    /// Digest of the inputs that were applied.
    pub digest: Digest,
    /// The serial of the state after the apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<u64>,
    /// The reviews and approvals that allowed the apply.
    #[serde(skip_serializing_if = "Authorization::is_empty")]
    pub grounds: Authorization,
    /// The event that the stack waits for, if it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// The results of the changed resources, sorted by id.
    pub resources: Vec<ResourceOutcome>,
    /// The error, if the stack failed or was stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

impl StackOutcome {
    /// Returns the outcome of a stack that was not changed, with the reason.
    pub fn not_changed(id: &StackId, folder: &RepoPath, result: StackResult, failure: &UserError) -> Self {
        Self {
            stack: folder.clone(),
            id: id.clone(),
            result,
            digest: Digest::of_set([]),
            serial: None,
            grounds: Authorization::default(),
            waiting: None,
            resources: Vec::new(),
            error: Some(failure.body()),
        }
    }

    /// Returns the number of resources that changed. A change counts once it is written, even if it waits or is not
    /// ready.
    pub fn changed(&self) -> usize {
        let is_changed = |resource: &&ResourceOutcome| match resource.result {
            ResourceResult::Done | ResourceResult::Waiting => true,
            ResourceResult::Failed => resource.written,
            ResourceResult::Skipped => false,
        };
        self.resources.iter().filter(is_changed).count()
    }
}

/// The result of the apply of one resource.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResourceOutcome {
    /// The resource that was applied or skipped.
    pub id: ResourceId,
    /// The planned action.
    pub action: Action,
    /// The result for the resource.
    pub result: ResourceResult,
    /// True if the resource failed after it was written, because it did not become ready.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub written: bool,
    /// The reason why the resource waits, failed or was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// True if the error of the stack already contains the failure of this resource, so that it is reported once.
    #[serde(skip)]
    pub is_stack_error: bool,
}

/// The event that a stack or a resource waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// The event that ends the wait.
    #[serde(rename = "for")]
    pub reason: WaitReason,
    /// The time at which the wait ends by itself, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The number of the stack's wave in its rollout, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wave: Option<usize>,
}

/// The events that end a wait, the slowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitReason {
    /// A person resumes a rollout of stacks.
    Resume,
    /// A person approves the next wave.
    Approval,
    /// A person promotes a paused rollout in the cluster.
    Promotion,
    /// An earlier wave of the stack's rollout ends.
    Wave,
    /// The gates of the stack's rollout pass.
    Gate,
    /// A certain time is reached.
    Time,
}

impl Waiting {
    /// Returns this wait or the other one, whichever may end later.
    #[must_use]
    pub fn or_later(self, other: Self) -> Self {
        let rank = |waiting: &Self| (std::cmp::Reverse(waiting.reason), waiting.until);
        if rank(&other) > rank(&self) { other } else { self }
    }
}

impl std::fmt::Display for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.reason, self.until) {
            (WaitReason::Promotion, _) => f.write_str("waits for promotion"),
            (WaitReason::Time, Some(until)) => {
                write!(f, "waits until {}", until.strftime("%Y-%m-%d %H:%M:%S UTC"))
            }
            (WaitReason::Time, None) => f.write_str("waits"),
            (WaitReason::Resume, _) => f.write_str("waits until its rollout is resumed"),
            (WaitReason::Approval, _) => f.write_str("waits for an approval"),
            (WaitReason::Wave, _) => f.write_str("waits for an earlier wave of its rollout"),
            (WaitReason::Gate, _) => f.write_str("waits for a gate of its rollout"),
        }
    }
}

/// The result of the apply of one resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResourceResult {
    /// The change is complete and the resource is ready.
    Done,
    /// The change is written, and the resource waits for an event outside of this run.
    Waiting,
    /// The runtime refused the change, or the resource did not become ready.
    Failed,
    /// The change was not attempted: a dependency failed or waits, or the run was interrupted.
    Skipped,
}
