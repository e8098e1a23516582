//! The plan document: the plan of a stack with whole resources before and after, for policy sets. It is
//! version 1, and its JSON Schema is published. The data of a Secret is `secret:HASH`. Policy sets judge a document
//! with true values, in memory; the one that is printed is masked.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    ClusterName, FieldPath, RepoPath, ResourceId, StackId,
    other_names::OtherNames,
    plan::{Action, Basis, ChangeOrigin, present},
    spec::RuntimeKind,
};

/// The version of the format of the plan document.
pub const DOCUMENT_VERSION: u32 = 1;

/// The output of `konverge preview --output plan`: a document for each stack.
#[derive(Debug, Clone, PartialEq, Default, Serialize, JsonSchema)]
#[schemars(title = "Plan document")]
pub struct PlanDocument {
    /// Always 1.
    pub version: u32,
    /// Sorted by folder and identity. Each item is the `input` of a rule whose set has `input: plan`.
    pub stacks: Vec<StackDocument>,
}

/// The plan of one stack: the `input` of a rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StackDocument {
    /// Always 1.
    pub version: u32,
    /// The stack that the plan is of.
    pub stack: DocumentStack,
    /// The basis of the comparison: `live` (the infrastructure) or `spec` (the Spec of the base).
    #[schemars(with = "String")]
    pub basis: Basis,
    /// The other names of the stack. Rules do not see them.
    #[serde(skip)]
    pub known_as: OtherNames,
    /// The texts in the document that are masked wherever they are shown, also in the message of a rule.
    #[serde(skip)]
    pub hidden: BTreeSet<String>,
    /// All resources of the stack, unchanged ones and deleted ones too; sorted by id.
    pub resources: Vec<DocumentResource>,
}

/// The identity of a stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DocumentStack {
    /// `[tenant/]<project>/<stack>`.
    #[schemars(with = "String")]
    pub id: StackId,
    /// The folder in the repository.
    #[schemars(with = "String")]
    pub folder: RepoPath,
}

/// One resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DocumentResource {
    /// The planned resource.
    #[schemars(with = "String")]
    pub id: ResourceId,
    /// `Kubernetes` or `Terraform`.
    #[schemars(with = "String")]
    pub runtime: RuntimeKind,
    /// The kind of a Kubernetes object, or the type of a Terraform resource (`aws_s3_bucket`).
    pub kind: String,
    /// The name of the cluster, if one is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub cluster: Option<ClusterName>,
    /// `create`, `update`, `replace`, `delete`, `adopt`, `forget`, `run`, `unchanged` or `unknown`.
    #[schemars(with = "String")]
    pub action: Action,
    /// The paths that force the replacement, if the action is one.
    #[schemars(with = "Vec<String>")]
    pub replace: Vec<FieldPath>,
    /// True if the change permanently deletes data or releases an address.
    pub data_loss: bool,
    /// The resource before the change; `null` if it does not exist. For an update, it has only the fields that the Spec
    /// sets and those that change.
    pub before: Option<Value>,
    /// The resource after the change; `null` if it is deleted.
    pub after: Option<Value>,
    /// The differences, sorted by path.
    pub changes: Vec<DocumentChange>,
    /// The paths in `after` whose values are known only after apply. They are absent from `after`; an item of
    /// a list is `null` there.
    #[schemars(with = "Vec<String>")]
    pub unknown: Vec<FieldPath>,
    /// The paths in `after` whose values are secret.
    #[schemars(with = "Vec<String>")]
    pub secret: Vec<FieldPath>,
    /// True if the unknown values become known before this resource is written, because other resources of
    /// the stack provide them. False if only the write itself shows them.
    pub known_before_write: bool,
}

/// One difference of a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DocumentChange {
    /// The path as in RFC 6901; an item of a keyed list is written `name=web`.
    #[schemars(with = "String")]
    pub path: FieldPath,
    /// The value before the change; absent if there was none.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub from: Option<Value>,
    /// The value after the change; absent if it is removed or unknown.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub to: Option<Value>,
    /// `change`, `drift`, `default`, `admission` or `manager:NAME`.
    #[schemars(with = "String")]
    pub origin: ChangeOrigin,
}

/// A resource as its stack wants it to be.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredResource {
    /// The desired resource.
    pub id: ResourceId,
    /// The runtime that applies the resource.
    pub runtime: RuntimeKind,
    /// The kind of a Kubernetes object, or the type of a Terraform resource.
    pub kind: String,
    /// The cluster of the resource; `None` for a Terraform resource.
    pub cluster: Option<ClusterName>,
    /// The attributes, with `$secret` and `$unknown` markers.
    pub attributes: Map<String, Value>,
    /// True if the resource is planned again before it is written, when its values are known.
    pub known_before_write: bool,
}

impl StackDocument {
    /// Returns true if a resource changes.
    pub fn has_changes(&self) -> bool {
        let mut actions = self.resources.iter().map(|resource| resource.action);
        actions.any(|action| action != Action::Unchanged)
    }
}

impl PlanDocument {
    /// Returns the document of these stacks.
    pub fn new(mut stacks: Vec<StackDocument>) -> Self {
        stacks.sort_by(|a, b| (&a.stack.folder, &a.stack.id).cmp(&(&b.stack.folder, &b.stack.id)));
        Self {
            version: DOCUMENT_VERSION,
            stacks,
        }
    }

    /// Returns the published JSON Schema.
    pub fn schema() -> Value {
        schemars::schema_for!(PlanDocument).to_value()
    }
}
