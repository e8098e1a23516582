//! JSON values with markers in place of values that are not shown: `{"$unknown":true}`, `{"$unknown":TEXT}` for a value
//! that waits for outputs of other stacks, `{"$secret":HASH}`, and for a reference to a secret
//! `{"$secret":{"ref":"STORE:PATH#/KEY","version":V}}`. Paths into such values follow RFC 6901; an item of a keyed list
//! is written `name=web`.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

/// Returns the marker of a value that is known only after the apply.
pub fn unknown() -> Value {
    json!({"$unknown": true})
}

/// Returns the marker of a value that is known after the apply of other stacks: the text, with `${STACK.NAME}` in place
/// of each of their outputs.
pub fn unknown_output(text: &str) -> Value {
    json!({"$unknown": text})
}

/// Returns the text of a marker of [`unknown_output`]; `None` for any other value.
pub fn as_unknown_output(value: &Value) -> Option<&str> {
    match value {
        Value::Object(map) if map.len() == 1 => map.get("$unknown").and_then(Value::as_str),
        _ => None,
    }
}

/// Returns true if a value is a *known after apply* marker.
pub fn is_unknown(value: &Value) -> bool {
    let is_mark = |mark: &Value| matches!(mark, Value::Bool(true) | Value::String(_));
    matches!(value, Value::Object(map) if map.len() == 1 && map.get("$unknown").is_some_and(is_mark))
}

/// Returns true for a marker that reveals nothing of its value: a secret, or a plain `$unknown`. The text of a marker
/// of [`unknown_output`] is visible, so it is masked like any other text.
pub fn is_opaque(value: &Value) -> bool {
    is_secret(value) || (is_unknown(value) && as_unknown_output(value).is_none())
}

/// Returns true if any part of the value is *known after apply*.
pub fn holds_unknown(value: &Value) -> bool {
    holds(value, is_unknown)
}

fn holds(value: &Value, is_mark: fn(&Value) -> bool) -> bool {
    match value {
        Value::Object(map) => is_mark(value) || map.values().any(|member| holds(member, is_mark)),
        Value::Array(items) => items.iter().any(|item| holds(item, is_mark)),
        _ => false,
    }
}

/// Returns the marker of a secret: its keyed short hash, which shows a reviewer only whether the secret changed.
pub fn secret(hash: &str) -> Value {
    json!({"$secret": hash})
}

/// Returns the hash in a secret marker; `None` for any other value.
pub fn as_secret(value: &Value) -> Option<&str> {
    match value {
        Value::Object(map) if map.len() == 1 => map.get("$secret").and_then(Value::as_str),
        _ => None,
    }
}

/// A marker of a reference to a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReferenceMark<'a> {
    /// The reference, as `STORE:PATH#/KEY`.
    pub reference: &'a str,
    /// The version, if it is known.
    pub version: Option<&'a str>,
    /// The keyed hash of the text around the reference, if there is such text.
    pub text: Option<&'a str>,
}

/// Returns the marker of a reference to a secret.
pub fn reference(mark: ReferenceMark<'_>) -> Value {
    let mut map = object([("ref", Value::from(mark.reference))]);
    let more = [("version", mark.version), ("text", mark.text)];
    let more = more.into_iter().filter_map(|(key, value)| Some((key, value?)));
    map.extend(more.map(|(key, value)| (key.to_owned(), Value::from(value))));
    json!({"$secret": map})
}

/// The prefix of the version of a secret in a file of the repository. Such a version changes by a commit, which is
/// reviewed like any other.
pub const FILE_VERSION: &str = "file-";

/// The prefix of the version of a secret whose store has no versions. A keyed hash of the fetched value follows.
pub const VALUE_VERSION: &str = "hash:";

/// Returns a masked value without the hashes that only a job with access to the secrets can compute, so that every job
/// gets the same digest. `None` if the value has no such hash.
pub fn without_value_hashes(value: &Value) -> Option<Value> {
    if let Some(mark) = as_reference(value) {
        let version = mark.version.filter(|version| version.contains(VALUE_VERSION))?;
        let known = version.split(" + ").map(|version| match version {
            hash if hash.starts_with(VALUE_VERSION) => "?",
            version => version,
        });
        let known: Vec<_> = known.collect();
        let is_known = known.iter().any(|version| *version != "?");
        let version = is_known.then(|| known.join(" + "));
        let version = version.as_deref();
        return Some(reference(ReferenceMark { version, ..mark }));
    }
    match value {
        Value::Object(map) => {
            let changed = map
                .iter()
                .filter_map(|(key, value)| Some((key, without_value_hashes(value)?)));
            let changed: Vec<_> = changed.collect();
            (!changed.is_empty()).then(|| {
                let mut whole = map.clone();
                whole.extend(changed.into_iter().map(|(key, value)| (key.clone(), value)));
                Value::Object(whole)
            })
        }
        Value::Array(items) => {
            let changed: Vec<_> = items.iter().map(without_value_hashes).collect();
            changed.iter().any(Option::is_some).then(|| {
                let both = changed.into_iter().zip(items);
                both.map(|(changed, item)| changed.unwrap_or_else(|| item.clone()))
                    .collect()
            })
        }
        _ => None,
    }
}

