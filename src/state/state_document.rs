//! The state document: what one serial says.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::DocumentWriter;
use crate::model::{CommitId, ResourceId, apply_record::ApplyRecord, state::StackState};

/// Why a serial was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteReason {
    /// An apply ended.
    Apply,
    /// An apply ended that took everything down.
    Destroy,
    /// An apply ended that put an earlier serial back.
    Rollback,
    /// A lease was taken over: the old holder's next write collides with it.
    Takeover,
    /// `konverge state push`.
    Push,
    /// `konverge state move`: the stack got or lost its name.
    Move,
    /// `konverge state forget`.
    Forget,
    /// `konverge state import`.
    Import,
}

impl WriteReason {
    /// Whether it ends an apply of some kind, which has announced itself by its journal.
    pub(super) fn is_apply(self) -> bool {
        matches!(self, Self::Apply | Self::Destroy | Self::Rollback)
    }

    /// Whether a stack of which nothing is left is gone by it.
    pub(super) fn retires(self) -> bool {
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
        })
    }
}

/// How much of the journal a state document already holds: everything before this place.
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
    /// Whether that lease ended with it: releasing costs no request of its own.
    pub closes_lease: bool,
    /// Where the journal that is not in it begins.
    pub journal: JournalPlace,
    /// The stack is gone: destroyed, moved away or forgotten. Its history stays.
    #[serde(default)]
    pub retired: bool,
    /// Pull requests whose reviews were used up on this stack.
    #[serde(default)]
    pub applied_reviews: BTreeSet<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The apply that ended with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ApplyRecord>,
    pub state: StackState,
}

/// A state as it was read, with what else is known of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Versioned {
    /// Its serial; 0 if there is a journal only.
    pub serial: u64,
    /// The epoch of the lease under which it was written.
    pub epoch: u64,
    /// Why it was written.
    pub reason: WriteReason,
    /// Who wrote it.
    pub writer: DocumentWriter,
    /// When, by that machine's clock.
    pub written: Timestamp,
    /// A few words that were given with it.
    pub note: Option<String>,
    /// The apply that ended with it.
    pub receipt: Option<ApplyRecord>,
    /// Resources whose last intent has no result: they may exist, differ or be gone. They are in the state.
    pub pending: Vec<ResourceId>,
    /// Whether the stack was destroyed, moved away or forgotten.
    pub retired: bool,
    /// Pull requests whose reviews were used up on this stack.
    pub applied_reviews: BTreeSet<u64>,
    /// The state, journal merged in.
    pub state: StackState,
}

impl Versioned {
    /// The commits that were applied to the stack last, and tried on it last.
    pub fn commits(&self) -> Vec<CommitId> {
        let tried = self.receipt.as_ref().and_then(|receipt| receipt.commit.clone());
        self.state.commit.clone().into_iter().chain(tried).collect()
    }
}

/// No more pull requests than this are remembered as applied, the highest numbers.
const REMEMBERED_REVIEWS: usize = 500;

/// Adds pull requests to those already applied and drops the oldest beyond the bound.
pub(super) fn remember_reviews(known: &mut BTreeSet<u64>, new: impl IntoIterator<Item = u64>) {
    known.extend(new);
    while known.len() > REMEMBERED_REVIEWS {
        known.pop_first();
    }
}
