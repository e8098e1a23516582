//! Reads and writes YAML. All other code uses [`serde_json::Value`], whose keys keep their order.
//!
//! YAML is read as `kubectl` reads it (`0123` is octal, `yes` is a boolean, `<<` merges), but duplicate keys are
//! rejected. It is written so that Kubernetes' own parser reads every string as a string. Formats of other tools are
//! read with the rules of their own parsers ([`ScalarRules`]).

mod error;
mod json_layout;
mod node;
mod scalars;

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::Value;

pub use error::YamlError;
pub use json_layout::{JsonDocument, json_documents};
pub use scalars::{NULLS, ScalarRules};

impl From<serde_saphyr::Error> for YamlError {
    fn from(error: serde_saphyr::Error) -> Self {
        let location = error.location();
        let number = |n: u64| u32::try_from(n).ok().filter(|n| *n > 0);
        let text = error.to_string();
        Self {
            line: location.as_ref().and_then(|l| number(l.line())),
            column: location.as_ref().and_then(|l| number(l.column())),
            message: FOR_CALLERS.iter().fold(
                without_place(text.lines().next().unwrap_or_default()).to_owned(),
                |message, (theirs, ours)| message.replace(theirs, ours),
            ),
        }
    }
}

/// Phrases in error messages of the YAML library that are meant for programmers, each with a replacement for the author
/// of the text.
const FOR_CALLERS: [(&str, &str); 16] = [
    ("expected mapping start", "must be a mapping (`key: value`)"),
    ("expected sequence start", "must be a list"),
    ("expected string scalar", "must be a string"),
    (
        "cannot deserialize null into string; use Option<String>",
        "must be a string",
    ),
    ("invalid boolean", "must be `true` or `false`"),
    ("invalid u16", POSITIVE),
    ("invalid u32", POSITIVE),
    ("invalid u64", POSITIVE),
    ("invalid usize", POSITIVE),
    ("invalid i64", "must be a whole number"),
    ("invalid f64", "must be a number"),
    ("unknown variant ", "unknown value "),
    ("unknown field ", "unknown key "),
    ("missing field ", "missing key "),
    (", set DuplicateKeyPolicy in Options if acceptable", ""),
    (
        "multiple YAML documents detected; use from_str_multiple or from_str_multiple_with_options",
        "only one document is allowed, and a second begins here: remove `---` and the text after it",
    ),
];

const POSITIVE: &str = "must be a whole number, not negative and not too large";

/// Removes `line 3 column 3: …`, with which the library begins its messages: the position has its own fields
/// here.
fn without_place(message: &str) -> &str {
    let message = message.trim_start_matches("error: ");
    match message.split_once(": ") {
        Some((place, rest)) if place.starts_with("line ") && place.contains(" column ") => rest,
        _ => message,
    }
}

/// A value with the line at which it begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed<T> {
    /// The line, from 1, if known.
    pub line: Option<u32>,
    /// The value at the position.
    pub value: T,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Placed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = serde_saphyr::Spanned::<T>::deserialize(deserializer)?;
        let line = u32::try_from(spanned.referenced.line()).ok();
        Ok(Self {
            line: line.filter(|line| *line > 0),
            value: spanned.value,
        })
    }
}

/// A value whose scalars are not interpreted yet: what an unquoted scalar means depends on the tool that owns the
/// format.
#[derive(Debug, Clone)]
pub struct Written(serde_saphyr::Spanned<node::Node>);

impl Default for Written {
    /// Creates the value of a missing key.
    fn default() -> Self {
        let nowhere = serde_saphyr::Location::UNKNOWN;
        Self(serde_saphyr::Spanned {
            value: node::Node::Scalar(Value::Null),
            referenced: nowhere,
            defined: nowhere,
        })
    }
}

