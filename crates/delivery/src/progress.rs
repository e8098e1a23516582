//! What a controller says of a delivery: how far it is, and why its objects do not deliver a stack.

use serde_json::Value;

/// The text at a place of an object; empty if there is none.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns true if a setting has no content.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(values) => values.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

/// How far a controller is with a revision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeliveryProgress {
    /// It applied the revision, and what it applied is healthy.
    Healthy,
    /// It is not there yet: what it says.
    Waiting(String),
    /// It gave up: what it says.
    Failed(String),
}

/// Why an object of a controller does not deliver a stack, and what to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DeliveryProblem {
    pub what: String,
    /// `None`: the object is written again.
    pub remedy: Option<String>,
}

impl DeliveryProblem {
    pub(super) fn new(what: impl Into<String>, remedy: &str) -> Self {
        Self {
            what: what.into(),
            remedy: Some(remedy.to_owned()),
        }
    }

    /// It reads something else.
    pub(super) fn other_source(found: &str, ours: &str) -> Self {
        Self {
            what: format!(
                "it reads `{}`, and this stack is pushed to `{ours}`",
                found.escape_debug()
            ),
            remedy: None,
        }
    }
}
