//! [`Platform`]: the part of a workspace that concerns one stack. The stack's Spec depends on nothing else in
//! the workspace.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{KusionError, context_keys};
use konverge_base::model::{Digest, RepoPath, digest::DigestBuilder};

/// The version of the rules of generation. Each change of the output for the same input must change it, so
/// that digests change.
const RULES: &str = "kusion rules 3";

/// Ids of existing cloud resources, by the resource's id in Kusion.
pub(super) type ImportedResources = BTreeMap<String, String>;

/// The part of a workspace that concerns one stack. Empty without a workspace.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Platform {
    /// The file of the workspace.
    pub file: Option<RepoPath>,
    /// The modules that the stack depends on, by name.
    pub modules: BTreeMap<String, PlatformModule>,
    /// Imported resources of the modules that the stack does not depend on, by module.
    pub imported: BTreeMap<String, ImportedResources>,
    /// The context of the whole workspace, which all its stacks share.
    pub context: Arc<BTreeMap<String, Value>>,
    /// True if the workspace names a secret store.
    pub has_secret_store: bool,
}

/// The settings of a module for one project.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct PlatformModule {
    /// Path of the module's package.
    pub path: String,
    /// Version of the module.
    pub version: String,
    /// The module's own settings.
    pub settings: Map<String, Value>,
    /// Existing resources that the module takes over.
    pub imported_resources: ImportedResources,
    /// Rule for the health of a workload; `None` for Kusion's own rules.
    pub health_policy: Option<HealthPolicy>,
}

/// `healthPolicy` of a module.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HealthPolicy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The rules: `health.kcl` and other keys.
    #[serde(flatten)]
    pub rules: Map<String, Value>,
}

/// The keys in a module's settings that Kusion reads itself.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reserved {
    imported_resources: ImportedResources,
    health_policy: Option<HealthPolicy>,
    #[serde(flatten)]
    settings: Map<String, Value>,
}

impl PlatformModule {
    /// Creates the settings of a module from checked values.
    pub(super) fn new(path: &str, version: &str, settings: Map<String, Value>) -> Self {
        let reserved = Reserved::deserialize(Value::Object(settings)).unwrap_or_default();
        Self {
            path: path.to_owned(),
            version: version.to_owned(),
            settings: reserved.settings,
            imported_resources: reserved.imported_resources,
            health_policy: reserved.health_policy,
        }
    }

    /// Checks the keys that Kusion reads itself.
    pub(super) fn check<'a>(blocks: impl Iterator<Item = &'a Map<String, Value>>) -> Result<(), String> {
        for block in blocks {
            Reserved::deserialize(Value::Object(block.clone())).map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

impl Platform {
    /// Returns a digest of all input of the generation, and of its rules.
    pub fn digest(&self) -> Digest {
        let mut digest = DigestBuilder::new(RULES);
        for (name, module) in &self.modules {
            let module = serde_json::to_value(module).unwrap_or_default();
            digest
                .part(name.as_bytes())
                .part(Digest::of_json(&module).as_bytes());
        }
        digest.part(b"imported");
        for (module, resources) in &self.imported {
            digest.part(module.as_bytes());
            for (id, target) in resources {
                digest.part(id.as_bytes()).part(target.as_bytes());
            }
        }
        digest.part(b"context");
        for (key, value) in context_keys::of_modules(&self.context) {
            digest
                .part(key.as_bytes())
                .part(Digest::of_json(value).as_bytes());
        }
        digest.part(&[u8::from(self.has_secret_store)]);
        digest.finish()
    }

    /// Returns all imported resources of the workspace: the id in Kusion, and the id in the cloud.
    ///
    /// # Errors
    /// Two modules import one id from different resources.
    pub(super) fn imported_resources(&self) -> Result<ImportedResources, KusionError> {
        let own = self.modules.values().map(|module| &module.imported_resources);
        let mut all = ImportedResources::new();
        for (id, target) in own.chain(self.imported.values()).flatten() {
            match all.insert(id.clone(), target.clone()) {
                Some(first) if first != *target => {
                    return Err(KusionError::ImportedTwice {
                        id: id.clone(),
                        first,
                        second: target.clone(),
                    });
                }
                _ => {}
            }
        }
        Ok(all)
    }
}
