//! Reads CustomResourceDefinitions.

use std::collections::BTreeMap;

use konverge_base::model::GroupKind;
use serde_json::{Value, json};

use crate::{
    error::ModelError,
    json_checks::ServerRules,
    json_schema::SchemaReader,
    names::{package_segment, schema_name},
    schema::{ModelObject, ModelProperty, ModelRoot, ModelType, PackageName, Presence, SchemaName},
};

/// Returns true if a document is a CRD, in any API version.
pub fn is_crd(document: &Value) -> bool {
    GroupKind::from_object(document) == GroupKind::CUSTOM_RESOURCE_DEFINITION
}

/// Reads the CRDs in a list of documents, and returns a root for each served version. Other documents are skipped;
/// lists are searched.
///
/// # Errors
/// No CRD, a CRD without a schema, or two different CRDs with the same name.
pub fn read_crds<'a>(documents: impl IntoIterator<Item = &'a Value>) -> Result<Vec<ModelRoot>, ModelError> {
    let metadata = metadata_schema();
    let mut roots: BTreeMap<SchemaName, ModelRoot> = BTreeMap::new();
    let mut queue: Vec<&Value> = documents.into_iter().collect();
    queue.reverse();
    while let Some(document) = queue.pop() {
        if let Some(items) = document.get("items").and_then(Value::as_array) {
            queue.extend(items.iter().rev());
        }
        if !is_crd(document) {
            continue;
        }
        for root in read_crd(document, &metadata)? {
            match roots.get(&root.name) {
                Some(other) if *other != root => return Err(ModelError::Twice(root.title)),
                _ => roots.insert(root.name.clone(), root),
            };
        }
    }
    if roots.is_empty() {
        Err(ModelError::Nothing("custom resource definition"))
    } else {
        Ok(roots.into_values().collect())
    }
}

fn read_crd(document: &Value, metadata: &Value) -> Result<Vec<ModelRoot>, ModelError> {
    let text = |path: &str| document.pointer(path).and_then(Value::as_str);
    let name = text("/metadata/name")
        .unwrap_or("a CRD without a name")
        .to_owned();
    if text("/apiVersion") != Some("apiextensions.k8s.io/v1") {
        return Err(ModelError::OldCrd(name));
    }
    let form = |what: &'static str| ModelError::Form {
        place: name.clone(),
        what,
    };
    let group = text("/spec/group").ok_or_else(|| form("`spec.group` must be a string"))?;
    let kind = text("/spec/names/kind").ok_or_else(|| form("`spec.names.kind` must be a string"))?;
    let versions = document.pointer("/spec/versions").and_then(Value::as_array);
    let versions = versions.ok_or_else(|| form("`spec.versions` must be a list"))?;
    let mut roots = Vec::new();
    for version in versions
        .iter()
        .filter(|version| version.get("served") == Some(&Value::Bool(true)))
    {
        let number = version.get("name").and_then(Value::as_str);
        let number = number.ok_or_else(|| form("a version has no name"))?;
        let schema = version.pointer("/schema/openAPIV3Schema");
        let schema = schema.ok_or_else(|| form("a served version has no `schema.openAPIV3Schema`"))?;
        let mut reader = SchemaReader::new(&|_| None, ServerRules::Custom);
        let mut object = reader.root(&name, schema)?;
        let metadata = SchemaReader::new(&|_| None, ServerRules::Custom).root("ObjectMeta", metadata)?;
        let has = |name: &str| object.properties.iter().any(|property| property.name == name);
        // In a kind with a `spec`, the controller writes the status, so models leave it out. This also holds
        // without the status subresource, where the server would accept and validate a status from a client.
        let is_checked = version.pointer("/subresources/status").is_none();
        let has_status = !is_checked || (has("spec") && has("status"));
        if is_checked && has_status {
            object.leave_out("status", 1);
        }
        identify(
            &mut object,
            &format!("{group}/{number}"),
            kind,
            Some(metadata),
            has_status,
        );
        roots.push(ModelRoot {
            name: SchemaName {
                package: PackageName(vec![package_segment(group), package_segment(number)]),
                name: schema_name(kind),
            },
            kind: Some(kind.to_owned()),
            title: format!("{kind} of {group}/{number}"),
            object,
        });
    }
    Ok(roots)
}

