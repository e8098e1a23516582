//! Values of the plan document as values of the engine for Rego, without a copy of the document between the two. A value that
//! stands in several places of an input is made once.

use std::collections::BTreeMap;

use regorus::Value as RegoValue;
use serde::Serialize;
use serde_json::Value;

/// The value of the engine for a JSON value.
pub(super) fn rego_value(value: &Value) -> RegoValue {
    match value {
        Value::Null => RegoValue::Null,
        Value::Bool(flag) => RegoValue::from(*flag),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(whole), _) => RegoValue::from(whole),
            (None, Some(negative)) => RegoValue::from(negative),
            (None, None) => RegoValue::from(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => RegoValue::from(text.as_str()),
        Value::Array(items) => RegoValue::from(items.iter().map(rego_value).collect::<Vec<_>>()),
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(key, value)| (RegoValue::from(key.as_str()), rego_value(value)));
            RegoValue::from(fields.collect::<BTreeMap<_, _>>())
        }
    }
}

/// What serializes as a map, with these fields in place of its own.
pub(super) fn with_fields<'f>(
    base: &impl Serialize,
    fields: impl IntoIterator<Item = (&'f str, RegoValue)>,
) -> RegoValue {
    let base = serde_json::to_value(base).unwrap_or_default();
    let own = base.as_object().into_iter().flatten();
    let own = own.map(|(key, value)| (RegoValue::from(key.as_str()), rego_value(value)));
    let fields = fields
        .into_iter()
        .map(|(key, value)| (RegoValue::from(key), value));
    RegoValue::from(own.chain(fields).collect::<BTreeMap<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_value_is_what_the_engine_reads_from_its_text() {
        let value = json!({
            "null": null, "flags": [true, false], "text": "a\"ß\u{0}", "": {},
            "numbers": [0, 1, -1, u64::MAX, i64::MIN, 0.1, -2.5, 1e300, 10.0], "list": [[], [1, [2]]],
        });
        let read = RegoValue::from_json_str(&value.to_string()).unwrap();
        assert_eq!(rego_value(&value), read);
        assert_eq!(rego_value(&value), RegoValue::from(value.clone()));
        assert_eq!(rego_value(&value).to_string(), read.to_string());
    }

    #[test]
    fn a_field_replaces_that_of_the_base() {
        let made = with_fields(&json!({"a": 1, "b": 2}), [("b", RegoValue::from("c"))]);
        assert_eq!(made, RegoValue::from(json!({"a": 1, "b": "c"})));
    }
}
