//! [`Workspace`]: the settings of a platform team for an environment, in `workspaces/<name>.yaml`.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    KusionError, context_keys,
    platform::{Platform, PlatformModule},
};
use konverge_base::{
    model::{RepoPath, workspace_name::is_workspace_name},
    secrets::{AddressParts, credential_in},
    yaml::{self, ScalarRules, Written, YamlError},
};

/// The folder of the workspaces, at the root of the repository.
pub const FOLDER: &str = "workspaces";

/// Returns the path of a workspace's file; `None` for an invalid name.
pub fn workspace_file(name: &str) -> Option<RepoPath> {
    is_workspace_name(name).then(|| RepoPath::root().child(FOLDER).child(&format!("{name}.yaml")))
}

/// The maximum size of a workspace, as JSON in bytes.
const MOST: usize = 1 << 20;

/// The name of the settings that apply to every project.
const DEFAULT: &str = "default";

/// A workspace file.
#[derive(Debug, Clone, PartialEq)]
pub struct Workspace {
    file: RepoPath,
    document: Document,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Document {
    /// The name in the file, which is ignored: the file's own name decides.
    #[serde(rename = "name")]
    _name: Option<String>,
    modules: BTreeMap<String, Module>,
    secret_store: Option<Value>,
    context: Arc<BTreeMap<String, Value>>,
}

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Module {
    path: String,
    version: String,
    configs: BTreeMap<String, Block>,
}

/// The settings of a module: `default`, or those for some projects.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Block {
    project_selector: Option<Vec<String>>,
    #[serde(flatten)]
    settings: Map<String, Value>,
}

/// Parses YAML with Kusion's rules for scalars; returns `None` for an empty file.
pub(super) fn read(text: &str) -> Result<Option<Value>, YamlError> {
    let written: Option<Written> = yaml::from_written_str(text)?;
    written
        .map(|written| written.read(text, ScalarRules::Kusion))
        .transpose()
}

impl Workspace {
    /// Reads a file and checks it as Kusion does when it generates.
    ///
    /// # Errors
    /// The file is not YAML, not a workspace, a workspace of Kusion 0.10 or 0.11, or contains a credential in
    /// clear text.
    pub fn parse(file: &RepoPath, text: &str) -> Result<Self, KusionError> {
        let refuse = |line, message: String| KusionError::Workspace {
            file: file.to_string(),
            line,
            message,
        };
        let value = read(text).map_err(|error| refuse(error.line, error.message))?;
        let mut value = value.unwrap_or_else(|| Value::Object(Map::new()));
        // Aliases can make a small file expand to a large value, of which each stack holds a copy.
        if value.to_string().len() > MOST {
            return Err(refuse(None, format!("it holds more than {} KiB", MOST >> 10)));
        }
        drop_nulls(&mut value);
        if let Some(what) = old_shape(&value) {
            return Err(KusionError::OldWorkspace {
                file: file.to_string(),
                what,
            });
        }
        let document: Document =
            serde_json::from_value(value).map_err(|error| refuse(None, error.to_string()))?;
        for (name, module) in &document.modules {
            module
                .check()
                .map_err(|why| refuse(None, format!("modules.{name}: {why}")))?;
        }
        if let Some(key) = context_keys::credentials_in_clear(document.context.iter())
            .into_iter()
            .next()
        {
            return Err(KusionError::Credential {
                file: file.to_string(),
                key,
            });
        }
        Ok(Self {
            file: file.clone(),
            document,
        })
    }

    /// Returns the part that concerns a stack: all settings of the modules that it depends on, merged for its
    /// project; from other modules only the imported resources.
    pub fn platform(&self, project: &str, dependencies: &[String]) -> Platform {
        let mut platform = Platform {
            file: Some(self.file.clone()),
            context: Arc::clone(&self.document.context),
            has_secret_store: self.document.secret_store.is_some(),
            ..Platform::default()
        };
        for (name, module) in &self.document.modules {
            let merged = PlatformModule::new(&module.path, &module.version, module.merged(project));
            if dependencies.iter().any(|dependency| dependency == name) {
                platform.modules.insert(name.clone(), merged);
            } else if !merged.imported_resources.is_empty() {
                platform.imported.insert(name.clone(), merged.imported_resources);
            }
        }
        platform
    }
}

