//! The paths of fields in plans, reviews and records: RFC 6901, but an item of a keyed list is written with its label
//! (`/spec/containers/name=web/image`).

use std::borrow::Borrow;

use derive_more::{AsRef, Debug, Display, From};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A path in a document. The empty path is the whole document.
#[derive(
    Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, AsRef, Debug, Display, From,
)]
#[serde(transparent)]
#[as_ref(str)]
#[debug("{_0:?}")]
pub struct FieldPath(String);

impl FieldPath {
    /// Returns the path with this text, as it is written: a slash and an escaped name for each component.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the path of the whole document.
    pub fn root() -> Self {
        Self::default()
    }

    /// Returns the path of these components.
    pub fn from_components<C: AsRef<str>>(components: impl IntoIterator<Item = C>) -> Self {
        components
            .into_iter()
            .fold(Self::root(), |path, component| path.join(component.as_ref()))
    }

    /// Returns the path as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true for the path of the whole document.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends a component: the key of a map, or the label of an item.
    #[must_use]
    pub fn join(&self, component: &str) -> Self {
        Self(format!("{self}/{}", escape_component(component)))
    }

    /// Appends the index of an item of a list without labels.
    #[must_use]
    pub fn item(&self, index: usize) -> Self {
        Self(format!("{self}/{index}"))
    }

    /// Returns true if the path is `above` or leads through it.
    pub fn is_within(&self, above: impl AsRef<str>) -> bool {
        let rest = self.0.strip_prefix(above.as_ref());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns the components of the path, unescaped.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = String> + Clone {
        let mut parts = self.0.split('/');
        parts.next();
        parts.map(unescape)
    }

    /// Splits off the first component; `None` for the empty path.
    pub fn split_first(&self) -> Option<(String, Self)> {
        let path = self.0.strip_prefix('/')?;
        let end = path.find('/').unwrap_or(path.len());
        Some((unescape(&path[..end]), Self::new(&path[end..])))
    }

    /// Splits off the last component; `None` for the empty path.
    pub fn split_last(&self) -> Option<(Self, String)> {
        let (parent, last) = self.0.rsplit_once('/')?;
        Some((Self::new(parent), unescape(last)))
    }

    /// Returns the value at the path. Items of lists are found by their label alone.
    pub fn get<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        self.components()
            .try_fold(document, |value, component| match value {
                Value::Object(map) => map.get(&component),
                Value::Array(items) => items.iter().find(|item| is_item(item, &component)),
                _ => None,
            })
    }

    /// Returns the value at the path. Items of lists are found by their index or their label.
    pub fn get_by_index<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        self.components()
            .try_fold(document, |value, component| match value {
                Value::Object(map) => map.get(&component),
                Value::Array(items) => items.get(item_index(items, &component)?),
                _ => None,
            })
    }

    /// Returns a mutable reference to the value at the path. Items of lists are found by their label alone.
    pub fn get_mut<'v>(&self, document: &'v mut Value) -> Option<&'v mut Value> {
        self.components()
            .try_fold(document, |value, component| match value {
                Value::Object(map) => map.get_mut(&component),
                Value::Array(items) => items.iter_mut().find(|item| is_item(item, &component)),
                _ => None,
            })
    }

    /// Returns the map that contains the value at the path, and the key of the value in it.
    pub fn member<'v>(&self, document: &'v mut Value) -> Option<(&'v mut Map<String, Value>, String)> {
        let (parent, last) = self.split_last()?;
        Some((parent.get_mut(document)?.as_object_mut()?, last))
    }

    /// Removes a member of a map or an item of a list, if it exists.
    pub fn remove(&self, document: &mut Value) {
        let Some((parent, last)) = self.split_last() else {
            return;
        };
        match parent.get_mut(document) {
            Some(Value::Object(map)) => drop(map.shift_remove(&last)),
            Some(Value::Array(items)) => items.retain(|item| !is_item(item, &last)),
            _ => {}
        }
    }
}

