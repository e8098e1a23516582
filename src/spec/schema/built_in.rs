//! [`BuiltIn`]: the schemas of the kinds that are part of Kubernetes.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    SchemaFit,
    validate::{SchemaDialect, SchemaWalk, Violation, nearest},
};

const TEXT: &str = include_str!("kubernetes.json");

/// The schemas of the kinds in one version of Kubernetes.
#[derive(Debug, Deserialize)]
pub struct BuiltIn {
    version: String,
    kinds: BTreeMap<String, String>,
    pub(super) types: BTreeMap<String, Value>,
}

impl BuiltIn {
    /// Loads the embedded schemas.
    ///
    /// # Panics
    /// The embedded file is damaged; a test ensures that it is not.
    #[expect(
        clippy::new_without_default,
        reason = "it reads 170 KiB: nobody should get one by chance"
    )]
    pub fn new() -> Self {
        serde_json::from_str(TEXT).expect("made by scripts/kubernetes-schemas and tested")
    }

    /// The version of Kubernetes, as `v1.34.2`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Validates an object against its kind.
    pub(super) fn fit(&self, api_version: &str, kind: &str, object: &Map<String, Value>) -> SchemaFit {
        if let Some(name) = self.kinds.get(&format!("{api_version} {kind}")) {
            let schema = self.types.get(name).unwrap_or(&Value::Null);
            return SchemaFit::BuiltIn(SchemaWalk::validate(object, schema, SchemaDialect::BuiltIn, self));
        }
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        let versions = || self.kinds.keys().filter_map(|key| key.split_once(' '));
        if versions().any(|(version, _)| version == api_version) {
            let known = versions().filter_map(|(version, kind)| (version == api_version).then_some(kind));
            let meant = nearest(kind, known);
            let message = format!(
                "there is no kind `{}` in {api_version}{meant}",
                kind.escape_debug()
            );
            return SchemaFit::BuiltIn(vec![Violation {
                path: "kind".to_owned(),
                message,
            }]);
        }
        // Groups without a dot belong to Kubernetes itself.
        let own = !group.contains('.')
            || versions()
                .any(|(version, _)| version.rsplit_once('/').is_some_and(|(known, _)| known == group));
        if own {
            SchemaFit::OtherVersion
        } else {
            SchemaFit::Unknown
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
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
