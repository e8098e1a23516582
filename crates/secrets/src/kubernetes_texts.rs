//! Visits the texts of a Kubernetes object that may contain secret references, and replaces them.

use base64::Engine as _;
use serde_json::{Map, Value};
use zeroize::Zeroize as _;

use super::secret_paths::place_of;
use konverge_base::model::{FieldPath, built_in_groups};

/// The location of a text in an object.
#[derive(Debug, Clone, Copy)]
pub struct TextPlace<'a> {
    /// The path as in RFC 6901, with indices of list items.
    pub path: &'a FieldPath,
    /// True for a value of `data` or `stringData` of an object of `apiVersion: v1` and `kind: Secret`, also inside a
    /// custom resource. A secret may be written nowhere else: the other kinds of Kubernetes contain no Secret, only
    /// fields that take any JSON and that others may read. The masking covers more locations than these.
    pub is_secret: bool,
    /// True if the new value must be UTF-8, because it is not base64-encoded.
    pub is_text: bool,
}

/// Visits every text. A text in `data` of a Secret is decoded before the visit, and its replacement is encoded. A text
/// in `data` that is not base64 is visited as written, and its replacement is encoded too.
///
/// # Errors
/// Errors of `visit`.
pub fn rewrite_texts<E>(object: &mut Map<String, Value>, visit: &mut Visit<'_, E>) -> Result<(), E> {
    let api_version = object
        .get("apiVersion")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let below = if built_in_groups::is_built_in(group) {
        Part::Never
    } else {
        Part::None
    };
    walk_map(object, &FieldPath::root(), None, below, visit)
}

/// Overwrites the texts at these paths with zeros.
pub fn zeroize_texts<'a>(object: &mut Value, paths: impl IntoIterator<Item = &'a FieldPath>) {
    for path in paths {
        if let Some(Value::String(text)) = object.pointer_mut(path.as_str()) {
            text.zeroize();
        }
    }
}

/// Decodes a text of `data` as [`rewrite_texts`] does, even if the result is not UTF-8. `None` if the text is not
/// base64.
pub fn decode_base64(text: &str) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(text.trim()).ok()
}

/// Encodes bytes for `data` of a Secret.
pub fn encode_base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Returns true if an object may contain a reference. The check avoids copying most objects.
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

/// Decides about one text: `None` keeps it, bytes replace it.
pub(super) type Visit<'v, E> = dyn FnMut(&TextPlace<'_>, &str) -> Result<Option<Vec<u8>>, E> + 'v;

/// The position of a value relative to a Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// The value is not in a Secret.
    None,
    /// The value is not in a Secret, and neither is anything below it.
    Never,
    /// The value is `data` or `stringData` of a Secret.
    Values,
    /// The value is a member of `data` or `stringData`.
    Value,
}

fn walk_map<E>(
    map: &mut Map<String, Value>,
    path: &FieldPath,
    inside: Option<&str>,
    part: Part,
    visit: &mut Visit<'_, E>,
) -> Result<(), E> {
    let is = |name: &str, text: &str| map.get(name).and_then(Value::as_str) == Some(text);
    let may_be_secret = path.is_root() || part != Part::Never;
    let is_secret = may_be_secret && is("apiVersion", "v1") && is("kind", "Secret");
    let keys: Vec<_> = map.keys().cloned().collect();
    for key in keys {
        let place = inside.or_else(|| place_of(map, &key));
        // `kubectl`'s copy of a Secret is secret as well, but Konverge never writes it, so it is not visited.
        let place = place.filter(|place| matches!(*place, "data" | "stringData"));
        let place = place.map(str::to_owned);
        if let Some(value) = map.get_mut(&key) {
            let part = match part {
                Part::Values => Part::Value,
                _ if is_secret && matches!(key.as_str(), "data" | "stringData") => Part::Values,
                Part::Never => Part::Never,
                _ => Part::None,
            };
            walk(value, &path.join(&key), place.as_deref(), part, visit)?;
        }
    }
    Ok(())
}

