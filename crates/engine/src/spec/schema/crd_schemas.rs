//! [`CrdSchemas`]: the schemas of custom kinds, from the CustomResourceDefinitions of a repository.

use std::collections::BTreeMap;

use konverge_base::model::GroupKind;
use serde_json::{Map, Value};

use super::{
    BuiltIn,
    validate::{SchemaDialect, SchemaWalk, Violation},
};

/// The schemas of custom kinds. A kind may have several definitions, by projects for different clusters.
#[derive(Debug, Clone, Default)]
pub struct CrdSchemas {
    kinds: BTreeMap<(String, String), Vec<Value>>,
}

impl CrdSchemas {
    /// Adds the schema of an object if the object is a CustomResourceDefinition.
    pub fn add(&mut self, object: &Map<String, Value>) {
        let (Some(spec), Some(GroupKind { group, kind })) =
            (object.get("spec"), GroupKind::defined_by(object))
        else {
            return;
        };
        // Only `v1` is read: `v1beta1` has the schema at another path.
        if object.get("apiVersion").and_then(Value::as_str) != Some("apiextensions.k8s.io/v1") {
            return;
        }
        for version in spec["versions"].as_array().into_iter().flatten() {
            let Some(name) = version["name"].as_str() else {
                continue;
            };
            let mut schema = version["schema"]["openAPIV3Schema"].clone();
            if spec["preserveUnknownFields"] == true && schema.is_object() {
                schema["x-kubernetes-preserve-unknown-fields"] = Value::Bool(true);
            }
            self.kinds
                .entry((format!("{group}/{name}"), kind.to_owned()))
                .or_default()
                .push(schema);
        }
    }

    /// Returns true if a definition has this kind, in any group and version.
    pub fn has_kind(&self, kind: &str) -> bool {
        self.kinds.keys().any(|(_, known)| known == kind)
    }

    /// Returns the violations of an object, by the definition that it matches best; `None` if its kind has no
    /// definition.
    pub(super) fn faults(
        &self,
        api_version: &str,
        kind: &str,
        object: &Map<String, Value>,
        built_in: &BuiltIn,
    ) -> Option<Vec<Violation>> {
        let schemas = self.kinds.get(&(api_version.to_owned(), kind.to_owned()))?;
        schemas
            .iter()
            .map(|schema| SchemaWalk::validate(object, schema, SchemaDialect::Definition, built_in))
            .min_by_key(Vec::len)
    }
}
