//! The state of a stack: the record between runs. Every plan compares with it.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::{
    ClusterName, CommitId, Digest, FieldPath, RepoPath, ResourceId, StackFolder, StackId,
    other_names::OtherNames,
    plan::{Action, FieldChange},
    spec::{RuntimeKind, Sharing, is_shared},
    stack::NamedBy,
    stack_output::{OutputName, RecordedOutput, RecordedRead},
};

/// The content of a stack's state, without the envelope (serial, nonce, checksum) that `crates/state/src/` adds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StackState {
    /// The identity of the stack.
    pub stack: StackId,
    /// The folder of the last apply. It is needed to destroy a stack that the head no longer has, without its
    /// files.
    pub folder: StackFolder,
    /// Every other name that the stack had when it was planned or applied. Policies that name one of them still apply.
    #[serde(default, skip_serializing_if = "OtherNames::is_empty")]
    pub guarded_as: OtherNames,
    /// The source of the identity.
    #[serde(default, skip_serializing_if = "NamedBy::is_names")]
    pub named_by: NamedBy,
    /// Earlier identities of the stack. Its objects may still name one of them as their owner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier_identities: Vec<StackId>,
    /// The input digest of the last apply in which every resource succeeded. If it is `None`, the next run applies
    /// the stack again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_digest: Option<Digest>,
    /// The digest of the Spec in that apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_digest: Option<Digest>,
    /// The commit of the last apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// The version of the KCL core that compiled the stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<String>,
    /// The Kusion release with the same content as this state, if the state was imported from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kusion_release: Option<KusionRelease>,
    /// The published outputs, by name, from the last apply in which every resource succeeded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub outputs: BTreeMap<OutputName, RecordedOutput>,
    /// The outputs of other stacks that the last apply used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<RecordedRead>,
    /// The resources, sorted by id.
    pub resources: Vec<Recorded>,
    /// Replacements that were started and not completed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub begun: BTreeMap<ResourceId, Replacement>,
    /// Data of a runtime for a whole stack or batch, by a key of the runtime (the Terraform state,
    /// encrypted if there is a key).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub runtime: BTreeMap<String, Value>,
}

impl StackState {
    /// Creates the state of a stack that was never applied.
    pub fn empty(stack: StackId, folder: impl Into<StackFolder>) -> Self {
        Self {
            stack,
            folder: folder.into(),
            guarded_as: OtherNames::default(),
            named_by: NamedBy::Names,
            earlier_identities: Vec::new(),
            input_digest: None,
            spec_digest: None,
            commit: None,
            core: None,
            kusion_release: None,
            outputs: BTreeMap::new(),
            reads: Vec::new(),
            resources: Vec::new(),
            begun: BTreeMap::new(),
            runtime: BTreeMap::new(),
        }
    }

    /// Converts the state to the current format. Earlier versions wrote an empty folder for the root and for no folder;
    /// if a core compiled the stack, the folder is the root.
    #[must_use]
    pub fn of_this_version(mut self) -> Self {
        if self.folder.path().is_none() && self.core.is_some() {
            self.folder = RepoPath::root().into();
        }
        self
    }

    /// Returns true if no resource and no other data is recorded.
    pub fn is_blank(&self) -> bool {
        self.resources.is_empty() && self.runtime.is_empty() && self.input_digest.is_none()
    }

    /// Moves the state to another identity. The next run applies the stack again.
    #[must_use]
    pub fn renamed(mut self, to: StackId) -> Self {
        let earlier = std::mem::replace(&mut self.stack, to);
        self.earlier_identities.retain(|id| *id != self.stack);
        self.guarded_as.ids.insert(earlier.clone());
        self.earlier_identities.push(earlier);
        self.input_digest = None;
        self
    }

    /// Returns the resource with this id.
    pub fn resource(&self, id: &ResourceId) -> Option<&Recorded> {
        let at = self
            .resources
            .binary_search_by(|resource| resource.id.cmp(id))
            .ok()?;
        self.resources.get(at)
    }

