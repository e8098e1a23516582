//! The differences between two JSON values, path by path. This module compares structure only; its callers decide what
//! a difference means.
//!
//! Lists of maps are compared item by item if their items have a key, as Kubernetes merges them. If the items that two
//! lists share are in another order, the lists differ as a whole.

use std::collections::HashSet;

use serde_json::{Map, Number, Value};

use super::{
    field_path::{FieldPath, label},
    masked_value::is_unknown,
};

/// One difference. At least one of `from` and `to` is present.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// The path as in RFC 6901; an item of a keyed list is written `name=web`.
    pub path: FieldPath,
    /// The old value; `None` if there was none.
    pub from: Option<Value>,
    /// The new value; `None` if the value is removed.
    pub to: Option<Value>,
}

/// The keys of list items, by the name of the list: `x-kubernetes-list-map-keys` of Kubernetes. The first set
/// of keys that every item has is used. A missing `protocol` means `TCP`.
const LIST_KEYS: [(&str, &[&[&str]]); 17] = [
    ("containers", &[&["name"]]),
    ("initContainers", &[&["name"]]),
    ("ephemeralContainers", &[&["name"]]),
    ("env", &[&["name"]]),
    ("volumes", &[&["name"]]),
    ("volumeMounts", &[&["mountPath"]]),
    ("volumeDevices", &[&["devicePath"]]),
    ("imagePullSecrets", &[&["name"]]),
    ("secrets", &[&["name"]]),
    ("ports", &[&["containerPort", "protocol"], &["port", "protocol"]]),
    ("hostAliases", &[&["ip"]]),
    (
        "topologySpreadConstraints",
        &[&["topologyKey", "whenUnsatisfiable"]],
    ),
    ("webhooks", &[&["name"]]),
    ("conditions", &[&["type"]]),
    ("ownerReferences", &[&["uid"]]),
    ("resourceClaims", &[&["name"]]),
    ("versions", &[&["name"]]),
];

