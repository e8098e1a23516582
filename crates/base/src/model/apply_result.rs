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
    /// Sorted by folder.
    pub stacks: Vec<StackOutcome>,
}

/// How the apply of one stack ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StackResult {
    /// Every resource succeeded. The input digest is recorded.
    Applied,
    /// There was nothing to do. The input digest is recorded.
    Unchanged,
    /// Everything that could be done is done, and the rest waits for something outside of this run. The input digest
    /// is not recorded: the next run takes the stack up again.
    Waiting,
    /// Something failed. Completed changes are in the state.
    Failed,
    /// The stack was stopped before any change (review, policy or lease).
    Stopped,
    /// The stack was skipped: a stack it depends on failed or waits.
    HeldBack,
}

/// The result of an apply for one stack.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StackOutcome {
    /// Folder of the stack.
    pub stack: RepoPath,
    /// Identity of the stack.
    pub id: StackId,
    /// How its apply ended.
    pub result: StackResult,
    /// Digest of the inputs that were applied.
    pub digest: Digest,
    /// The serial of the state after the apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<u64>,
    /// Who authorized the plan.
    #[serde(skip_serializing_if = "Authorization::is_empty")]
    pub grounds: Authorization,
    /// The wait of the stack, if the rest of it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// One entry per changed resource, sorted by id.
    pub resources: Vec<ResourceOutcome>,
    /// Why the stack failed or was stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

impl StackOutcome {
    /// Returns the outcome of a stack that was not changed, and why.
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

    /// The number of resources that are changed. A change that waits is written, and so is one that did not become ready.
    pub fn changed(&self) -> usize {
        let is_changed = |resource: &&ResourceOutcome| match resource.result {
            ResourceResult::Done | ResourceResult::Waiting => true,
            ResourceResult::Failed => resource.written,
            ResourceResult::Skipped => false,
        };
        self.resources.iter().filter(is_changed).count()
    }
}

/// The result of an apply for one resource.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResourceOutcome {
    /// The resource.
    pub id: ResourceId,
    /// The planned action.
    pub action: Action,
    /// How it ended.
    pub result: ResourceResult,
    /// True if a failed resource was written, and only did not become ready.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub written: bool,
    /// Why the resource waits, failed or was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Set if the error of the stack is the failure of this resource, alone or with others: it is reported once.
    #[serde(skip)]
    pub is_stack_error: bool,
}

/// The wait of a stack or of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Waiting {
    /// The event that ends the wait.
    #[serde(rename = "for")]
    pub reason: WaitReason,
    /// The time at which it ends by itself, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The wave of its rollout, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wave: Option<usize>,
}

/// The events that end a wait, the slowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitReason {
    /// Somebody resumes a rollout of stacks.
    Resume,
    /// Somebody approves the next wave.
    Approval,
    /// Somebody promotes a rollout that is paused.
    Promotion,
    /// An earlier wave of its rollout ends.
    Wave,
    /// The gates of its rollout pass.
    Gate,
    /// Time passes.
    Time,
}

impl Waiting {
    /// Returns the one of two waits that may end later.
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

/// How the apply of one resource ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResourceResult {
    /// The change is complete and the resource is ready.
    Done,
    /// The change is written, and the resource waits for something outside of this run.
    Waiting,
    /// The runtime refused it, or it did not become ready.
    Failed,
    /// Not attempted: a dependency failed or waits, or the run was interrupted.
    Skipped,
}