    /// Adds a resource, or replaces the one with the same id. The resources stay sorted.
    pub fn put(&mut self, recorded: Recorded) {
        // A resource that is written again completes its replacement.
        self.begun.remove(&recorded.id);
        match self.resources.binary_search_by(|r| r.id.cmp(&recorded.id)) {
            Ok(at) => self.resources[at] = recorded,
            Err(at) => self.resources.insert(at, recorded),
        }
    }

    /// Applies a journal entry of a finished change: adds or removes the resource. A failure changes nothing, and an
    /// intent at most removes outputs.
    pub fn apply_entry(&mut self, entry: &JournalEntry) {
        match entry {
            JournalEntry::Done { recorded } => self.put(recorded.clone()),
            JournalEntry::Gone { id } => self.remove(id),
            JournalEntry::Begun { id, replacement } => {
                self.withdraw_outputs(id);
                self.begun.insert(id.clone(), replacement.clone());
            }
            JournalEntry::Intent { recorded, action } => {
                if matches!(action, Action::Replace | Action::Delete) {
                    self.withdraw_outputs(&recorded.id);
                }
            }
            JournalEntry::Runtime { key, value } => {
                self.runtime.insert(key.clone(), value.clone());
            }
            JournalEntry::Release { release } => self.kusion_release = Some(release.clone()),
            JournalEntry::Folder { folder } if self.folder.path().is_none() => {
                self.folder = folder.clone().into();
            }
            JournalEntry::Folder { .. } => {}
            JournalEntry::Names { names } => self.guarded_as.extend(names),
            JournalEntry::Failed { .. } | JournalEntry::Untouched { .. } => {}
        }
    }

    /// Removes the outputs of a resource that is replaced or deleted: they are unknown until an apply of the stack
    /// succeeds.
    fn withdraw_outputs(&mut self, id: &ResourceId) {
        self.outputs.retain(|_, output| !output.resources.contains(id));
    }

    /// Applies many entries like [`Self::apply_entry`], in linear time.
    pub fn apply_entries<'e>(&mut self, entries: impl IntoIterator<Item = &'e JournalEntry>) {
        let resources = std::mem::take(&mut self.resources);
        let mut resources: BTreeMap<_, _> = resources.into_iter().map(|one| (one.id.clone(), one)).collect();
        for entry in entries {
            match entry {
                JournalEntry::Done { recorded } => {
                    self.begun.remove(&recorded.id);
                    resources.insert(recorded.id.clone(), recorded.clone());
                }
                JournalEntry::Gone { id } => {
                    self.withdraw_outputs(id);
                    self.begun.remove(id);
                    resources.remove(id);
                }
                other => self.apply_entry(other),
            }
        }
        self.resources = resources.into_values().collect();
    }

    /// Removes a resource.
    pub fn remove(&mut self, id: &ResourceId) {
        self.withdraw_outputs(id);
        self.begun.remove(id);
        self.resources.retain(|resource| resource.id != *id);
    }
}

/// A release in the backend of Kusion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KusionRelease {
    /// Kusion's name of the project.
    pub project: String,
    /// Kusion's name of the workspace.
    pub workspace: String,
    /// Kusion's name of the stack.
    pub stack: String,
    /// Number of the release.
    pub revision: u64,
    /// The mark of a release that Konverge wrote; `None` for a release that Kusion wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
}

/// One resource as it was last applied. It contains secrets as keyed hashes only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recorded {
    /// The recorded resource.
    pub id: ResourceId,
    /// The runtime that applied the resource.
    #[serde(rename = "type")]
    pub runtime: RuntimeKind,
    /// The cluster of the resource; `None` for a Terraform resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterName>,
    /// The applied attributes with secrets masked; shared by the state, the plan and the journal.
    pub attributes: Arc<Map<String, Value>>,
    /// Explicit and implicit dependencies. Deletions run in the reverse order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<ResourceId>,
    /// The extensions of the Spec.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub extensions: Map<String, Value>,
    /// The stacks that own the resource.
    #[serde(default, skip_serializing_if = "Sharing::is_stack")]
    pub sharing: Sharing,
    /// The keyed hash of the type and the id at the Terraform provider, once the id is known. A hash, because an id may
    /// be a secret. `None` for Kubernetes, where the attributes identify the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_hash: Option<String>,
    /// The runtime's own data to find and verify the object. It never contains a secret in clear text.
    #[serde(default, skip_serializing_if = "RuntimeRecord::is_none")]
    pub private: RuntimeRecord,
}

