//! Renamed resources without `konverge/moved-from`: the plan creates one and deletes the other, but both are
//! the same object at the provider, so the deletion would delete the object of the new resource.

use serde_json::{Map, Value};

use super::module_resource::ModuleResource;
use konverge_base::model::{ResourceId, claim::MOVED_FROM, masked_value};

/// Attributes that name an object at its provider.
const NAMES: [&str; 9] = [
    "arn",
    "bucket",
    "filename",
    "full_name",
    "identifier",
    "name",
    "path",
    "self_link",
    "domain",
];

/// Attributes that set the scope in which a name is unique, besides those that end in `_id`.
const SCOPES: [&str; 7] = [
    "account",
    "location",
    "namespace",
    "project",
    "region",
    "type",
    "zone",
];

/// A resource that a plan creates.
#[derive(Debug, Clone)]
pub(super) struct CreatedResource {
    pub(super) subject: ModuleResource,
    /// The planned object, with `$unknown` markers.
    pub(super) expected: Value,
}

/// A created resource with the same object as a deleted one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SameObject {
    /// The id of the created resource.
    pub(super) created: ResourceId,
    /// The attributes whose equal values show that both resources have the same object.
    equal: Vec<String>,
}

impl SameObject {
    /// Finds the created resource that has the same object as a deleted one.
    pub(super) fn find(
        deleted: &ModuleResource,
        object: &Value,
        created: &[CreatedResource],
    ) -> Option<Self> {
        created.iter().find_map(|new| {
            let is_alike = new.subject.address.kind == deleted.address.kind
                && new.subject.provider.source == deleted.provider.source
                && new.subject.meta == deleted.meta;
            let equal = is_alike.then(|| equal_names(&new.expected, object))??;
            Some(Self {
                created: new.subject.id().clone(),
                equal,
            })
        })
    }

    /// Returns the warning for readers of the plan.
    pub(super) fn warning(&self, old: &ResourceId) -> String {
        let equal: Vec<_> = self.equal.iter().map(|name| format!("`{name}`")).collect();
        format!(
            "warning: it seems to be the object of `{new}`, which is created in this plan and has the same {equal}: the object \
             is gone after the apply; if the resource was renamed, write `{MOVED_FROM}: {old}` into the `extensions` of \
             `{new}`, and its state moves",
            new = self.created,
            equal = equal.join(" and "),
        )
    }
}

/// Returns the equal names of two objects; `None` if the objects are different, or if no name shows that they
/// are the same.
fn equal_names(created: &Value, deleted: &Value) -> Option<Vec<String>> {
    let (created, deleted) = (created.as_object()?, deleted.as_object()?);
    let mut equal = Vec::new();
    compare(created, deleted, "", &mut equal)?;
    // Resources of the Kubernetes provider have their name in the block `metadata`.
    let block =
        |object: &Map<String, Value>| object.get("metadata")?.as_array()?.first()?.as_object().cloned();
    if let (Some(created), Some(deleted)) = (block(created), block(deleted)) {
        compare(&created, &deleted, "metadata.", &mut equal)?;
    }
    (!equal.is_empty()).then_some(equal)
}

/// Adds the equal names of two objects; `None` if a name or a scope differs.
fn compare(
    created: &Map<String, Value>,
    deleted: &Map<String, Value>,
    prefix: &str,
    equal: &mut Vec<String>,
) -> Option<()> {
    for (key, new) in created {
        let is_name = NAMES.contains(&key.as_str()) || key.ends_with("_name") || key.ends_with("_identifier");
        let is_scope = SCOPES.contains(&key.as_str()) || key.ends_with("_id");
        // The provider chooses some values at the apply; these are not known yet.
        let is_known = |value: &Value| {
            value.as_str().is_some_and(|text| !text.is_empty()) && !masked_value::is_unknown(value)
        };
        let old = deleted.get(key).filter(|old| is_known(old) && is_known(new));
        let Some(old) = old.filter(|_| is_name || is_scope) else {
            continue;
        };
        if old != new {
            return None;
        }
        if is_name {
            equal.push(format!("{prefix}{key}"));
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_names_in_equal_places_are_the_same_object() {
        let unknown = masked_value::unknown();
        for (created, deleted, equal) in [
            (
                json!({"filename": "/a", "content": "x"}),
                json!({"filename": "/a", "content": "y", "id": "1"}),
                Some(vec!["filename"]),
            ),
            (json!({"filename": "/a"}), json!({"filename": "/b"}), None),
            (
                json!({"name": "a", "region": "eu"}),
                json!({"name": "a", "region": "us"}),
                None,
            ),
            (
                json!({"name": "a", "vpc_id": "1"}),
                json!({"name": "a", "vpc_id": "2"}),
                None,
            ),
            (
                json!({"function_name": "a", "arn": unknown}),
                json!({"function_name": "a", "arn": "arn:x"}),
                Some(vec!["function_name"]),
            ),
            (json!({"input": "a"}), json!({"input": "a", "id": "7"}), None),
            (json!({"name": ""}), json!({"name": ""}), None),
            (json!({"name": null}), json!({"name": null}), None),
            (
                json!({"metadata": [{"name": "a", "namespace": "n"}]}),
                json!({"metadata": [{"name": "a", "namespace": "n"}]}),
                Some(vec!["metadata.name"]),
            ),
            (
                json!({"metadata": [{"name": "a", "namespace": "n"}]}),
                json!({"metadata": [{"name": "a", "namespace": "m"}]}),
                None,
            ),
            (json!([]), json!({"name": "a"}), None),
        ] {
            let equal: Option<Vec<String>> =
                equal.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(equal_names(&created, &deleted), equal, "{created} {deleted}");
        }
    }
}
