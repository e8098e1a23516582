//! The results of an apply.

use serde::{Deserialize, Serialize};

use super::{Digest, RepoPath, ResourceId, StackId, authorization::Authorization, plan::Action};
use crate::error::ErrorBody;

/// The output of `konverge apply --output json`. The JSON has `"version":1`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApplyReport {
    pub version: u32,
    /// Sorted by folder.
    pub stacks: Vec<StackOutcome>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StackResult {
    /// Every resource succeeded. The input digest is recorded.
    Applied,
    /// There was nothing to do. The input digest is recorded.
    Unchanged,
    /// Something failed. Completed changes are in the state.
    Failed,
    /// The stack was stopped before any change (review, policy or lease).
    Stopped,
    /// The stack was skipped: a stack it depends on failed.
    HeldBack,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StackOutcome {
    pub stack: RepoPath,
    pub id: StackId,
    pub result: StackResult,
    pub digest: Digest,
    /// The serial of the state after the apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<u64>,
    /// Who authorized the plan.
    #[serde(skip_serializing_if = "Authorization::is_empty")]
    pub grounds: Authorization,
    /// One entry per changed resource, sorted by id.
    pub resources: Vec<ResourceOutcome>,
    /// Why the stack failed or was stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResourceOutcome {
    pub id: ResourceId,
    /// The planned action.
    pub action: Action,
    pub result: ResourceResult,
    /// Why the resource failed or was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResourceResult {
    /// The change is complete and the resource is ready.
    Done,
    Failed,
    /// Not attempted: a dependency failed or the run was interrupted.
    Skipped,
}
