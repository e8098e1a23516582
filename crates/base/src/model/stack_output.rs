//! Outputs: values that one stack publishes by name and that other stacks read.
//!
//! A stack publishes outputs with `konverge/outputs`, and declares the stacks that it reads in its `stack.yaml`
//! (`reads`). Its Spec then contains `$stack_output.<alias>.<name>` anywhere in a text. Each of these references is
//! replaced by the value before the stack is planned. A value that is not known yet becomes a marker that names the
//! output ([`masked_value::unknown_output`]).

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    str::FromStr,
};

use derive_more::Display;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ResourceId, StackId, ids::text_id, json_parts::any_part, masked_value};

/// The prefix of a reference to an output of another stack.
pub const MARK: &str = "$stack_output.";

/// The key of the outputs in a Spec: at the top level, or in the `extensions` of a resource.
pub const OUTPUTS_KEY: &str = "konverge/outputs";

/// The maximum size of all outputs of a stack as JSON, in bytes.
pub const MAX_BYTES: usize = 64 * 1024;

text_id!(
    /// The name of an output, or the alias of a stack that is read: a letter or `_`, then letters, digits, `_` and
    /// `-`.
    OutputName,
    check_name,
    InvalidName
);

/// The error for a text that is not a valid name of an output.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a valid name: write a letter or `_`, then at most 62 letters, digits, `_` and `-`")]
pub struct InvalidName(String);

fn check_name(text: &str) -> Result<(), InvalidName> {
    let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if begins && text.len() <= 63 && text.chars().all(is_name) {
        return Ok(());
    }
    let shown = text.chars().take(80).flat_map(char::escape_debug).collect();
    Err(InvalidName(shown))
}

/// The stacks whose outputs a stack reads, by alias.
pub type StackReads = BTreeMap<OutputName, StackId>;

/// The identity of an output of another stack.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display)]
#[display("`{name}` of {stack}")]
pub struct OutputId {
    /// The stack that publishes the output.
    pub stack: StackId,
    /// The name of the output in that stack.
    pub name: OutputName,
}

/// An output in the state of the stack that publishes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedOutput {
    /// The value. It is never a secret.
    pub value: Value,
    /// The keyed digest of the value.
    pub digest: String,
    /// The serial of the state that recorded this value first.
    pub serial: u64,
    /// The resources that the value was read from. While one of them is replaced or gone, the value is unknown.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub resources: BTreeSet<ResourceId>,
}

/// An output of another stack, in the state of the stack that read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedRead {
    /// The output that was read.
    #[serde(flatten)]
    pub output: OutputId,
    /// The keyed digest of the value that was applied.
    pub digest: String,
    /// The serial of the publishing stack's state.
    pub serial: u64,
    /// The epoch of the lease under which the publishing stack's state was written.
    pub epoch: u64,
}

/// One reference to an output in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputMark {
    /// The position in the text, in bytes.
    pub place: Range<usize>,
    /// The alias of the stack.
    pub alias: OutputName,
    /// The name of the output.
    pub name: OutputName,
}

/// The error for a reference to an output that cannot be parsed or replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    /// The reference has a syntax error.
    #[error("`{0}` is not `$stack_output.<alias>.<name>`")]
    Malformed(String),
    /// `reads` has no such alias.
    #[error("`{0}` is not declared in `reads` of the stack's `stack.yaml`")]
    Undeclared(OutputName),
    /// The value is a list or a map inside a longer text.
    #[error("{output} is a {what}, which cannot be part of a longer text")]
    NotText {
        /// The output whose value is a list or a map.
        output: OutputId,
        /// The type of the value.
        what: &'static str,
    },
}

/// Returns true for a character that a name may contain.
fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// Returns the references to outputs in a text, in order.
///
/// # Errors
/// A reference has a syntax error.
pub fn marks(text: &str) -> Result<Vec<OutputMark>, OutputError> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(offset) = text[at..].find(MARK) {
        let start = at + offset;
        let malformed = || OutputError::Malformed(excerpt(&text[start..]));
        let (alias, end) = word(text, start + MARK.len()).ok_or_else(malformed)?;
        let is_dot = text[end..].starts_with('.');
        let (name, end) = word(text, end + 1).filter(|_| is_dot).ok_or_else(malformed)?;
        found.push(OutputMark {
            place: start..end,
            alias,
            name,
        });
        at = end;
    }
    Ok(found)
}

/// Returns the name at a position, and its end.
fn word(text: &str, start: usize) -> Option<(OutputName, usize)> {
    let rest = text.get(start..)?;
    let length = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
    Some((rest[..length].parse().ok()?, start + length))
}

fn excerpt(text: &str) -> String {
    text.chars().take(120).flat_map(char::escape_debug).collect()
}

/// Returns true if a text of the value contains a reference to an output.
pub fn holds_mark(value: &Value) -> bool {
    any_part(value, |part| match part {
        Value::String(text) => text.contains(MARK),
        Value::Object(map) => map.keys().any(|key| key.contains(MARK)),
        _ => false,
    })
}

/// The values of the outputs that a stack reads, and the texts that were replaced.
pub struct OutputFill<'a> {
    /// The stacks that are declared under `reads`.
    pub reads: &'a StackReads,
    /// The known values. A missing one becomes known after the apply of its stack.
    pub known: &'a BTreeMap<OutputId, Value>,
    /// Each text with references to outputs, in the form of its marker, with the value that replaced it.
    pub filled: FilledTexts,
}

/// The value that replaced each text with references to outputs, by the text in its marker.
pub type FilledTexts = BTreeMap<String, Value>;

