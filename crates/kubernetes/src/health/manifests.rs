//! Parses manifests in YAML or JSON, with several documents and lists of objects.

use serde_json::Value;

use super::object_view::ObjectView;
use konverge_base::{
    error::{ErrorKind, UserError},
    yaml,
};

/// The maximum nesting of lists.
const DEEPEST: usize = 8;

/// An object of a manifest.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// The id `apiVersion:Kind[:namespace]:name`, as in a Spec.
    pub id: String,
    /// The object as it was read.
    pub object: Value,
}

/// An invalid manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ManifestError {
    /// The file, as the user named it.
    pub file: String,
    /// The line, from 1, if the parser reports one.
    pub line: Option<u32>,
    /// The column, from 1, if the parser reports one.
    pub column: Option<u32>,
    /// The problem with the file.
    pub message: String,
}

impl From<ManifestError> for UserError {
    fn from(error: ManifestError) -> Self {
        let failure = Self::new(
            ErrorKind::Kubernetes,
            format!("not a manifest: {}", error.message),
        );
        failure
            .at(error.file, error.line, error.column)
            .hint("`kubectl get KIND NAME -o yaml` prints an object in the expected form")
    }
}

/// Parses all objects of a manifest in order. A `List` is replaced by its items.
///
/// # Errors
/// The text is neither YAML nor JSON, or a document is not a Kubernetes object.
pub fn documents(file: &str, text: &str) -> Result<Vec<Manifest>, ManifestError> {
    let mut found = Vec::new();
    for (line, value) in values(file, text)? {
        let refuse = |message: String| ManifestError {
            file: file.to_owned(),
            line: Some(line),
            column: None,
            message,
        };
        unfold(value, "", "", 0, &mut found).map_err(refuse)?;
    }
    Ok(found)
}

/// Returns the documents of a text with the number of their first line.
fn values(file: &str, text: &str) -> Result<Vec<(u32, Value)>, ManifestError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.trim_start().starts_with(['{', '['])
        && let Some(values) = json_values(text)
    {
        return Ok(values);
    }
    let mut values = Vec::new();
    for (line, part) in parts(text) {
        let value: Value = yaml::from_str(part).map_err(|error| ManifestError {
            file: file.to_owned(),
            line: error.line.map(|at| at + line - 1),
            column: error.column,
            message: error.message,
        })?;
        if !value.is_null() {
            // Comments and blank lines before an object do not belong to it.
            let blank =
                |line: &&str| line.trim().is_empty() || line.starts_with('#') || line.starts_with("---");
            let skipped = part.lines().take_while(blank).count();
            values.push((line + u32::try_from(skipped).unwrap_or(0), value));
        }
    }
    Ok(values)
}

/// Parses consecutive JSON documents; `None` for any other text.
fn json_values(text: &str) -> Option<Vec<(u32, Value)>> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let mut values = Vec::new();
    loop {
        let rest = &text[stream.byte_offset()..];
        let start = stream.byte_offset() + (rest.len() - rest.trim_start().len());
        match stream.next() {
            Some(Ok(Value::Null)) => {}
            Some(Ok(value)) => {
                let line = text[..start].matches('\n').count() + 1;
                values.push((u32::try_from(line).unwrap_or(u32::MAX), value));
            }
            Some(Err(_)) => return None,
            None => return Some(values),
        }
    }
}

/// Splits at lines that start with `---`, which have no other meaning in YAML.
fn parts(text: &str) -> Vec<(u32, &str)> {
    let mut parts = Vec::new();
    let (mut start, mut start_line, mut at) = (0, 1, 0);
    for (number, line) in (1..).zip(text.split_inclusive('\n')) {
        let marker = line.trim_end();
        if at > start && (marker == "---" || marker.starts_with("--- ")) {
            parts.push((start_line, &text[start..at]));
            (start, start_line) = (at, number);
        }
        at += line.len();
    }
    parts.push((start_line, &text[start..]));
    parts
}

