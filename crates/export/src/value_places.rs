//! The values that the user of a chart provides, and the locations in objects that need them.

use konverge_base::model::{FieldPath, ResourceId};
use serde::Serialize;

/// The section of a chart's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueGroup {
    /// Values of references to other resources or to secret stores.
    References,
    /// Data of a Secret. A value for `data` is in base64, as in the Secret.
    Secrets,
}

impl ValueGroup {
    /// Returns the key of the section in the values.
    pub fn key(self) -> &'static str {
        match self {
            Self::References => "references",
            Self::Secrets => "secrets",
        }
    }
}

/// A value that the user of a chart must provide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredValue {
    /// The section of the values.
    pub group: ValueGroup,
    /// The key: the reference as written, or the location in the Secret.
    pub name: String,
    /// For a reference to another resource of the Spec: the resource and the path in it.
    pub target: Option<(ResourceId, Vec<String>)>,
    /// The conversion of the value for the surrounding text.
    pub code: Option<ValueCode>,
}

impl RequiredValue {
    pub(crate) fn new(group: ValueGroup, name: String) -> Self {
        Self {
            group,
            name,
            target: None,
            code: None,
        }
    }
}

/// A conversion of a value for the surrounding text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueCode {
    /// The value is in base64, and the text is plain.
    Decode,
    /// The text is in base64, and the value is plain.
    Encode,
}

impl ValueCode {
    /// Returns the name of the Helm template function.
    pub(crate) fn helm_function(self) -> &'static str {
        match self {
            Self::Decode => "b64dec",
            Self::Encode => "b64enc",
        }
    }
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValuePart {
    /// A fixed text.
    Text(String),
    /// A value that replaces this part.
    Value(RequiredValue),
}

/// A location in an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// The object that has the value.
    pub id: ResourceId,
    /// The path, as a JSON pointer (RFC 6901).
    pub path: FieldPath,
}

/// A location in an object with an unknown value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValuePlace {
    /// The path, as a JSON pointer (RFC 6901).
    pub path: FieldPath,
    /// The text that marks the value in the object. It contains a digest of the whole Spec, so nothing else in the
    /// Spec can contain it.
    pub token: String,
    /// The parts of the text. If the only part is a value, the value keeps its type.
    pub parts: Vec<ValuePart>,
    /// The compressed size of the value in the Spec in bytes; 0 if the Spec does not contain it.
    pub(crate) compressed: usize,
}

impl ValuePlace {
    /// Returns the values of the location.
    pub fn values(&self) -> impl Iterator<Item = &RequiredValue> {
        self.parts.iter().filter_map(|part| match part {
            ValuePart::Value(value) => Some(value),
            ValuePart::Text(_) => None,
        })
    }
}

/// Returns the name of a location in an object, for the chart's values and for `--in-clear`.
pub(crate) fn place_name(id: &ResourceId, path: &FieldPath) -> String {
    format!("{id}{path}")
}
