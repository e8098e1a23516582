//! The state document: the content of one serial.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::DocumentWriter;
use konverge_base::model::{
    CommitId, ResourceId, apply_record::ApplyRecord, apply_result::StackResult, state::StackState,
    week_activity::WeekActivity,
};

/// The reason why a serial was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteReason {
    /// An apply ended.
    Apply,
    /// An apply that deleted everything ended.
    Destroy,
    /// An apply that restored an earlier serial ended.
    Rollback,
    /// A lease was taken over. This serial makes the next write of the old holder fail.
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
    /// Returns true for the end of an apply of any kind, which its journal has announced in the index.
    pub(super) fn is_apply(self) -> bool {
        matches!(self, Self::Apply | Self::Destroy | Self::Rollback)
    }

    /// Returns true if a write for this reason retires a stack without resources.
    pub(super) fn retires_stack(self) -> bool {
        matches!(self, Self::Destroy | Self::Forget | Self::Move)
    }
}

impl std::fmt::Display for WriteReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.serialize(f)
    }
}

/// The position up to which a state document contains the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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
    /// The epoch of the lease under which the document was written.
    pub epoch: u64,
    /// True if this document also releases the lease, which saves a request.
    pub closes_lease: bool,
    /// The position up to which the document contains the journal. Later entries are only in the journal.
    pub journal: JournalPlace,
    /// True if the stack was destroyed, moved away or forgotten. Its history stays.
    #[serde(default)]
    pub retired: bool,
    /// The pull requests whose reviews were used for this stack.
    #[serde(default)]
    pub applied_reviews: BTreeSet<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The apply that ended with this document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ApplyRecord>,
    /// The activity of the last weeks. Empty in a document of an earlier version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub activity: Vec<WeekActivity>,
    /// Earlier serials of runs without changes, which the next write deletes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<u64>,
    pub state: StackState,
}

impl StateDocument {
    /// Returns true if the document's run changed nothing.
    pub(crate) fn made_no_change(&self) -> bool {
        made_no_change(self.reason, self.receipt.as_ref())
    }
}

fn made_no_change(reason: WriteReason, receipt: Option<&ApplyRecord>) -> bool {
    let is_unchanged = || receipt.is_some_and(|receipt| receipt.result == StackResult::Unchanged);
    match reason {
        WriteReason::Apply => is_unchanged(),
        reason => reason == WriteReason::Rekey,
    }
}

/// A state with the metadata of its document.
#[derive(Debug, Clone, PartialEq)]
pub struct Versioned {
    /// The serial; 0 if there is only a journal.
    pub serial: u64,
    /// The epoch of the lease under which the document was written.
    pub epoch: u64,
    /// The reason for the write.
    pub reason: WriteReason,
    /// The run that wrote the document.
    pub writer: DocumentWriter,
    /// The time of the write, by the writer's clock.
    pub written: Timestamp,
    /// The note for the history.
    pub note: Option<String>,
    /// The apply that ended with the document.
    pub receipt: Option<ApplyRecord>,
    /// Resources whose last intent has no result: they may exist, differ or be gone. They are included in the
    /// state.
    pub pending: Vec<ResourceId>,
    /// True if the stack was destroyed, moved away or forgotten.
    pub retired: bool,
    /// The pull requests whose reviews were used for this stack.
    pub applied_reviews: BTreeSet<u64>,
    /// The activity of the last weeks.
    pub activity: Vec<WeekActivity>,
    /// Earlier serials of runs without changes.
    pub(super) idle: Vec<u64>,
    /// The state, with the journal merged in.
    pub state: StackState,
}

impl Versioned {
    /// Returns the serials, up to this one, of runs without changes: their inputs differed but gave the same
    /// resources.
    pub(super) fn idle_serials(&self) -> Vec<u64> {
        let own = made_no_change(self.reason, self.receipt.as_ref()).then_some(self.serial);
        self.idle.iter().copied().chain(own).collect()
    }

    /// Returns the last commits that were applied to the stack, or whose apply was attempted.
    pub fn commits(&self) -> Vec<CommitId> {
        let tried = self.receipt.as_ref().and_then(|receipt| receipt.commit.clone());
        self.state.commit.clone().into_iter().chain(tried).collect()
    }
}

/// Maximum number of pull requests that are recorded as applied; the highest numbers are kept.
const REMEMBERED_REVIEWS: usize = 500;

