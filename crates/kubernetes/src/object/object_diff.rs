//! Compares the live object with the server's result, path by path, and finds the origin of each difference.

use serde_json::{Map, Value};

use super::drift_author;
use konverge_base::model::{
    FieldPath, diff,
    field_path::{self, unescape},
    masked_value,
    plan::{ChangeOrigin, FieldChange},
};
use konverge_secrets::{SecretPlaces, Secrets, is_last_applied, mask_object_at, mask_secret_data_at};

/// The objects that a comparison uses.
pub(crate) struct DiffSides<'a> {
    /// The object as last applied, with secrets masked; `None` if the stack never had it.
    pub prior: Option<&'a Map<String, Value>>,
    /// The desired object.
    pub desired: &'a Map<String, Value>,
    /// The live object.
    pub live: &'a Value,
    /// The expected object.
    pub becomes: &'a Value,
    /// The expected object for display, in which markers that others wrote are escaped
    /// ([`masked_value::escape_marks`]).
    pub shown: &'a Value,
    /// True if admission may mutate objects of this kind.
    pub admission: bool,
    /// The paths with secret values outside a Secret's data.
    pub places: &'a SecretPlaces,
    /// The field manager of the apply.
    pub manager: &'a str,
}

/// Returns the object for display and comparison: secrets are masked, and the server's own fields (status,
/// versions, times, managed fields) are removed.
pub(crate) fn mask_for_display(object: &Value, secrets: &Secrets, places: &SecretPlaces) -> Value {
    stripped(object, |map| mask_object_at(secrets, map, places).into_owned())
}

/// Returns the object for policy rules: only the data of a Secret is masked, and the server's own fields are removed.
pub(crate) fn mask_for_rules(object: &Value, secrets: &Secrets, places: &SecretPlaces) -> Value {
    stripped(object, |map| {
        mask_secret_data_at(secrets, map, places).into_owned()
    })
}

fn stripped(object: &Value, mask: impl Fn(&Map<String, Value>) -> Map<String, Value>) -> Value {
    let mut object = object.clone();
    if let Value::Object(map) = &mut object {
        strip_server_side(map);
        *map = mask(map);
    }
    object
}

/// Removes fields that only the server writes. Exported manifests contain them, but an apply must not.
pub(crate) fn strip_server_side(object: &mut Map<String, Value>) {
    object.shift_remove("status");
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in SERVER_METADATA {
            metadata.shift_remove(key);
        }
    }
}

/// Metadata that only the server writes.
const SERVER_METADATA: [&str; 9] = [
    "managedFields",
    "resourceVersion",
    "uid",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "generateName",
];

/// Returns the changes, sorted by path.
pub(crate) fn changes(sides: &DiffSides<'_>, secrets: &Secrets) -> Vec<FieldChange> {
    let places = sides.places;
    let live = mask_for_display(&masked_value::escape_marks(sides.live), secrets, places);
    let becomes = mask_for_display(sides.shown, secrets, places);
    let desired = Value::Object(mask_object_at(secrets, sides.desired, places).into_owned());
    let prior = sides.prior.map(|prior| Value::Object(prior.clone()));
    diff::differences(&live, &becomes)
        .into_iter()
        .filter(|difference| !is_copy_of_the_object(&difference.path))
        .map(|difference| {
            let path = &difference.path;
            let wanted = path.get(&desired);
            let before = prior.as_ref().and_then(|prior| path.get(prior));
            let as_wanted = match (wanted, &difference.from) {
                (Some(wanted), Some(found)) => diff::same(wanted, found),
                _ => false,
            };
            let origin = match (wanted, before) {
                // The live value is as desired, but the server changes it when the object is applied.
                _ if as_wanted && sides.admission => ChangeOrigin::Admission,
                _ if as_wanted => ChangeOrigin::Default,
                // The desired value is the same as before, so another manager changed the live value.
                (Some(wanted), Some(before)) if diff::same(wanted, before) => change_origin(sides, path),
                (Some(_), _) | (None, Some(_)) => ChangeOrigin::Change,
                (None, None) if holds_wanted(&desired, path) => ChangeOrigin::Change,
                (None, None) if sides.admission => ChangeOrigin::Admission,
                (None, None) => ChangeOrigin::Default,
            };
            FieldChange {
                path: difference.path,
                from: difference.from,
                to: difference.to,
                origin,
            }
        })
        .collect()
}