/// Completes a Kubernetes object: adds `apiVersion` and `kind` at the front, and removes a status that clients do
/// not write.
pub(crate) fn identify(
    object: &mut ModelObject,
    api_version: &str,
    kind: &str,
    metadata: Option<ModelObject>,
    has_status: bool,
) {
    let own = std::mem::take(&mut object.properties);
    let find = |name: &str| own.iter().find(|property| property.name == name).cloned();
    object
        .properties
        .push(ModelProperty::fixed("apiVersion", api_version));
    object.properties.push(ModelProperty::fixed("kind", kind));
    let metadata = match (find("metadata"), metadata) {
        (Some(given), None) => Some(given),
        (given, Some(metadata)) => {
            let kind = ModelType::Object(Box::new(metadata));
            let presence = given.as_ref().map(|given| given.presence.clone());
            let restricts = |given: &ModelProperty| match &given.value.kind {
                ModelType::Object(own) => !own.properties.is_empty(),
                _ => false,
            };
            if given.is_some_and(|given| restricts(&given)) {
                object.leave_out("metadata", 1);
            }
            Some(ModelProperty {
                doc: "The name of the object, its labels and annotations.".to_owned(),
                presence: presence.unwrap_or(Presence::Optional),
                ..ModelProperty::optional("metadata", kind)
            })
        }
        (None, None) => None,
    };
    object.properties.extend(metadata);
    for property in own {
        match property.name.as_str() {
            "apiVersion" | "kind" | "metadata" => {}
            "status" if has_status => object.properties.push(ModelProperty {
                doc: "What the server and the controller report. It is not written by a stack.".to_owned(),
                ..ModelProperty::optional("status", ModelType::Any)
            }),
            _ => object.properties.push(property),
        }
    }
}

/// Returns the schema of the metadata that stacks write. Other fields are allowed too.
fn metadata_schema() -> Value {
    let text = |about: &str| json!({"type": "string", "description": about});
    let texts = |about: &str| json!({"type": "object", "description": about, "additionalProperties": {"type": "string"}});
    json!({
        "type": "object",
        "description": "The name of an object, its labels and annotations.",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "name": text("The name, unique in its namespace for the kind."),
            "namespace": text("The namespace."),
            "labels": texts("By which objects are selected."),
            "annotations": texts("Data for tools."),
            "finalizers": {"type": "array", "description": "What must happen before the object is deleted.", "items": {"type": "string"}},
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the type of `status`, and how often it was counted as untranslated.
    fn status_of(subresources: Value, properties: Value) -> (Option<ModelType>, Option<u32>) {
        let crd = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"},
            "spec": {"group": "example.com", "names": {"kind": "Thing", "plural": "things"}, "versions": [
                {"name": "v1", "served": true, "storage": true, "subresources": subresources, "schema": {"openAPIV3Schema":
                    {"type": "object", "properties": properties}}}]}});
        let root = read_crds([&crd]).unwrap().remove(0).object;
        let status = root.properties.iter().find(|property| property.name == "status");
        (
            status.map(|status| status.value.kind.clone()),
            root.untranslated.get("status").copied(),
        )
    }

    #[test]
    fn a_status_beside_a_spec_is_the_controller_s() {
        let object = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let both = json!({"spec": object, "status": object});
        // The server ignores a status from a client, so there is no check to leave out.
        assert_eq!(
            status_of(json!({"status": {}}), both.clone()),
            (Some(ModelType::Any), None)
        );
        assert_eq!(status_of(json!({}), both), (Some(ModelType::Any), Some(1)));
        assert_eq!(status_of(json!({}), json!({"spec": object})), (None, None));
        let (alone, count) = status_of(json!({}), json!({"status": object}));
        assert!(
            matches!(alone, Some(ModelType::Object(_))) && count.is_none(),
            "{alone:?}"
        );
    }
}
