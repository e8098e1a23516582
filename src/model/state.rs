//! What is remembered of a stack between runs: the prior of every plan.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    ClusterName, CommitId, Digest, RepoPath, ResourceId, StackId, plan::FieldChange, spec::RuntimeKind,
    stack::NamedBy,
};

/// The content of a stack's state, without the envelope (serial, nonce, checksum) that `state/` puts around it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StackState {
    /// Whose state it is.
    pub stack: StackId,
    /// The folder it was last applied from: a stack that the head lacks is destroyed without its files.
    pub folder: RepoPath,
    /// Where its identity came from.
    #[serde(default, skip_serializing_if = "NamedBy::is_names")]
    pub named_by: NamedBy,
    /// Identities under which its objects were made and that they may still name as their owner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_identities: Vec<StackId>,
    /// The input digest of the last apply in which every resource ended well. `None` makes the next run take it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_digest: Option<Digest>,
    /// The Spec digest of that apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<Digest>,
    /// The commit of the last apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// The KCL core it was compiled with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<String>,
    /// Sorted by id.
    pub resources: Vec<Recorded>,
    /// Replacements that were started and not completed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub begun: BTreeMap<ResourceId, Replacement>,
    /// What a runtime keeps for a whole stack or segment, by a key of its own (Terraform's state, always encrypted).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub runtime: BTreeMap<String, Value>,
}

impl StackState {
    /// A stack that nobody has applied.
    pub fn empty(stack: StackId, folder: RepoPath) -> Self {
        Self {
            stack,
            folder,
            named_by: NamedBy::Names,
            earlier_identities: Vec::new(),
            input_digest: None,
            spec_digest: None,
            commit: None,
            core: None,
            resources: Vec::new(),
            begun: BTreeMap::new(),
            runtime: BTreeMap::new(),
        }
    }

    /// Whether nothing is recorded in it.
    pub fn is_blank(&self) -> bool {
        self.resources.is_empty() && self.runtime.is_empty() && self.input_digest.is_none()
    }

    /// The same state under another identity. The next run takes the stack up.
    #[must_use]
    pub fn renamed(mut self, to: StackId) -> Self {
        let earlier = std::mem::replace(&mut self.stack, to);
        self.earlier_identities.retain(|id| *id != self.stack);
        self.earlier_identities.push(earlier);
        self.input_digest = None;
        self
    }

    /// A resource by id.
    pub fn resource(&self, id: &ResourceId) -> Option<&Recorded> {
        let at = self
            .resources
            .binary_search_by(|resource| resource.id.cmp(id))
            .ok()?;
        self.resources.get(at)
    }

    /// Puts a resource in, replacing the one of the same id; keeps the order.
    pub fn put(&mut self, recorded: Recorded) {
        self.begun.remove(&recorded.id);
        match self.resources.binary_search_by(|r| r.id.cmp(&recorded.id)) {
            Ok(at) => self.resources[at] = recorded,
            Err(at) => self.resources.insert(at, recorded),
        }
    }

    /// Follows what ended: puts in what is there, takes out what is gone. Intents and failures change nothing here.
    pub fn follow(&mut self, entry: &JournalEntry) {
        match entry {
            JournalEntry::Done { recorded } => self.put(recorded.clone()),
            JournalEntry::Gone { id } => self.remove(id),
            JournalEntry::Begun { id, replacement } => {
                self.begun.insert(id.clone(), replacement.clone());
            }
            JournalEntry::Runtime { key, value } => {
                self.runtime.insert(key.clone(), value.clone());
            }
            JournalEntry::Intent { .. } | JournalEntry::Failed { .. } | JournalEntry::Untouched { .. } => {}
        }
    }

    /// As [`StackState::follow`], of many entries: in the order of their number, not of its square.
    pub fn follow_all<'e>(&mut self, entries: impl IntoIterator<Item = &'e JournalEntry>) {
        let resources = std::mem::take(&mut self.resources);
        let mut resources: BTreeMap<_, _> = resources.into_iter().map(|one| (one.id.clone(), one)).collect();
        for entry in entries {
            match entry {
                JournalEntry::Done { recorded } => {
                    self.begun.remove(&recorded.id);
                    resources.insert(recorded.id.clone(), recorded.clone());
                }
                JournalEntry::Gone { id } => {
                    self.begun.remove(id);
                    resources.remove(id);
                }
                other => self.follow(other),
            }
        }
        self.resources = resources.into_values().collect();
    }

    /// Takes a resource out.
    pub fn remove(&mut self, id: &ResourceId) {
        self.begun.remove(id);
        self.resources.retain(|resource| resource.id != *id);
    }
}

/// One resource as it was last applied. Secret values stand in it as keyed hashes only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recorded {
    /// Its id.
    pub id: ResourceId,
    /// Its runtime.
    #[serde(rename = "type")]
    pub runtime: RuntimeKind,
    /// The cluster it lies in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterName>,
    /// As applied, secrets masked; shared by the state, the plan and the journal.
    pub attributes: Arc<Map<String, Value>>,
    /// Explicit and implicit dependencies, by which it is deleted in reverse order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<ResourceId>,
    /// As in the Spec.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extensions: Map<String, Value>,
    /// What the runtime needs to find and prove it: UID, echo hash, group-kind; never a secret in clear.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub private: Value,
}

/// A replacement as it was agreed to: when its old object is gone, what is left of it is a mere creation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replacement {
    /// Over what was wanted then; keyed where it stands in clear.
    pub wanted: String,
    /// As they were shown.
    pub changes: Vec<FieldChange>,
    /// The paths that forced it.
    pub paths: Vec<String>,
}

impl Replacement {
    /// What a reader should know of the rest of one.
    pub const REST: &str = "an earlier run began to replace it and did not come to the end: the old one is gone, and this is the rest";
}

/// What is written down before the first write to the outside, and after it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "entry")]
pub enum JournalEntry {
    /// About to be made, changed or deleted: after a kill these may exist.
    Intent {
        /// As it would be recorded if it succeeds.
        recorded: Recorded,
        /// The action, a word of the plan.
        action: super::plan::Action,
    },
    /// It is there now.
    Done {
        /// As it was applied.
        recorded: Recorded,
    },
    /// It is gone now.
    Gone {
        /// Its id.
        id: ResourceId,
    },
    /// Its old object is about to be deleted, to be recreated.
    Begun {
        /// Its id.
        id: ResourceId,
        /// As it was agreed to.
        replacement: Replacement,
    },
    /// Its turn did not come: these are as they were, for certain.
    Untouched {
        /// Their ids.
        ids: Vec<ResourceId>,
    },
    /// It failed and is as it was, as far as the runtime can say.
    Failed {
        /// Its id.
        id: ResourceId,
    },
    /// The runtime's own data changed (Terraform's state), already encrypted.
    Runtime {
        /// The key in [`StackState::runtime`].
        key: String,
        /// The new value.
        value: Value,
    },
}
