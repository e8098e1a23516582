//! The guard of an *unchanged* proof: a text that changes with everything besides the object on which the
//! proof depends. That is the server's version, the mutating admission, the schema, and the labels by which
//! webhooks and policies select.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::json_ref::JsonRef;
use konverge_base::model::Digest;

/// The guard for objects of one type in one namespace. With the default, of unknown influences, nothing can be proven.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guard {
    parts: String,
    /// True if admission also selects by the object's own labels.
    by_labels: bool,
}

impl Guard {
    /// Creates the guard over everything that influences the objects. `by_labels` is true if their own labels
    /// do.
    pub(crate) fn new(parts: &Value, by_labels: bool) -> Self {
        Self {
            parts: short(parts),
            by_labels,
        }
    }

    /// Returns true if nothing can be proven with this guard.
    pub(crate) fn is_void(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns the guard of one object.
    pub(crate) fn for_object(&self, live: &Value) -> Cow<'_, str> {
        let labels = live["metadata"]["labels"].as_object();
        self.with(labels.into_iter().flatten().map(|(key, value)| {
            let value = value.as_str().unwrap_or_default();
            (key.as_str(), value)
        }))
    }

    /// Returns the guard of one object that is only partly parsed.
    pub(crate) fn of_node(&self, live: &JsonRef<'_>) -> Cow<'_, str> {
        let labels = live.get("metadata").and_then(|metadata| metadata.get("labels"));
        let labels = labels.and_then(JsonRef::as_map);
        self.with(
            labels
                .into_iter()
                .flat_map(|labels| labels.iter())
                .map(|(key, value)| (key, value.text())),
        )
    }

    fn with<'l>(&self, labels: impl Iterator<Item = (&'l str, &'l str)>) -> Cow<'_, str> {
        if !self.by_labels {
            return Cow::Borrowed(&self.parts);
        }
        let mut labels: Vec<_> = labels.collect();
        labels.sort_unstable();
        Cow::Owned(short(&json!([self.parts, labels])))
    }
}

fn short(parts: &Value) -> String {
    Digest::of_json(parts).to_string()[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_count_where_admission_selects_by_them() {
        let object = |labels: Value| json!({"metadata": {"labels": labels}});
        let (one, two) = (object(json!({"a": "1", "b": "2"})), object(json!({"a": "1"})));
        let plain = Guard::new(&json!(["v"]), false);
        assert_eq!(plain.for_object(&one), plain.for_object(&two));
        let selecting = Guard::new(&json!(["v"]), true);
        assert_ne!(selecting.for_object(&one), selecting.for_object(&two));
        for object in [&one, &two, &json!({"metadata": {}})] {
            let text = object.to_string();
            let node: JsonRef<'_> = serde_json::from_str(&text).unwrap();
            assert_eq!(selecting.for_object(object), selecting.of_node(&node));
        }
        assert!(Guard::default().is_void() && !plain.is_void());
    }
}