impl OutputFill<'_> {
    /// Returns the attributes with each reference to an output replaced by its value, or by the marker of an unknown
    /// value. A text that is exactly one reference becomes the value with its type.
    ///
    /// # Errors
    /// See [`OutputError`].
    pub fn fill(&mut self, attributes: &Map<String, Value>) -> Result<Map<String, Value>, OutputError> {
        attributes
            .iter()
            .map(|(key, value)| Ok((key.clone(), self.value(value)?)))
            .collect()
    }

    fn value(&mut self, value: &Value) -> Result<Value, OutputError> {
        match value {
            Value::String(text) if text.contains(MARK) => self.text(text),
            Value::Array(items) => items.iter().map(|item| self.value(item)).collect(),
            Value::Object(map) => Ok(Value::Object(self.fill(map)?)),
            other => Ok(other.clone()),
        }
    }

    fn text(&mut self, text: &str) -> Result<Value, OutputError> {
        let marks = marks(text)?;
        let (mut shown, mut filled) = (String::new(), Some(String::new()));
        let mut whole = None;
        let mut at = 0;
        for mark in &marks {
            let output = self.output(mark)?;
            shown.push_str(&text[at..mark.place.start]);
            shown.push_str(&format!("${{{}.{}}}", output.stack, output.name));
            let value = self.known.get(&output);
            if mark.place == (0..text.len()) {
                whole = value.cloned();
            }
            filled = match (filled, value) {
                (Some(mut filled), Some(value)) => {
                    filled.push_str(&text[at..mark.place.start]);
                    match as_text(value) {
                        Ok(value) => filled.push_str(&value),
                        Err(_) if whole.is_some() => {}
                        Err(what) => return Err(OutputError::NotText { output, what }),
                    }
                    Some(filled)
                }
                _ => None,
            };
            at = mark.place.end;
        }
        shown.push_str(&text[at..]);
        let value = match (whole, filled) {
            (Some(value), _) => value,
            (None, Some(filled)) => Value::String(filled + &text[at..]),
            (None, None) => masked_value::unknown_output(&shown),
        };
        self.filled.insert(shown, value.clone());
        Ok(value)
    }

    fn output(&self, mark: &OutputMark) -> Result<OutputId, OutputError> {
        let undeclared = || OutputError::Undeclared(mark.alias.clone());
        Ok(OutputId {
            stack: self.reads.get(&mark.alias).ok_or_else(undeclared)?.clone(),
            name: mark.name.clone(),
        })
    }
}

/// Returns a value as a part of a longer text. The error is the type of a value that has no text.
fn as_text(value: &Value) -> Result<Cow<'_, str>, &'static str> {
    match value {
        Value::String(text) => Ok(Cow::Borrowed(text)),
        Value::Number(_) | Value::Bool(_) => Ok(Cow::Owned(value.to_string())),
        Value::Array(_) => Err("list"),
        Value::Object(_) => Err("map"),
        Value::Null => Err("null"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fill(text: &str) -> Result<Value, OutputError> {
        let reads = BTreeMap::from([("db".parse().unwrap(), "shop/database".parse().unwrap())]);
        let output = |name: &str| OutputId {
            stack: "shop/database".parse().unwrap(),
            name: name.parse().unwrap(),
        };
        let known = BTreeMap::from([
            (output("host"), json!("db.local")),
            (output("port"), json!(5432)),
            (output("zones"), json!(["a", "b"])),
        ]);
        let mut fill = OutputFill {
            reads: &reads,
            known: &known,
            filled: FilledTexts::new(),
        };
        fill.value(&json!(text))
    }

    #[test]
    fn a_whole_value_keeps_its_type_and_a_part_becomes_text() {
        for (text, expected) in [
            ("$stack_output.db.port", json!(5432)),
            ("$stack_output.db.zones", json!(["a", "b"])),
            (
                "pg://$stack_output.db.host:$stack_output.db.port/x",
                json!("pg://db.local:5432/x"),
            ),
            ("$stack_output.db.host.example", json!("db.local.example")),
            ("no mark", json!("no mark")),
        ] {
            assert_eq!(fill(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_known_names_the_outputs_that_are_awaited() {
        let waits = masked_value::unknown_output("pg://${shop/database.later}:${shop/database.port}");
        assert_eq!(
            fill("pg://$stack_output.db.later:$stack_output.db.port"),
            Ok(waits)
        );
        let waits = masked_value::unknown_output("${shop/database.later}");
        assert_eq!(fill("$stack_output.db.later"), Ok(waits));
    }

    #[test]
    fn what_can_not_be_filled_in_is_said() {
        for text in [
            "$stack_output.",
            "$stack_output.db",
            "$stack_output.db.",
            "$stack_output..x",
            "$stack_output.db.9",
        ] {
            assert!(matches!(fill(text), Err(OutputError::Malformed(_))), "{text}");
        }
        let undeclared = fill("$stack_output.other.host").unwrap_err();
        assert!(
            undeclared.to_string().contains("`other` is not declared"),
            "{undeclared}"
        );
        let list = fill("a $stack_output.db.zones").unwrap_err();
        assert_eq!(
            list.to_string(),
            "`zones` of shop/database is a list, which cannot be part of a longer text"
        );
    }

    #[test]
    fn a_name_is_short_and_plain() {
        for name in ["a", "_", "db_host-2"] {
            assert!(name.parse::<OutputName>().is_ok(), "{name}");
        }
        for name in ["", "2a", "-a", "a.b", "a b", "é", &"a".repeat(64)] {
            assert!(name.parse::<OutputName>().is_err(), "{name}");
        }
    }
}
