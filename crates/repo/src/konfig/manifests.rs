//! `project.yaml` and `stack.yaml`: the names, and the few other relevant keys.

use serde::Deserialize;
use serde_json::Value;

use konverge_base::yaml::{self, YamlError};

/// The relevant content of `project.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub(super) struct ProjectManifest {
    #[serde(default, deserialize_with = "name")]
    pub(super) name: Option<String>,
    #[serde(default, deserialize_with = "name")]
    pub(super) tenant: Option<String>,
}

/// The relevant content of `stack.yaml`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub(super) struct StackManifest {
    #[serde(default, deserialize_with = "name")]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) cluster: Option<String>,
    #[serde(default, rename = "kubeConfig")]
    pub(super) kubeconfig: Option<String>,
}

/// A document as UTF-8 text.
pub(super) fn text(bytes: &[u8]) -> Result<&str, YamlError> {
    let text = std::str::from_utf8(bytes).map_err(|error| YamlError {
        line: None,
        column: None,
        message: format!("it is not UTF-8: {error}"),
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

pub(super) fn parse<T: Default + for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, YamlError> {
    let document: Option<T> = yaml::from_str(text(bytes)?)?;
    Ok(document.unwrap_or_default())
}

/// Kusion reads `name: 1` as the text `1`.
fn name<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        Value::Number(number) => Ok(Some(number.to_string())),
        Value::Bool(truth) => Ok(Some(truth.to_string())),
        _ => Err(serde::de::Error::custom("a name is one word")),
    }
}
