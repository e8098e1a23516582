//! Parses `kcl.mod`: the dependencies and the profile.

use serde_json::Value;

/// The content of `kcl.mod` that Konverge needs.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct KclMod {
    /// The name of the package (`[package] name`).
    pub(super) name: Option<String>,
    /// The version of the package (`[package] version`).
    pub(super) version: Option<String>,
    /// The dependencies in the order of the file, with `-` in names written as `_`.
    pub(super) dependencies: Vec<(String, Dependency)>,
    /// The entries (`[profile] entries`), as written.
    pub(super) entries: Vec<String>,
    /// True to omit attributes that are `None` (`[profile] disable_none`).
    pub(super) disable_none: bool,
    /// The values that replace attributes (`[profile] overrides`).
    pub(super) overrides: Vec<String>,
    /// The paths of the parts to print (`[profile] selectors`).
    pub(super) selectors: Vec<String>,
    /// The options as `key=value` (`[profile] arguments`), as written.
    pub(super) arguments: Vec<String>,
}

/// An entry of `[dependencies]`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Dependency {
    /// The name in the file.
    pub(super) declared: String,
    /// The folder of a dependency in the repository (`path = "…"`).
    pub(super) path: Option<String>,
    /// The folder names that the package may have in a `vendor` folder or package cache.
    pub(super) store_names: Vec<String>,
    /// The whole entry as JSON.
    pub(super) entry: Value,
}

impl KclMod {
    /// Parses a `kcl.mod`. The core itself never reads the content, so the only error is a text that is not TOML: then
    /// the dependencies are unknown.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let root = table(bytes)?;
        let package = |key: &str| Some(root.get("package")?[key].as_str()?.to_owned());
        let mut module = Self {
            name: package("name"),
            version: package("version"),
            ..Self::default()
        };
        if let Some(Value::Object(dependencies)) = root.get("dependencies") {
            for (name, entry) in dependencies {
                let imported = name.replace('-', "_");
                module
                    .dependencies
                    .push((imported, Dependency::parse(name, entry)));
            }
        }
        if let Some(profile) = root.get("profile") {
            module.entries = strings(&profile["entries"]);
            module.disable_none = profile["disable_none"].as_bool().unwrap_or_default();
            module.overrides = strings(&profile["overrides"]);
            module.selectors = strings(&profile["selectors"]);
            module.arguments = strings(&profile["arguments"]);
        }
        Ok(module)
    }
}

impl Dependency {
    /// Parses a dependency. Its folder names are those that kpm uses: for git `<name>_<tag|commit|branch|latest>`, for
    /// OCI `<name>_<tag>`, for a plain version `<name>_<version>`.
    fn parse(name: &str, entry: &Value) -> Self {
        let text = |key: &str| entry[key].as_str();
        let path = text("path").map(str::to_owned);
        let mut store_names = Vec::new();
        let versions = [
            entry.as_str(),
            text("tag"),
            text("commit"),
            text("branch"),
            text("version"),
        ];
        for version in versions.into_iter().flatten() {
            store_names.push(format!("{name}_{version}"));
        }
        if entry.get("git").is_some() {
            store_names.push(format!("{name}_latest"));
        }
        store_names.push(name.to_owned());
        Self {
            declared: name.to_owned(),
            path,
            store_names,
            entry: entry.clone(),
        }
    }
}

fn table(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| format!("it is not UTF-8: {error}"))?;
    let table: toml::Table = text
        .strip_prefix('\u{feff}')
        .unwrap_or(text)
        .parse()
        .map_err(|error: toml::de::Error| error.message().to_owned())?;
    serde_json::to_value(table).map_err(|error| error.to_string())
}

fn strings(value: &Value) -> Vec<String> {
    match value {
        Value::String(one) => vec![one.clone()],
        Value::Array(many) => many
            .iter()
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_dependencies_and_profile() {
        let text = "[package]\nname=\"x\"\n[dependencies]\nmy-lib = { path = \"../lib\" }\nk8s = \"1.31\"\n\
                    flask = { git = \"https://h/x\", tag = \"v1\" }\n[profile]\nentries = [\"main.k\"]\n";
        let module = KclMod::parse(text.as_bytes()).unwrap();
        assert_eq!(module.entries, ["main.k"]);
        let names: Vec<_> = module
            .dependencies
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert!(names.contains(&"my_lib") && names.contains(&"k8s"));
        let of = |wanted: &str| {
            &module
                .dependencies
                .iter()
                .find(|(name, _)| name == wanted)
                .unwrap()
                .1
        };
        assert_eq!(of("my_lib").path.as_deref(), Some("../lib"));
        assert_eq!(of("k8s").store_names, ["k8s_1.31", "k8s"]);
        assert_eq!(of("flask").store_names, ["flask_v1", "flask_latest", "flask"]);
    }

    #[test]
    fn an_empty_file_is_a_module() {
        assert_eq!(KclMod::parse(b"").unwrap(), KclMod::default());
        assert!(KclMod::parse(b"[dependencies\n").is_err());
    }
}
