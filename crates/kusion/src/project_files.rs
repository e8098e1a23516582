//! The extensions in `project.yaml` and `stack.yaml`.

use serde::Deserialize;
use serde_json::Value;

use super::KusionError;
use konverge_base::yaml;

/// The extension that sets the namespace.
const NAMESPACE: &str = "kubernetesNamespace";

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Document {
    extensions: Option<Vec<Extension>>,
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

/// Settings from the extensions of a stack and its project.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProjectExtensions {
    /// The namespace from `stack.yaml`, or else from `project.yaml`.
    pub namespace: Option<String>,
    /// Notes for the developer about extensions that have no effect.
    pub notes: Vec<String>,
}

/// A file with extensions.
#[derive(Debug, Clone, Copy)]
pub struct ExtensionFile<'a> {
    /// The path of the file, for errors.
    pub path: &'a str,
    /// The text of the file.
    pub text: &'a str,
}

/// Reads the extensions of `stack.yaml` and `project.yaml`.
///
/// # Errors
/// An extension has another form.
pub fn project_extensions(
    stack: ExtensionFile<'_>,
    project: ExtensionFile<'_>,
) -> Result<ProjectExtensions, KusionError> {
    let mut found = ProjectExtensions::default();
    for ExtensionFile { path: file, text } in [stack, project] {
        let refuse = |message: String| KusionError::Extensions {
            file: file.to_owned(),
            message,
        };
        let value: Option<Value> = yaml::from_str(text).map_err(|error| refuse(error.message))?;
        let document = value
            .filter(Value::is_object)
            .map(serde_json::from_value::<Document>);
        let document = document.transpose().map_err(|error| refuse(error.to_string()))?;
        for extension in document.unwrap_or_default().extensions.unwrap_or_default() {
            if extension.kind != NAMESPACE {
                found.notes.push(format!(
                    "{file}: the extension `{}` has no effect, as in Kusion",
                    extension.kind.escape_debug()
                ));
            } else if found.namespace.is_none() {
                let name = extension.kubernetes_namespace.unwrap_or_default().namespace;
                if name.is_empty() {
                    return Err(refuse("`kubernetesNamespace` has no `namespace`".to_owned()));
                }
                found.namespace = Some(name);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXTENSION: &str =
        "name: x\nextensions:\n- kind: kubernetesNamespace\n  kubernetesNamespace: {namespace: NAME}\n";

    fn file<'a>(path: &'a str, text: &'a str) -> ExtensionFile<'a> {
        ExtensionFile { path, text }
    }

    #[test]
    fn the_stack_s_extension_comes_before_the_project_s() {
        let text = |name: &str| EXTENSION.replace("NAME", name);
        let read = |stack: &str, project: &str| project_extensions(file("s", stack), file("p", project));
        let namespace = |stack: &str, project: &str| read(stack, project).unwrap().namespace;
        assert_eq!(namespace(&text("a"), &text("b")).as_deref(), Some("a"));
        assert_eq!(namespace("name: dev\n", &text("b")).as_deref(), Some("b"));
        assert_eq!(read("name: dev\n", "").unwrap(), ProjectExtensions::default());
        assert!(read(&text("''"), "").is_err());
        assert_eq!(read("extensions:\n", "").unwrap(), ProjectExtensions::default());
        assert!(read("extensions: 3\n", "").is_err());
    }

    #[test]
    fn an_extension_without_effect_is_named() {
        let metadata = "extensions: [{kind: kubernetesMetadata, kubernetesMetadata: {labels: {}}}]\n";
        let found =
            project_extensions(file("s", metadata), file("p", &EXTENSION.replace("NAME", "b"))).unwrap();
        assert_eq!(found.namespace.as_deref(), Some("b"));
        assert_eq!(found.notes.len(), 1, "{found:?}");
        assert!(
            found.notes[0].starts_with("s: the extension `kubernetesMetadata`"),
            "{found:?}"
        );
    }
}
