//! Converts values of the plan document for the Rego engine without an intermediate copy. A value that occurs
//! several times in an input is converted once.
//!
//! The engine's own conversion interprets a map whose first key is `$serde_json::private::Number` as a number. The
//! author of such a key could hide other keys from the rules. `serde_json` would do so, too, if a dependency enabled
//! `arbitrary_precision`, which a test below refuses.

use std::collections::BTreeMap;

use regorus::Value as RegoValue;
use serde::Serialize;
use serde_json::Value;

/// Converts a JSON value.
pub(crate) fn rego_value(value: &Value) -> RegoValue {
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

/// Converts a JSON text.
///
/// # Errors
/// A text that is not JSON.
pub(super) fn from_json(text: &str) -> Result<RegoValue, serde_json::Error> {
    serde_json::from_str::<Value>(text).map(|value| rego_value(&value))
}

/// Serializes `base` to a map, and replaces or adds these fields.
pub(crate) fn with_fields<'f>(
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
        assert_eq!(from_json(&value.to_string()).unwrap(), read);
        assert!(from_json("{").is_err() && from_json("1 2").is_err());
    }

    #[test]
    fn no_key_has_a_special_meaning() {
        for key in ["$serde_json::private::Number", "$serde_json::private::RawValue"] {
            let value = Value::Object(
                [(key.to_owned(), json!("1")), ("other".to_owned(), json!(2))]
                    .into_iter()
                    .collect(),
            );
            let text = value.to_string();
            assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
            for read in [rego_value(&value), from_json(&text).unwrap()] {
                let fields = read.as_object().unwrap();
                assert_eq!(fields.len(), 2, "{read}");
            }
        }
    }

    #[test]
    fn a_field_replaces_that_of_the_base() {
        let made = with_fields(&json!({"a": 1, "b": 2}), [("b", RegoValue::from("c"))]);
        assert_eq!(made, RegoValue::from(json!({"a": 1, "b": "c"})));
    }
}
