//! Proves without the server that applying an object would change nothing. An error is possible in one
//! direction only: an object without a proof is sent to the server.
//!
//! Either of two proofs is enough. The *structural* proof compares the desired object with Konverge's entry
//! in `managedFields` and the live values. The *echo* consists of digests of the last apply's request and of
//! Konverge's fields in the response. So it also covers defaults inside atomic lists, where the response
//! contains more than was sent.
//!
//! Neither proof notices changes of the server: webhooks, defaults of another version, another CRD. The guard
//! in the record changes with these, so both proofs are valid only while the guard is the same.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::super::{
    FIELD_MANAGER,
    api::json_ref::{JsonRef, Members},
};
use super::managed_fields;
use konverge_base::model::Digest;
use konverge_secrets::{SecretPlaces, Secrets, mask_object_at};

/// The digests of an apply, by which a later plan recognizes that the same apply would change nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AppliedFingerprint {
    /// The digest of the object that was sent.
    pub desired: Digest,
    /// The digest of Konverge's fields in the response.
    pub live: Digest,
    /// The guard: a text that changes with everything else that influences the response.
    pub guard: String,
}

impl AppliedFingerprint {
    /// Computes the digests of an apply from `sent` and the live object, both masked. `None` if
    /// `managedFields` does not show which fields are Konverge's.
    pub(crate) fn from_apply(sent: &Map<String, Value>, live: &Value, guard: &str) -> Option<Self> {
        let api_version = sent.get("apiVersion")?.as_str()?;
        let owned = managed_fields::own_fields(live, api_version)?;
        let live = json!([owned, managed_fields::project(live, owned)]);
        Some(Self {
            desired: Digest::of_map(sent),
            live: Digest::of_json(&live),
            guard: guard.to_owned(),
        })
    }

    /// Computes the digests of an apply from an object whose secrets are in clear text. The secrets are
    /// masked first.
    pub(crate) fn from_masked_apply(
        secrets: &Secrets,
        places: &SecretPlaces,
        body: &Map<String, Value>,
        live: &Value,
        guard: &str,
    ) -> Option<Self> {
        let sent = mask_object_at(secrets, body, places);
        match mask_object_at(secrets, live.as_object()?, places) {
            Cow::Borrowed(_) => Self::from_apply(&sent, live, guard),
            Cow::Owned(masked) => Self::from_apply(&sent, &Value::Object(masked), guard),
        }
    }
}

/// Returns true if Konverge's entry in `managedFields` and the live values prove that applying `desired`
/// changes nothing.
pub(crate) fn structural(desired: &Map<String, Value>, live: &JsonRef<'_>) -> bool {
    let (Some(api_version), Some(live)) = (desired.get("apiVersion").and_then(Value::as_str), live.as_map())
    else {
        return false;
    };
    owned_members(live, api_version)
        .is_some_and(|owned| object_holds(desired, owned, live, FingerprintPath::Root))
}

/// Returns the fields of Konverge's own entry, if there is exactly one and it has that version.
fn owned_members<'n, 'a>(live: &'n Members<'a>, api_version: &str) -> Option<&'n Members<'a>> {
    let mut mine = entries(live.get("metadata")).filter(|entry| entry.text("manager") == FIELD_MANAGER);
    let entry = mine.next()?;
    // With a second entry, an update or another version, this entry does not show which fields an apply owns
    // now.
    let is_it = entry.text("operation") == "Apply" && entry.text("apiVersion") == api_version;
    (is_it && mine.next().is_none())
        .then(|| entry.get("fieldsV1")?.as_map())
        .flatten()
}

/// Returns the entries of `managedFields` without a subresource.
fn entries<'n, 'a>(metadata: Option<&'n JsonRef<'a>>) -> impl Iterator<Item = &'n Members<'a>> {
    let all = metadata.and_then(|metadata| metadata.get("managedFields"));
    let all = all.map(JsonRef::as_list).unwrap_or_default();
    let maps = all.iter().filter_map(JsonRef::as_map);
    maps.filter(|entry| entry.text("subresource").is_empty())
}

