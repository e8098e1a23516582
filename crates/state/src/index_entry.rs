//! [`IndexEntry`]: what the index says of one stack.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{DocumentWriter, DriftCheck, state_document::StateDocument};
use konverge_base::model::{
    CommitId, Digest, StackFolder, StackId,
    apply_result::StackResult,
    claim::{Claim, Marks},
    container::Container,
    other_names::OtherNames,
    stack_output::{OutputId, OutputName, RecordedRead},
};

/// The index entry of one stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IndexEntry {
    /// The epoch of the lease under which it was written.
    pub epoch: u64,
    /// The serial of the state.
    pub serial: u64,
    /// A run is working on the stack, or died while it did: the digest below must not be trusted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// The stack was destroyed, moved away or forgotten.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retired: bool,
    /// The number of recorded resources.
    #[serde(default)]
    pub resources: usize,
    /// The claims of the resources.
    #[serde(default, skip_serializing_if = "Marks::is_empty")]
    pub marks: Marks,
    /// The namespaces and kinds of its objects, by cluster. An entry of an earlier version has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<Marks>,
    /// The input digest of the last successful apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_digest: Option<Digest>,
    /// The Spec digest of that apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<Digest>,
    /// The folder of the last apply. An entry of an earlier version has none for the root.
    #[serde(default)]
    pub folder: StackFolder,
    /// The other names of the stack, for guards.
    #[serde(default, skip_serializing_if = "OtherNames::is_empty")]
    pub guarded_as: OtherNames,
    /// The commit that was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// The keyed digests of what it publishes, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<OutputName, String>,
    /// The values of other stacks that it was applied with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<IndexedRead>,
    /// The summary of the state for an overview. An entry of an earlier version has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<IndexedSummary>,
}

impl IndexEntry {
    pub(super) fn from_document(document: &StateDocument, summary: Option<IndexedSummary>) -> Self {
        Self {
            epoch: document.epoch,
            serial: document.serial,
            open: !document.closes_lease,
            retired: document.retired,
            resources: document.state.resources.len(),
            marks: Marks::from_claims(document.state.resources.iter().flat_map(Claim::all_of_recorded)),
            places: Some(Marks::from_short_hashes(
                document
                    .state
                    .resources
                    .iter()
                    .flat_map(Container::marks_of_recorded),
            )),
            input_digest: document.state.input_digest,
            spec_digest: document.state.spec_digest,
            folder: document.state.folder.clone(),
            guarded_as: document.state.guarded_as.clone(),
            commit: document.state.commit.clone(),
            outputs: {
                let outputs = document.state.outputs.iter();
                outputs
                    .map(|(name, output)| (name.clone(), output.digest.clone()))
                    .collect()
            },
            reads: document.state.reads.iter().map(IndexedRead::of).collect(),
            summary,
        }
    }

    /// The entry of work that started under a lease and has not ended.
    pub(super) fn open(epoch: u64, serial: u64, before: Option<&Self>) -> Self {
        Self {
            epoch,
            serial,
            open: true,
            retired: false,
            resources: before.map_or(0, |entry| entry.resources),
            marks: before.map(|entry| entry.marks.clone()).unwrap_or_default(),
            places: before.and_then(|entry| entry.places.clone()),
            input_digest: None,
            spec_digest: None,
            folder: before.map(|entry| entry.folder.clone()).unwrap_or_default(),
            guarded_as: before.map(|entry| entry.guarded_as.clone()).unwrap_or_default(),
            commit: before.and_then(|entry| entry.commit.clone()),
            outputs: before.map(|entry| entry.outputs.clone()).unwrap_or_default(),
            reads: before.map(|entry| entry.reads.clone()).unwrap_or_default(),
            summary: before.and_then(|entry| entry.summary.clone()),
        }
    }

    /// Returns true if objects of the stack may still exist.
    pub fn is_known(&self) -> bool {
        !self.retired && (self.open || self.resources > 0 || self.input_digest.is_some())
    }

    /// The recorded input digest, if it can be trusted. A stack whose head has the same digest has nothing to
    /// apply.
    pub fn settled_digest(&self) -> Option<Digest> {
        self.input_digest.filter(|_| !self.open)
    }

    /// Returns true if a value that the stack was applied with is another one now, or is not published any more.
    pub fn reads_moved(&self, known: &BTreeMap<StackId, Self>) -> bool {
        let moved = |read: &IndexedRead| {
            let writer = known.get(&read.output.stack);
            let settled = writer.filter(|writer| !writer.open && writer.is_known());
            settled.is_some_and(|writer| writer.outputs.get(&read.output.name) != Some(&read.digest))
        };
        self.reads.iter().any(moved)
    }

    /// Returns true if no apply of the stack has recorded anything yet: a run works on it for the first time, or was about
    /// to.
    pub(super) fn is_announcement(&self) -> bool {
        self.open && self.serial == 0 && self.resources == 0
    }

    pub(super) fn rank(&self) -> (u64, bool, u64) {
        (self.epoch, !self.open, self.serial)
    }
}

/// A value of another stack that a stack was applied with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexedRead {
    /// The output that was read.
    #[serde(flatten)]
    pub output: OutputId,
    /// The keyed digest of the value.
    pub digest: String,
}

impl IndexedRead {
    fn of(read: &RecordedRead) -> Self {
        Self {
            output: read.output.clone(),
            digest: read.digest.clone(),
        }
    }
}