fn walk<E>(
    value: &mut Value,
    path: &FieldPath,
    place: Option<&str>,
    part: Part,
    visit: &mut Visit<'_, E>,
) -> Result<(), E> {
    match value {
        Value::Object(map) => walk_map(map, path, place, part, visit),
        Value::Array(items) => {
            for (at, item) in items.iter_mut().enumerate() {
                let part = match part {
                    Part::Never => Part::Never,
                    _ => Part::None,
                };
                walk(item, &path.item(at), place, part, visit)?;
            }
            Ok(())
        }
        Value::String(text) => {
            let is_encoded = place == Some("data");
            let decoded = is_encoded.then(|| decode_base64(text)).flatten();
            let decoded = decoded.and_then(|bytes| String::from_utf8(bytes).ok());
            let of = TextPlace {
                path,
                is_secret: part == Part::Value,
                is_text: !is_encoded,
            };
            if let Some(mut new) = visit(&of, decoded.as_deref().unwrap_or(text))? {
                *text = if is_encoded {
                    encode_base64(&new)
                } else {
                    String::from_utf8_lossy(&new).into_owned()
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
            "apiVersion": "v1",
            "kind": "Secret",
            "data": {"a": "cmVm", "b": "ref+x://y"},
            "stringData": {"c": "z"},
            "spec": {"template": {"apiVersion": "v1", "kind": "Secret", "data": {"d": "cmVm"}}, "list": [{"stringData": {"e": "z"}}]},
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
                "/apiVersion v1 false true",
                "/kind Secret false true",
                "/data/a ref true false",
                "/data/b ref+x://y true false",
                "/stringData/c z true true",
                "/spec/template/apiVersion v1 false true",
                "/spec/template/kind Secret false true",
                "/spec/template/data/d ref false false",
                "/spec/list/0/stringData/e z false true",
            ]
        );
        assert_eq!(object["data"], json!({"a": "bmV3", "b": "bmV3"}));
        zeroize_texts(&mut object, &["/data/a", "/nothing"].map(FieldPath::new));
        assert_eq!(object["data"]["a"], "");
    }

    /// Anyone who reads a ConfigMap or an annotation reads the value.
    #[test]
    fn no_other_object_pretends_to_be_a_secret() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"p": "x"}});
        for object in [
            json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "spec": {"versions": [{"schema": {"openAPIV3Schema": {"example": secret}}}]}}),
            json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "data": secret}),
            json!({"apiVersion": "v1", "kind": "List", "items": [secret]}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"stringData": "x"}}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"kind": "Secret", "apiVersion": "v1", "data": "x"}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"annotations": {"stringData": "x"}}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"annotations": {"apiVersion": "v1", "kind": "Secret", "data": "eA=="}}}),
            json!({"apiVersion": "example.com/v1", "kind": "Secret", "data": {"a": "eA=="}, "stringData": {"a": "x"}}),
            json!({"apiVersion": "v1", "kind": "Secret", "stringData": ["x"]}),
            json!({"apiVersion": "v1", "kind": "Secret", "stringData": {"a": ["x"], "b": {"c": "x"}}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"labels": {"a": "x"}}, "type": "x"}),
        ] {
            let mut object = object.as_object().unwrap().clone();
            rewrite_texts(&mut object, &mut |place, text| {
                assert!(!place.is_secret, "{}: {text}", place.path);
                Ok::<_, ()>(None)
            })
            .unwrap();
        }
    }

    #[test]
    fn a_secret_inside_a_custom_resource_is_one() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "eA=="}, "stringData": {"b": "x", "c": {"apiVersion": "v1", "kind": "Secret", "stringData": {"d": "x"}}}});
        let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "stringData": {"e": "x"}});
        let mut object = json!({"apiVersion": "example.com/v1", "kind": "Sealed", "spec": {"one": secret, "list": [[secret]], "other": other}});
        let mut seen = Vec::new();
        let found = rewrite_texts(object.as_object_mut().unwrap(), &mut |place, _| {
            seen.extend(place.is_secret.then(|| place.path.clone()));
            Ok::<_, ()>(None)
        });
        assert_eq!(found, Ok(()));
        seen.sort();
        assert_eq!(
            seen,
            [
                "/spec/list/0/0/data/a",
                "/spec/list/0/0/stringData/b",
                "/spec/list/0/0/stringData/c/stringData/d",
                "/spec/one/data/a",
                "/spec/one/stringData/b",
                "/spec/one/stringData/c/stringData/d",
            ]
        );
    }

    #[test]
    fn a_text_is_replaced_as_it_is_written() {
        let mut object =
            json!({"apiVersion": "v1", "kind": "Secret", "data": {"a": "eA=="}, "stringData": {"b": "x"}});
        let map = object.as_object_mut().unwrap();
        let refused = rewrite_texts(map, &mut |place, _| match place.path.as_str() {
            "/stringData/b" => Err("refused"),
            _ => Ok(None),
        });
        assert_eq!(refused, Err("refused"));
        rewrite_texts(map, &mut |place, text| {
            Ok::<_, ()>((text == "x").then(|| place.path.as_str().as_bytes().to_vec()))
        })
        .unwrap();
        assert_eq!(object["data"]["a"], encode_base64(b"/data/a"));
        assert_eq!(object["stringData"]["b"], "/stringData/b");
        assert_eq!(decode_base64(" /w==\n"), Some(vec![0xff]));
        assert_eq!(decode_base64("?"), None);
    }

    #[test]
    fn a_text_refers_as_the_parser_reads_it() {
        let refers = |object: serde_json::Value| may_refer(object.as_object().unwrap());
        assert!(refers(json!({"a": [{"b": " ref://pay"}]})));
        assert!(refers(json!({"a": "x ref+db://pay"})));
        assert!(!refers(json!({"a": "see ref://pay", "b": 5, "c": null})));
        assert!(!refers(
            json!({"kind": "Secret", "data": {"a": "eA==", "b": "?"}, "x": encode_base64(b"ref+db://a")})
        ));
    }
}
