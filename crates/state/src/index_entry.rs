//! [`IndexEntry`]: the entry of one stack in the index.

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

/// The entry of one stack in the index.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IndexEntry {
    /// The epoch of the lease under which the entry was written.
    pub epoch: u64,
    /// The serial of the state.
    pub serial: u64,
    /// True if a run is working on the stack, or died while it did. The digests of this entry must then not
    /// be trusted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open: bool,
    /// True if the stack was destroyed, moved away or forgotten.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retired: bool,
    /// The number of recorded resources.
    #[serde(default)]
    pub resources: usize,
    /// The ownership claims of the resources.
    #[serde(default, skip_serializing_if = "Marks::is_empty")]
    pub marks: Marks,
    /// The namespaces and kinds of the objects, by cluster. `None` in an entry of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<Marks>,
    /// The digest of the inputs of the last successful apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_digest: Option<Digest>,
    /// The digest of the Spec of that apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<Digest>,
    /// The folder of the last apply.
    #[serde(default)]
    pub folder: StackFolder,
    /// Other names of the stack: a guard (approval, freeze, limit …) that uses one of them applies to the stack too.
    #[serde(default, skip_serializing_if = "OtherNames::is_empty")]
    pub guarded_as: OtherNames,
    /// The commit that was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// Keyed digests of the published outputs, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<OutputName, String>,
    /// The values of other stacks that were used in the apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<IndexedRead>,
    /// The summary of the state for an overview. `None` in an entry of an earlier version.
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

    /// Returns an entry for work that has started under a lease.
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

    /// Returns the input digest of the last apply, if it can be trusted. A stack whose head has the same
    /// digest has nothing to apply.
    pub fn settled_digest(&self) -> Option<Digest> {
        self.input_digest.filter(|_| !self.open)
    }

    /// Returns true if a value of another stack that the apply used has changed, or is no longer published.
    pub fn reads_moved(&self, known: &BTreeMap<StackId, Self>) -> bool {
        let moved = |read: &IndexedRead| {
            let writer = known.get(&read.output.stack);
            let settled = writer.filter(|writer| !writer.open && writer.is_known());
            settled.is_some_and(|writer| writer.outputs.get(&read.output.name) != Some(&read.digest))
        };
        self.reads.iter().any(moved)
    }

    /// Returns true if no apply of the stack has recorded anything yet: a run only announced its first work.
    pub(super) fn is_announcement(&self) -> bool {
        self.open && self.serial == 0 && self.resources == 0
    }

    pub(super) fn rank(&self) -> (u64, bool, u64) {
        (self.epoch, !self.open, self.serial)
    }
}

/// A value of another stack that an apply used.
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

/// An apply that ended without a new state: it failed, was stopped or was held back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedApply {
    /// The time of the end, by the writer's clock.
    pub at: Timestamp,
    /// The result of the stopped apply.
    pub result: StackResult,
    /// The run of the apply.
    pub writer: DocumentWriter,
    /// The lease under which the apply ended; `None` if it had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}

/// The index entries of all stacks.
#[derive(Debug, Clone, Default)]
pub struct IndexedStates {
    /// The entries by stack, including retired stacks.
    pub entries: BTreeMap<StackId, IndexEntry>,
    /// The last drift check of each stack. `None` if an earlier version wrote the index: then only the drift
    /// history has them.
    pub drift: Option<BTreeMap<StackId, DriftCheck>>,
    /// The last apply of each stack that wrote no state. A later index entry takes precedence.
    pub stopped: BTreeMap<StackId, StoppedApply>,
    /// Stacks that were announced, but for which no state and no change was ever written.
    pub(super) untouched: BTreeSet<StackId>,
    /// Entries that are more current than the index: looked up in their stack, or rebuilt.
    pub(super) found: BTreeMap<StackId, IndexEntry>,
    pub(super) compaction: u64,
    /// True if the index contains every stack with a state: it is based on a compaction, or was rebuilt.
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

    /// Returns true if an apply may have created objects of the stack. That is false if a run announced the
    /// stack but was refused, or died before its first change.
    pub fn was_applied(&self, stack: &StackId) -> bool {
        let entry = self.entries.get(stack).filter(|entry| entry.is_known());
        entry.is_some() && !self.untouched.contains(stack)
    }

    /// Returns true if a run works on a stack, or died while it did and no later apply has ended.
    pub fn is_open(&self, stack: &StackId) -> bool {
        let ended = self.stopped.get(stack).and_then(|stopped| stopped.epoch);
        let entry = self.entries.get(stack).filter(|entry| entry.open);
        entry.is_some_and(|entry| ended.is_none_or(|ended| ended < entry.epoch))
    }

    /// Adds the drift checks and stopped applies of an index document. Of two events of a stack the later one
    /// is kept.
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

/// The summary of a stack in the index, as a text that only code that shows it parses.
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
