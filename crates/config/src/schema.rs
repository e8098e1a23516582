//! The published JSON Schema of `konverge.yaml`, generated from the types in `types.rs`.

use serde_json::Value;

use super::Config;

/// The address of the published schema.
const ID: &str = "https://konverge.github.io/konverge/reference/konverge.schema.json";

/// Returns the JSON Schema of `konverge.yaml` (draft 2020-12).
pub fn json_schema() -> Value {
    let mut schema = schemars::schema_for!(Config).to_value();
    if let Some(map) = schema.as_object_mut() {
        map.insert("title".into(), "konverge.yaml".into());
        map.insert("$id".into(), ID.into());
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_described() {
        let schema = json_schema();
        let properties = schema["properties"].as_object().expect("an object schema");
        let keys: Vec<_> = properties.keys().map(String::as_str).collect();
        for key in [
            "version",
            "state",
            "clusters",
            "stacks",
            "kcl",
            "terraform",
            "apply",
            "policy",
            "drift",
            "notify",
        ] {
            assert!(keys.contains(&key), "{key} in {keys:?}");
        }
        for (key, property) in properties {
            assert!(property.get("description").is_some(), "{key} has no description");
        }
        assert_eq!(schema["additionalProperties"], Value::Bool(false));
    }
}
