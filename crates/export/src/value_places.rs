//! The values that the user of a chart gives, and the places in the objects that need them.

use konverge_base::model::ResourceId;

/// Part of a chart's values that a value belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueGroup {
    /// Values of references.
    References,
    /// Data of a Secret. A value of `data` is in base64, as in the Secret.
    Secrets,
}

impl ValueGroup {
    /// The key in the values.
    pub fn key(self) -> &'static str {
        match self {
            Self::References => "references",
            Self::Secrets => "secrets",
        }
    }
}

/// One value that the user of a chart must give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredValue {
    /// The part of the values.
    pub group: ValueGroup,
    /// The key: the reference as written, or the place in the Secret.
    pub name: String,
    /// Of a reference to another resource of the Spec, the resource and the path in it.
    pub target: Option<(ResourceId, Vec<String>)>,
    /// Conversion of the value for the text around it.
    pub code: Option<ValueCode>,
}

/// Conversion of a value for the text around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueCode {
    /// The value is in base64, and the text is not.
    Decode,
    /// The text is in base64, and the value is not.
    Encode,
}

impl ValueCode {
    /// The function of Helm's templates.
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
    /// It stays.
    Text(String),
    /// It is replaced.
    Value(RequiredValue),
}

/// A place in an object whose value is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValuePlace {
    /// The place, as a path of RFC 6901.
    pub path: String,
    /// Text that marks the value in the object. Nothing else in the Spec contains it: it is made from the digest of
    /// the whole Spec.
    pub token: String,
    /// Parts of the value. A single part that is a value keeps its type.
    pub parts: Vec<ValuePart>,
    /// The bytes of the value in the Spec, compressed; 0 if the Spec does not know it.
    pub(crate) compressed: usize,
}

impl ValuePlace {
    /// The values of the place.
    pub fn values(&self) -> impl Iterator<Item = &RequiredValue> {
        self.parts.iter().filter_map(|part| match part {
            ValuePart::Value(value) => Some(value),
            ValuePart::Text(_) => None,
        })
    }
}

/// The name of a place in an object: that of a value, and that of `--in-clear`.
pub(crate) fn place_name(id: &ResourceId, path: &str) -> String {
    format!("{id}{path}")
}
