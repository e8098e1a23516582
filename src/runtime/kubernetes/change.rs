//! What changes from what is there to what the server says it would become, path by path, with its origin.

use serde_json::{Map, Value};

use super::managers;
use crate::{
    model::{
        diff,
        plan::{Change, Origin},
        value,
    },
    secrets::{Secrets, is_last_applied, mask_object},
};

/// The sides of a comparison.
pub(super) struct Sides<'a> {
    /// As last applied, secrets masked; `None` if it was never ours.
    pub prior: Option<&'a Map<String, Value>>,
    /// As wanted.
    pub desired: &'a Map<String, Value>,
    /// As it is.
    pub live: &'a Value,
    /// As it would become.
    pub becomes: &'a Value,
    /// Whether something may change objects of this kind on their way in.
    pub admission: bool,
}

/// The object as it is shown and compared: without what the server alone keeps (status, versions, times, managed
/// fields), secrets masked.
pub(super) fn shown(object: &Value, secrets: &Secrets) -> Value {
    let Some(map) = object.as_object() else {
        return object.clone();
    };
    let mut map = map.clone();
    strip_server_side(&mut map);
    Value::Object(mask_object(secrets, &map).into_owned())
}

/// Takes out what only the server writes: exported manifests hold it, and an apply must not.
pub(super) fn strip_server_side(object: &mut Map<String, Value>) {
    object.shift_remove("status");
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for key in SERVER_METADATA {
            metadata.shift_remove(key);
        }
    }
}

/// Metadata that the server alone keeps.
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

/// The changes, in the order of their paths.
pub(super) fn changes(sides: &Sides<'_>, secrets: &Secrets) -> Vec<Change> {
    let live = shown(sides.live, secrets);
    let becomes = shown(sides.becomes, secrets);
    let desired = Value::Object(mask_object(secrets, sides.desired).into_owned());
    let prior = sides.prior.map(|prior| Value::Object(prior.clone()));
    diff::differences(&live, &becomes)
        .into_iter()
        .filter(|difference| !is_copy_of_the_object(&difference.path))
        .map(|difference| {
            let path = &difference.path;
            let wanted = diff::at(&desired, path);
            let before = prior.as_ref().and_then(|prior| diff::at(prior, path));
            let as_wanted = match (wanted, &difference.from) {
                (Some(wanted), Some(found)) => diff::same(wanted, found),
                _ => false,
            };
            let origin = match (wanted, before) {
                // It is as we want it, and would not stay so: the server's side does that.
                _ if as_wanted && sides.admission => Origin::Admission,
                _ if as_wanted => Origin::Default,
                // We want it, and wanted the same before: somebody else changed it since.
                (Some(wanted), Some(before)) if diff::same(wanted, before) => blame(sides.live, path),
                (Some(_), _) | (None, Some(_)) => Origin::Change,
                (None, None) if holds_wanted(&desired, path) => Origin::Change,
                (None, None) if sides.admission => Origin::Admission,
                (None, None) => Origin::Default,
            };
            Change {
                path: difference.path,
                from: difference.from,
                to: difference.to,
                origin,
            }
        })
        .collect()
}

/// `kubectl apply`'s annotation follows what `kubectl` did, never what we do.
fn is_copy_of_the_object(path: &str) -> bool {
    path.strip_prefix("/metadata/annotations/")
        .is_some_and(|name| is_last_applied(&name.replace("~1", "/")))
}

fn blame(live: &Value, path: &str) -> Origin {
    managers::owner(live, path).map_or(Origin::Drift, Origin::Manager)
}

/// Whether the path lies inside a list that is wanted: its items have no path of their own there (a key with a default
/// left out, an unkeyed list).
fn holds_wanted(desired: &Value, path: &str) -> bool {
    let mut end = path.len();
    while let Some(slash) = path[..end].rfind('/') {
        end = slash;
        if let Some(found) = diff::at(desired, &path[..end]) {
            return found.is_array();
        }
    }
    false
}

/// What is there with what is wanted laid over it: the best that can be said where the server can not be asked.
pub(super) fn overlay(live: &Value, desired: &Value, name: &str) -> Value {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired))
            if !value::is_unknown(&Value::Object(desired.clone())) =>
        {
            let mut merged = live.clone();
            for (key, wanted) in desired {
                let below = match live.get(key) {
                    Some(found) => overlay(found, wanted, key),
                    None => wanted.clone(),
                };
                merged.insert(key.clone(), below);
            }
            Value::Object(merged)
        }
        (Value::Array(found), Value::Array(wanted)) => match diff::list_keys(name, found, wanted) {
            Some(keys) => {
                let same_item = |item: &Value| {
                    found
                        .iter()
                        .find(|f| diff::label(f, &keys) == diff::label(item, &keys))
                };
                wanted
                    .iter()
                    .map(|item| same_item(item).map_or_else(|| item.clone(), |f| overlay(f, item, "")))
                    .collect()
            }
            None => desired.clone(),
        },
        _ => desired.clone(),
    }
}

/// The mapping in which a path ends, and the key there; `None` if there is no such mapping.
pub(super) fn member<'a>(object: &'a mut Value, path: &str) -> Option<(&'a mut Map<String, Value>, String)> {
    let plain = |component: &str| component.replace("~1", "/").replace("~0", "~");
    let (parent, last) = path.rsplit_once('/')?;
    let mut at = object;
    for component in parent.split('/').skip(1).map(plain) {
        at = match at {
            Value::Object(map) => map.get_mut(&component)?,
            Value::Array(items) => items.iter_mut().find(|item| diff::is_item(item, &component))?,
            _ => return None,
        };
    }
    Some((at.as_object_mut()?, plain(last)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::secrets::HashKey;
    use serde_json::json;

    #[test]
    fn each_path_has_its_origin() {
        let prior = json!({"spec": {"image": "a", "replicas": 2, "dropped": 1, "edited": "x"}});
        let desired = json!({"spec": {"image": "b", "replicas": 2, "edited": "x"}});
        let live = json!({"metadata": {"resourceVersion": "1", "managedFields": [
                {"manager": "kubectl-edit", "operation": "Update", "time": "1", "fieldsV1": {"f:spec": {"f:edited": {}}}}]},
            "spec": {"image": "a", "replicas": 5, "dropped": 1, "edited": "y"}, "status": {"a": 1}});
        let becomes = json!({"metadata": {"resourceVersion": "2"}, "spec": {"image": "b", "replicas": 2, "edited": "x", "defaulted": true}});
        let secrets = Secrets::new(HashKey::derived("k"));
        let found = changes(
            &Sides {
                prior: prior.as_object(),
                desired: desired.as_object().unwrap(),
                live: &live,
                becomes: &becomes,
                admission: false,
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
                ("/spec/defaulted", Origin::Default),
                ("/spec/dropped", Origin::Change),
                ("/spec/edited", Origin::Manager("kubectl-edit".to_owned())),
                ("/spec/image", Origin::Change),
                ("/spec/replicas", Origin::Drift)
            ]
        );
    }
}
