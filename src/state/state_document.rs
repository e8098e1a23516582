//! The state document: the content of one serial.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::DocumentWriter;
use crate::model::{
    CommitId, ResourceId, apply_record::ApplyRecord, apply_result::StackResult, state::StackState,
};

/// Why a serial was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteReason {
    /// The end of an apply.
    Apply,
    /// The end of an apply that deleted everything.
    Destroy,
    /// The end of an apply that restored an earlier serial.
    Rollback,
    /// A lease was taken over: the next write of the old holder collides with this serial.
    Takeover,
    /// `konverge state push`.
    Push,
    /// `konverge state move`: the stack got or lost its identity.
    Move,
    /// `konverge state forget`.
    Forget,
    /// `konverge state import`.
    Import,
    /// `konverge state rekey`: the same state, encrypted to other recipients.
    Rekey,
}

impl WriteReason {
    /// Returns true for the end of any kind of apply, which was announced by its journal.
    pub(super) fn is_apply(self) -> bool {
        matches!(self, Self::Apply | Self::Destroy | Self::Rollback)
    }

    /// Returns true if a stack with no resources left is retired by it.
    pub(super) fn retires_stack(self) -> bool {
        matches!(self, Self::Destroy | Self::Forget | Self::Move)
    }
}

impl std::fmt::Display for WriteReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Apply => "apply",
            Self::Destroy => "destroy",
            Self::Rollback => "rollback",
            Self::Takeover => "takeover",
            Self::Push => "push",
            Self::Move => "move",
            Self::Forget => "forget",
            Self::Import => "import",
            Self::Rekey => "rekey",
        })
    }
}

/// The part of the journal that a state document contains: everything before this place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(super) struct JournalPlace {
    pub epoch: u64,
    pub entry: u64,
}

/// The body of `stacks/<identity>/state/<serial>`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StateDocument {
    pub serial: u64,
    pub reason: WriteReason,
    /// The epoch of the lease under which it was written.
    pub epoch: u64,
    /// True if the lease ended with this document: the release needs no request of its own.
    pub closes_lease: bool,
    /// The start of the journal that is not in the document.
    pub journal: JournalPlace,
    /// The stack was destroyed, moved away or forgotten. Its history stays.
    #[serde(default)]
    pub retired: bool,
    /// The pull requests whose reviews were used on this stack.
    #[serde(default)]
    pub applied_reviews: BTreeSet<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The apply that ended with this document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ApplyRecord>,
    /// Earlier serials of runs that did nothing. They are still there, and the next write deletes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<u64>,
    pub state: StackState,
}

impl StateDocument {
    /// Whether the run that writes it did nothing.
    pub fn did_nothing(&self) -> bool {
        did_nothing(self.reason, self.receipt.as_ref())
    }
}

fn did_nothing(reason: WriteReason, receipt: Option<&ApplyRecord>) -> bool {
    let is_unchanged = || receipt.is_some_and(|receipt| receipt.result == StackResult::Unchanged);
    match reason {
        WriteReason::Apply => is_unchanged(),
        reason => reason == WriteReason::Rekey,
    }
}

/// A state as read, with its metadata.
#[derive(Debug, Clone, PartialEq)]
pub struct Versioned {
    /// The serial; 0 if there is only a journal.
    pub serial: u64,
    /// The epoch of the lease under which it was written.
    pub epoch: u64,
    pub reason: WriteReason,
    pub writer: DocumentWriter,
    /// When it was written, by the clock of that machine.
    pub written: Timestamp,
    /// The note that was given with it.
    pub note: Option<String>,
    /// The apply that ended with it.
    pub receipt: Option<ApplyRecord>,
    /// Resources whose last intent has no result: they may exist, differ or be gone. They are part of the
    /// state.
    pub pending: Vec<ResourceId>,
    /// True if the stack was destroyed, moved away or forgotten.
    pub retired: bool,
    /// The pull requests whose reviews were used on this stack.
    pub applied_reviews: BTreeSet<u64>,
    /// Earlier serials of runs that did nothing.
    pub(super) idle: Vec<u64>,
    /// The state, with the journal merged in.
    pub state: StackState,
}

impl Versioned {
    /// The serials up to this one of runs that did nothing: other inputs gave the same resources.
    pub(super) fn idle_serials(&self) -> Vec<u64> {
        let own = did_nothing(self.reason, self.receipt.as_ref()).then_some(self.serial);
        self.idle.iter().copied().chain(own).collect()
    }

    /// The last commits that were applied to the stack or attempted on it.
    pub fn commits(&self) -> Vec<CommitId> {
        let tried = self.receipt.as_ref().and_then(|receipt| receipt.commit.clone());
        self.state.commit.clone().into_iter().chain(tried).collect()
    }
}

/// The maximum number of pull requests that are remembered as applied; the highest numbers are kept.
const REMEMBERED_REVIEWS: usize = 500;

/// Adds pull requests to those already applied and drops the oldest beyond the maximum.
pub(super) fn remember_reviews(known: &mut BTreeSet<u64>, new: impl IntoIterator<Item = u64>) {
    known.extend(new);
    while known.len() > REMEMBERED_REVIEWS {
        known.pop_first();
    }
}
