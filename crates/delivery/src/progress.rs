//! The progress of a delivery, and the problems that keep a controller from delivering a stack.

use serde_json::Value;

/// Returns the text at a JSON pointer of an object; empty if there is none.
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

/// The progress of a controller with one revision of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DeliveryProgress {
    /// The controller applied the revision, and the objects are healthy.
    Healthy,
    /// The controller has not applied the revision yet; the text is its message.
    Waiting(String),
    /// The controller failed; the text is its message.
    Failed(String),
}

/// A problem that keeps a controller's object from delivering a stack, with the remedy.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DeliveryProblem {
    pub what: String,
    /// The hint; with `None` the hint is to export the controller's object again.
    pub remedy: Option<String>,
}

impl DeliveryProblem {
    pub(super) fn new(what: impl Into<String>, remedy: &str) -> Self {
        Self {
            what: what.into(),
            remedy: Some(remedy.to_owned()),
        }
    }

    /// Returns the problem that the object reads another source.
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
