//! The extensions in `project.yaml` and `stack.yaml`.

use serde::Deserialize;
use serde_json::Value;

use super::KusionError;
use crate::yaml;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Document {
    extensions: Vec<Extension>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Extension {
    kind: String,
    kubernetes_namespace: Option<Namespace>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Namespace {
    namespace: String,
}

/// The namespace that an extension of `stack.yaml` sets, else one of `project.yaml`. Each file is its name and text.
///
/// # Errors
/// An extension has another form.
pub fn namespace_extension(
    stack: (&str, &str),
    project: (&str, &str),
) -> Result<Option<String>, KusionError> {
    for (file, text) in [stack, project] {
        let refuse = |message: String| KusionError::Extensions {
            file: file.to_owned(),
            message,
        };
        let value: Option<Value> = yaml::from_str(text).map_err(|error| refuse(error.message))?;
        let document = value
            .filter(Value::is_object)
            .map(serde_json::from_value::<Document>);
        let document = document.transpose().map_err(|error| refuse(error.to_string()))?;
        let mut extensions = document.unwrap_or_default().extensions.into_iter();
        if let Some(extension) = extensions.find(|extension| extension.kind == "kubernetesNamespace") {
            let name = extension.kubernetes_namespace.unwrap_or_default().namespace;
            return match name.is_empty() {
                true => Err(refuse("`kubernetesNamespace` has no `namespace`".to_owned())),
                false => Ok(Some(name)),
            };
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const EXTENSION: &str =
        "name: x\nextensions:\n- kind: kubernetesNamespace\n  kubernetesNamespace: {namespace: NAME}\n";

    #[test]
    fn the_stack_s_extension_comes_before_the_project_s() {
        let text = |name: &str| EXTENSION.replace("NAME", name);
        let of = |stack: &str, project: &str| namespace_extension(("s", stack), ("p", project));
        assert_eq!(of(&text("a"), &text("b")).unwrap().as_deref(), Some("a"));
        assert_eq!(of("name: dev\n", &text("b")).unwrap().as_deref(), Some("b"));
        assert_eq!(of("name: dev\n", "").unwrap(), None);
        assert!(of(&text("''"), "").is_err());
        assert!(of("extensions: 3\n", "").is_err());
        let metadata = "extensions: [{kind: kubernetesMetadata, kubernetesMetadata: {labels: {}}}]\n";
        assert_eq!(of(metadata, "").unwrap(), None);
    }
}
