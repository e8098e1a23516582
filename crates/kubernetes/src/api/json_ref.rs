//! JSON values that borrow from the text, for values that are read once and not kept.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::{Number, Value};

use konverge_base::model::diff;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum JsonRef<'a> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'a, str>),
    List(Vec<JsonRef<'a>>),
    Map(Members<'a>),
}

/// The members of an object, sorted by key.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Members<'a>(Vec<(Cow<'a, str>, JsonRef<'a>)>);

impl<'a> Members<'a> {
    pub(crate) fn get(&self, key: &str) -> Option<&JsonRef<'a>> {
        let place = self.0.binary_search_by(|(found, _)| (**found).cmp(key));
        place.ok().map(|place| &self.0[place].1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &JsonRef<'a>)> {
        self.0.iter().map(|(key, value)| (&**key, value))
    }

    /// Returns the text of a member; empty if there is none.
    pub(crate) fn text(&self, key: &str) -> &str {
        self.get(key).map_or("", JsonRef::text)
    }
}

impl<'a> JsonRef<'a> {
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.as_map()?.get(key)
    }

    /// Returns the text; empty for another type.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            _ => "",
        }
    }

    pub(crate) fn as_map(&self) -> Option<&Members<'a>> {
        match self {
            Self::Map(members) => Some(members),
            _ => None,
        }
    }

    pub(crate) fn as_list(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    /// Returns true if this equals a value, where `1` equals `1.0` and the order of keys is ignored ([`diff::same`]).
    pub(crate) fn is(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Null, Value::Null) => true,
            (Self::Bool(a), Value::Bool(b)) => a == b,
            (Self::Text(a), Value::String(b)) => a == b,
            (Self::Number(a), Value::Number(b)) => diff::same_number(a, b),
            (Self::List(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is(b)),
            (Self::Map(a), Value::Object(b)) => {
                a.0.len() == b.len() && b.iter().all(|(key, b)| a.get(key).is_some_and(|a| a.is(b)))
            }
            _ => false,
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonRef<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = JsonRef<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<JsonRef<'de>, E> {
        Ok(JsonRef::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<JsonRef<'de>, E> {
        Ok(JsonRef::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<JsonRef<'de>, E> {
        Ok(JsonRef::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<JsonRef<'de>, E> {
        Ok(JsonRef::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<JsonRef<'de>, E> {
        Ok(Number::from_f64(value).map_or(JsonRef::Null, JsonRef::Number))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<JsonRef<'de>, E> {
        Ok(JsonRef::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<JsonRef<'de>, E> {
        Ok(JsonRef::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<JsonRef<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(JsonRef::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonRef<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some(JsonRef::Text(key)) = map.next_key()? {
            members.push((key, map.next_value()?));
        }
        let in_order = members.is_sorted_by(|(a, _): &(Cow<'_, str>, JsonRef<'_>), (b, _)| a < b);
        if !in_order {
            // If a key occurs twice, its last value counts, as in other parsers.
            members.reverse();
            members.sort_by(|(a, _), (b, _)| a.cmp(b));
            members.dedup_by(|(later, _), (kept, _)| later == kept);
        }
        Ok(JsonRef::Map(Members(members)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn node(text: &str) -> JsonRef<'_> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn it_means_what_the_value_means() {
        let texts = [
            "null",
            "true",
            "-1",
            "1.5",
            "18446744073709551615",
            r#""a\"b""#,
            "[1,[],{}]",
            r#"{"b":{"d":1,"c":[null]},"a":"x","":0}"#,
        ];
        for one in texts {
            for other in texts {
                let value: Value = serde_json::from_str(other).unwrap();
                assert_eq!(node(one).is(&value), one == other, "{one} {other}");
            }
        }
        assert!(node(r#"{"a":1.0,"b":2}"#).is(&json!({"b": 2, "a": 1})));
        assert!(!node(r#"{"a":1}"#).is(&json!({"a": 1, "b": 2})));
        assert!(node(r#"{"a":1,"a":2}"#).is(&json!({"a": 2})));
    }

    #[test]
    fn members_are_found() {
        let map = node(r#"{"z":"last","a":{"b":[1]},"m":7}"#);
        let members = map.as_map().unwrap();
        assert_eq!(
            (members.text("z"), members.text("m"), members.text("x")),
            ("last", "", "")
        );
        assert_eq!(map.get("a").and_then(|a| a.get("b")).unwrap().as_list().len(), 1);
    }
}