impl ReferenceMark<'_> {
    /// Returns true if the version is that of a file in the repository.
    pub fn is_of_file(&self) -> bool {
        let mut versions = self.version.unwrap_or_default().split(" + ");
        versions.any(|version| version.starts_with(FILE_VERSION))
    }
}

/// Returns the reference in a secret marker; `None` for any other value.
pub fn as_reference(value: &Value) -> Option<ReferenceMark<'_>> {
    match value {
        Value::Object(map) if map.len() == 1 => {
            let mark = map.get("$secret")?.as_object()?;
            let is_known = |key: &str| ["ref", "version", "text"].contains(&key);
            if !mark.iter().all(|(key, value)| is_known(key) && value.is_string()) {
                return None;
            }
            let text = |key: &str| mark.get(key).and_then(Value::as_str);
            Some(ReferenceMark {
                reference: text("ref")?,
                version: text("version"),
                text: text("text"),
            })
        }
        _ => None,
    }
}

/// Returns true for a secret marker, of a value or of a reference.
pub fn is_secret(value: &Value) -> bool {
    as_secret(value).is_some() || as_reference(value).is_some()
}

/// Returns true if a provider's mask contains `true`: each `true` marks a value as sensitive or unknown.
pub fn holds_true(mask: &Value) -> bool {
    match mask {
        Value::Bool(set) => *set,
        Value::Array(items) => items.iter().any(holds_true),
        Value::Object(map) => map.values().any(holds_true),
        _ => false,
    }
}

/// Returns true if any part of the value is a secret marker.
pub fn holds_secret(value: &Value) -> bool {
    holds(value, is_secret)
}

/// Returns true if any part of the value is a marker.
pub fn holds_mark(value: &Value) -> bool {
    holds_unknown(value) || holds_secret(value)
}

/// Escapes a value of foreign origin (a live object, a provider's response, a document) for display. It contains no
/// markers of Konverge, so a part that looks like a marker gets another `$`, and is masked and shown like any other
/// value.
pub fn escape_marks(value: &Value) -> Cow<'_, Value> {
    fn escape(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let sign = if is_unknown(value) || is_secret(value) {
                    "$"
                } else {
                    ""
                };
                let members = map
                    .iter()
                    .map(|(key, member)| (format!("{sign}{key}"), escape(member)));
                Value::Object(members.collect())
            }
            Value::Array(items) => items.iter().map(escape).collect(),
            other => other.clone(),
        }
    }
    if holds_mark(value) {
        Cow::Owned(escape(value))
    } else {
        Cow::Borrowed(value)
    }
}

/// Creates a JSON object from pairs, in the given order.
pub fn object<const N: usize>(pairs: [(&str, Value); N]) -> Map<String, Value> {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_wrote_holds_no_marks() {
        let clear = json!({"a": [{"b": 1}], "$secret": "x", "more": {"$unknown": false}});
        assert!(matches!(escape_marks(&clear), Cow::Borrowed(_)));
        let given =
            json!({"a": [{"$secret": "x"}], "b": {"$unknown": true}, "c": {"$secret": {"ref": "db:pay"}}});
        let shown = escape_marks(&given);
        assert!(!holds_mark(&shown), "{shown}");
        let expected =
            json!({"a": [{"$$secret": "x"}], "b": {"$$unknown": true}, "c": {"$$secret": {"ref": "db:pay"}}});
        assert_eq!(*shown, expected);
    }

    #[test]
    fn a_mark_of_a_reference_has_no_other_members() {
        let mark = |more: Value| {
            let mut mark = json!({"$secret": {"ref": "db:pay"}});
            mark["$secret"]
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            is_secret(&mark)
        };
        assert!(mark(json!({})) && mark(json!({"version": "7", "text": "a0"})));
        assert!(!mark(json!({"password": "hunter2"})) && !mark(json!({"version": {"password": "hunter2"}})));
    }

    /// A job with the values of secrets, and one without, make one digest.
    #[test]
    fn a_digest_stands_for_no_fetched_value() {
        let mark = |version: Option<&str>| {
            reference(ReferenceMark {
                reference: "job:TOKEN",
                version,
                text: None,
            })
        };
        for (shown, known) in [
            (mark(Some("hash:a0a68df9")), Some(mark(None))),
            (mark(Some("7 + hash:a0")), Some(mark(Some("7 + ?")))),
            (mark(Some("7")), None),
            (mark(None), None),
            (json!({"version": "hash:a0"}), None),
            (
                json!({"data": [{"a": mark(Some("hash:a0"))}, "b"], "c": 1}),
                Some(json!({"data": [{"a": mark(None)}, "b"], "c": 1})),
            ),
        ] {
            assert_eq!(without_value_hashes(&shown), known, "{shown}");
        }
    }
}
