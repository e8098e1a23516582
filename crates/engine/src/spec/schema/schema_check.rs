//! Checks whether an object fits the schema of its kind.

use serde_json::{Map, Value};

use super::{
    built_in::BuiltIn,
    crd_schemas::CrdSchemas,
    validate::{SchemaDialect, SchemaWalk, Violation, nearest},
};

/// The result of checking an object against a schema of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaFit {
    /// No schema describes the kind.
    Unknown,
    /// The group is part of Kubernetes, but this version is not in the embedded schemas.
    OtherVersion,
    /// A CRD describes the kind. Holds the violations; empty if the object is valid.
    Defined(Vec<Violation>),
    /// The kind is part of Kubernetes. Holds the violations; empty if the object is valid.
    BuiltIn(Vec<Violation>),
}

/// Validates an object against the first of these definitions that has its kind, or else against the built-in
/// kinds of Kubernetes.
pub fn fit(object: &Map<String, Value>, definitions: &[&CrdSchemas], built_in: &BuiltIn) -> SchemaFit {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    for known in definitions {
        if let Some(faults) = known.faults(api_version, kind, object, built_in) {
            return SchemaFit::Defined(faults);
        }
    }
    fit_built_in(built_in, api_version, kind, object)
}

/// Validates an object against its kind.
fn fit_built_in(built_in: &BuiltIn, api_version: &str, kind: &str, object: &Map<String, Value>) -> SchemaFit {
    if let Some(name) = built_in.kinds.get(&format!("{api_version} {kind}")) {
        let schema = built_in.types.get(name).unwrap_or(&Value::Null);
        return SchemaFit::BuiltIn(SchemaWalk::validate(
            object,
            schema,
            SchemaDialect::BuiltIn,
            built_in,
        ));
    }
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    let versions = || built_in.kinds.keys().filter_map(|key| key.split_once(' '));
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
    // A group without a dot belongs to Kubernetes itself.
    let own = !group.contains('.')
        || versions().any(|(version, _)| version.rsplit_once('/').is_some_and(|(known, _)| known == group));
    if own {
        SchemaFit::OtherVersion
    } else {
        SchemaFit::Unknown
    }
}
