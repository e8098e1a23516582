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
    /// The files that differ from the event before, sorted; at the start, none.
    pub files: Vec<RepoPath>,
    /// The stacks that these files affect, and why; at the start, those that differ from the base.
    pub stacks: Vec<AffectedStack>,
    /// The differences of these stacks from the base.
    pub plan: Vec<StackPlan>,
    /// Why the repository cannot be read. The next event is compared with the last one that could be read.
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
    /// An event without files and stacks.
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
