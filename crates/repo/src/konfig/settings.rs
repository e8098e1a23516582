//! Parses one settings file (`kcl.yaml`, `ci-test/settings.yaml`). The order in which they are read depends on the
//! version of Kusion.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use konverge_base::yaml::{self, ScalarRules, Written, YamlError};

pub use konverge_base::model::stack::{LayoutRules, SettingsOrder};

/// The content of one settings file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    /// The entries of `file` and then of `files`, as Kusion joins them; as written.
    pub files: Vec<String>,
    /// The values that replace attributes (`overrides`).
    pub overrides: Vec<String>,
    /// The paths of the parts to print (`path_selector`).
    pub path_selector: Vec<String>,
    /// True to omit attributes that are `None` (`disable_none`).
    pub disable_none: bool,
    /// True to check the ranges of 32-bit integers and floats (`strict_range_check`).
    pub strict_range_check: bool,
    /// `package_maps`: name → folder as written.
    pub package_maps: BTreeMap<String, String>,
    /// `kcl_options` in order, with the values as the core's parser of settings reads them.
    pub options: Vec<(String, Value)>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Document {
    kcl_cli_configs: Option<CliConfigs>,
    kcl_options: Option<Vec<KeyValue>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CliConfigs {
    file: Option<OneOrMany>,
    files: Option<OneOrMany>,
    overrides: Option<Vec<String>>,
    path_selector: Option<Vec<String>>,
    disable_none: Option<bool>,
    strict_range_check: Option<bool>,
    package_maps: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "must be a string or a list of strings")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
struct KeyValue {
    key: String,
    #[serde(default)]
    value: Written,
}

impl Settings {
    /// Parses a settings file. Unknown keys are ignored, because they belong to Kusion or the user.
    ///
    /// # Errors
    /// The content is not UTF-8, not YAML, or has a known key with a wrong type.
    pub fn parse(bytes: &[u8]) -> Result<Self, YamlError> {
        let text = super::manifests::text(bytes)?;
        let document: Option<Document> = yaml::from_written_str(text)?;
        let document = document.unwrap_or_default();
        let cli = document.kcl_cli_configs.unwrap_or_default();
        let mut files = cli.file.map(OneOrMany::into_vec).unwrap_or_default();
        files.extend(cli.files.map(OneOrMany::into_vec).unwrap_or_default());
        let options = document.kcl_options.unwrap_or_default().into_iter();
        let options = options.map(|option| {
            let value = option.value.read(text, ScalarRules::KclSettings)?;
            Ok((option.key, value))
        });
        Ok(Self {
            files,
            overrides: cli.overrides.unwrap_or_default(),
            path_selector: cli.path_selector.unwrap_or_default(),
            disable_none: cli.disable_none.unwrap_or_default(),
            strict_range_check: cli.strict_range_check.unwrap_or_default(),
            package_maps: cli.package_maps.unwrap_or_default(),
            options: options.collect::<Result<_, YamlError>>()?,
        })
    }
}

impl OneOrMany {
    fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_what_konfig_writes() {
        let text = "kcl_cli_configs:\n  file:\n    - a.k\n  files:\n    - b.k\n    - ${KCL_MOD}/c.k\n  disable_none: true\n\
                    kcl_options:\n  - key: env\n    value: dev\n  - key: n\n    value: 1\n  - key: s\n    value: \"1\"\n";
        let settings = Settings::parse(text.as_bytes()).unwrap();
        assert_eq!(settings.files, ["a.k", "b.k", "${KCL_MOD}/c.k"]);
        assert!(settings.disable_none);
        assert_eq!(settings.options[1].1, json!(1));
        assert_eq!(settings.options[2].1, json!("1"));
    }

    #[test]
    fn empty_files_are_empty_settings() {
        for text in [
            "",
            "# nothing\n",
            "kcl_cli_configs:\n",
            "kcl_options: []\nother: 1\n",
        ] {
            assert_eq!(
                Settings::parse(text.as_bytes()).unwrap(),
                Settings::default(),
                "{text:?}"
            );
        }
    }

    #[test]
    fn wrong_shapes_have_a_line() {
        let error = Settings::parse(b"kcl_cli_configs:\n  files: 3\n").unwrap_err();
        assert!(error.line.is_some(), "{error:?}");
        assert_eq!(error.message, "must be a string or a list of strings");
        assert!(Settings::parse(b"\xff").is_err());
    }
}
