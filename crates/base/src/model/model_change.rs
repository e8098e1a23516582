//! The changes of a pull request to generated KCL models, as its comment shows them.

use serde::Serialize;

use super::{RepoPath, StackId, affected::InputChange};

/// The difference of one folder of generated models between the base and the head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelChange {
    /// The folder: `into` of `models.sources`.
    pub folder: RepoPath,
    /// The recorded sources; those at the base if the head has no record.
    pub sources: Vec<String>,
    /// The change of the record in `models.sources`; `None` if it is the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<InputChange>,
    /// The version of the source at the base.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_version: Option<String>,
    /// The version of the source at the head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_version: Option<String>,
    /// The packages that differ, by folder.
    pub packages: Vec<ModelPackageChange>,
}

/// The difference of one package of models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelPackageChange {
    /// The folder of the package.
    pub package: RepoPath,
    /// The change: added, removed or modified.
    pub change: InputChange,
    /// The differences of a modified package, by schema; empty if no schema, property or check differs.
    pub properties: Vec<ModelPropertyChange>,
    /// The stacks that import the package.
    pub stacks: Vec<StackId>,
}

/// A schema, a property or a check that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelPropertyChange {
    /// The schema that has the property.
    pub schema: String,
    /// The property that differs; `None` if the schema itself is new or gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub property: Option<String>,
    /// The message of the check that differs, if a check differs and not a property.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check: Option<String>,
    /// The declaration at the base; `None` if it is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The declaration at the head; `None` if it is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}
