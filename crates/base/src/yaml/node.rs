//! [`Node`]: a YAML value in which each part has its position, so that scalars can be read as they are written.

use std::fmt;

use serde::{Deserialize, Deserializer, de};
use serde_json::{Number, Value};
use serde_saphyr::{Location, Spanned};

use super::{ScalarRules, YamlError};

/// A value in which each part has its position.
#[derive(Debug, Clone)]
pub(super) enum Node {
    /// The scalar as `kubectl` reads it.
    Scalar(Value),
    List(Vec<Spanned<Node>>),
    /// The entries. The key `~` is `None`.
    Map(Vec<(Spanned<Option<String>>, Spanned<Node>)>),
}

/// Interprets all scalars of a node by the rules of a tool. `text` is the text that the node was parsed from.
pub(super) fn read_scalars(
    node: &mut Spanned<Node>,
    text: &str,
    rules: ScalarRules,
) -> Result<(), YamlError> {
    let place = node.defined;
    match &mut node.value {
        // A scalar that the library reads as text is text for every parser: it is quoted, tagged, or means nothing
        // else.
        Node::Scalar(Value::String(_)) => {}
        Node::Scalar(value) => {
            if let Some(written) = without_tag(place, text) {
                *value = rules
                    .read(written, value.take())
                    .map_err(|message| error_at(place, message))?;
            }
        }
        Node::List(items) => {
            for item in items {
                read_scalars(item, text, rules)?;
            }
        }
        Node::Map(entries) => {
            for (key, value) in entries {
                let place = key.defined;
                let written = written(place, text).unwrap_or_default();
                if let Some(message) = rules.refuse_key(written).filter(|_| is_plain(written)) {
                    return Err(error_at(place, message));
                }
                key.value.get_or_insert_with(|| written.to_owned());
                read_scalars(value, text, rules)?;
            }
        }
    }
    Ok(())
}

/// Returns a scalar as it is written, without quotes. `None` for a list or a mapping.
pub(super) fn scalar_text(node: &Spanned<Node>, text: &str) -> Option<String> {
    match &node.value {
        Node::Scalar(Value::String(value)) => Some(value.clone()),
        // A scalar in quotes that the library does not read as text has a tag.
        Node::Scalar(_) => {
            let written = written(node.defined, text)?;
            Some(written.trim_matches(['"', '\'']).to_owned())
        }
        Node::List(_) | Node::Map(_) => None,
    }
}

pub(super) fn into_value(node: Node) -> Value {
    match node {
        Node::Scalar(value) => value,
        Node::List(items) => items.into_iter().map(|item| into_value(item.value)).collect(),
        Node::Map(entries) => entries
            .into_iter()
            .map(|(key, value)| (key.value.unwrap_or_default(), into_value(value.value)))
            .collect(),
    }
}

/// Returns the part of the text at a location.
fn written(place: Location, text: &str) -> Option<&str> {
    let span = place.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let length = usize::try_from(span.byte_len()?).ok()?;
    text.get(start..start.checked_add(length)?)
}

/// Returns a scalar as it is written; `None` if it has a tag, because the tag decides its type.
fn without_tag(place: Location, text: &str) -> Option<&str> {
    let written = written(place, text)?;
    let start = usize::try_from(place.span().byte_offset()?).ok()?;
    let mut before = text[..start]
        .split(|c: char| c.is_whitespace() || "[{,".contains(c))
        .rev();
    let property = before.find(|word| !word.is_empty() && !word.starts_with('&'));
    (!property.is_some_and(|word| word.starts_with('!'))).then_some(written)
}

fn is_plain(written: &str) -> bool {
    !written.starts_with(['"', '\''])
}

pub(super) fn error_at(place: Location, message: String) -> YamlError {
    let number = |n: u64| u32::try_from(n).ok().filter(|n| *n > 0);
    YamlError {
        line: number(place.line()),
        column: number(place.column()),
        message,
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> de::Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value that JSON has too")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Node, E> {
        // JSON does not have such a number. The rules of the tool interpret it later, by its written form.
        Ok(Node::Scalar(
            Number::from_f64(value).map_or(Value::Null, Value::Number),
        ))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }
}
