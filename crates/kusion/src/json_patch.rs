//! [`JsonPatch`]: a JSON merge patch (RFC 7386) or a JSON patch (RFC 6902) of a module. As in Kusion,
//! `remove` ignores a path that does not exist, and `add` creates missing parents.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use konverge_base::model::{FieldPath, field_path::unescape};

/// A patch of a resource.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum JsonPatch {
    Merge(Value),
    Operations(Vec<PatchOperation>),
}

/// An operation of a JSON patch.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(super) enum PatchOperation {
    Add {
        path: String,
        #[serde(default)]
        value: Value,
    },
    Remove {
        path: String,
    },
    Replace {
        path: String,
        #[serde(default)]
        value: Value,
    },
    Move {
        from: String,
        path: String,
    },
    Copy {
        from: String,
        path: String,
    },
    Test {
        path: String,
        #[serde(default)]
        value: Value,
    },
}

impl JsonPatch {
    /// Reads `{type, payload}`. The payload is JSON: a text, or the list of its bytes, as Go's YAML writes it.
    pub(super) fn read(value: Value) -> Result<Self, String> {
        let Value::Object(fields) = value else {
            return Err("it is not a mapping".to_owned());
        };
        let field = |wanted: &str| {
            let mut fields = fields.iter();
            fields
                .find(|(key, _)| key.eq_ignore_ascii_case(wanted))
                .map(|(_, value)| value)
        };
        let payload = || payload(field("payload").unwrap_or(&Value::Null));
        match field("type").and_then(Value::as_str) {
            Some("MergePatch") => Ok(Self::Merge(payload()?)),
            Some("JSONPatch") => Ok(Self::Operations(
                Vec::<PatchOperation>::deserialize(payload()?)
                    .map_err(|error| format!("its payload: {error}"))?,
            )),
            _ => Err("its type is neither `MergePatch` nor `JSONPatch`".to_owned()),
        }
    }

    /// Returns the patched value.
    pub(super) fn apply(&self, mut target: Value) -> Result<Value, String> {
        match self {
            Self::Merge(patch) => merge(&mut target, patch),
            Self::Operations(operations) => {
                let mut operations = operations.iter();
                operations.try_for_each(|operation| operation.apply(&mut target))?;
            }
        }
        Ok(target)
    }
}

fn payload(value: &Value) -> Result<Value, String> {
    let wrong = || "its payload is neither a text nor a list of bytes".to_owned();
    let text = match value {
        Value::String(text) => text.clone().into_bytes(),
        Value::Array(bytes) => bytes
            .iter()
            .map(|byte| byte.as_u64().and_then(|byte| u8::try_from(byte).ok()))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(wrong)?,
        _ => return Err(wrong()),
    };
    serde_json::from_slice(&text).map_err(|error| format!("its payload is not JSON: {error}"))
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(fields) = target.as_object_mut() else {
        return;
    };
    for (key, value) in patch {
        match value {
            Value::Null => drop(fields.shift_remove(key)),
            value => merge(fields.entry(key.clone()).or_insert(Value::Null), value),
        }
    }
}

impl PatchOperation {
    fn apply(&self, target: &mut Value) -> Result<(), String> {
        let nothing = |path: &str| format!("there is nothing at `{}`", path.escape_debug());
        let value_at = |target: &Value, path: &str| {
            let found = target.pointer(path).cloned();
            found.ok_or_else(|| nothing(path))
        };
        match self {
            Self::Add { path, value } => add(target, path, value.clone()),
            Self::Remove { path } => {
                remove(target, path);
                Ok(())
            }
            Self::Replace { path, value } => {
                *target.pointer_mut(path).ok_or_else(|| nothing(path))? = value.clone();
                Ok(())
            }
            Self::Move { from, path } => {
                let value = value_at(target, from)?;
                if path
                    .strip_prefix(from.as_str())
                    .is_some_and(|rest| rest.starts_with('/'))
                {
                    return Err(format!("`{}` cannot move into itself", from.escape_debug()));
                }
                remove(target, from);
                add(target, path, value)
            }
            Self::Copy { from, path } => {
                let value = value_at(target, from)?;
                add(target, path, value)
            }
            Self::Test { path, value } => {
                if target.pointer(path).unwrap_or(&Value::Null) == value {
                    Ok(())
                } else {
                    Err(format!("the test of `{}` fails", path.escape_debug()))
                }
            }
        }
    }
}

