//! Converts values of the plan document for the Rego engine without an intermediate copy. A value that occurs
//! several times in an input is converted once.
//!
//! The engine's own conversion interprets a map whose first key is `$serde_json::private::Number` as a number, and
//! so does `serde_json` if a dependency enables `arbitrary_precision`. The author of such a key could hide other
//! keys from the rules.

use std::{collections::BTreeMap, fmt};

use regorus::Value as RegoValue;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, SeqAccess, Visitor},
};
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
    serde_json::from_str(text).map(|PlainValue(value)| value)
}

/// A deserialized value in which no key has a special meaning.
struct PlainValue(RegoValue);

impl<'de> Deserialize<'de> for PlainValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PlainVisitor).map(Self)
    }
}

struct PlainVisitor;

impl<'de> Visitor<'de> for PlainVisitor {
    type Value = RegoValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<RegoValue, E> {
        Ok(RegoValue::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<RegoValue, E> {
        Ok(RegoValue::from(flag))
    }

    fn visit_u64<E>(self, number: u64) -> Result<RegoValue, E> {
        Ok(RegoValue::from(number))
    }

    fn visit_i64<E>(self, number: i64) -> Result<RegoValue, E> {
        Ok(RegoValue::from(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<RegoValue, E> {
        Ok(RegoValue::from(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<RegoValue, E> {
        Ok(RegoValue::from(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RegoValue, A::Error> {
        let mut list = Vec::new();
        while let Some(PlainValue(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(RegoValue::from(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<RegoValue, A::Error> {
        let mut map = BTreeMap::new();
        while let Some((key, PlainValue(value))) = fields.next_entry::<String, _>()? {
            map.insert(RegoValue::from(key), value);
        }
        Ok(RegoValue::from(map))
    }
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
    fn a_field_replaces_that_of_the_base() {
        let made = with_fields(&json!({"a": 1, "b": 2}), [("b", RegoValue::from("c"))]);
        assert_eq!(made, RegoValue::from(json!({"a": 1, "b": "c"})));
    }
}
