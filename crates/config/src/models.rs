//! `models` in `konverge.yaml`: the sources of generated KCL models.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config_problem::{Problem, problem};
use konverge_base::model::RepoPath;

/// The sources of generated KCL models. `konverge models import` writes them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Models")]
pub struct ModelsConfig {
    /// One entry for each folder of models.
    pub sources: Vec<ModelSourceConfig>,
}

/// The sources of one folder of models.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "ModelSource")]
pub struct ModelSourceConfig {
    /// The sources: files and folders of the repository, `kubernetes@1.34`, `cluster:NAME`.
    pub from: Vec<String>,
    /// The folder of the models: `base/pkg/argo`.
    pub into: String,
    /// The kinds that models are generated for. Default: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<String>,
    /// The version that the source says it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The digest of the documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

impl ModelSourceConfig {
    /// Returns the folder of the models; `None` for a path that leaves the repository.
    pub fn folder(&self) -> Option<RepoPath> {
        RepoPath::normalize(&self.into).filter(|folder| !folder.is_root())
    }
}

impl ModelsConfig {
    pub(super) fn problem(&self) -> Option<Problem> {
        self.sources.iter().find_map(|source| {
            let into = source.into.escape_debug();
            if source.folder().is_none() {
                return problem(format!(
                    "models.sources: `{into}` is not a folder of the repository"
                ))
                .hint("give a path from the root of the repository, such as `base/pkg/argo`");
            }
            source.from.is_empty().then_some(())?;
            problem(format!("models.sources: `{into}` has no source"))
                .hint("give files, `kubernetes@VERSION` or `cluster:NAME` in `from`")
        })
    }
}
