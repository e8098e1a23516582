//! Parses `project.yaml` and `stack.yaml`: the names, and the few other keys that Konverge needs.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use konverge_base::yaml::{self, NULLS, Written, YamlError};

/// A name, which counts as text even if YAML would read it as a number or boolean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WrittenName {
    /// The name as it is written, such as `1.10`.
    pub(super) text: String,
    /// The name as earlier versions of Konverge read it, if that differs, such as `1.1`. Old states are recorded under
    /// it.
    pub(super) earlier: Option<String>,
}

impl WrittenName {
    /// Returns the name as earlier versions of Konverge read it.
    pub(super) fn earlier(&self) -> &str {
        self.earlier.as_ref().unwrap_or(&self.text)
    }
}

/// The content of `project.yaml` that Konverge needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ProjectManifest {
    pub(super) name: Option<WrittenName>,
    pub(super) tenant: Option<WrittenName>,
}

/// The content of `stack.yaml` that Konverge needs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct StackManifest {
    pub(super) name: Option<WrittenName>,
    pub(super) cluster: Option<String>,
    pub(super) kubeconfig: Option<String>,
    pub(super) reads: BTreeMap<String, String>,
}

/// The YAML form of both manifests.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Document {
    name: Written,
    tenant: Written,
    cluster: Option<String>,
    #[serde(rename = "kubeConfig")]
    kubeconfig: Option<String>,
    reads: Option<BTreeMap<String, String>>,
}

/// Returns a document as UTF-8 text.
pub(super) fn text(bytes: &[u8]) -> Result<&str, YamlError> {
    let text = std::str::from_utf8(bytes).map_err(|error| YamlError {
        line: None,
        column: None,
        message: format!("it is not UTF-8: {error}"),
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

impl ProjectManifest {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, YamlError> {
        let text = text(bytes)?;
        let document = document(text)?;
        Ok(Self {
            name: name(&document.name, text)?,
            tenant: name(&document.tenant, text)?,
        })
    }
}

impl StackManifest {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, YamlError> {
        let text = text(bytes)?;
        let document = document(text)?;
        Ok(Self {
            name: name(&document.name, text)?,
            cluster: document.cluster,
            kubeconfig: document.kubeconfig,
            reads: document.reads.unwrap_or_default(),
        })
    }
}

fn document(text: &str) -> Result<Document, YamlError> {
    let document: Option<Document> = yaml::from_written_str(text)?;
    Ok(document.unwrap_or_default())
}

/// Reads a name as Kusion does: as the text that is written. `None` if the value is null.
fn name(written: &Written, text: &str) -> Result<Option<WrittenName>, YamlError> {
    let Some(value) = written.by_kubectl() else {
        return Err(written.error("a name is one word"));
    };
    let is_nothing = |name: &String| value.is_null() && NULLS.contains(&name.as_str());
    let Some(name) = written.as_text(text).filter(|name| !is_nothing(name)) else {
        return Ok(None);
    };
    let earlier = match value {
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        _ => None,
    };
    let earlier = earlier.filter(|earlier| *earlier != name);
    Ok(Some(WrittenName { text: name, earlier }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_text_that_is_written() {
        let name = |written: &str| {
            let text = format!("# é\nname: {written} # said\n");
            StackManifest::parse(text.as_bytes()).unwrap().name
        };
        for (written, text, earlier) in [
            ("no", "no", Some("false")),
            ("y", "y", Some("true")),
            ("1.10", "1.10", Some("1.1")),
            ("0755", "0755", Some("493")),
            ("08", "08", Some("8.0")),
            ("1_000", "1_000", Some("1000")),
            (".inf", ".inf", None),
            ("12", "12", None),
            ("'no'", "no", None),
            ("!!str 1.10", "1.10", None),
            ("dev", "dev", None),
            ("nUll", "nUll", None),
        ] {
            let expected = WrittenName {
                text: text.to_owned(),
                earlier: earlier.map(str::to_owned),
            };
            assert_eq!(name(written), Some(expected), "{written}");
        }
        for nothing in ["", "~", "null"] {
            assert_eq!(name(nothing), None, "{nothing}");
        }
        let error = ProjectManifest::parse(b"name: a\ntenant: [b]\n").unwrap_err();
        assert_eq!(
            (error.line, error.message.as_str()),
            (Some(2), "a name is one word")
        );
    }
}
