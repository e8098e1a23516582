//! JSON values with the two marks that stand for what is not shown: `{"$unknown":true}` and `{"$secret":HASH}`;
//! and paths into them by RFC 6901, where an item of a keyed list is written `name=web`.

use serde_json::{Map, Value, json};

/// The mark of a value that is known only after apply.
pub fn unknown() -> Value {
    json!({"$unknown": true})
}

/// Whether a value is the *known after apply* mark.
pub fn is_unknown(value: &Value) -> bool {
    matches!(value, Value::Object(map) if map.len() == 1 && map.get("$unknown") == Some(&Value::Bool(true)))
}

/// Whether any part of the value is *known after apply*.
pub fn holds_unknown(value: &Value) -> bool {
    match value {
        Value::Object(map) => is_unknown(value) || map.values().any(holds_unknown),
        Value::Array(items) => items.iter().any(holds_unknown),
        _ => false,
    }
}

/// The mark that stands for a secret: its keyed short hash, by which a reviewer sees *changed* or *same*.
pub fn secret(hash: &str) -> Value {
    json!({"$secret": hash})
}

/// The hash of a secret's mark, if the value is one.
pub fn as_secret(value: &Value) -> Option<&str> {
    match value {
        Value::Object(map) if map.len() == 1 => map.get("$secret").and_then(Value::as_str),
        _ => None,
    }
}

/// Escapes one component of a path as RFC 6901 wants it.
pub fn escape_component(component: &str) -> String {
    component.replace('~', "~0").replace('/', "~1")
}

/// Appends a component to a path.
pub fn join_path(path: &str, component: &str) -> String {
    format!("{path}/{}", escape_component(component))
}

/// A JSON object from pairs, in the order given.
pub fn object<const N: usize>(pairs: [(&str, Value); N]) -> Map<String, Value> {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}