/// Returns all differences, sorted by path.
pub fn differences(from: &Value, to: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare(&FieldPath::root(), "", Some(from), Some(to), &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Returns true if two values are equal, where `1` equals `1.0` and the order of keys is ignored.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => same_number(a, b),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

/// Returns true if two numbers are equal; `1` equals `1.0`.
pub fn same_number(a: &Number, b: &Number) -> bool {
    a == b || a.as_f64() == b.as_f64()
}

fn compare(
    path: &FieldPath,
    name: &str,
    from: Option<&Value>,
    to: Option<&Value>,
    found: &mut Vec<Difference>,
) {
    match (from, to) {
        (Some(from), Some(to)) if same(from, to) => {}
        (Some(Value::Object(from)), Some(Value::Object(to))) if !is_mark(from) && !is_mark(to) => {
            for (key, value) in from {
                compare(&path.join(key), key, Some(value), to.get(key), found);
            }
            for (key, value) in to.iter().filter(|(key, _)| !from.contains_key(*key)) {
                compare(&path.join(key), key, None, Some(value), found);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            if !compare_items(path, name, before, after, found) {
                found.push(difference(path, from, to));
            }
        }
        _ => found.push(difference(path, from, to)),
    }
}

fn difference(path: &FieldPath, from: Option<&Value>, to: Option<&Value>) -> Difference {
    Difference {
        path: path.clone(),
        from: from.cloned(),
        to: to.cloned(),
    }
}

/// Returns true for a `$unknown` or `$secret` marker, which stands for one value and is not compared as a map.
fn is_mark(map: &Map<String, Value>) -> bool {
    map.len() == 1 && map.keys().all(|key| key.starts_with('$'))
}

/// Compares the items one by one, if they have keys and the shared items have the same order in both lists. Otherwise
/// returns `false` and adds nothing.
fn compare_items(
    path: &FieldPath,
    name: &str,
    from: &[Value],
    to: &[Value],
    found: &mut Vec<Difference>,
) -> bool {
    let Some(keys) = list_keys(name, from, to) else {
        return false;
    };
    let (Some(before), Some(after)) = (labels(from, &keys), labels(to, &keys)) else {
        return false;
    };
    let in_before: HashSet<_> = before.iter().collect();
    let in_after: HashSet<_> = after.iter().collect();
    if !before
        .iter()
        .filter(|label| in_after.contains(label))
        .eq(after.iter().filter(|label| in_before.contains(label)))
    {
        return false;
    }
    let mut old: std::collections::HashMap<_, _> = before.iter().zip(from).collect();
    for (label, item) in after.iter().zip(to) {
        compare(&path.join(label), "", old.remove(label), Some(item), found);
    }
    for (label, item) in before
        .iter()
        .zip(from)
        .filter(|(label, _)| !in_after.contains(label))
    {
        compare(&path.join(label), "", Some(item), None, found);
    }
    true
}

/// Returns the keys that identify the items of both lists. A list that Kubernetes does not define is keyed by `name` if
/// every item has a name.
pub fn list_keys(name: &str, from: &[Value], to: &[Value]) -> Option<Vec<&'static str>> {
    const BY_NAME: &[&[&str]] = &[&["name"]];
    let known = LIST_KEYS
        .iter()
        .find(|(list, _)| *list == name)
        .map_or(BY_NAME, |(_, keys)| *keys);
    let has = |item: &Value, key: &str| key == "protocol" || item.get(key).is_some_and(is_scalar);
    known
        .iter()
        .find(|keys| {
            from.iter()
                .chain(to)
                .all(|item| keys.iter().all(|key| has(item, key)))
        })
        .map(|keys| keys.to_vec())
}

/// Returns true if Kubernetes merges lists of this name item by item in its built-in kinds.
pub fn is_merged_list(name: &str) -> bool {
    LIST_KEYS.iter().any(|(list, _)| *list == name)
}

/// Returns the labels of the items (`name=web`); `None` if two items have the same label.
fn labels(items: &[Value], keys: &[&str]) -> Option<Vec<String>> {
    let labels: Vec<_> = items.iter().map(|item| label(item, keys)).collect();
    let distinct: HashSet<_> = labels.iter().collect();
    (distinct.len() == labels.len()).then_some(labels)
}

fn is_scalar(value: &Value) -> bool {
    !is_unknown(value) && matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn paths(from: Value, to: Value) -> Vec<FieldPath> {
        differences(&from, &to).into_iter().map(|d| d.path).collect()
    }

    #[test]
    fn keyed_items_are_compared_by_key() {
        let from = json!({"spec": {"containers": [{"name": "web", "image": "a", "env": [{"name": "A", "value": "1"}]}, {"name": "log"}]}});
        let to = json!({"spec": {"containers": [{"name": "web", "image": "b", "env": [{"name": "A", "value": "2"}, {"name": "B"}]}]}});
        assert_eq!(
            paths(from, to),
            [
                "/spec/containers/name=log",
                "/spec/containers/name=web/env/name=A/value",
                "/spec/containers/name=web/env/name=B",
                "/spec/containers/name=web/image"
            ]
        );
    }

    #[test]
    fn order_matters_as_a_whole() {
        let from = json!({"env": [{"name": "A"}, {"name": "B"}], "args": ["x", "y"]});
        let to = json!({"env": [{"name": "B"}, {"name": "A"}], "args": ["y", "x"]});
        assert_eq!(paths(from, to), ["/args", "/env"]);
    }

    #[test]
    fn ports_are_told_apart_by_protocol() {
        let from = json!({"ports": [{"port": 53}, {"port": 53, "protocol": "UDP"}]});
        let to = json!({"ports": [{"port": 53, "name": "dns"}, {"port": 53, "protocol": "UDP", "name": "dns-udp"}]});
        assert_eq!(
            paths(from, to),
            ["/ports/port=53,protocol=UDP/name", "/ports/port=53/name"]
        );
    }

    #[test]
    fn duplicate_keys_compare_the_whole_list() {
        let from = json!({"env": [{"name": "A"}, {"name": "A", "value": "1"}]});
        let to = json!({"env": [{"name": "A"}]});
        assert_eq!(paths(from, to), ["/env"]);
    }

    #[test]
    fn numbers_by_value_and_keys_escaped() {
        assert_eq!(
            paths(json!({"a": 1, "b/c": 1}), json!({"a": 1.0, "b/c": 2})),
            ["/b~1c"]
        );
        let secret = |hash: &str| json!({"data": {"k": {"$secret": hash}}});
        assert_eq!(paths(secret("a"), secret("b")), ["/data/k"]);
    }
}
