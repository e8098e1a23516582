//! [`BuiltIn`]: the schemas of the kinds that are part of Kubernetes.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

const TEXT: &str = include_str!("kubernetes.json");

/// The schemas of the built-in kinds of one version of Kubernetes.
#[derive(Debug, Deserialize)]
pub struct BuiltIn {
    version: String,
    pub(super) kinds: BTreeMap<String, String>,
    pub(super) types: BTreeMap<String, Value>,
}

impl BuiltIn {
    /// Loads the embedded schemas.
    ///
    /// # Panics
    /// Panics if the embedded file is damaged; a test ensures that it is not.
    #[expect(
        clippy::new_without_default,
        reason = "it reads 170 KiB: nobody should get one by chance"
    )]
    pub fn new() -> Self {
        serde_json::from_str(TEXT).expect("made by scripts/kubernetes-schemas and tested")
    }

    /// Returns the version of Kubernetes, such as `v1.34.2`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns true if a kind is part of Kubernetes, in any group and version.
    pub fn has_kind(&self, kind: &str) -> bool {
        let kinds = self.kinds.keys().filter_map(|key| key.split_once(' '));
        kinds.into_iter().any(|(_, known)| known == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every reference in the file has a target.
    fn references<'a>(schema: &'a Value, found: &mut Vec<&'a str>) {
        let Value::Object(map) = schema else {
            return;
        };
        found.extend(map.get("$ref").and_then(Value::as_str));
        for key in ["items", "additionalProperties"] {
            map.get(key)
                .into_iter()
                .for_each(|inner| references(inner, found));
        }
        if let Some(Value::Object(properties)) = map.get("properties") {
            properties.values().for_each(|inner| references(inner, found));
        }
    }

    #[test]
    fn the_file_is_whole() {
        let built_in = BuiltIn::new();
        assert!(built_in.kinds.len() > 80, "{}", built_in.kinds.len());
        let mut found: Vec<&str> = built_in.kinds.values().map(String::as_str).collect();
        built_in
            .types
            .values()
            .for_each(|schema| references(schema, &mut found));
        for name in found {
            assert!(built_in.types.contains_key(name), "{name}");
        }
    }
}
