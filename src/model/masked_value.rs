//! JSON values with two markers for values that are not shown: `{"$unknown":true}` and `{"$secret":HASH}`.
//! Paths into them follow RFC 6901; an item of a keyed list is written `name=web`.

use serde_json::{Map, Value, json};

/// The marker of a value that is known only after the apply.
pub fn unknown() -> Value {
    json!({"$unknown": true})
}

/// Returns true if a value is the *known after apply* marker.
pub fn is_unknown(value: &Value) -> bool {
    matches!(value, Value::Object(map) if map.len() == 1 && map.get("$unknown") == Some(&Value::Bool(true)))
}

/// Returns true if any part of the value is *known after apply*.
pub fn holds_unknown(value: &Value) -> bool {
    match value {
        Value::Object(map) => is_unknown(value) || map.values().any(holds_unknown),
        Value::Array(items) => items.iter().any(holds_unknown),
        _ => false,
    }
}

/// The marker of a secret: its keyed short hash, which shows a reviewer whether the secret changed.
pub fn secret(hash: &str) -> Value {
    json!({"$secret": hash})
}

/// The hash in a secret marker; `None` for any other value.
pub fn as_secret(value: &Value) -> Option<&str> {
    match value {
        Value::Object(map) if map.len() == 1 => map.get("$secret").and_then(Value::as_str),
        _ => None,
    }
}

/// Returns true if any part of the value is a secret marker.
pub fn holds_secret(value: &Value) -> bool {
    match value {
        Value::Object(map) => as_secret(value).is_some() || map.values().any(holds_secret),
        Value::Array(items) => items.iter().any(holds_secret),
        _ => false,
    }
}

/// Escapes one component of a path, as RFC 6901 requires.
pub fn escape_component(component: &str) -> String {
    component.replace('~', "~0").replace('/', "~1")
}

/// Appends a component to a path.
pub fn join_path(path: &str, component: &str) -> String {
    format!("{path}/{}", escape_component(component))
}

/// Builds a JSON object from pairs, in the given order.
pub fn object<const N: usize>(pairs: [(&str, Value); N]) -> Map<String, Value> {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}