/// Splits a JSON pointer into its unescaped parts.
fn parts(path: &str) -> Result<Vec<String>, String> {
    let rest = match path {
        "" => return Ok(Vec::new()),
        path => path.strip_prefix('/'),
    };
    let rest = rest.ok_or_else(|| format!("`{}` is not a JSON pointer", path.escape_debug()))?;
    Ok(rest.split('/').map(unescape).collect())
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), String> {
    let parts = parts(path)?;
    let Some((last, above)) = parts.split_last() else {
        *target = value;
        return Ok(());
    };
    let wrong = || format!("nothing can be added at `{}`", path.escape_debug());
    let mut place = target;
    for (index, part) in above.iter().enumerate() {
        let next_is_list = matches!(parts[index + 1].as_str(), "-" | "0");
        let empty = || if next_is_list { json!([]) } else { json!({}) };
        place = match place {
            Value::Object(fields) => fields.entry(part.clone()).or_insert_with(empty),
            Value::Array(items) => {
                let at = position(part, items.len()).ok_or_else(wrong)?;
                if at == items.len() {
                    items.push(empty());
                }
                items.get_mut(at).ok_or_else(wrong)?
            }
            _ => return Err(wrong()),
        };
    }
    match place {
        Value::Object(fields) => {
            fields.insert(last.clone(), value);
        }
        Value::Array(items) => {
            let at = position(last, items.len()).ok_or_else(wrong)?;
            items.insert(at, value);
        }
        _ => return Err(wrong()),
    }
    Ok(())
}

/// Returns the index in a list of this length that a part of a pointer names; `-` is the end.
fn position(part: &str, length: usize) -> Option<usize> {
    match part {
        "-" => Some(length),
        part => part.parse().ok().filter(|at| *at <= length),
    }
}

fn remove(target: &mut Value, path: &str) {
    let Some((above, last)) = FieldPath::new(path).split_last() else {
        return;
    };
    match target.pointer_mut(above.as_str()) {
        Some(Value::Object(fields)) => drop(Map::shift_remove(fields, &last)),
        Some(Value::Array(items)) => {
            if let Some(at) = last.parse().ok().filter(|at| *at < items.len()) {
                items.remove(at);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patched(operations: Value, target: Value) -> Result<Value, String> {
        let patch = JsonPatch::read(json!({"type": "JSONPatch", "payload": operations.to_string()}))?;
        patch.apply(target)
    }

    #[test]
    fn operations_make_their_way_and_pass_over_what_is_not_there() {
        for (operations, target, wanted) in [
            (
                json!([{"op": "add", "path": "/a/b/c", "value": 1}]),
                json!({}),
                json!({"a": {"b": {"c": 1}}}),
            ),
            (
                json!([{"op": "add", "path": "/a/-", "value": 1}]),
                json!({}),
                json!({"a": [1]}),
            ),
            (
                json!([{"op": "add", "path": "/a/0/b", "value": 1}]),
                json!({}),
                json!({"a": [{"b": 1}]}),
            ),
            (
                json!([{"op": "add", "path": "/a/1", "value": 9}]),
                json!({"a": [1, 2]}),
                json!({"a": [1, 9, 2]}),
            ),
            (
                json!([{"op": "remove", "path": "/x/y"}, {"op": "remove", "path": "/a"}]),
                json!({"a": 1}),
                json!({}),
            ),
            (
                json!([{"op": "remove", "path": "/a/0"}]),
                json!({"a": [1, 2]}),
                json!({"a": [2]}),
            ),
            (
                json!([{"op": "replace", "path": "/a~1b", "value": null}]),
                json!({"a/b": 1}),
                json!({"a/b": null}),
            ),
            (
                json!([{"op": "move", "from": "/a", "path": "/b"}]),
                json!({"a": 1}),
                json!({"b": 1}),
            ),
            (
                json!([{"op": "copy", "from": "/a", "path": "/b"}, {"op": "test", "path": "/b", "value": 1}]),
                json!({"a": 1}),
                json!({"a": 1, "b": 1}),
            ),
        ] {
            assert_eq!(
                patched(operations.clone(), target).unwrap(),
                wanted,
                "{operations}"
            );
        }
        for operations in [
            json!([{"op": "replace", "path": "/x", "value": 1}]),
            json!([{"op": "add", "path": "x", "value": 1}]),
            json!([{"op": "add", "path": "/a/9", "value": 1}]),
            json!([{"op": "add", "path": "/s/x", "value": 1}]),
            json!([{"op": "test", "path": "/s", "value": 1}]),
            json!([{"op": "move", "from": "/a", "path": "/a/0"}]),
            json!([{"op": "else", "path": "/a"}]),
            json!({"op": "add"}),
        ] {
            assert!(
                patched(operations.clone(), json!({"a": [], "s": "t"})).is_err(),
                "{operations}"
            );
        }
    }

    #[test]
    fn a_payload_is_a_text_or_a_list_of_bytes() {
        let text = r#"{"a": null, "b": {"c": 1}}"#;
        for payload in [json!(text), json!(text.as_bytes())] {
            let patch = JsonPatch::read(json!({"Type": "MergePatch", "payload": payload})).unwrap();
            let patched = patch.apply(json!({"a": 1, "b": {"d": 2}})).unwrap();
            assert_eq!(patched, json!({"b": {"d": 2, "c": 1}}));
        }
        for wrong in [
            json!({"type": "MergePatch"}),
            json!({"type": "MergePatch", "payload": [256]}),
            json!({"type": "MergePatch", "payload": "{"}),
            json!({"type": "Other", "payload": "{}"}),
            json!("{}"),
        ] {
            assert!(JsonPatch::read(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
