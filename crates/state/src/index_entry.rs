//! [`IndexEntry`]: what the index says of one stack.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::state_document::StateDocument;
use konverge_base::model::{
    CommitId, Digest, RepoPath, StackId,
    claim::{Claim, Marks},
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
    /// The input digest of the last successful apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_digest: Option<Digest>,
    /// The Spec digest of that apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<Digest>,
    /// The folder of the last apply.
    #[serde(default)]
    pub folder: RepoPath,
    /// The commit that was applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
}

impl IndexEntry {
    pub(super) fn from_document(document: &StateDocument) -> Self {
        Self {
            epoch: document.epoch,
            serial: document.serial,
            open: !document.closes_lease,
            retired: document.retired,
            resources: document.state.resources.len(),
            marks: Marks::from_claims(document.state.resources.iter().flat_map(Claim::all_of_recorded)),
            input_digest: document.state.input_digest,
            spec_digest: document.state.spec_digest,
            folder: document.state.folder.clone(),
            commit: document.state.commit.clone(),
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
            input_digest: None,
            spec_digest: None,
            folder: before.map(|entry| entry.folder.clone()).unwrap_or_default(),
            commit: before.and_then(|entry| entry.commit.clone()),
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

    pub(super) fn rank(&self) -> (u64, bool, u64) {
        (self.epoch, !self.open, self.serial)
    }
}

/// The index entries of all stacks.
#[derive(Debug, Clone, Default)]
pub struct IndexedStates {
    /// By stack, including retired stacks.
    pub entries: BTreeMap<StackId, IndexEntry>,
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

#[cfg(test)]
mod tests {
    use super::*;

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
            folder: RepoPath::root().child("apps"),
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