/// Returns true if a manager that updated the object owns one of Konverge's fields, which an apply would have
/// to take over.
pub(crate) fn is_shared(live: &JsonRef<'_>) -> bool {
    let entries = || entries(live.get("metadata"));
    let ours =
        entries().find(|entry| entry.text("manager") == FIELD_MANAGER && entry.text("operation") == "Apply");
    let Some(ours) = ours.and_then(|entry| entry.get("fieldsV1")?.as_map()) else {
        return false;
    };
    let mut updates = entries().filter(|entry| entry.text("operation") == "Update");
    updates.any(|entry| {
        let theirs = entry.get("fieldsV1").and_then(JsonRef::as_map);
        theirs.is_some_and(|theirs| meet(ours, theirs))
    })
}

/// Returns true if two field sets have a field in common.
fn meet(ours: &Members<'_>, theirs: &Members<'_>) -> bool {
    ours.iter().any(|(key, below)| {
        let (Some(mine), Some(other)) = (below.as_map(), theirs.get(key).and_then(JsonRef::as_map)) else {
            return false;
        };
        match (mine.iter().next(), other.iter().next()) {
            (None, None) => true,
            (Some(_), Some(_)) => meet(mine, other),
            _ => false,
        }
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FingerprintPath {
    Root,
    Metadata,
    Below,
}

/// Returns true for keys that identify the object. Every apply contains them, and no field set does.
fn is_identity(place: FingerprintPath, key: &str) -> bool {
    match place {
        FingerprintPath::Root => matches!(key, "apiVersion" | "kind"),
        FingerprintPath::Metadata => matches!(key, "name" | "namespace"),
        FingerprintPath::Below => false,
    }
}

fn object_holds(
    desired: &Map<String, Value>,
    owned: &Members<'_>,
    live: &Members<'_>,
    place: FingerprintPath,
) -> bool {
    // First, every owned field must be desired, with its live value.
    let mut held = 0;
    for (key, owned) in owned.iter() {
        let Some(key) = key.strip_prefix("f:") else {
            continue;
        };
        let below = match (place, key) {
            (FingerprintPath::Root, "metadata") => FingerprintPath::Metadata,
            _ => FingerprintPath::Below,
        };
        let holds = match (desired.get(key), owned.as_map(), live.get(key)) {
            (Some(desired), Some(owned), Some(live)) => holds(desired, owned, live, below),
            _ => false,
        };
        if !holds {
            return false;
        }
        held += 1;
    }
    // Second, nothing else may be desired. `metadata` with only name and namespace is in no field set.
    let names_only = |value: &Value| {
        let map = value.as_object();
        map.is_some_and(|map| map.keys().all(|key| is_identity(FingerprintPath::Metadata, key)))
    };
    let unowned = desired.iter().filter(|(key, value)| {
        let is_bare = place == FingerprintPath::Root && *key == "metadata" && names_only(value);
        is_bare || is_identity(place, key)
    });
    held + unowned.count() == desired.len()
}

fn holds(desired: &Value, owned: &Members<'_>, live: &JsonRef<'_>, place: FingerprintPath) -> bool {
    // An entry without children owns the value as a whole, so the whole value must be equal.
    if owned.iter().all(|(key, _)| key == ".") {
        return live.is(desired);
    }
    match (desired, live) {
        (Value::Object(desired), JsonRef::Map(live)) => object_holds(desired, owned, live, place),
        (Value::Array(desired), JsonRef::List(live)) => list_holds(desired, owned, live),
        _ => false,
    }
}

/// Returns true if the owned items are exactly the desired ones, and the live list has them in the desired
/// order.
fn list_holds(desired: &[Value], owned: &Members<'_>, live: &[JsonRef<'_>]) -> bool {
    let entries: Vec<_> = owned.iter().filter(|(key, _)| *key != ".").collect();
    // A new or a removed item is a change.
    if entries.len() != desired.len() {
        return false;
    }
    let items: Vec<(managed_fields::ItemName, &Members<'_>)> = entries
        .into_iter()
        .filter_map(|(name, below)| Some((managed_fields::ItemName::read(name)?, below.as_map()?)))
        .collect();
    let fields_of = |candidate: &JsonRef<'_>| {
        let names = |name: &managed_fields::ItemName| match name {
            managed_fields::ItemName::Keys(keys) => keys
                .iter()
                .all(|(key, value)| candidate.get(key).is_some_and(|found| found.is(value))),
            managed_fields::ItemName::Literal(literal) => candidate.is(literal),
        };
        items
            .iter()
            .find(|(name, _)| names(name))
            .map(|(_, below)| *below)
    };
    let mut from = 0;
    for item in desired {
        // An item may omit a key that has a default, so the keys of the live item are used.
        let found = live[from..].iter().position(|candidate| {
            fields_of(candidate).is_some_and(|below| match (item, candidate) {
                (Value::Object(item), JsonRef::Map(candidate)) => {
                    object_holds(item, below, candidate, FingerprintPath::Below)
                }
                _ => candidate.is(item),
            })
        });
        match found {
            Some(at) => from += at + 1,
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live() -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "n", "uid": "u", "labels": {"a": "1", "other": "x"},
            "managedFields": [{"manager": "konverge", "operation": "Apply", "apiVersion": "v1", "fieldsV1": {
                "f:metadata": {"f:labels": {"f:a": {}}},
                "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:name": {}}}, "f:selector": {}}}}]},
            "spec": {"clusterIP": "10.0.0.1", "ports": [{"name": "web", "port": 80, "protocol": "TCP"}], "selector": {"app": "x"}}})
    }

    fn desired() -> Value {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "n", "labels": {"a": "1"}},
            "spec": {"ports": [{"port": 80, "name": "web"}], "selector": {"app": "x"}}})
    }

    fn is_noop(desired: Value, live: Value) -> bool {
        let text = live.to_string();
        structural(
            desired.as_object().unwrap(),
            &serde_json::from_str(&text).unwrap(),
        )
    }

    #[test]
    fn what_is_as_wanted_is_proven() {
        assert!(is_noop(desired(), live()));
    }

    #[test]
    fn every_difference_breaks_the_proof() {
        type Edit = fn(&mut Value, &mut Value);
        let edits: [(&str, Edit); 9] = [
            ("value", |d, _| d["metadata"]["labels"]["a"] = json!("2")),
            ("added", |d, _| d["metadata"]["labels"]["b"] = json!("2")),
            ("removed", |d, _| d["metadata"]["labels"] = json!({})),
            ("removed with its parent", |d, _| {
                d["metadata"].as_object_mut().unwrap().remove("labels");
            }),
            ("atomic", |d, _| d["spec"]["selector"]["b"] = json!("c")),
            ("item", |d, _| d["spec"]["ports"][0]["name"] = json!("w")),
            ("item added", |d, _| {
                d["spec"]["ports"]
                    .as_array_mut()
                    .unwrap()
                    .push(json!({"port": 81}))
            }),
            ("drift", |_, l| l["spec"]["selector"]["app"] = json!("y")),
            ("drift of an item", |_, l| {
                l["spec"]["ports"][0]["name"] = json!("y")
            }),
        ];
        for (name, edit) in edits {
            let (mut desired, mut live) = (desired(), live());
            edit(&mut desired, &mut live);
            assert!(!is_noop(desired, live), "{name}");
        }
    }

    #[test]
    fn a_field_that_another_manager_updated_is_shared() {
        let shared = |operation: &str, fields: Value| {
            let mut live = live();
            let entries = live["metadata"]["managedFields"].as_array_mut().unwrap();
            entries.push(json!({"manager": "somebody", "operation": operation, "apiVersion": "v1", "fieldsV1": fields}));
            is_shared(&serde_json::from_str(&live.to_string()).unwrap())
        };
        let label = json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}});
        assert!(shared("Update", label.clone()));
        assert!(!shared("Apply", label));
        assert!(!shared(
            "Update",
            json!({"f:metadata": {"f:labels": {".": {}, "f:other": {}}}})
        ));
    }

    #[test]
    fn an_echo_is_the_same_until_a_field_of_ours_changes() {
        let sent = desired();
        let sent = sent.as_object().unwrap();
        let echo = AppliedFingerprint::from_apply(sent, &live(), "g").unwrap();
        let mut foreign = live();
        foreign["spec"]["clusterIP"] = json!("10.0.0.2");
        assert_eq!(AppliedFingerprint::from_apply(sent, &foreign, "g").unwrap(), echo);
        let mut drifted = live();
        drifted["spec"]["selector"]["extra"] = json!("1");
        assert_ne!(AppliedFingerprint::from_apply(sent, &drifted, "g").unwrap(), echo);
    }
}