/// An apply that ended before it wrote a state: it failed, was stopped or was held back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedApply {
    /// When, by the clock of that machine.
    pub at: Timestamp,
    /// How it ended.
    pub result: StackResult,
    /// The run.
    pub writer: DocumentWriter,
    /// The lease under which the apply ended; `None` if it had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}

/// The index entries of all stacks.
#[derive(Debug, Clone, Default)]
pub struct IndexedStates {
    /// By stack, including retired stacks.
    pub entries: BTreeMap<StackId, IndexEntry>,
    /// The last check of each stack for drift. `None` if only the drift history knows: an earlier version wrote the
    /// index.
    pub drift: Option<BTreeMap<StackId, DriftCheck>>,
    /// The last apply of each stack that wrote no state. An entry that was written later counts more.
    pub stopped: BTreeMap<StackId, StoppedApply>,
    /// Stacks that were announced and have neither a state nor the journal of a change: nothing of them was ever written.
    pub(super) untouched: BTreeSet<StackId>,
    /// Entries that were found closed in their state, or rebuilt from states.
    pub(super) found: BTreeMap<StackId, IndexEntry>,
    pub(super) compaction: u64,
    /// True if the index has every stack with a state: it is based on a compaction, or was rebuilt from the
    /// states.
    pub(super) complete: bool,
    pub(super) rebuilt: bool,
    pub(super) unmerged: BTreeSet<String>,
    pub(super) merged: BTreeSet<String>,
}

impl IndexedStates {
    /// Returns true if the index was missing or damaged, so that every state was read.
    pub fn is_rebuilt(&self) -> bool {
        self.rebuilt
    }

    /// Returns true if an apply may have made something of the stack. A run that announced it and was refused, or died
    /// before its first change, has not.
    pub fn was_applied(&self, stack: &StackId) -> bool {
        let entry = self.entries.get(stack).filter(|entry| entry.is_known());
        entry.is_some() && !self.untouched.contains(stack)
    }

    /// Returns true if a run works on a stack, or died while it did and no apply has ended since.
    pub fn is_open(&self, stack: &StackId) -> bool {
        let ended = self.stopped.get(stack).and_then(|stopped| stopped.epoch);
        let entry = self.entries.get(stack).filter(|entry| entry.open);
        entry.is_some_and(|entry| ended.is_none_or(|ended| ended < entry.epoch))
    }

    /// Adds what a document of the index says of drift and of applies that ended early: the later one counts.
    pub(super) fn join_events(
        &mut self,
        drift: Option<BTreeMap<StackId, DriftCheck>>,
        stopped: BTreeMap<StackId, StoppedApply>,
    ) {
        if let Some(drift) = drift {
            join_later(self.drift.get_or_insert_default(), drift, |check| check.at);
        }
        join_later(&mut self.stopped, stopped, |stopped| stopped.at);
    }
}

fn join_later<T>(
    ours: &mut BTreeMap<StackId, T>,
    theirs: BTreeMap<StackId, T>,
    time: impl Fn(&T) -> Timestamp,
) {
    for (stack, event) in theirs {
        match ours.get(&stack) {
            Some(known) if time(known) >= time(&event) => {}
            _ => {
                ours.insert(stack, event);
            }
        }
    }
}

/// The summary of a stack as the index holds it: a text that only its readers parse.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IndexedSummary(Arc<str>);

impl IndexedSummary {
    pub(super) fn new(text: String) -> Self {
        Self(text.into())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::RepoPath;

    #[test]
    fn a_stack_is_known_while_objects_of_it_may_exist() {
        let opened = IndexEntry::open(1, 0, None);
        assert!(opened.is_known(), "a run may have made something");
        let empty = IndexEntry {
            open: false,
            ..opened.clone()
        };
        assert!(!empty.is_known());
        let with_resources = IndexEntry {
            resources: 1,
            ..empty.clone()
        };
        assert!(with_resources.is_known());
        let applied = IndexEntry {
            input_digest: Some(Digest::of_bytes(b"one")),
            ..empty
        };
        assert!(applied.is_known(), "a stack without resources was applied too");
        for entry in [opened, with_resources, applied] {
            let retired = IndexEntry {
                retired: true,
                ..entry
            };
            assert!(!retired.is_known());
        }
    }

    #[test]
    fn the_digest_of_an_open_stack_settles_nothing() {
        let closed = IndexEntry {
            open: false,
            input_digest: Some(Digest::of_bytes(b"one")),
            ..IndexEntry::open(1, 1, None)
        };
        assert_eq!(closed.settled_digest(), Some(Digest::of_bytes(b"one")));
        let open = IndexEntry { open: true, ..closed };
        assert_eq!(open.settled_digest(), None);
    }

    #[test]
    fn an_opening_entry_keeps_what_is_there_and_no_digest() {
        let before = IndexEntry {
            resources: 3,
            folder: RepoPath::root().child("apps").into(),
            input_digest: Some(Digest::of_bytes(b"one")),
            spec_digest: Some(Digest::of_bytes(b"spec")),
            ..IndexEntry::open(1, 1, None)
        };
        let opened = IndexEntry::open(2, 1, Some(&before));
        assert_eq!((opened.epoch, opened.resources), (2, 3));
        assert_eq!(opened.folder, before.folder);
        assert_eq!((opened.input_digest, opened.spec_digest), (None, None));
    }
}