/// Returns true for the annotation that `kubectl apply` writes as a copy of the object.
fn is_copy_of_the_object(path: &FieldPath) -> bool {
    path.as_str()
        .strip_prefix("/metadata/annotations/")
        .is_some_and(|name| is_last_applied(&unescape(name)))
}

fn change_origin(sides: &DiffSides<'_>, path: &FieldPath) -> ChangeOrigin {
    drift_author::owner(sides.live, path, sides.manager).map_or(ChangeOrigin::Drift, ChangeOrigin::Manager)
}

/// Returns true if the path is inside a desired list whose items cannot be found by a path: a key has an
/// omitted default, or the list has no keys.
fn holds_wanted(desired: &Value, path: &FieldPath) -> bool {
    let outer = std::iter::successors(path.split_last(), |(outer, _)| outer.split_last());
    let mut found = outer.filter_map(|(outer, _)| outer.get(desired));
    found.next().is_some_and(Value::is_array)
}

/// Computes the expected object without the server: desired values replace live ones, values that were
/// desired `before` and no longer are disappear, and the rest stays.
pub(crate) fn merge(live: &Value, before: Option<&Value>, desired: &Value, name: &str) -> Value {
    match (live, desired) {
        (Value::Object(found), Value::Object(wanted)) if !masked_value::is_unknown(desired) => {
            Value::Object(merged_map(found, before.and_then(Value::as_object), wanted))
        }
        (Value::Array(found), Value::Array(wanted)) => {
            let before = before.and_then(Value::as_array).map(Vec::as_slice);
            merged_list(found, before, wanted, name).unwrap_or_else(|| desired.clone())
        }
        _ => desired.clone(),
    }
}

fn merged_map(
    live: &Map<String, Value>,
    before: Option<&Map<String, Value>>,
    desired: &Map<String, Value>,
) -> Map<String, Value> {
    let mut result = Map::new();
    for (key, found) in live {
        let before = before.and_then(|before| before.get(key));
        let left = match (desired.get(key), before) {
            (Some(wanted), _) => Some(merge(found, before, wanted, key)),
            (None, Some(before)) => without(found, before),
            (None, None) => Some(found.clone()),
        };
        result.extend(left.map(|left| (key.clone(), left)));
    }
    let added = desired.iter().filter(|(key, _)| !live.contains_key(*key));
    // The server stores neither nulls nor empty lists.
    let added =
        added.filter(|(_, wanted)| !wanted.is_null() && wanted.as_array().is_none_or(|l| !l.is_empty()));
    result.extend(added.map(|(key, wanted)| (key.clone(), wanted.clone())));
    result
}

/// Returns the rest of a value without the parts that were desired `before`; `None` if nothing remains.
fn without(found: &Value, before: &Value) -> Option<Value> {
    let (Value::Object(found), Value::Object(before)) = (found, before) else {
        return None;
    };
    let left: Map<String, Value> = found
        .iter()
        .filter_map(|(key, found)| match before.get(key) {
            Some(before) => Some((key.clone(), without(found, before)?)),
            None => Some((key.clone(), found.clone())),
        })
        .collect();
    (!left.is_empty()).then_some(Value::Object(left))
}

