//! The events of `konverge watch`.

use serde::{Deserialize, Serialize};

use super::{CommitId, RepoPath, affected::AffectedStack, plan::StackPlan};
use crate::error::ErrorBody;

/// One event. The JSON has `"version":1`, one line for each event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchEvent {
    /// Version of this format.
    pub version: u32,
    /// The kind of the event.
    pub event: WatchEventKind,
    /// The commit that Specs are compared with.
    pub base: Option<CommitId>,
    /// The files that changed since the last event, sorted; empty at the start.
    pub files: Vec<RepoPath>,
    /// The stacks that these files affect, with the reasons; at the start, the stacks that differ from the base.
    pub stacks: Vec<AffectedStack>,
    /// The differences between these stacks and the base.
    pub plan: Vec<StackPlan>,
    /// The error, if the repository cannot be read. The next event is compared with the last readable
    /// revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WatchEventKind {
    /// The watch has begun.
    Start,
    /// Files were saved.
    Change,
}

impl WatchEvent {
    /// Creates an event without files and stacks.
    pub fn new(event: WatchEventKind, base: Option<CommitId>) -> Self {
        Self {
            version: 1,
            event,
            base,
            files: Vec::new(),
            stacks: Vec::new(),
            plan: Vec::new(),
            error: None,
        }
    }
}
