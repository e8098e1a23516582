//! Finds a value that changed in an object.

use serde_json::{Map, Value};

use konverge_base::model::FieldPath;

/// Returns the path of the first value that is not as before and for which `is_it` is true. It gets the value before,
/// if there is one, and the value now.
pub(super) fn find(
    before: &Map<String, Value>,
    now: &Map<String, Value>,
    is_it: &dyn Fn(Option<&Value>, &Value) -> bool,
) -> Option<FieldPath> {
    let mut members = now.iter();
    let root = FieldPath::root();
    members.find_map(|(key, now)| find_in(before.get(key), now, &root.join(key), is_it))
}

fn find_in(
    before: Option<&Value>,
    now: &Value,
    path: &FieldPath,
    is_it: &dyn Fn(Option<&Value>, &Value) -> bool,
) -> Option<FieldPath> {
    match now {
        _ if before == Some(now) => None,
        _ if is_it(before, now) => Some(path.clone()),
        Value::Object(map) => map.iter().find_map(|(key, now)| {
            let before = before.and_then(|before| before.get(key));
            find_in(before, now, &path.join(key), is_it)
        }),
        Value::Array(items) => items.iter().enumerate().find_map(|(at, now)| {
            let before = before.and_then(|before| before.get(at));
            find_in(before, now, &path.item(at), is_it)
        }),
        _ => None,
    }
}