/// Merges two lists; `None` if the items have no keys, because such a list is one value.
fn merged_list(found: &[Value], before: Option<&[Value]>, wanted: &[Value], name: &str) -> Option<Value> {
    let keys = diff::list_keys(name, found, wanted)?;
    let label = |item: &Value| field_path::label(item, &keys);
    let same = |items: &'_ [Value], item: &Value| items.iter().position(|other| label(other) == label(item));
    let merge = |item: &Value| match same(found, item) {
        Some(at) => {
            let before = before.and_then(|before| Some(&before[same(before, item)?]));
            merge(&found[at], before, item, "")
        }
        None => item.clone(),
    };
    // Items of other managers keep their positions, as in the server's merge.
    let was_wanted = |item: &Value| before.is_some_and(|before| same(before, item).is_some());
    let is_removable = |item: &Value| !diff::is_merged_list(name) || was_wanted(item);
    let mut items: Vec<Value> = Vec::new();
    for item in found {
        match same(wanted, item) {
            Some(at) => items.push(merge(&wanted[at])),
            None if !is_removable(item) => items.push(item.clone()),
            None => {}
        }
    }
    let in_order = |items: &[Value]| {
        let places: Vec<_> = items.iter().filter_map(|item| same(wanted, item)).collect();
        places.is_sorted()
    };
    if !in_order(&items) {
        let others = items.into_iter().filter(|item| same(wanted, item).is_none());
        return Some(wanted.iter().map(merge).chain(others).collect());
    }
    let new = wanted.iter().filter(|item| same(found, item).is_none());
    items.extend(new.cloned());
    Some(Value::Array(items))
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_secrets::HashKey;
    use serde_json::json;

    #[test]
    fn what_is_no_longer_wanted_goes_and_what_others_set_stays() {
        let before = json!({"labels": {"a": "1", "b": "2"}, "containers": [{"name": "web", "image": "a"}, {"name": "old"}]});
        let live = json!({"labels": {"a": "1", "b": "2", "foreign": "x"}, "deep": {"set": 1},
            "containers": [{"name": "web", "image": "a", "pulled": true}, {"name": "injected"}, {"name": "old"}]});
        let desired = json!({"labels": {"a": "1"}, "empty": [], "nothing": null, "emptyDir": {},
            "containers": [{"name": "web", "image": "b"}, {"name": "new"}]});
        let becomes = merge(&live, Some(&before), &desired, "");
        let containers =
            json!([{"name": "web", "image": "b", "pulled": true}, {"name": "injected"}, {"name": "new"}]);
        let expected = json!({"labels": {"a": "1", "foreign": "x"}, "deep": {"set": 1}, "containers": containers, "emptyDir": {}});
        assert_eq!(becomes, expected);
    }

    #[test]
    fn a_live_object_holds_no_marks() {
        let live = json!({"spec": {"a": {"$secret": {"ref": "x", "text": "aééééé"}}, "b": {"$unknown": true},
            "password": {"$secret": "Hunter_2222"}, "stringData": {"$secret": "Hunter_3333"}}});
        let becomes = json!({"spec": {}});
        let shown = json!({"spec": {"c": {"$unknown": true}}});
        let secrets = Secrets::new(HashKey::derive("k"));
        let sides = DiffSides {
            prior: None,
            desired: &Map::new(),
            live: &live,
            becomes: &becomes,
            shown: &shown,
            admission: false,
            places: &SecretPlaces::default(),
            manager: "konverge",
        };
        let found = changes(&sides, &secrets);
        let from: Vec<_> = found.iter().filter_map(|change| change.from.clone()).collect();
        let text = Value::from(from).to_string();
        assert!(!text.contains("Hunter") && text.contains("$$unknown"), "{text}");
        let [added] = &found
            .iter()
            .filter_map(|change| change.to.as_ref())
            .collect::<Vec<_>>()[..]
        else {
            panic!("{found:?}");
        };
        assert!(masked_value::is_unknown(added), "a mark of the plan stays one");
    }

    #[test]
    fn each_path_has_its_origin() {
        let prior = json!({"spec": {"image": "a", "replicas": 2, "dropped": 1, "edited": "x"}});
        let desired = json!({"spec": {"image": "b", "replicas": 2, "edited": "x"}});
        let live = json!({"metadata": {"resourceVersion": "1", "managedFields": [
                {"manager": "kubectl-edit", "operation": "Update", "time": "1", "fieldsV1": {"f:spec": {"f:edited": {}}}}]},
            "spec": {"image": "a", "replicas": 5, "dropped": 1, "edited": "y"}, "status": {"a": 1}});
        let becomes = json!({"metadata": {"resourceVersion": "2"}, "spec": {"image": "b", "replicas": 2, "edited": "x", "defaulted": true}});
        let secrets = Secrets::new(HashKey::derive("k"));
        let found = changes(
            &DiffSides {
                prior: prior.as_object(),
                desired: desired.as_object().unwrap(),
                live: &live,
                becomes: &becomes,
                shown: &becomes,
                admission: false,
                places: &SecretPlaces::default(),
                manager: "konverge",
            },
            &secrets,
        );
        let origins: Vec<_> = found
            .iter()
            .map(|c| (c.path.as_str(), c.origin.clone()))
            .collect();
        assert_eq!(
            origins,
            [
                ("/spec/defaulted", ChangeOrigin::Default),
                ("/spec/dropped", ChangeOrigin::Change),
                ("/spec/edited", ChangeOrigin::Manager("kubectl-edit".to_owned())),
                ("/spec/image", ChangeOrigin::Change),
                ("/spec/replicas", ChangeOrigin::Drift)
            ]
        );
    }
}
