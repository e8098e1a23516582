//! Which places of a Kubernetes object are secret by their kind.

use std::borrow::Cow;

use base64::Engine as _;
use serde_json::{Map, Value};

use super::Secrets;

/// `kubectl apply`'s copy of the whole object, Secret data included (kubernetes/kubernetes#23564).
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Whether an annotation's name is `kubectl`'s copy of the object.
pub fn is_last_applied(annotation: &str) -> bool {
    annotation == LAST_APPLIED
}

/// The object with its secret places replaced by marks: `data` and `stringData` of a Secret, and the last-applied
/// annotation of anything. A key of `stringData` and the same key of `data` in base64 get the same hash. Most objects
/// have no such places: they are not copied.
#[must_use]
pub fn mask_object<'a>(secrets: &Secrets, object: &'a Map<String, Value>) -> Cow<'a, Map<String, Value>> {
    let has_copy = object
        .get("metadata")
        .and_then(|m| m.get("annotations")?.get(LAST_APPLIED))
        .is_some();
    if !is_secret(object) && !has_copy {
        return Cow::Borrowed(object);
    }
    let mut masked = object.clone();
    if is_secret(object) {
        for place in ["data", "stringData"] {
            if let Some(values) = masked.get_mut(place).and_then(Value::as_object_mut) {
                for value in values.values_mut() {
                    *value = mask_entry(secrets, place, value);
                }
            }
        }
    }
    let annotations = masked
        .get_mut("metadata")
        .and_then(|m| m.get_mut("annotations"))
        .and_then(Value::as_object_mut);
    if let Some(annotation) = annotations.and_then(|a| a.get_mut(LAST_APPLIED)) {
        *annotation = secrets.mark(annotation);
    }
    Cow::Owned(masked)
}

/// The values of a Secret, as they stand in it and decoded; nothing of any other object.
pub fn secret_texts(object: &Value) -> Vec<String> {
    let data = object.as_object().filter(|map| is_secret(map));
    let data = data.and_then(|secret| secret.get("data")?.as_object());
    let mut texts = Vec::new();
    for text in data.into_iter().flat_map(Map::values).filter_map(Value::as_str) {
        let decoded = base64::engine::general_purpose::STANDARD.decode(text).ok();
        texts.extend(decoded.and_then(|bytes| String::from_utf8(bytes).ok()));
        texts.push(text.to_owned());
    }
    texts
}

fn is_secret(object: &Map<String, Value>) -> bool {
    object.get("kind").and_then(Value::as_str) == Some("Secret")
        && object.get("apiVersion").and_then(Value::as_str) == Some("v1")
}

fn mask_entry(secrets: &Secrets, place: &str, value: &Value) -> Value {
    let decoded = (place == "data")
        .then(|| value.as_str())
        .flatten()
        .and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok())
        .and_then(|bytes| String::from_utf8(bytes).ok());
    match decoded {
        Some(clear) => secrets.mark(&Value::String(clear)),
        None => secrets.mark(value),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{HashKey, Secrets};
    use super::*;
    use serde_json::json;

    #[test]
    fn secret_data_is_marked_and_learned() {
        let secrets = Secrets::new(HashKey::derived("k"));
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "annotations": {LAST_APPLIED: "{\"data\":1}"}},
            "data": {"a": "aHVudGVyMjIy"}, "stringData": {"b": "hunter222"}});
        let masked = mask_object(&secrets, object.as_object().expect("an object"));
        assert_eq!(masked["data"]["a"], masked["stringData"]["b"]);
        let text = Value::Object(masked.into_owned()).to_string();
        assert!(
            !text.contains("hunter222") && !text.contains("aHVudGVyMjIy") && !text.contains("\\\"data\\\""),
            "{text}"
        );
        assert_eq!(secrets.mask("x hunter222 y aHVudGVyMjIy"), "x *** y ***");
    }
}
