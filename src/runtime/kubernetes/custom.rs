//! Custom resources whose CustomResourceDefinition is only about to be made: checked against the schema in the plan.

use serde_json::{Map, Value};

use crate::model::value;

/// What is wrong with an object by the schema of its definition, at most ten sentences; `None` if the definition has no
/// schema for that version.
pub(super) fn check(definition: &Map<String, Value>, object: &Map<String, Value>) -> Option<Vec<String>> {
    let api_version = object.get("apiVersion")?.as_str()?;
    let version = api_version.rsplit('/').next()?;
    let versions = definition.get("spec")?.get("versions")?.as_array()?;
    let schema = versions.iter().find(|v| v["name"] == version)?["schema"].get("openAPIV3Schema")?;
    let mut wrong = Vec::new();
    for (key, value) in object {
        if !matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            match schema["properties"].get(key) {
                Some(below) => validate(below, value, &format!("/{key}"), &mut wrong),
                None if schema["x-kubernetes-preserve-unknown-fields"] == true => {}
                None => wrong.push(format!("`/{key}` is not in the schema")),
            }
        }
    }
    for key in required(schema) {
        if !object.contains_key(key) {
            wrong.push(format!("`/{key}` is required"));
        }
    }
    wrong.truncate(10);
    Some(wrong)
}

/// Whether a definition is that of an object's kind.
pub(super) fn defines(definition: &Map<String, Value>, api_version: &str, kind: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    definition.get("kind").and_then(Value::as_str) == Some("CustomResourceDefinition")
        && definition
            .get("spec")
            .is_some_and(|spec| spec["group"] == group && spec["names"]["kind"] == kind)
}

fn validate(schema: &Value, found: &Value, path: &str, wrong: &mut Vec<String>) {
    if value::is_unknown(found) || wrong.len() >= 10 || (found.is_null() && schema["nullable"] == true) {
        return;
    }
    let int_or_string = schema["x-kubernetes-int-or-string"] == true;
    if let Some(wanted) = schema["type"].as_str()
        && !int_or_string
        && !has_type(found, wanted)
    {
        wrong.push(format!("`{path}` must be of type {wanted}"));
        return;
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(found)
    {
        let allowed: Vec<_> = allowed.iter().map(Value::to_string).collect();
        wrong.push(format!("`{path}` must be one of {}", allowed.join(", ")));
    }
    if let Some(number) = found.as_f64() {
        if schema["minimum"].as_f64().is_some_and(|least| number < least) {
            wrong.push(format!("`{path}` must be at least {}", schema["minimum"]));
        }
        if schema["maximum"].as_f64().is_some_and(|most| number > most) {
            wrong.push(format!("`{path}` must be at most {}", schema["maximum"]));
        }
    }
    match found {
        Value::Object(map) => {
            for key in required(schema).filter(|key| !map.contains_key(*key)) {
                wrong.push(format!("`{path}/{key}` is required"));
            }
            for (key, below) in map {
                let path = value::join_path(path, key);
                let others = &schema["additionalProperties"];
                match schema["properties"].get(key) {
                    Some(known) => validate(known, below, &path, wrong),
                    None if others.is_object() => validate(others, below, &path, wrong),
                    None if others == true || schema["x-kubernetes-preserve-unknown-fields"] == true => {}
                    None if schema.get("properties").is_some() => {
                        wrong.push(format!("`{path}` is not in the schema"))
                    }
                    None => {}
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                validate(&schema["items"], item, &format!("{path}/{index}"), wrong);
            }
        }
        _ => {}
    }
}

fn required(schema: &Value) -> impl Iterator<Item = &str> {
    schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

fn has_type(value: &Value, wanted: &str) -> bool {
    match wanted {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|n| n.fract() == 0.0),
        "number" => value.is_number(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn an_object_is_held_against_the_schema_of_its_version() {
        let definition = json!({"kind": "CustomResourceDefinition", "spec": {"group": "a.example.com", "names": {"kind": "Thing"}, "versions": [
            {"name": "v1", "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "required": ["size"], "properties": {
                "size": {"type": "integer", "minimum": 1}, "mode": {"type": "string", "enum": ["a", "b"]},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}}}}}}}}]}});
        let definition = definition.as_object().unwrap();
        let wrong = |spec: Value| {
            let object = json!({"apiVersion": "a.example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": spec});
            check(definition, object.as_object().unwrap()).unwrap()
        };
        assert!(defines(definition, "a.example.com/v1", "Thing"));
        assert!(wrong(json!({"size": 2, "mode": "a", "labels": {"x": "y"}})).is_empty());
        assert_eq!(
            wrong(json!({"mode": "c"})),
            [
                "`/spec/size` is required",
                "`/spec/mode` must be one of \"a\", \"b\""
            ]
        );
        assert_eq!(
            wrong(json!({"size": 0, "nope": 1})),
            [
                "`/spec/size` must be at least 1",
                "`/spec/nope` is not in the schema"
            ]
        );
        assert_eq!(
            wrong(json!({"size": 1, "labels": {"x": 1}})),
            ["`/spec/labels/x` must be of type string"]
        );
    }
}