impl From<&str> for FieldPath {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl Borrow<str> for FieldPath {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for FieldPath {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for FieldPath {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

/// Escapes one component of a path, as RFC 6901 requires.
pub fn escape_component(component: &str) -> String {
    component.replace('~', "~0").replace('/', "~1")
}

/// Removes the escapes of one component of a path.
pub fn unescape(component: &str) -> String {
    component.replace("~1", "/").replace("~0", "~")
}

/// Returns the label of an item: `name=web`. With several keys only those that are present:
/// `containerPort=53,protocol=UDP`.
pub fn label(item: &Value, keys: &[&str]) -> String {
    let parts = keys.iter().filter_map(|key| {
        let text = match item.get(key)? {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        (*key != "protocol" || text != "TCP").then(|| format!("{key}={text}"))
    });
    parts.collect::<Vec<_>>().join(",")
}

/// Returns true if a component such as `name=web` names this item.
pub fn is_item(item: &Value, component: &str) -> bool {
    let keys: Vec<&str> = component
        .split(',')
        .filter_map(|part| part.split_once('=').map(|(key, _)| key))
        .collect();
    !keys.is_empty() && label(item, &keys) == component
}

/// Returns the index of the item that a component names, by its index or its label.
pub fn item_index(items: &[Value], component: &str) -> Option<usize> {
    match component.parse::<usize>() {
        Ok(index) => (index < items.len()).then_some(index),
        Err(_) => items.iter().position(|item| is_item(item, component)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Value {
        json!({"spec": {"containers": [{"name": "web", "args": ["a", "b"]}, {"name": "log"}]}, "a/b": {"~": 1}})
    }

    #[test]
    fn items_are_found_by_label_and_names_without_escapes() {
        let pod = pod();
        let get = |path: &str| FieldPath::new(path).get(&pod).cloned();
        assert_eq!(get(""), Some(pod.clone()));
        assert_eq!(get("/spec/containers/name=web/args"), Some(json!(["a", "b"])));
        assert_eq!(get("/a~1b/~0"), Some(json!(1)));
        assert_eq!(get("/spec/containers/1"), None);
        let by_index = FieldPath::new("/spec/containers/name=web/args/1").get_by_index(&pod);
        assert_eq!(by_index, Some(&json!("b")));
    }

    #[test]
    fn a_path_is_split_at_both_ends() {
        let path = FieldPath::new("/a~1b/c");
        let (first, rest) = path.split_first().expect("a name");
        assert_eq!((first.as_str(), rest.as_str()), ("a/b", "/c"));
        let (parent, last) = path.split_last().expect("a name");
        assert_eq!((parent.as_str(), last.as_str()), ("/a~1b", "c"));
        assert_eq!(FieldPath::new("").split_first(), None);
        assert_eq!(FieldPath::new("").split_last(), None);
    }

    #[test]
    fn components_are_appended_with_escapes() {
        let path = FieldPath::root().join("a/b").join("~").item(3);
        assert_eq!(path, "/a~1b/~0/3");
        assert_eq!(path.components().collect::<Vec<_>>(), ["a/b", "~", "3"]);
        assert_eq!(FieldPath::from_components(path.components()), path);
        assert_eq!(serde_json::to_value(&path).unwrap(), json!("/a~1b/~0/3"));
        assert_eq!(
            serde_json::from_value::<FieldPath>(json!("/a~1b/~0/3")).unwrap(),
            path
        );
    }

    #[test]
    fn a_path_is_within_itself_and_what_is_above() {
        let path = FieldPath::new("/spec/ports/port=80");
        for above in ["", "/spec", "/spec/ports", "/spec/ports/port=80"] {
            assert!(path.is_within(above), "{above}");
        }
        for other in [
            "/spec/port",
            "/spec/ports/port=8",
            "/spec/ports/port=80/name",
            "/data",
        ] {
            assert!(!path.is_within(other), "{other}");
        }
    }

    #[test]
    fn what_is_not_there_is_not_removed() {
        let mut changed = pod();
        FieldPath::new("/spec/containers/name=none").remove(&mut changed);
        FieldPath::new("/spec/none/deep").remove(&mut changed);
        assert_eq!(changed, pod());
        FieldPath::new("/spec/containers/name=web").remove(&mut changed);
        FieldPath::new("/a~1b/~0").remove(&mut changed);
        assert_eq!(
            changed,
            json!({"spec": {"containers": [{"name": "log"}]}, "a/b": {}})
        );
    }
}
