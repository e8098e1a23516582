//! The parts of a JSON value: the value itself, and what is in it at any depth. Keys are no parts.

use serde_json::Value;

/// Returns true for the value that a missing member stands for.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Returns true if a part fulfils a condition.
pub fn any_part(value: &Value, holds: impl Fn(&Value) -> bool + Copy) -> bool {
    holds(value)
        || match value {
            Value::Array(items) => items.iter().any(|item| any_part(item, holds)),
            Value::Object(map) => map.values().any(|member| any_part(member, holds)),
            _ => false,
        }
}

/// Visits the parts that are texts, in order.
pub fn each_text<'v>(value: &'v Value, visit: &mut dyn FnMut(&'v str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, visit)),
        Value::Object(map) => map.values().for_each(|member| each_text(member, visit)),
        _ => {}
    }
}

/// Visits the parts that are texts like [`each_text`], to change them.
pub fn each_text_mut(value: &mut Value, visit: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text_mut(item, visit)),
        Value::Object(map) => map.values_mut().for_each(|member| each_text_mut(member, visit)),
        _ => {}
    }
}