/// Adds applied pull requests, and drops the lowest numbers beyond the maximum.
pub(super) fn remember_reviews(known: &mut BTreeSet<u64>, new: impl IntoIterator<Item = u64>) {
    known.extend(new);
    while known.len() > REMEMBERED_REVIEWS {
        known.pop_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{Digest, RepoPath, authorization::Authorization};

    const ALL: [WriteReason; 9] = [
        WriteReason::Apply,
        WriteReason::Destroy,
        WriteReason::Rollback,
        WriteReason::Takeover,
        WriteReason::Push,
        WriteReason::Move,
        WriteReason::Forget,
        WriteReason::Import,
        WriteReason::Rekey,
    ];

    fn words(has: impl Fn(WriteReason) -> bool) -> Vec<String> {
        let reasons = ALL.into_iter().filter(|reason| has(*reason));
        reasons.map(|reason| reason.to_string()).collect()
    }

    fn commit(letter: &str) -> CommitId {
        letter.repeat(40).parse().unwrap()
    }

    fn receipt(result: StackResult) -> ApplyRecord {
        ApplyRecord {
            digest: Digest::of_bytes(b"plan"),
            commit: Some(commit("b")),
            merged: None,
            result,
            grounds: Authorization::default(),
        }
    }

    fn versioned(reason: WriteReason, result: Option<StackResult>) -> Versioned {
        Versioned {
            serial: 7,
            epoch: 1,
            reason,
            writer: DocumentWriter {
                run: "https://ci.example/1".to_owned(),
                actor: "ada".to_owned(),
            },
            written: Timestamp::UNIX_EPOCH,
            note: None,
            receipt: result.map(receipt),
            pending: Vec::new(),
            retired: false,
            applied_reviews: BTreeSet::new(),
            activity: Vec::new(),
            idle: vec![5],
            state: StackState::empty("shop/prod".parse().unwrap(), RepoPath::root()),
        }
    }

    #[test]
    fn a_reason_is_one_word_and_says_whether_it_ends_an_apply_or_a_stack() {
        let all = "apply destroy rollback takeover push move forget import rekey";
        assert_eq!(words(|_| true).join(" "), all);
        assert_eq!(words(WriteReason::is_apply), ["apply", "destroy", "rollback"]);
        assert_eq!(words(WriteReason::retires_stack), ["destroy", "move", "forget"]);
    }

    #[test]
    fn an_apply_without_a_change_and_a_new_encryption_did_nothing() {
        for (reason, result, is_idle) in [
            (WriteReason::Apply, Some(StackResult::Unchanged), true),
            (WriteReason::Apply, Some(StackResult::Applied), false),
            (WriteReason::Apply, None, false),
            (WriteReason::Destroy, Some(StackResult::Unchanged), false),
            (WriteReason::Rekey, Some(StackResult::Applied), true),
            (WriteReason::Rekey, None, true),
            (WriteReason::Takeover, None, false),
        ] {
            let read = versioned(reason, result);
            let expected: &[u64] = if is_idle { &[5, 7] } else { &[5] };
            assert_eq!(read.idle_serials(), expected, "{reason} {result:?}");
            let document = StateDocument {
                serial: 7,
                reason,
                epoch: 1,
                closes_lease: true,
                journal: JournalPlace::default(),
                retired: false,
                applied_reviews: BTreeSet::new(),
                note: None,
                receipt: read.receipt,
                activity: Vec::new(),
                idle: Vec::new(),
                state: read.state,
            };
            assert_eq!(document.made_no_change(), is_idle, "{reason} {result:?}");
        }
    }

    #[test]
    fn the_commits_of_a_state_are_the_applied_one_and_the_one_that_was_tried() {
        let mut read = versioned(WriteReason::Apply, Some(StackResult::Failed));
        assert_eq!(read.commits(), [commit("b")]);
        read.state.commit = Some(commit("a"));
        assert_eq!(read.commits(), [commit("a"), commit("b")]);
    }

    #[test]
    fn of_many_reviews_the_highest_numbers_are_remembered() {
        let highest = REMEMBERED_REVIEWS as u64;
        let mut known: BTreeSet<u64> = (1..highest).collect();
        remember_reviews(&mut known, [highest]);
        assert_eq!(known, (1..=highest).collect());
        remember_reviews(&mut known, [highest + 1, highest + 2]);
        assert_eq!(known, (3..=highest + 2).collect());
    }
}
