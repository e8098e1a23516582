//! The plan: the data that a preview shows, in the shape of contracts. Secrets are already masked in it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    ClusterName, Digest, RepoPath, ResourceId, StackId, digest::DigestBuilder, review, spec::RuntimeKind,
};
use crate::error::ErrorBody;

/// Everything `konverge preview --output json` prints; `"version":1`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Always 1.
    pub version: u32,
    /// Sorted by folder.
    pub stacks: Vec<StackPlan>,
}

/// What would happen to one stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StackPlan {
    /// Its folder.
    pub stack: RepoPath,
    /// Its identity.
    pub id: StackId,
    /// What the Spec was compared with.
    pub basis: Basis,
    /// Over the sorted units of review.
    pub digest: Digest,
    /// Counts by action.
    pub summary: Summary,
    /// Changed resources only, sorted by id.
    pub resources: Vec<ResourcePlan>,
    /// Why it could not be planned, or not all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// With an error: what an apply would leave as it is, namely what could not be planned, what waits for it, and what
    /// was to be deleted. The rest is applied. Empty if the error stops the whole stack.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_back: Vec<ResourceId>,
}

/// What a plan compares with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The real infrastructure.
    Live,
    /// The base revision's Spec: no cluster was asked.
    Spec,
    /// Nothing: drift is a difference from what was applied, and nothing ever was.
    #[serde(rename = "never-applied")]
    NeverApplied,
}

/// Counts by action.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Summary {
    pub create: usize,
    pub update: usize,
    pub replace: usize,
    pub delete: usize,
    pub adopt: usize,
    pub forget: usize,
    pub unchanged: usize,
    pub unknown: usize,
}

impl Summary {
    /// Counts one more.
    pub fn count(&mut self, action: Action) {
        *match action {
            Action::Create => &mut self.create,
            Action::Update => &mut self.update,
            Action::Replace => &mut self.replace,
            Action::Delete => &mut self.delete,
            Action::Adopt => &mut self.adopt,
            Action::Forget => &mut self.forget,
            Action::Unchanged => &mut self.unchanged,
            Action::Unknown => &mut self.unknown,
        } += 1;
    }

    /// Resources that would change.
    pub fn changed(&self) -> usize {
        self.create + self.update + self.replace + self.delete + self.adopt + self.forget + self.unknown
    }

    /// The sum of two.
    #[must_use]
    pub fn add(self, other: Self) -> Self {
        Self {
            create: self.create + other.create,
            update: self.update + other.update,
            replace: self.replace + other.replace,
            delete: self.delete + other.delete,
            adopt: self.adopt + other.adopt,
            forget: self.forget + other.forget,
            unchanged: self.unchanged + other.unchanged,
            unknown: self.unknown + other.unknown,
        }
    }
}

/// What happens to a resource: the three-way table of contracts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Not there; it is made.
    Create,
    /// There and ours; it is changed in place.
    Update,
    /// An update that the runtime cannot make in place: the object is deleted, then recreated.
    Replace,
    /// Ours and no longer wanted.
    Delete,
    /// There, wanted, and not ours yet.
    Adopt,
    /// Ours, no longer wanted, and already gone: only the state changes.
    Forget,
    /// Nothing to do.
    Unchanged,
    /// It cannot be said before other resources are applied.
    Unknown,
}

/// Who checked that the runtime would accept the change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Validation {
    /// The server itself (dry-run, `terraform plan`).
    Server,
    /// A schema we know (the plan's own CRD).
    Schema,
    /// Nobody.
    None,
}

/// What would happen to one resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourcePlan {
    /// Its id.
    pub id: ResourceId,
    /// Its runtime.
    pub runtime: RuntimeKind,
    /// The cluster, for Kubernetes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<ClusterName>,
    /// What happens.
    pub action: Action,
    /// Over its sorted units of review.
    pub digest: Digest,
    /// Who checked it.
    pub validated: Validation,
    /// For a replace: the paths that force it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replace: Vec<String>,
    /// True if applying deletes data or releases an address permanently.
    pub data_loss: bool,
    /// Sorted by path. A create has one change at path `""` whose `to` is the whole resource; a delete has one whose
    /// `from` is.
    pub changes: Vec<FieldChange>,
    /// Sorted paths of which only the field manager changes: the value stays, and is ours from then on. A reviewer has
    /// nothing to agree to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ownership: Vec<String>,
    /// What a reader should know besides: rollout impact, server warnings, why something could not be checked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl ResourcePlan {
    /// Puts a plan together: sorts the changes and computes the digest.
    pub fn new(
        stack: &StackId,
        id: ResourceId,
        runtime: RuntimeKind,
        action: Action,
        mut changes: Vec<FieldChange>,
    ) -> Self {
        changes.sort_by(|a, b| a.path.cmp(&b.path).then_with(|| a.origin.cmp(&b.origin)));
        let mut plan = Self {
            id,
            runtime,
            cluster: None,
            action,
            digest: Digest::of_set([]),
            validated: Validation::None,
            replace: Vec::new(),
            data_loss: false,
            changes,
            ownership: Vec::new(),
            notes: Vec::new(),
        };
        plan.digest = plan.units_digest(stack);
        plan
    }

    /// The same with paths of which only the field manager changes.
    #[must_use]
    pub fn with_ownership(mut self, stack: &StackId, paths: Vec<String>) -> Self {
        if !paths.is_empty() {
            self.ownership = paths;
            self.digest = self.units_digest(stack);
        }
        self
    }

    fn units_digest(&self, stack: &StackId) -> Digest {
        let units = review::resource_units(stack, self);
        Digest::of_set(units.iter().map(review::ReviewUnit::digest))
    }
}

impl StackPlan {
    /// Puts a stack's plan together from all its resources, the unchanged ones included: counts, sorts, digests.
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
            basis,
            digest,
            summary,
            resources: changed,
            error: None,
            held_back: Vec::new(),
        }
    }

    /// Whether only a part of it could not be planned, so that an apply does the rest.
    pub fn fails_in_part(&self) -> bool {
        self.error.is_some() && !self.held_back.is_empty()
    }

    /// A stack that could not be planned.
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

/// One changed path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FieldChange {
    /// RFC 6901; an item of a list with merge keys as `name=web`; `""` is the whole resource.
    pub path: String,
    /// Absent if it was not there.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub from: Option<Value>,
    /// Absent if it goes away.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub to: Option<Value>,
    /// Where the difference comes from.
    pub origin: ChangeOrigin,
}

/// A key that is there with `null` is a value; only a missing key is none.
pub(super) fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Where a difference comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeOrigin {
    /// This change of the Spec.
    Change,
    /// Somebody changed the live object since our last write.
    Drift,
    /// The server fills it in.
    Default,
    /// An admission webhook or policy does.
    Admission,
    /// Another field manager, by name.
    Manager(String),
}

impl Serialize for ChangeOrigin {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Change => serializer.serialize_str("change"),
            Self::Drift => serializer.serialize_str("drift"),
            Self::Default => serializer.serialize_str("default"),
            Self::Admission => serializer.serialize_str("admission"),
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
            other => match other.strip_prefix("manager:") {
                Some(name) => Self::Manager(name.to_owned()),
                None => return Err(serde::de::Error::custom(format!("unknown origin `{other}`"))),
            },
        })
    }
}
