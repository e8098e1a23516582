//! What an apply did.

use serde::{Deserialize, Serialize};

use super::{Digest, RepoPath, ResourceId, StackId, apply_record::Authorization, plan::Action};
use crate::error::ErrorBody;

/// Everything `konverge apply --output json` prints; `"version":1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApplyReport {
    /// Always 1.
    pub version: u32,
    /// Sorted by folder.
    pub stacks: Vec<StackOutcome>,
}

/// How a stack ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StackResult {
    /// Every resource ended well; the input digest is recorded.
    Applied,
    /// There was nothing to do; the input digest is recorded.
    Unchanged,
    /// Something failed; what was done is in the state.
    Failed,
    /// Stopped before anything was touched (review, policy, lease).
    Stopped,
    /// A stack before it failed.
    HeldBack,
}

/// What an apply did to one stack.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StackOutcome {
    /// Its folder.
    pub stack: RepoPath,
    /// Its identity.
    pub id: StackId,
    /// How it ended.
    pub result: StackResult,
    /// The digest of the plan that was applied.
    pub digest: Digest,
    /// The state's serial afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<u64>,
    /// On what grounds it was carried out.
    #[serde(skip_serializing_if = "Authorization::is_empty")]
    pub grounds: Authorization,
    /// Per touched resource, sorted by id.
    pub resources: Vec<ResourceOutcome>,
    /// Why it failed or stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

/// How one resource ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResourceOutcome {
    /// Its id.
    pub id: ResourceId,
    /// What was to happen.
    pub action: Action,
    /// What did.
    pub result: ResourceResult,
    /// The reason of a failure or of not having run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How one resource ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResourceResult {
    /// Done and ready.
    Done,
    /// It failed.
    Failed,
    /// Not tried, because something it needs failed or the run was interrupted.
    Skipped,
}
