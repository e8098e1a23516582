//! The plan: the data that a preview shows. Secrets are already masked.

use std::collections::BTreeSet;

use derive_more::{Add, Display};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    ClusterName, Digest, FieldPath, RepoPath, ResourceId, StackId,
    digest::DigestBuilder,
    json_parts::is_default,
    other_names::OtherNames,
    spec::RuntimeKind,
    stack_output::{FilledTexts, RecordedRead},
};
use crate::error::ErrorBody;

/// The output of `konverge preview --output json`. The JSON has `"version":1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of this format.
    pub version: u32,
    /// The plans, sorted by folder.
    pub stacks: Vec<StackPlan>,
}

/// The planned changes of one stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StackPlan {
    /// Folder of the stack.
    pub stack: RepoPath,
    /// Identity of the stack.
    pub id: StackId,
    /// The other names of the stack, for policies. Set only by the planner.
    #[serde(skip)]
    pub known_as: OtherNames,
    /// The stacks that must be applied first. Until then this stack cannot delete a Namespace or CRD that contains
    /// their objects.
    #[serde(skip)]
    pub waits_for: BTreeSet<StackId>,
    /// The outputs of other stacks whose values the plan contains.
    #[serde(skip)]
    pub read: Vec<RecordedRead>,
    /// The value that replaced each text with outputs of other stacks. A review of such a text as unknown accepts only
    /// this value.
    #[serde(skip)]
    pub filled: FilledTexts,
    /// The object of comparison.
    pub basis: Basis,
    /// The digest over the sorted review units.
    pub digest: Digest,
    /// The number of resources by action.
    pub summary: Summary,
    /// The changed resources, sorted by id.
    pub resources: Vec<ResourcePlan>,
    /// Notes of the generation from AppConfigurations: settings that Kusion would lose silently.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The error, if the stack or a part of it could not be planned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// With an error: true if the base has the same error, in code that this change does not touch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fails_as_before: bool,
    /// With an error: the resources that an apply skips, namely those that could not be planned, their
    /// dependents, and all deletions. The apply changes the rest. Empty if the error stops the whole stack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_back: Vec<ResourceId>,
}

/// The object that a Spec is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The real infrastructure.
    Live,
    /// The Spec of the base revision. No cluster was queried.
    Spec,
    /// Nothing, because the stack was never applied. Only in a drift check, which compares with the last apply.
    #[serde(rename = "never-applied")]
    NeverApplied,
}

/// The number of resources by action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Add)]
pub struct Summary {
    /// Resources to create.
    pub create: usize,
    /// Resources to update in place.
    pub update: usize,
    /// Resources to delete and create again.
    pub replace: usize,
    /// Resources to delete.
    pub delete: usize,
    /// Resources to adopt: they already exist.
    pub adopt: usize,
    /// Adopted resources that also change. Set by reports; always 0 in a plan.
    #[serde(skip)]
    pub adopt_changed: usize,
    /// Resources to remove from the state only.
    pub forget: usize,
    /// Hooks to run.
    #[serde(default, skip_serializing_if = "is_default")]
    pub run: usize,
    /// Resources without a change.
    pub unchanged: usize,
    /// Resources that could not be planned.
    pub unknown: usize,
}

impl Summary {
    /// Adds one resource with this action.
    pub(super) fn count(&mut self, action: Action) {
        *match action {
            Action::Create => &mut self.create,
            Action::Update => &mut self.update,
            Action::Replace => &mut self.replace,
            Action::Delete => &mut self.delete,
            Action::Adopt => &mut self.adopt,
            Action::Forget => &mut self.forget,
            Action::Run => &mut self.run,
            Action::Unchanged => &mut self.unchanged,
            Action::Unknown => &mut self.unknown,
        } += 1;
    }

    /// Returns the number of resources that would change.
    pub fn changed(&self) -> usize {
        self.create
            + self.update
            + self.replace
            + self.delete
            + self.adopt
            + self.forget
            + self.run
            + self.unknown
    }
}

/// The planned change of a resource, from the comparison of the recorded, the desired and the live resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display)]
#[display(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The resource does not exist and is created.
    Create,
    /// The resource exists, belongs to this stack and is changed in place.
    Update,
    /// The runtime cannot update the resource in place: it is deleted and recreated.
    Replace,
    /// The resource belongs to this stack and is no longer desired.
    Delete,
    /// The resource exists and is desired, but does not belong to this stack yet.
    Adopt,
    /// The resource belongs to this stack, is no longer desired and is already gone. Only the state changes.
    Forget,
    /// The resource is the Job of a hook, which is recreated and runs to its end.
    Run,
    /// There is nothing to do.
    Unchanged,
    /// The action is unknown until other resources are applied.
    Unknown,
}

/// The way in which a change was validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Validation {
    /// The server validated the change: a Kubernetes dry run, or `terraform plan`.
    Server,
    /// A known schema validated the change: that of the CRD in the same plan.
    Schema,
    /// The change was not validated.
    None,
}

/// The number of pods that a change restarts, starts and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Add)]
pub struct PodImpact {
    /// Pods that are replaced by new ones.
    pub restarts: u64,
    /// Pods that are started in addition.
    pub starts: u64,
    /// Pods that are ended without a replacement.
    pub ends: u64,
}

