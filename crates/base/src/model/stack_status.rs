//! The status of stacks: the last apply, its comparison with the head, and the health of the objects.

use jiff::Timestamp;
use serde::Serialize;

use super::{
    ClusterName, CommitId, Digest, RepoPath, ResourceId, StackId, condition::StackCondition, health::Health,
};
use crate::error::ErrorBody;

/// The output of `konverge status --output json`. The JSON has `"version":1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StatusReport {
    /// Version of this format.
    pub version: u32,
    /// The freeze that stops all applies, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeze: Option<FreezeStatus>,
    /// The stacks, sorted by folder.
    pub stacks: Vec<StackStatus>,
}

/// The freeze of all applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FreezeStatus {
    /// The reasons of the people who froze applies, joined.
    pub reason: String,
    /// The time at which the freeze was first set.
    pub since: Timestamp,
    /// The user who first set the freeze.
    pub actor: String,
    /// The run that first set the freeze.
    pub run: String,
}

/// The status of one stack: its last apply, its objects, and pending work.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StackStatus {
    /// Folder of the stack.
    pub stack: RepoPath,
    /// Identity of the stack.
    pub id: StackId,
    /// The last apply compared with the head.
    pub head: HeadStatus,
    /// The conditions of the stack, the worst first; as in the portal, but without drift.
    pub conditions: Vec<StackCondition>,
    /// The last recorded write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<AppliedStatus>,
    /// Resources whose outcome is unknown because a run was interrupted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<ResourceId>,
    /// The number of recorded resources.
    pub resources: usize,
    /// The current health of the objects; `None` if no cluster was queried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<Vec<ObjectStatus>>,
    /// The error, if a part of the status is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

/// The last apply compared with the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HeadStatus {
    /// The head is applied.
    Applied,
    /// The head has changes that are not applied.
    Changed,
    /// Everything that could be applied is applied, and the rest waits for an event. The next run continues.
    Waiting,
    /// The last apply failed, or was interrupted. The next run continues.
    Unfinished,
    /// The stack was never applied.
    New,
    /// The stack was destroyed after it was applied.
    Destroyed,
    /// The stack was removed from the repository, but its state still has resources.
    Removed,
    /// The stack has a state, but no run changes it: the repository no longer defines the stack, and did not remove it.
    Kept,
}

/// The last write that the state records.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedStatus {
    /// The serial of the state.
    pub serial: u64,
    /// The time of the write, by the clock of the writing machine.
    pub written: Timestamp,
    /// The reason for the write.
    pub reason: String,
    /// The user who started the run.
    pub actor: String,
    /// The URL of the run.
    pub run: String,
    /// The commit of the last successful apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// The digest of the Spec of that apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<Digest>,
}

/// The health of one resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStatus {
    /// The resource that the object belongs to.
    pub id: ResourceId,
    /// The cluster of the resource; `None` for a Terraform resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterName>,
    /// The health of the object.
    pub health: Health,
    /// The reason of the health.
    pub message: String,
    /// True if the object is suspended because the Spec says so. Then it counts as ready.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub suspended_by_spec: bool,
}

impl ObjectStatus {
    /// Returns true if the object needs no action and no wait.
    pub fn is_ready(&self) -> bool {
        match self.health {
            Health::Ready => true,
            Health::Suspended => self.suspended_by_spec,
            Health::Progressing | Health::Failed | Health::Unknown => false,
        }
    }
}

impl StackStatus {
    /// Returns the condition of the last apply, if it did not succeed and changes are pending.
    pub fn unfinished(&self) -> Option<StackCondition> {
        let is_pending = !matches!(
            self.head,
            HeadStatus::Applied | HeadStatus::Kept | HeadStatus::Destroyed
        );
        let mut conditions = self.conditions.iter().copied().filter(|_| is_pending);
        conditions.find(|condition| condition.is_of_apply())
    }

    /// Returns the objects that are not ready.
    pub fn not_ready(&self) -> impl Iterator<Item = &ObjectStatus> {
        let objects = self.objects.iter().flatten();
        objects.filter(|object| !object.is_ready())
    }

    /// Returns true if the head is applied, and every queried object is ready.
    pub fn is_applied_and_ready(&self) -> bool {
        matches!(self.head, HeadStatus::Applied | HeadStatus::Kept)
            && self.error.is_none()
            && self.not_ready().next().is_none()
    }
}
