//! A JSON Patch (RFC 6902) with OPA's extension: a path may also be a list of keys.

use serde_json::Value;

use konverge_base::model::field_path::unescape;

/// Applies one operation.
///
/// # Errors
/// An invalid operation or path, or a failed `test`. The document may be partly changed then.
pub(super) fn apply(document: &mut Value, patch: &Value) -> Result<(), String> {
    let steps = |key: &str| steps(&patch[key]).ok_or_else(|| format!("`{key}` is not a path"));
    let value = || {
        let value = patch.get("value").cloned();
        value.ok_or_else(|| "it has no `value`".to_owned())
    };
    let path = steps("path")?;
    match patch["op"].as_str().unwrap_or_default() {
        "add" => add(document, &path, value()?),
        "remove" => remove(document, &path).map(drop),
        "replace" => {
            *find(document, &path)? = value()?;
            Ok(())
        }
        "move" => {
            let from = steps("from")?;
            if path.starts_with(&from) {
                return Err("a value cannot be moved into itself".to_owned());
            }
            let moved = remove(document, &from)?;
            add(document, &path, moved)
        }
        "copy" => {
            let copied = find(document, &steps("from")?)?.clone();
            add(document, &path, copied)
        }
        "test" if *find(document, &path)? == value()? => Ok(()),
        "test" => Err("a test fails".to_owned()),
        _ => Err("its `op` is none of add, remove, replace, move, copy and test".to_owned()),
    }
}

/// Splits a path into its keys.
fn steps(path: &Value) -> Option<Vec<String>> {
    match path {
        Value::String(text) if text.is_empty() => Some(Vec::new()),
        Value::String(text) => {
            let keys = text.strip_prefix('/')?.split('/');
            Some(keys.map(unescape).collect())
        }
        Value::Array(keys) => keys.iter().map(|key| key.as_str().map(str::to_owned)).collect(),
        _ => None,
    }
}

/// Parses an index of a list: digits without a sign and without leading zeros.
fn list_index(key: &str) -> Option<usize> {
    let is_plain = key == "0" || key.starts_with(|c: char| ('1'..='9').contains(&c));
    key.parse().ok().filter(|_| is_plain)
}

fn find<'v>(document: &'v mut Value, path: &[String]) -> Result<&'v mut Value, String> {
    let mut at = document;
    for key in path {
        let next = match at {
            Value::Object(fields) => fields.get_mut(key),
            Value::Array(items) => list_index(key).and_then(|index| items.get_mut(index)),
            _ => None,
        };
        at = next.ok_or_else(|| format!("there is no `{key}`"))?;
    }
    Ok(at)
}

fn add(document: &mut Value, path: &[String], value: Value) -> Result<(), String> {
    let Some((last, parents)) = path.split_last() else {
        *document = value;
        return Ok(());
    };
    match find(document, parents)? {
        Value::Object(fields) => drop(fields.insert(last.clone(), value)),
        Value::Array(items) => {
            let index = if last == "-" {
                Some(items.len())
            } else {
                list_index(last)
            };
            let index = index.filter(|index| *index <= items.len());
            items.insert(
                index.ok_or_else(|| format!("`{last}` is not an index of the list"))?,
                value,
            );
        }
        _ => {
            return Err(format!(
                "`{last}` cannot be added to a value that is neither an object nor a list"
            ));
        }
    }
    Ok(())
}

fn remove(document: &mut Value, path: &[String]) -> Result<Value, String> {
    let (last, parents) = path.split_last().ok_or("the whole document cannot be removed")?;
    let removed = match find(document, parents)? {
        Value::Object(fields) => fields.shift_remove(last),
        Value::Array(items) => {
            let index = list_index(last).filter(|index| *index < items.len());
            index.map(|index| items.remove(index))
        }
        _ => None,
    };
    removed.ok_or_else(|| format!("there is no `{last}`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_operation_changes_its_place_or_fails() {
        let document = json!({"a": {"b/c": 1, "~": 2}, "l": [1, 2]});
        for (patch, result) in [
            (
                json!({"op": "add", "path": "/l/1", "value": 9}),
                Some(json!({"a": {"b/c": 1, "~": 2}, "l": [1, 9, 2]})),
            ),
            (
                json!({"op": "add", "path": "/l/-", "value": 9}),
                Some(json!({"a": {"b/c": 1, "~": 2}, "l": [1, 2, 9]})),
            ),
            (
                json!({"op": "add", "path": ["a", "x"], "value": 9}),
                Some(json!({"a": {"b/c": 1, "~": 2, "x": 9}, "l": [1, 2]})),
            ),
            (json!({"op": "add", "path": "", "value": 9}), Some(json!(9))),
            (
                json!({"op": "remove", "path": "/a/b~1c"}),
                Some(json!({"a": {"~": 2}, "l": [1, 2]})),
            ),
            (
                json!({"op": "remove", "path": "/l/0"}),
                Some(json!({"a": {"b/c": 1, "~": 2}, "l": [2]})),
            ),
            (
                json!({"op": "replace", "path": "/a/~0", "value": 9}),
                Some(json!({"a": {"b/c": 1, "~": 9}, "l": [1, 2]})),
            ),
            (
                json!({"op": "move", "from": "/a", "path": "/l/0"}),
                Some(json!({"l": [{"b/c": 1, "~": 2}, 1, 2]})),
            ),
            (
                json!({"op": "copy", "from": "/l/0", "path": "/m"}),
                Some(json!({"a": {"b/c": 1, "~": 2}, "l": [1, 2], "m": 1})),
            ),
            (
                json!({"op": "test", "path": "/l", "value": [1, 2]}),
                Some(document.clone()),
            ),
            (json!({"op": "test", "path": "/l", "value": [1]}), None),
            (json!({"op": "add", "path": "/l/3", "value": 9}), None),
            (json!({"op": "add", "path": "/l/01", "value": 9}), None),
            (json!({"op": "add", "path": "/x/y", "value": 9}), None),
            (json!({"op": "add", "path": "x", "value": 9}), None),
            (json!({"op": "add", "path": "/x"}), None),
            (json!({"op": "remove", "path": "/x"}), None),
            (json!({"op": "remove", "path": ""}), None),
            (json!({"op": "replace", "path": "/x", "value": 9}), None),
            (json!({"op": "move", "from": "/a", "path": "/a/x"}), None),
            (json!({"op": "none", "path": "/a"}), None),
        ] {
            let mut changed = document.clone();
            let applied = apply(&mut changed, &patch);
            assert_eq!(applied.ok().map(|()| changed), result, "{patch}");
        }
    }
}