impl Module {
    fn check(&self) -> Result<(), String> {
        for (key, value) in [("path", &self.path), ("version", &self.version)] {
            if value.is_empty() {
                return Err(format!("`{key}` is missing"));
            }
        }
        if let Some(credential) = credential_in(&self.path, AddressParts::default()) {
            return Err(format!("`path` holds credentials: {credential}"));
        }
        let mut projects: BTreeMap<&str, &str> = BTreeMap::new();
        for (name, block) in &self.configs {
            let selected = match (name.as_str(), &block.project_selector) {
                (DEFAULT, Some(_)) => {
                    return Err("`default` holds for every project and has no `projectSelector`".to_owned());
                }
                (DEFAULT, None) => continue,
                (_, Some(projects)) if !projects.is_empty() => projects,
                _ => return Err(format!("`{name}` needs a `projectSelector`")),
            };
            if block.settings.is_empty() {
                return Err(format!("`{name}` sets nothing"));
            }
            for project in selected {
                if let Some(first) = projects.insert(project, name) {
                    return Err(format!("the project `{project}` is in `{first}` and in `{name}`"));
                }
            }
        }
        PlatformModule::check(self.configs.values().map(|block| &block.settings))
    }

    /// Returns the settings for a project: `default`, with its keys replaced by those of the project's block.
    fn merged(&self, project: &str) -> Map<String, Value> {
        let default = self.configs.get(DEFAULT).map(|block| block.settings.clone());
        let mut merged = default.unwrap_or_default();
        let selects = |block: &&Block| {
            block
                .project_selector
                .iter()
                .flatten()
                .any(|name| name == project)
        };
        if let Some(block) = self.configs.values().find(selects) {
            merged.extend(block.settings.clone());
        }
        merged
    }
}

/// Describes why a file is a workspace of Kusion 0.10 or 0.11; `None` if it is of a later version.
fn old_shape(value: &Value) -> Option<String> {
    if let Some(key) = ["runtimes", "backends"]
        .iter()
        .find(|key| value.get(**key).is_some())
    {
        return Some(format!("it has `{key}`"));
    }
    let modules = value["modules"].as_object()?;
    let old = modules
        .iter()
        .find(|(_, module)| module.get(DEFAULT).is_some() && module.get("configs").is_none());
    old.map(|(name, _)| format!("`modules.{name}` has `default` and no `configs`"))
}

