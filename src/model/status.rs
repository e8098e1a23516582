//! How stacks stand: what was applied last, whether the head wants something else, how what is there is doing.

use jiff::Timestamp;
use serde::Serialize;

use super::{ClusterName, CommitId, Digest, RepoPath, ResourceId, StackId, health::Health};
use crate::error::ErrorBody;

/// Everything `konverge status --output json` prints; `"version":1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StatusReport {
    /// Always 1.
    pub version: u32,
    /// Sorted by folder.
    pub stacks: Vec<StackStatus>,
}

/// How one stack stands.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StackStatus {
    /// Its folder.
    pub stack: RepoPath,
    /// Its identity.
    pub id: StackId,
    /// What is applied, held against the head.
    pub head: HeadStatus,
    /// The last thing that was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<AppliedStatus>,
    /// Resources of which an interrupted run did not say how they ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<ResourceId>,
    /// How many resources are recorded.
    pub resources: usize,
    /// Its objects as they are now; absent if nobody was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<Vec<ObjectStatus>>,
    /// Why something could not be found out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

/// What is applied, held against the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HeadStatus {
    /// What the head wants is applied.
    Applied,
    /// The head wants something else.
    Changed,
    /// The last apply failed: the next one retries the stack.
    Unfinished,
    /// Nothing was ever applied.
    New,
    /// What was applied was taken down again.
    Destroyed,
    /// The head does not have the stack any more, and something of it is still recorded.
    Removed,
}

/// What the state says of the last write.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedStatus {
    /// The state's serial.
    pub serial: u64,
    /// When it was written, by that machine's clock.
    pub written: Timestamp,
    /// Why.
    pub reason: String,
    /// Who started the run.
    pub actor: String,
    /// Where the run can be looked at.
    pub run: String,
    /// The commit of the last apply that ended well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// The Spec's digest of that apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<Digest>,
}

/// How one object is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ObjectStatus {
    /// Its id.
    pub id: ResourceId,
    /// Its cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterName>,
    /// In a word.
    pub health: Health,
    /// Why.
    pub message: String,
}

impl StackStatus {
    /// The objects that are not ready.
    pub fn not_ready(&self) -> impl Iterator<Item = &ObjectStatus> {
        let objects = self.objects.iter().flatten();
        objects.filter(|object| object.health != Health::Ready)
    }

    /// Whether everything that the head wants is applied, and everything that was looked at is ready.
    pub fn is_well(&self) -> bool {
        self.head == HeadStatus::Applied && self.error.is_none() && self.not_ready().next().is_none()
    }
}