impl Written {
    /// Interprets the value with the rules of a tool. `text` must be the whole text that the value was parsed from.
    ///
    /// # Errors
    /// A number or a key is invalid for that tool.
    pub fn read(mut self, text: &str, rules: ScalarRules) -> Result<Value, YamlError> {
        node::read_scalars(&mut self.0, text, rules)?;
        Ok(node::into_value(self.0.value))
    }

    /// Returns a scalar as it is written, without quotes; `None` for a list or a mapping. `text` must be the whole text
    /// that the value was parsed from.
    pub fn as_text(&self, text: &str) -> Option<String> {
        node::scalar_text(&self.0, text)
    }

    /// Returns a scalar as `kubectl` reads it; `None` for a list or a mapping.
    pub fn by_kubectl(&self) -> Option<&Value> {
        match &self.0.value {
            node::Node::Scalar(value) => Some(value),
            node::Node::List(_) | node::Node::Map(_) => None,
        }
    }

    /// Creates an error at the position of this value.
    pub fn error(&self, message: &str) -> YamlError {
        node::error_at(self.0.defined, message.to_owned())
    }
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde_saphyr::Spanned::deserialize(deserializer).map(Self)
    }
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! { legacy_octal_numbers: true }
}

/// Returns the [`options`] for values that [`ScalarRules`] interprets, which allow numbers that JSON does not have.
fn options_for_nodes() -> serde_saphyr::Options {
    serde_saphyr::options! {
        legacy_octal_numbers: true,
        non_finite_float_policy: serde_saphyr::NonFiniteFloatPolicy::PassThrough,
    }
}

/// Parses one document into a type. An empty text is `null`.
///
/// # Errors
/// The text is not YAML, has more than one document, or does not match the type.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    serde_saphyr::from_str_with_options(text, options()).map_err(YamlError::from)
}

/// Parses one document like [`from_str`], into a type that contains [`Written`] values.
///
/// # Errors
/// Errors of [`from_str`].
pub fn from_written_str<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    serde_saphyr::from_str_with_options(text, options_for_nodes()).map_err(YamlError::from)
}

/// Parses one document like [`from_str`], however long it is: the limits on the number of its nodes grow with its
/// length. A text that is JSON is parsed as JSON, which does not have the limits of YAML (such as keys of at most 1,024
/// characters).
///
/// # Errors
/// Errors of [`from_str`].
pub fn from_long_str<T: DeserializeOwned>(text: &str) -> Result<T, YamlError> {
    if let Some(value) = as_json(text) {
        return Ok(value);
    }
    let most = text.len().max(1_000);
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        budget: serde_saphyr::budget! { max_nodes: most, max_events: 2 * most },
    };
    serde_saphyr::from_str_with_options(text, options).map_err(YamlError::from)
}

/// Parses a text that is JSON, which is faster than parsing it as YAML; `None` if it is not JSON.
fn as_json<T: DeserializeOwned>(text: &str) -> Option<T> {
    let is_json = text.trim_start().starts_with(['{', '[']);
    is_json.then(|| serde_json::from_str(text).ok()).flatten()
}

/// Parses every non-empty document of a `---`-separated text. A text that is JSON is one document.
///
/// # Errors
/// The text is not YAML.
pub fn documents(text: &str) -> Result<Vec<Value>, YamlError> {
    documents_with(text, options())
}

/// Parses every document of a text like [`documents`], however long it is.
///
/// # Errors
/// The text is not YAML.
pub fn long_documents(text: &str) -> Result<Vec<Value>, YamlError> {
    let most = text.len().max(1_000);
    let options = serde_saphyr::options! {
        legacy_octal_numbers: true,
        budget: serde_saphyr::budget! {
            max_nodes: most, max_events: 2 * most, max_documents: most, max_reader_input_bytes: None,
            max_total_scalar_bytes: most,
        },
    };
    documents_with(text, options)
}