/// Adds an object, or the items of a list. Items may lack the version and kind that a typed list states for
/// all of them.
fn unfold(
    mut value: Value,
    list_version: &str,
    item_kind: &str,
    depth: usize,
    found: &mut Vec<Manifest>,
) -> Result<(), String> {
    if depth > DEEPEST {
        return Err(format!("lists nested more than {DEEPEST} levels deep"));
    }
    if let Value::Array(items) = value {
        return items
            .into_iter()
            .try_for_each(|item| unfold(item, list_version, item_kind, depth + 1, found));
    }
    let Value::Object(fields) = &mut value else {
        return Err("a Kubernetes object is a mapping with `apiVersion` and `kind`".to_owned());
    };
    for (field, inherited) in [("apiVersion", list_version), ("kind", item_kind)] {
        if !inherited.is_empty() && !fields.contains_key(field) {
            fields.insert(field.to_owned(), inherited.into());
        }
    }
    let [api_version, kind] = ["/apiVersion", "/kind"].map(|key| ObjectView(&value).text(key).to_owned());
    if api_version.is_empty() || kind.is_empty() {
        let missing = if kind.is_empty() { "kind" } else { "apiVersion" };
        return Err(format!("a Kubernetes object needs `{missing}`"));
    }
    if let Some(item_kind) = kind.strip_suffix("List")
        && let Some(Value::Array(items)) = value.get_mut("items").map(Value::take)
    {
        let list_version = if item_kind.is_empty() { "" } else { &api_version };
        return items
            .into_iter()
            .try_for_each(|item| unfold(item, list_version, item_kind, depth + 1, found));
    }
    let id = id(&ObjectView(&value));
    found.push(Manifest { id, object: value });
    Ok(())
}

fn id(view: &ObjectView) -> String {
    let namespace = Some(view.text("/metadata/namespace")).filter(|namespace| !namespace.is_empty());
    let name = match view.name() {
        "" => view.text("/metadata/generateName"),
        name => name,
    };
    let parts = [view.text("/apiVersion"), view.text("/kind")].into_iter();
    parts.chain(namespace).chain([name]).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(text: &str) -> Vec<String> {
        let found = documents("m.yaml", text).unwrap();
        found.into_iter().map(|document| document.id).collect()
    }

    #[test]
    fn documents_and_lists_come_in_order() {
        let text = "# first\n---\napiVersion: v1\nkind: Pod\nmetadata: {name: a, namespace: shop}\n---\n---\n\
                    apiVersion: v1\nkind: List\nitems:\n- {apiVersion: apps/v1, kind: Deployment, metadata: {name: b}}\n\
                    - {apiVersion: v1, kind: PodList, items: [{metadata: {name: c}}, {metadata: {name: d}}]}\n---\n\
                    apiVersion: v1\nkind: Namespace\nmetadata: {name: e}\n";
        assert_eq!(
            ids(text),
            [
                "v1:Pod:shop:a",
                "apps/v1:Deployment:b",
                "v1:Pod:c",
                "v1:Pod:d",
                "v1:Namespace:e"
            ]
        );
        assert_eq!(ids(""), [""; 0]);
        assert_eq!(ids("# nothing\n---\n"), [""; 0]);
    }

    #[test]
    fn json_is_read_alone_in_a_row_and_as_a_list() {
        let pod =
            |name: &str| format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}"}}}}"#);
        assert_eq!(ids(&pod("a")), ["v1:Pod:a"]);
        assert_eq!(
            ids(&format!("{}\n{}", pod("a"), pod("b"))),
            ["v1:Pod:a", "v1:Pod:b"]
        );
        assert_eq!(
            ids(&format!("[{},{}]", pod("a"), pod("b"))),
            ["v1:Pod:a", "v1:Pod:b"]
        );
        assert_eq!(
            ids("{apiVersion: v1, kind: Pod, metadata: {name: flow}}"),
            ["v1:Pod:flow"]
        );
    }

    #[test]
    fn errors_have_a_line() {
        let broken = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\nkind: [\n";
        let error = documents("m.yaml", broken).unwrap_err();
        assert!(error.line.is_some_and(|line| line >= 5), "{error:?}");
        let nameless = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\n# remark\nfoo: 1\n";
        let error = documents("m.yaml", nameless).unwrap_err();
        assert_eq!(
            (error.line, error.message.as_str()),
            (Some(6), "a Kubernetes object needs `kind`")
        );
        assert!(documents("m.yaml", "just text").is_err());
        assert!(documents("m.yaml", "- apiVersion: v1\n").is_err());
    }

    #[test]
    fn a_kind_that_ends_in_list_without_items_is_an_object() {
        let text = "apiVersion: example.com/v1\nkind: AllowList\nmetadata: {name: a}\nspec: {}\n";
        assert_eq!(ids(text), ["example.com/v1:AllowList:a"]);
    }
}
