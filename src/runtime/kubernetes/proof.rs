//! Proves that applying an object would change nothing, without asking the server. It may only err on one side: what
//! it can not prove is sent to the server.
//!
//! Two proofs, either is enough (`reference/kubernetes.md` 4): the *structural* one holds what is wanted against our
//! entry in `managedFields` and the live values; the *echo* remembers what the last apply sent and what of it came back,
//! and so also covers defaults inside atomic lists, where the server's answer is more than what was sent.
//!
//! Neither sees what changes on the server's side: webhooks, defaults of another version, another CRD. The guard in the
//! record does, so both hold only while it is the same.

use serde_json::{Map, Value, json};

use super::fields;
use crate::model::{Digest, diff};

/// What is recorded of an apply to recognise it later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Echo {
    /// Over what was sent.
    pub desired: Digest,
    /// Over the fields of ours in what came back.
    pub live: Digest,
    /// Over what the server's own part in the answer depends on.
    pub guard: String,
}

impl Echo {
    /// The echo of an apply: `sent` and the object as the server has it, both masked. `None` if the object
    /// does not say which fields are ours.
    pub fn of(sent: &Map<String, Value>, live: &Value, guard: &str) -> Option<Self> {
        let api_version = sent.get("apiVersion")?.as_str()?;
        let owned = fields::ours(live, api_version)?;
        let live = json!([owned, fields::project(live, owned)]);
        Some(Self {
            desired: Digest::of_json(&Value::Object(sent.clone())),
            live: Digest::of_json(&live),
            guard: guard.to_owned(),
        })
    }

    /// As it is recorded.
    pub fn to_json(&self) -> Value {
        json!({"desired": self.desired, "live": self.live, "guard": self.guard})
    }

    /// As it was recorded; `None` if it was not.
    pub fn read(recorded: &Value) -> Option<Self> {
        Some(Self {
            desired: recorded.get("desired")?.as_str()?.parse().ok()?,
            live: recorded.get("live")?.as_str()?.parse().ok()?,
            guard: recorded.get("guard")?.as_str()?.to_owned(),
        })
    }
}

/// Whether our entry and the live values alone show that applying `desired` changes nothing.
pub(super) fn structural(desired: &Map<String, Value>, live: &Value) -> bool {
    let (Some(api_version), Some(live_map)) = (
        desired.get("apiVersion").and_then(Value::as_str),
        live.as_object(),
    ) else {
        return false;
    };
    fields::ours(live, api_version).is_some_and(|owned| object_holds(desired, owned, live_map, Place::Root))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Metadata,
    Below,
}

/// Keys that name the object: they stand in every apply and in no set of fields.
fn is_identity(place: Place, key: &str) -> bool {
    match place {
        Place::Root => matches!(key, "apiVersion" | "kind"),
        Place::Metadata => matches!(key, "name" | "namespace"),
        Place::Below => false,
    }
}

fn object_holds(
    desired: &Map<String, Value>,
    owned: &Map<String, Value>,
    live: &Map<String, Value>,
    place: Place,
) -> bool {
    let nothing_left = owned
        .keys()
        .filter_map(|key| key.strip_prefix("f:"))
        .all(|key| desired.contains_key(key));
    nothing_left
        && desired
            .iter()
            .filter(|(key, _)| !is_identity(place, key))
            .all(|(key, value)| {
                let below = if place == Place::Root && key == "metadata" {
                    Place::Metadata
                } else {
                    Place::Below
                };
                match (
                    owned.get(&format!("f:{key}")).and_then(Value::as_object),
                    live.get(key),
                ) {
                    (Some(owned), Some(live)) => holds(value, owned, live, below),
                    // Metadata that says no more than the name is owned by nobody.
                    (None, Some(Value::Object(live))) if below == Place::Metadata => match value {
                        Value::Object(map) => object_holds(map, &Map::new(), live, below),
                        _ => false,
                    },
                    _ => false,
                }
            })
}

fn holds(desired: &Value, owned: &Map<String, Value>, live: &Value, place: Place) -> bool {
    if owned.keys().all(|key| key == ".") {
        return diff::same(desired, live);
    }
    match (desired, live) {
        (Value::Object(desired), Value::Object(live)) => object_holds(desired, owned, live, place),
        (Value::Array(desired), Value::Array(live)) => list_holds(desired, owned, live),
        _ => false,
    }
}

/// Every wanted item is one of ours and lives, in the wanted order; nothing of ours is unwanted.
fn list_holds(desired: &[Value], owned: &Map<String, Value>, live: &[Value]) -> bool {
    let entries = owned.keys().filter(|key| *key != ".").count();
    if entries != desired.len() {
        return false;
    }
    let mut from = 0;
    for item in desired {
        // An item may leave out a key that has a default: it is found in what lives.
        let found = live[from..].iter().position(|candidate| {
            fields::item_fields(candidate, owned).is_some_and(|below| match (item, candidate) {
                (Value::Object(item), Value::Object(candidate)) => {
                    object_holds(item, below, candidate, Place::Below)
                }
                _ => diff::same(item, candidate),
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
    #![allow(clippy::unwrap_used)]
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

    fn proven(desired: Value, live: Value) -> bool {
        structural(desired.as_object().unwrap(), &live)
    }

    #[test]
    fn what_is_as_wanted_is_proven() {
        assert!(proven(desired(), live()));
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
            assert!(!proven(desired, live), "{name}");
        }
    }

    #[test]
    fn an_echo_is_the_same_until_a_field_of_ours_changes() {
        let sent = desired();
        let sent = sent.as_object().unwrap();
        let echo = Echo::of(sent, &live(), "g").unwrap();
        assert_eq!(Echo::read(&echo.to_json()), Some(echo.clone()));
        let mut foreign = live();
        foreign["spec"]["clusterIP"] = json!("10.0.0.2");
        assert_eq!(Echo::of(sent, &foreign, "g").unwrap(), echo);
        let mut drifted = live();
        drifted["spec"]["selector"]["extra"] = json!("1");
        assert_ne!(Echo::of(sent, &drifted, "g").unwrap(), echo);
    }
}
