//! Reads an object whose fields may be absent, null or of the wrong type, which all count as absent.

use jiff::Timestamp;
use konverge_base::model::GroupKind;
use serde_json::Value;

/// An object, or a part of an object.
#[derive(Clone, Copy)]
pub(super) struct ObjectView<'a>(pub &'a Value);

/// An entry of `status.conditions`.
#[derive(Clone, Copy)]
pub(super) struct Condition<'a> {
    /// The status: `True`, `False` or `Unknown`.
    pub status: &'a str,
    /// The reason, in one word.
    pub reason: &'a str,
    /// The message, in one sentence.
    pub message: &'a str,
    /// The `metadata.generation` for which the condition was written, if the controller reports it.
    pub observed_generation: Option<i64>,
    pub since: Option<Timestamp>,
}

impl Condition<'_> {
    pub(super) fn is_true(&self) -> bool {
        self.status == "True"
    }

    pub(super) fn is_false(&self) -> bool {
        self.status == "False"
    }

    /// Returns `Reason: message`, or the part that exists.
    pub(super) fn lowercase_words(&self) -> String {
        match (self.reason, self.message) {
            ("", message) => message.to_owned(),
            (reason, "") => reason.to_owned(),
            (reason, message) => format!("{reason}: {message}"),
        }
    }
}

impl<'a> ObjectView<'a> {
    /// Returns the value at an RFC 6901 pointer; null counts as absent.
    pub(super) fn at(&self, pointer: &str) -> Option<&'a Value> {
        self.0.pointer(pointer).filter(|value| !value.is_null())
    }

    /// Returns a string; empty if absent.
    pub(super) fn text(&self, pointer: &str) -> &'a str {
        self.at(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn number(&self, pointer: &str) -> Option<i64> {
        self.at(pointer).and_then(whole_number)
    }

    /// Returns a count; 0 if absent.
    pub(super) fn count(&self, pointer: &str) -> i64 {
        self.number(pointer).unwrap_or(0)
    }

    /// Returns a flag; false if absent.
    pub(super) fn flag(&self, pointer: &str) -> bool {
        self.at(pointer).and_then(Value::as_bool).unwrap_or(false)
    }

    /// Returns the items of a list; none if absent.
    pub(super) fn list(&self, pointer: &str) -> impl Iterator<Item = ObjectView<'a>> + use<'a> {
        let items = self.at(pointer).and_then(Value::as_array);
        items.into_iter().flatten().map(ObjectView)
    }

    pub(super) fn time(&self, pointer: &str) -> Option<Timestamp> {
        self.text(pointer).parse().ok()
    }

    /// Returns the group and kind of the object.
    pub(super) fn group_kind(&self) -> GroupKind<'a> {
        GroupKind::from_object(self.0)
    }

    pub(super) fn name(&self) -> &'a str {
        self.text("/metadata/name")
    }

    /// Returns the first condition of a type.
    pub(super) fn condition(&self, kind: &str) -> Option<Condition<'a>> {
        let found = self
            .list("/status/conditions")
            .find(|condition| condition.text("/type") == kind)?;
        Some(Condition::from(found))
    }

    pub(super) fn condition_is_true(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition.is_true())
    }
}

impl<'a> From<ObjectView<'a>> for Condition<'a> {
    fn from(view: ObjectView<'a>) -> Self {
        Self {
            status: view.text("/status"),
            reason: view.text("/reason"),
            message: view.text("/message"),
            observed_generation: view.number("/observedGeneration"),
            since: view.time("/lastTransitionTime"),
        }
    }
}

fn whole_number(value: &Value) -> Option<i64> {
    // YAML writers and Lua tools write 3 as 3.0, so whole floats count as integers.
    let from_float = |float: f64| (float.fract() == 0.0 && float.abs() < 9e15).then_some(float as i64);
    value.as_i64().or_else(|| value.as_f64().and_then(from_float))
}
