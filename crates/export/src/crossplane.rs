//! Files for Crossplane's Kubernetes provider: one `Object` for each object, with references to its dependencies.

use std::collections::HashMap;

use serde_json::{Value, json};

use konverge_base::model::{FieldPath, ResourceId};

use crate::{
    bundle::{Bundle, BundleObject, refuse},
    document::{Document, Holds, Loss},
    error::ExportError,
    exported::{Exported, Files, unknown_values},
    names::stack_slug,
    object_text::document_text,
    value_places::{ValueGroup, ValuePart, ValuePlace},
};

const TARGET: &str = "crossplane";
const API_VERSION: &str = "kubernetes.crossplane.io/v1alpha2";

pub(crate) fn export(bundle: &Bundle) -> Result<Exported, ExportError> {
    let slug = stack_slug(&bundle.stack);
    let objects = bundle.objects.iter();
    let names: HashMap<&ResourceId, String> = objects
        .map(|object| (&object.id, format!("{slug}-{}", object.file)))
        .collect();
    // The provider can copy a whole value from another object as soon as that object has it. So a reference needs
    // no value from the user if it is the whole text.
    let copied = |place: &ValuePlace| match place.parts.as_slice() {
        [ValuePart::Value(value)] if value.group == ValueGroup::References => {
            let (id, path) = value.target.as_ref()?;
            Some((names.get(id)?.clone(), id.clone(), path.clone()))
        }
        _ => None,
    };
    refuse(
        bundle,
        TARGET,
        unknown_values(bundle, &|place| copied(place).is_some()),
    )?;
    let mut files = Files::new();
    let mut waits = Vec::new();
    for object in &bundle.objects {
        let mut references = Vec::new();
        let mut manifest = Value::Object(object.body.clone());
        for place in &object.values {
            let Some((name, id, path)) = copied(place) else {
                continue;
            };
            if let Some(text) = manifest.pointer_mut(place.path.as_str()) {
                *text = "".into();
            }
            let from = path.iter().fold("status.atProvider.manifest".to_owned(), field);
            references.push(json!({
                "patchesFrom": {"apiVersion": API_VERSION, "kind": "Object", "name": name, "fieldPath": from},
                "toFieldPath": field_path(&place.path),
            }));
            waits.push((id, object.id.clone()));
        }
        let edges = bundle.edges.iter().filter(|edge| edge.to == object.id);
        let others = edges.filter(|edge| !waits.contains(&(edge.from.clone(), object.id.clone())));
        references.extend(others.map(|edge| {
            json!({"dependsOn": {"apiVersion": API_VERSION, "kind": "Object", "name": names[&edge.from]}})
        }));
        let wrapped = wrap(&names[&object.id], manifest, references);
        files.insert(file(object), document_text(&wrapped).into_bytes());
    }
    let document = Document::new(
        bundle,
        TARGET,
        // `dependsOn` only checks that the other `Object` exists, and all are created at once. So it orders
        // deletions but not creations.
        &|edge| {
            if waits.contains(&(edge.from.clone(), edge.to.clone())) {
                Ok(Holds::Created)
            } else {
                Err(Loss::Order)
            }
        },
        &|at| file(&bundle.objects[at]),
    );
    Ok(Exported { files, document })
}

fn file(object: &BundleObject) -> String {
    format!("objects/{:03}-{}.yaml", object.level, object.file)
}

fn wrap(name: &str, manifest: Value, references: Vec<Value>) -> Value {
    let mut spec = json!({
        "forProvider": {"manifest": manifest},
        "readiness": {"policy": "DeriveFromObject"},
    });
    if !references.is_empty() {
        spec["references"] = Value::Array(references);
    }
    json!({"apiVersion": API_VERSION, "kind": "Object", "metadata": {"name": name}, "spec": spec})
}

/// Converts a JSON pointer to Crossplane's form: `spec.ports[0].port`.
fn field_path(path: &FieldPath) -> String {
    let path = path
        .components()
        .fold(String::new(), |path, key| field(path, &key));
    path.trim_start_matches('.').to_owned()
}

fn field(path: String, key: &String) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(is_name) && !key.bytes().all(|b| b.is_ascii_digit()) {
        format!("{path}.{key}")
    } else {
        format!("{path}[{key}]")
    }
}