impl Recorded {
    /// Creates a record with only these parts.
    pub fn new(id: ResourceId, runtime: RuntimeKind, attributes: Map<String, Value>) -> Self {
        Self {
            id,
            runtime,
            cluster: None,
            attributes: Arc::new(attributes),
            depends_on: Vec::new(),
            extensions: Map::new(),
            sharing: Sharing::default(),
            object_hash: None,
            private: RuntimeRecord::default(),
        }
    }

    /// Returns true if several stacks of the project may own the object.
    pub fn is_shared(&self) -> bool {
        self.runtime == RuntimeKind::Kubernetes && is_shared(self.sharing, &self.attributes)
    }
}

/// A runtime's own part of a record. Only that runtime reads it, as its own type.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RuntimeRecord(Value);

impl RuntimeRecord {
    /// Creates the record of an object whose write was not confirmed. Such a record cannot prove that the object is
    /// unchanged.
    pub fn unconfirmed() -> Self {
        Self(Value::Object(Map::new()))
    }

    /// Creates a record from a runtime's own type.
    pub fn encode(record: &impl Serialize) -> Self {
        Self(serde_json::to_value(record).expect("a record is plain data with text keys"))
    }

    /// Returns the record as a runtime's own type; `None` if there is none, or if it has another form.
    pub fn decode<T: DeserializeOwned>(&self) -> Option<T> {
        match &self.0 {
            Value::Null => None,
            record => T::deserialize(record).ok(),
        }
    }

    /// Returns true if the runtime recorded nothing.
    pub fn is_none(&self) -> bool {
        self.0.is_null()
    }
}

/// An approved replacement. It is recorded, because once the old object is gone a plan shows only a creation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replacement {
    /// The digest of the desired resource when the replacement was planned; the rest of the replacement counts as
    /// approved only while it is equal. In the engine's journal it is a keyed hash, because the resource may contain
    /// secrets.
    pub wanted: String,
    /// The changes that the reviewer saw.
    pub changes: Vec<FieldChange>,
    /// The paths that forced the replacement.
    pub paths: Vec<FieldPath>,
}

impl Replacement {
    /// The note on a creation that is the rest of an approved replacement.
    pub const REST: &str =
        "an earlier run started to replace it: the old object is deleted, and this creates the new one";
}

/// An entry of the journal, written before or after a write to the infrastructure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "entry")]
pub enum JournalEntry {
    /// The resource is about to be created, changed or deleted. After a kill it may exist.
    Intent {
        /// The resource as it would be recorded after success.
        recorded: Recorded,
        /// The planned action.
        action: Action,
    },
    /// The resource was applied.
    Done {
        /// The resource as it was applied.
        recorded: Recorded,
    },
    /// The resource is gone.
    Gone {
        /// The resource that no longer exists.
        id: ResourceId,
    },
    /// The old object is about to be deleted and recreated.
    Begun {
        /// The resource whose replacement began.
        id: ResourceId,
        /// The replacement as it was approved.
        replacement: Replacement,
    },
    /// These resources were not started and are certainly unchanged.
    Untouched {
        /// The resources that were not changed.
        ids: Vec<ResourceId>,
    },
    /// The change failed. As far as the runtime knows, the resource is unchanged.
    Failed {
        /// The resource that failed.
        id: ResourceId,
    },
    /// The runtime's own data changed (the Terraform state). It is already encrypted if there is a key.
    Runtime {
        /// The key in [`StackState::runtime`].
        key: String,
        /// The recorded data.
        value: Value,
    },
    /// The folder of the stack, in its first apply. If that apply is killed, the next run removes its resources with
    /// the login and the rules of this folder.
    Folder {
        /// The folder in the repository.
        folder: RepoPath,
    },
    /// Other names of the stack were found. They are recorded before policies judge the plan: when a refused plan is
    /// tried again, the stack with the old name may be gone.
    Names {
        /// The other names that were found.
        names: OtherNames,
    },
    /// A release is about to be written into the backend of Kusion.
    Release {
        /// The release that was written.
        release: KusionRelease,
    },
}
