//! Walks the texts of a Kubernetes object in which references may stand, and replaces them.

use base64::Engine as _;
use serde_json::{Map, Value};
use zeroize::Zeroize as _;

use super::secret_paths::place_of;
use crate::model::masked_value::join_path;

/// Where a text stands.
#[derive(Debug, Clone, Copy)]
pub struct TextPlace<'a> {
    /// Its path as in RFC 6901, with indices of list items.
    pub path: &'a str,
    /// True for `data` and `stringData` of a Secret, also inside another object.
    pub is_secret: bool,
    /// True if the new value must be UTF-8: it is not base64-encoded.
    pub is_text: bool,
}

/// Visits every text. In `data` of a Secret, the text is decoded; what replaces it is encoded. A text in
/// `data` that is not base64 is visited as written, and replaced by an encoded one.
///
/// # Errors
/// Those of `visit`.
pub fn rewrite_texts<E>(object: &mut Map<String, Value>, visit: &mut Visit<'_, E>) -> Result<(), E> {
    walk_map(object, "", None, visit)
}

/// Overwrites the texts at these paths.
pub fn zeroize_texts<'a>(object: &mut Value, paths: impl IntoIterator<Item = &'a str>) {
    for path in paths {
        if let Some(Value::String(text)) = object.pointer_mut(path) {
            text.zeroize();
        }
    }
}

/// The text at a path as [`rewrite_texts`] visits it, if it is a base64-encoded one: decoded, also if it is
/// not UTF-8.
pub fn decode_base64(text: &str) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(text.trim()).ok()
}

/// The text of bytes in `data` of a Secret.
pub fn encode_base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Returns true if an object may contain a reference. Most objects contain none, and are not copied.
pub fn may_refer(object: &Map<String, Value>) -> bool {
    fn holds(value: &Value, is_encoded: bool) -> bool {
        let refers = |text: &str| text.contains("ref+") || text.trim_start().starts_with("ref://");
        match value {
            Value::String(text) => {
                let decoded = || decode_base64(text).and_then(|bytes| String::from_utf8(bytes).ok());
                refers(text) || (is_encoded && decoded().is_some_and(|text| refers(&text)))
            }
            Value::Array(items) => items.iter().any(|item| holds(item, is_encoded)),
            Value::Object(map) => in_map(map, is_encoded),
            _ => false,
        }
    }
    fn in_map(map: &Map<String, Value>, is_encoded: bool) -> bool {
        map.iter()
            .any(|(key, value)| holds(value, is_encoded || place_of(map, key) == Some("data")))
    }
    in_map(object, false)
}

/// What to do with a text: keep it, or replace it.
pub type Visit<'v, E> = dyn FnMut(&TextPlace<'_>, &str) -> Result<Option<Vec<u8>>, E> + 'v;

fn walk_map<E>(
    map: &mut Map<String, Value>,
    path: &str,
    inside: Option<&str>,
    visit: &mut Visit<'_, E>,
) -> Result<(), E> {
    let keys: Vec<_> = map.keys().cloned().collect();
    for key in keys {
        let place = inside.or_else(|| place_of(map, &key));
        // The copy that kubectl keeps is masked, but never written by Konverge.
        let place = place.filter(|place| matches!(*place, "data" | "stringData"));
        let place = place.map(str::to_owned);
        if let Some(value) = map.get_mut(&key) {
            walk(value, &join_path(path, &key), place.as_deref(), visit)?;
        }
    }
    Ok(())
}

fn walk<E>(value: &mut Value, path: &str, place: Option<&str>, visit: &mut Visit<'_, E>) -> Result<(), E> {
    match value {
        Value::Object(map) => walk_map(map, path, place, visit),
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                walk(item, &format!("{path}/{at}"), place, visit)?;
            }
            Ok(())
        }
        Value::String(text) => {
            let is_encoded = place == Some("data");
            let decoded = is_encoded.then(|| decode_base64(text)).flatten();
            let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
            let of = TextPlace {
                path,
                is_secret: place.is_some(),
                is_text: !is_encoded,
            };
            if let Some(mut new) = visit(&of, decoded.as_deref().unwrap_or(text))? {
                *text = match is_encoded {
                    true => encode_base64(&new),
                    false => String::from_utf8_lossy(&new).into_owned(),
                };
                new.zeroize();
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_reference_is_noticed_wherever_it_stands() {
        let refers = |object: serde_json::Value| may_refer(object.as_object().unwrap());
        let encoded = encode_base64(b"ref+vault://a");
        assert!(refers(json!({"kind": "Secret", "data": {"a": encoded}})));
        assert!(refers(json!({"kind": "Secret", "data": {"a": [{"b": encoded}]}})));
        assert!(refers(json!({"spec": ["ref+vault://a"]})));
        assert!(!refers(
            json!({"kind": "ConfigMap", "data": {"a": encoded, "b": "reference"}})
        ));
    }

    #[test]
    fn every_text_is_visited_once_with_its_place() {
        let mut object = json!({
            "kind": "Secret",
            "data": {"a": "cmVm", "b": "ref+x://y"},
            "stringData": {"c": "z"},
            "spec": {"template": {"kind": "Secret", "data": {"d": "cmVm"}}, "list": [{"stringData": {"e": "z"}}]},
        });
        let mut seen = Vec::new();
        let map = object.as_object_mut().unwrap();
        rewrite_texts(map, &mut |place, text| {
            seen.push(format!(
                "{} {text} {} {}",
                place.path, place.is_secret, place.is_text
            ));
            Ok::<_, ()>(place.is_secret.then(|| b"new".to_vec()))
        })
        .unwrap();
        assert_eq!(
            seen,
            [
                "/kind Secret false true",
                "/data/a ref true false",
                "/data/b ref+x://y true false",
                "/stringData/c z true true",
                "/spec/template/kind Secret false true",
                "/spec/template/data/d ref true false",
                "/spec/list/0/stringData/e z true true",
            ]
        );
        assert_eq!(object["data"], json!({"a": "bmV3", "b": "bmV3"}));
        assert_eq!(object["spec"]["list"][0]["stringData"]["e"], "new");
        zeroize_texts(&mut object, ["/data/a", "/nothing"]);
        assert_eq!(object["data"]["a"], "");
    }
}
