//! The paths of fields in plans, reviews and records: RFC 6901, but an item of a keyed list is written with its label
//! (`/spec/containers/name=web/image`).

use serde_json::{Map, Value};

/// A path in a document. The empty path is the whole document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldPath<'a>(&'a str);

impl<'a> FieldPath<'a> {
    /// Parses a path. Text before the first slash is ignored.
    pub fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// Returns the path as written.
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// Returns the components of the path, unescaped.
    pub fn components(self) -> impl DoubleEndedIterator<Item = String> + Clone + 'a {
        let mut parts = self.0.split('/');
        parts.next();
        parts.map(unescape)
    }

    /// Splits off the first component; `None` for the empty path.
    pub fn split_first(self) -> Option<(String, FieldPath<'a>)> {
        let path = self.0.strip_prefix('/')?;
        let end = path.find('/').unwrap_or(path.len());
        Some((unescape(&path[..end]), Self(&path[end..])))
    }

    /// Splits off the last component; `None` for the empty path.
    pub fn split_last(self) -> Option<(FieldPath<'a>, String)> {
        let (parent, last) = self.0.rsplit_once('/')?;
        Some((Self(parent), unescape(last)))
    }

    /// Returns the value at the path. Items of lists are found by their label alone.
    pub fn get(self, document: &Value) -> Option<&Value> {
        self.components()
            .try_fold(document, |value, component| match value {
                Value::Object(map) => map.get(&component),
                Value::Array(items) => items.iter().find(|item| is_item(item, &component)),
                _ => None,
            })
    }

    /// Returns the value at the path. Items of lists are found by their index or their label.
    pub fn get_by_index(self, document: &Value) -> Option<&Value> {
        self.components()
            .try_fold(document, |value, component| match value {
                Value::Object(map) => map.get(&component),
                Value::Array(items) => items.get(item_index(items, &component)?),
                _ => None,
            })
    }

    /// Returns a mutable reference to the value at the path. Items of lists are found by their label alone.
    pub fn get_mut(self, document: &mut Value) -> Option<&mut Value> {
        self.components()
            .try_fold(document, |value, component| match value {
                Value::Object(map) => map.get_mut(&component),
                Value::Array(items) => items.iter_mut().find(|item| is_item(item, &component)),
                _ => None,
            })
    }

    /// Returns the map that contains the value at the path, and the key of the value in it.
    pub fn member(self, document: &mut Value) -> Option<(&mut Map<String, Value>, String)> {
        let (parent, last) = self.split_last()?;
        Some((parent.get_mut(document)?.as_object_mut()?, last))
    }

    /// Removes a member of a map or an item of a list, if it exists.
    pub fn remove(self, document: &mut Value) {
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

/// Escapes one component of a path, as RFC 6901 requires.
pub fn escape_component(component: &str) -> String {
    component.replace('~', "~0").replace('/', "~1")
}

/// Removes the escapes of one component of a path.
pub fn unescape(component: &str) -> String {
    component.replace("~1", "/").replace("~0", "~")
}

/// Appends a component to a path.
pub fn join_path(path: &str, component: &str) -> String {
    format!("{path}/{}", escape_component(component))
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
        let get = |path| FieldPath::new(path).get(&pod).cloned();
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