fn documents_with(text: &str, options: serde_saphyr::Options) -> Result<Vec<Value>, YamlError> {
    if let Some(document) = as_json(text) {
        return Ok(vec![document]);
    }
    let all: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)?;
    Ok(all.into_iter().filter(|document| !document.is_null()).collect())
}

/// Writes a value as block YAML, indented by two spaces, with a newline at the end.
pub fn to_string<T: Serialize>(value: &T) -> String {
    write(value, serde_saphyr::ser_options! { folded_wrap_chars: 1_000_000 })
}

/// Writes a value like [`to_string`], but with quotes around each string, because parsers differ in what they read as a
/// date or a number.
pub fn to_quoted_string<T: Serialize>(value: &T) -> String {
    write(value, serde_saphyr::ser_options! { quote_all: true })
}

fn write<T: Serialize>(value: &T, options: serde_saphyr::SerializerOptions) -> String {
    let mut text = serde_saphyr::to_string_with_options(value, options)
        .expect("JSON values have string keys and no anchors: every one has a YAML form");
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// With a feature of `serde_json` that a dependency may turn on, the key of a map would hide the other keys.
    #[test]
    fn a_key_of_a_map_has_no_meaning() {
        for key in ["RawValue", "Number"] {
            let text = format!(r#"{{"$serde_json::private::{key}": "{{}}", "a": 1}}"#);
            let read: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(read.as_object().unwrap().len(), 2, "{key}");
            let copied: Value = serde_json::from_value(read.clone()).unwrap();
            assert_eq!(
                (&documents(&text).unwrap(), &copied),
                (&vec![read.clone()], &read)
            );
        }
    }

    #[test]
    fn a_second_document_is_told_in_words_for_its_author() {
        let error = from_str::<Value>("a: 1\n---\nb: 2\n").unwrap_err();
        assert_eq!(error.line, Some(3));
        assert!(
            error.message.starts_with("only one document is allowed"),
            "{error}"
        );
    }

    #[test]
    fn awkward_strings_round_trip() {
        for text in [
            "yes",
            "no",
            "1_000",
            "0o17",
            "1e3",
            "~",
            "null",
            "- a",
            "a: b",
            "#x",
            " lead",
            "tail ",
            "1:30",
            "",
            "\u{0}",
            "multi\nline\n",
            "a\n\n",
            "2020-01-01",
            ".inf",
            "=",
            "<<",
            "y",
        ] {
            let value = json!({"key": text, "list": [text]});
            let back: Value = from_str(&to_string(&value)).unwrap();
            assert_eq!(back, value, "{text:?} as {}", to_string(&value));
        }
    }

    #[test]
    fn errors_have_a_place() {
        let error = from_str::<Value>("a: 1\nb: [1, 2\nc: 3\n").unwrap_err();
        assert!(error.line.is_some(), "{error:?}");
        assert!(
            from_str::<Value>("a: 1\na: 2\n")
                .unwrap_err()
                .message
                .contains('a')
        );
    }

    #[test]
    fn long_lines_are_not_folded() {
        let value = json!({"key": "word ".repeat(60).trim_end()});
        assert_eq!(to_string(&value).lines().count(), 1);
    }

    #[test]
    fn what_a_value_must_be_is_said_without_names_of_types() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[allow(dead_code)]
        struct Shape {
            list: Option<Vec<String>>,
            count: Option<u32>,
            flag: Option<bool>,
            inner: Option<Box<Shape>>,
        }
        let said = |text: &str| from_str::<Shape>(text).unwrap_err().message;
        for (text, expected) in [
            ("list: a", "must be a list"),
            ("list: [[a]]", "must be a string"),
            ("count: -1", POSITIVE),
            ("flag: maybe", "must be `true` or `false`"),
            ("inner: 5", "must be a mapping (`key: value`)"),
            (
                "other: 5",
                "unknown key `other`, expected one of list, count, flag, inner",
            ),
        ] {
            assert_eq!(said(text), expected, "{text}");
        }
    }
}