/// Removes null entries of the workspace, of each module and of its `configs`: as in Kusion, they count as left
/// out. Inside a block of `configs`, null is a value.
fn drop_nulls(value: &mut Value) {
    let drop_in = |value: &mut Value| {
        if let Some(map) = value.as_object_mut() {
            map.retain(|_, value| !value.is_null());
        }
    };
    drop_in(value);
    let modules = value.get_mut("modules").and_then(Value::as_object_mut);
    for module in modules.into_iter().flat_map(|modules| modules.values_mut()) {
        drop_in(module);
        if let Some(configs) = module.get_mut("configs") {
            drop_in(configs);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(text: &str) -> Result<Workspace, KusionError> {
        Workspace::parse(&RepoPath::normalize("workspaces/dev.yaml").unwrap(), text)
    }

    const SERVICE: &str = "path: oci://ghcr.io/kusionstack/service\n    version: 0.2.1\n";

    fn service(configs: &str) -> String {
        format!("modules:\n  service:\n    {SERVICE}    configs:\n{configs}")
    }

    #[test]
    fn a_block_for_projects_replaces_whole_keys() {
        let text = service(
            "      default: {replicas: 2, labels: {a: '1', b: '2'}}\n      large:\n        projectSelector: [shop]\n        labels: {c: '3'}\n",
        );
        let workspace = parse(&text).unwrap();
        let of = |project: &str| {
            workspace.platform(project, &["service".to_owned()]).modules["service"]
                .settings
                .clone()
        };
        assert_eq!(
            Value::Object(of("shop")),
            json!({"replicas": 2, "labels": {"c": "3"}})
        );
        assert_eq!(
            Value::Object(of("blog")),
            json!({"replicas": 2, "labels": {"a": "1", "b": "2"}})
        );
    }

    #[test]
    fn only_the_stack_s_modules_and_imports_concern_it() {
        let text = format!(
            "{}  mysql:\n    path: p\n    version: '1'\n    configs:\n      default: {{size: 3}}\n",
            service("      default: {replicas: 2}\n")
        );
        let workspace = parse(&text).unwrap();
        let platform = workspace.platform("shop", &["service".to_owned()]);
        assert_eq!(platform.modules.keys().collect::<Vec<_>>(), ["service"]);
        assert!(platform.imported.is_empty());
        let text = text.replace("size: 3", "size: 3, importedResources: {a: b}");
        let importing = parse(&text).unwrap().platform("shop", &["service".to_owned()]);
        assert_eq!(importing.imported["mysql"]["a"], "b");
        assert_ne!(importing.digest(), platform.digest());
    }

    #[test]
    fn the_keys_of_a_cluster_concern_no_stack() {
        let digest = |context: &str| {
            let text = format!(
                "{}context: {{{context}}}\n",
                service("      default: {replicas: 2}\n")
            );
            parse(&text).unwrap().platform("shop", &[]).digest()
        };
        assert_eq!(digest("KUBECONFIG_PATH: /a"), digest(""));
        assert_eq!(
            digest("KUBECONFIG_PATH: /a, zone: a"),
            digest("KUBECONFIG_PATH: /b, zone: a")
        );
        assert_ne!(digest("zone: a"), digest("zone: b"));
    }

    #[test]
    fn what_kusion_refuses_is_refused() {
        for (text, says) in [
            ("modules: {service: {path: x}}\n".to_owned(), "version"),
            (
                "modules: {service: {path: 'oci://me:s3cret@h/x', version: '1'}}\n".to_owned(),
                "holds credentials: a password",
            ),
            (service("      large: {labels: {}}\n"), "projectSelector"),
            (service("      large: {projectSelector: [a]}\n"), "sets nothing"),
            (
                service("      default: {projectSelector: [a], x: 1}\n"),
                "every project",
            ),
            (
                service("      a: {projectSelector: [p], x: 1}\n      b: {projectSelector: [p], x: 1}\n"),
                "`p`",
            ),
            ("module: {}\n".to_owned(), "unknown field `module`"),
            (
                "runtimes: {kubernetes: {kubeConfig: /k}}\n".to_owned(),
                "0.10 or 0.11",
            ),
            (
                "modules: {database: {default: {a: 1}}}\n".to_owned(),
                "0.10 or 0.11",
            ),
            (
                "context: {AWS_SECRET_ACCESS_KEY: abc}\n".to_owned(),
                "AWS_SECRET_ACCESS_KEY",
            ),
            ("a: [\n".to_owned(), ""),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.to_string().contains(says), "{text}: {error}");
        }
        for text in [
            "",
            "modules:\nsecretStore: null\n",
            "modules: {mysql: {path: p, version: '1', configs: }}\n",
            "modules: {mysql: {path: p, version: '1', configs: {default: }}}\n",
            "# nothing\n",
            "context: {AWS_SECRET_ACCESS_KEY: 'ref://aws/key'}\n",
        ] {
            assert!(parse(text).is_ok(), "{text}");
        }
    }

    /// Aliases make more of a file than it has.
    #[test]
    fn a_workspace_has_a_maximum_size() {
        let text = "x".repeat(150_000);
        let few = format!("context: {{a: &a {text}, b: [*a, *a]}}\n");
        assert!(parse(&few).is_ok());
        let many = format!("context: {{a: &a {text}, b: [*a, *a, *a, *a, *a, *a, *a]}}\n");
        let error = parse(&many).unwrap_err().to_string();
        assert!(error.contains("more than 1024 KiB"), "{error}");
    }
}
