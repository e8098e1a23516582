//! Fields that the last apply wrote and the Spec no longer sets, but that an apply alone would keep, because
//! an updating manager owns them too. This module finds them, and builds the patch that removes them.

use serde_json::{Map, Value, json};

use super::managed_fields;
use konverge_base::model::{FieldPath, diff, field_path::is_item};

/// A field that the last apply wrote and the Spec no longer sets, but that an apply alone would keep, because
/// only updating managers own it.
#[derive(Debug, PartialEq)]
pub(crate) struct Leftover {
    pub path: FieldPath,
    /// The fields at this path that updating managers own.
    pub fields: Map<String, Value>,
}

/// Returns the leftovers of an apply. `prior`, `desired` and `shown` (the live object) must be masked in the
/// same way; `becomes` is the expected object.
pub(crate) fn leftovers(prior: &Value, desired: &Value, shown: &Value, becomes: &Value) -> Vec<Leftover> {
    let mut gone = Vec::new();
    let differences = diff::differences(prior, desired);
    for difference in &differences {
        if let (Some(before), None) = (&difference.from, &difference.to) {
            leaves(&difference.path, before, &mut gone);
        }
    }
    let left = gone.into_iter().filter_map(|(path, before)| {
        // A value that differs from Konverge's last write was changed by another manager, which may keep it.
        let is_as_written = path.get(shown).is_some_and(|found| diff::same(found, before));
        if !is_as_written || path.get(becomes).is_none() {
            return None;
        }
        let mut fields = Map::new();
        for entry in managed_fields::entries(becomes).filter(|entry| entry.subresource != "status") {
            let Some(theirs) = managed_fields::fields_below(entry.fields, becomes, &path) else {
                continue;
            };
            if !entry.is_update() {
                return None;
            }
            fields = managed_fields::union(&fields, &theirs);
        }
        (!fields.is_empty()).then_some(Leftover { path, fields })
    });
    left.collect()
}

/// Collects the values in maps one by one. A list counts as one value.
fn leaves<'v>(path: &FieldPath, value: &'v Value, found: &mut Vec<(FieldPath, &'v Value)>) {
    let is_item = path.split_last().is_some_and(|(_, last)| last.contains('='));
    match value.as_object() {
        Some(map) if !map.is_empty() && !is_item => {
            for (key, below) in map {
                leaves(&path.join(key), below, found);
            }
        }
        _ => found.push((path.clone(), value)),
    }
}

/// Returns a JSON patch that removes these paths from an object; `None` if one of them does not exist.
pub(crate) fn removal<'a>(object: &Value, paths: impl Iterator<Item = &'a FieldPath>) -> Option<Value> {
    let mut pointers: Vec<Vec<String>> = paths.map(|path| pointer(object, path)).collect::<Option<_>>()?;
    // Later items of a list are removed first, so that the indexes of the others stay valid.
    let place = |part: &String| (part.parse::<usize>().unwrap_or(0), part.clone());
    pointers.sort_by_cached_key(|parts| std::cmp::Reverse(parts.iter().map(place).collect::<Vec<_>>()));
    let remove = pointers.iter().map(FieldPath::from_components);
    Some(remove.map(|path| json!({"op": "remove", "path": path})).collect())
}

/// Returns the components of a path, with the indices of items.
fn pointer(object: &Value, path: &FieldPath) -> Option<Vec<String>> {
    let mut at = object;
    let mut parts = Vec::new();
    for name in path.components() {
        at = match at {
            Value::Object(map) => {
                let below = map.get(&name)?;
                parts.push(name);
                below
            }
            Value::Array(items) => {
                let place = items.iter().position(|item| is_item(item, &name))?;
                parts.push(place.to_string());
                &items[place]
            }
            _ => return None,
        };
    }
    Some(parts)
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::FIELD_MANAGER;

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn object(data: Value, entries: Vec<Value>) -> Value {
        json!({"metadata": {"name": "c", "managedFields": entries}, "data": data})
    }

    #[test]
    fn what_the_last_apply_wrote_is_left_over_only_if_nobody_applies_it() {
        let prior = json!({"data": {"a": "1", "b": "2", "c": "3", "d": "4"}});
        let desired = json!({"data": {"a": "1"}});
        let becomes = object(
            json!({"a": "1", "b": "2", "c": "3", "d": "changed"}),
            vec![
                entry(FIELD_MANAGER, "Apply", json!({"f:data": {"f:a": {}}})),
                entry(
                    "kusion",
                    "Update",
                    json!({"f:data": {".": {}, "f:b": {}, "f:c": {}, "f:d": {}}}),
                ),
                entry("flux", "Apply", json!({"f:data": {"f:c": {}}})),
            ],
        );
        let left = leftovers(&prior, &desired, &becomes, &becomes);
        assert_eq!(
            left.iter().map(|l| l.path.as_str()).collect::<Vec<_>>(),
            ["/data/b"]
        );
        assert_eq!(
            Value::Object(left[0].fields.clone()),
            json!({"f:data": {"f:b": {}}})
        );
    }

    #[test]
    fn items_are_removed_from_the_end() {
        let object = json!({"spec": {"ports": [{"port": 1}, {"port": 2}, {"port": 3}], "a/b": 1}});
        let paths = ["/spec/ports/port=1", "/spec/ports/port=3", "/spec/a~1b"].map(FieldPath::new);
        assert_eq!(
            removal(&object, paths.iter()).unwrap(),
            json!([
                {"op": "remove", "path": "/spec/ports/2"},
                {"op": "remove", "path": "/spec/ports/0"},
                {"op": "remove", "path": "/spec/a~1b"}])
        );
        assert!(removal(&object, std::iter::once(&"/spec/none".into())).is_none());
    }
}