/// The planned change of one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourcePlan {
    /// The planned resource.
    pub id: ResourceId,
    /// The runtime that plans and applies the resource.
    pub runtime: RuntimeKind,
    /// The cluster of the resource; `None` for a Terraform resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterName>,
    /// The action of an apply on the resource.
    pub action: Action,
    /// The digest over the resource's sorted review units.
    pub digest: Digest,
    /// The way in which the change was validated.
    pub validated: Validation,
    /// The paths that force the replacement, if the action is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replace: Vec<FieldPath>,
    /// For an update that no server has seen: the changed paths that Kubernetes documents as immutable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub immutable: Vec<FieldPath>,
    /// True if the change permanently deletes data or releases an address. The first note says what is lost.
    pub data_loss: bool,
    /// Sorted by path. A creation has one change at path `""` whose `to` is the whole resource; a deletion
    /// has one whose `from` is the whole resource.
    pub changes: Vec<FieldChange>,
    /// The sorted paths whose field manager changes: the value stays, and Konverge owns the field from then on.
    /// A reviewer need not approve them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ownership: Vec<FieldPath>,
    /// The pods that the change restarts, starts and ends; a note says how.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pods: PodImpact,
    /// Notes for the reader: rollout impact, server warnings, why something could not be checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl StackPlan {
    /// Builds the plan of a stack from all its resources, including the unchanged ones: counts, sorts,
    /// computes the digest.
    pub fn new(stack: RepoPath, id: StackId, basis: Basis, resources: Vec<ResourcePlan>) -> Self {
        let mut summary = Summary::default();
        for resource in &resources {
            summary.count(resource.action);
        }
        let mut changed: Vec<_> = resources
            .into_iter()
            .filter(|r| r.action != Action::Unchanged)
            .collect();
        changed.sort_by(|a, b| a.id.cmp(&b.id));
        let digest = stack_digest(&id, &changed);
        Self {
            stack,
            id,
            known_as: OtherNames::default(),
            waits_for: BTreeSet::new(),
            read: Vec::new(),
            filled: FilledTexts::new(),
            basis,
            digest,
            summary,
            resources: changed,
            notes: Vec::new(),
            error: None,
            fails_as_before: false,
            held_back: Vec::new(),
        }
    }

    /// Returns true if a resource gets a new version of a secret.
    pub fn rotates_secret(&self) -> bool {
        let mut changes = self.resources.iter().flat_map(|resource| &resource.changes);
        changes.any(|change| change.origin == ChangeOrigin::Rotation)
    }

    /// Returns true if only a part of the stack could not be planned, so that an apply changes the rest.
    pub fn fails_in_part(&self) -> bool {
        self.error.is_some() && !self.held_back.is_empty()
    }

    /// Returns the plan of a stack that could not be planned.
    pub fn failed(stack: RepoPath, id: StackId, basis: Basis, error: ErrorBody) -> Self {
        let mut plan = Self::new(stack, id, basis, Vec::new());
        plan.error = Some(error);
        plan
    }
}

fn stack_digest(id: &StackId, resources: &[ResourcePlan]) -> Digest {
    let mut builder = DigestBuilder::new("stack-plan");
    builder.part(id.as_str().as_bytes());
    builder.part(Digest::of_set(resources.iter().map(|r| r.digest)).as_bytes());
    builder.finish()
}

/// The change of one field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FieldChange {
    /// The path as in RFC 6901; an item of a keyed list as `name=web`; `""` is the whole resource.
    pub path: FieldPath,
    /// `None` if the value was absent before.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub from: Option<Value>,
    /// `None` if the value is removed.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub to: Option<Value>,
    /// The origin of the difference.
    pub origin: ChangeOrigin,
}

impl FieldChange {
    /// Creates the change of a whole resource, by a change of the Spec.
    pub fn whole(from: Option<Value>, to: Option<Value>) -> Self {
        Self {
            path: FieldPath::root(),
            from,
            to,
            origin: ChangeOrigin::Change,
        }
    }
}

/// Deserializes a key with the value `null` as a value; only a missing key gives `None`.
pub(super) fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// The origin of a difference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeOrigin {
    /// The Spec changed.
    Change,
    /// The live object changed since our last write.
    Drift,
    /// The server sets a default.
    Default,
    /// An admission webhook or policy sets the field.
    Admission,
    /// Another field manager, given by its name, sets the field.
    Manager(String),
    /// The version of a secret moved in its store.
    Rotation,
}

impl Serialize for ChangeOrigin {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Change => serializer.serialize_str("change"),
            Self::Drift => serializer.serialize_str("drift"),
            Self::Default => serializer.serialize_str("default"),
            Self::Admission => serializer.serialize_str("admission"),
            Self::Rotation => serializer.serialize_str("rotation"),
            Self::Manager(name) => serializer.collect_str(&format_args!("manager:{name}")),
        }
    }
}

impl<'de> Deserialize<'de> for ChangeOrigin {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(match text.as_str() {
            "change" => Self::Change,
            "drift" => Self::Drift,
            "default" => Self::Default,
            "admission" => Self::Admission,
            "rotation" => Self::Rotation,
            other => match other.strip_prefix("manager:") {
                Some(name) => Self::Manager(name.to_owned()),
                None => return Err(serde::de::Error::custom(format!("unknown origin `{other}`"))),
            },
        })
    }
}
