//! Reads Kubernetes' OpenAPI documents, version 3 and version 2.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    crd::identify,
    error::ModelError,
    json_checks::ServerRules,
    json_schema::{ReferenceTarget, SchemaReader},
    names::{package_segment, schema_name},
    schema::{ModelRoot, ModelType, PackageName, SchemaName},
};

type Schemas<'a> = BTreeMap<&'a str, &'a Value>;

/// Reads the schemas in `components.schemas` or `definitions`. Lists and schemas that are not objects do not become
/// roots.
///
/// # Errors
/// No schema, a reference without a target, or two different schemas with the same name.
pub fn read_openapi<'a>(
    documents: impl IntoIterator<Item = &'a Value>,
) -> Result<Vec<ModelRoot>, ModelError> {
    let mut schemas = Schemas::new();
    for document in documents {
        let found = document
            .pointer("/components/schemas")
            .or_else(|| document.get("definitions"));
        for (name, schema) in found.and_then(Value::as_object).into_iter().flatten() {
            match schemas.get(name.as_str()) {
                // Several documents contain the same shared definition, each with a list of the kinds of its own
                // group. So only the properties must be equal.
                Some(other) if other.get("properties") != schema.get("properties") => {
                    return Err(ModelError::Twice(name.clone()));
                }
                Some(other) if group_version_kind(other).is_some() => {}
                _ => {
                    schemas.insert(name, schema);
                }
            }
        }
    }
    if schemas.is_empty() {
        return Err(ModelError::Nothing("schema of OpenAPI"));
    }
    let resolve = |target: &str| resolve(&schemas, target);
    let mut roots: BTreeMap<SchemaName, ModelRoot> = BTreeMap::new();
    for (&name, &schema) in schemas
        .iter()
        .filter(|(name, schema)| is_named(schema) && !is_list(name, schema))
    {
        let root = read_definition(name, schema, &resolve)?;
        if let Some(other) = roots.insert(root.name.clone(), root) {
            return Err(ModelError::Twice(other.title));
        }
    }
    Ok(roots.into_values().collect())
}

fn resolve<'a>(schemas: &Schemas<'a>, target: &str) -> Option<ReferenceTarget<'a>> {
    let name = target.rsplit('/').next()?;
    let schema = *schemas.get(name)?;
    Some(if is_named(schema) {
        ReferenceTarget::Named(ModelType::Schema(place(name, schema)))
    } else {
        ReferenceTarget::Inline(schema)
    })
}

fn read_definition<'a>(
    name: &str,
    schema: &'a Value,
    resolve: &dyn Fn(&str) -> Option<ReferenceTarget<'a>>,
) -> Result<ModelRoot, ModelError> {
    let is_builtin = name.starts_with("io.k8s.");
    let server = if is_builtin {
        ServerRules::BuiltIn
    } else {
        ServerRules::Custom
    };
    let mut object = SchemaReader::new(resolve, server).root(name, schema)?;
    let kind = group_version_kind(schema).filter(|_| !is_shared(name));
    let title = match &kind {
        Some((api_version, kind)) => {
            identify(&mut object, api_version, kind, None, true);
            format!("{kind} of {api_version}")
        }
        None => name.to_owned(),
    };
    Ok(ModelRoot {
        name: place(name, schema),
        kind: kind.map(|(_, kind)| kind.to_owned()),
        title,
        object,
    })
}

/// Returns the API version and the kind of a schema that belongs to exactly one kind.
fn group_version_kind(schema: &Value) -> Option<(String, &str)> {
    let kinds = schema.get("x-kubernetes-group-version-kind")?.as_array()?;
    let [only] = kinds.as_slice() else { return None };
    let text = |name: &str| only.get(name).and_then(Value::as_str);
    let (group, version) = (text("group")?, text("version")?);
    let api_version = if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    };
    Some((api_version, text("kind")?))
}

/// Returns true for a definition that all API groups share, such as `ObjectMeta`.
fn is_shared(name: &str) -> bool {
    name.starts_with("io.k8s.apimachinery.")
}

/// Returns true for an object with properties, which becomes a KCL schema. All other schemas are translated where
/// they are used.
fn is_named(schema: &Value) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.is_some_and(|properties| !properties.is_empty())
}

/// Returns true for a list of objects, which a server returns and nobody writes.
fn is_list(name: &str, schema: &Value) -> bool {
    name.ends_with("List")
        && schema.pointer("/properties/items").is_some()
        && schema.pointer("/properties/metadata").is_some()
}

/// Returns the package and the name of a definition: `io.k8s.api.apps.v1.Deployment` is `Deployment` in `apps/v1`.
fn place(name: &str, schema: &Value) -> SchemaName {
    let parts: Vec<&str> = name.split('.').collect();
    let is_version = |part: &str| {
        let digits = part.strip_prefix('v').unwrap_or_default();
        digits.starts_with(|first: char| first.is_ascii_digit())
    };
    let (kind, folders) = parts.split_last().unwrap_or((&name, &[]));
    let (version, groups) = match folders.split_last() {
        Some((last, groups)) if is_version(last) => (*last, groups),
        _ => ("v1", folders),
    };
    let own_group = group_version_kind(schema).filter(|_| !name.starts_with("io.k8s."));
    let group = match own_group
        .as_ref()
        .and_then(|(api_version, _)| api_version.split_once('/'))
    {
        Some((group, _)) => group.to_owned(),
        None if name.starts_with("io.k8s.") => groups.last().unwrap_or(&"core").to_string(),
        None => groups.iter().rev().copied().collect::<Vec<_>>().join("."),
    };
    let package = PackageName(vec![package_segment(&group), package_segment(version)]);
    SchemaName {
        package,
        name: schema_name(kind),
    }
}
