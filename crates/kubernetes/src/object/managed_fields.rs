//! `managedFields`: which manager set which fields. Konverge's own entry is enough to prove that nothing
//! changed; the other entries show who changed a field.

use serde_json::{Map, Value};

use super::super::{FIELD_MANAGER, api::discovery::items};
use konverge_base::model::{FieldPath, diff, field_path::is_item};

/// One entry of `metadata.managedFields`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldsEntry<'a> {
    pub manager: &'a str,
    /// `Apply` or `Update`.
    pub operation: &'a str,
    pub subresource: &'a str,
    pub api_version: &'a str,
    pub time: &'a str,
    pub fields: &'a Map<String, Value>,
}

impl FieldsEntry<'_> {
    /// Returns true if the manager of this entry updated the object. Such a manager does not declare its
    /// fields again in each run, as a manager that applies does.
    pub(crate) fn is_update(&self) -> bool {
        self.operation == "Update" && self.subresource.is_empty()
    }
}

/// Returns all readable entries of an object.
pub(crate) fn entries(object: &Value) -> impl Iterator<Item = FieldsEntry<'_>> {
    items(&object["metadata"]["managedFields"]).filter_map(|entry| {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        Some(FieldsEntry {
            manager: text("manager"),
            operation: text("operation"),
            subresource: text("subresource"),
            api_version: text("apiVersion"),
            time: text("time"),
            fields: entry.get("fieldsV1")?.as_object()?,
        })
    })
}

/// Returns Konverge's own field set, if there is exactly one entry and it has that version.
pub(crate) fn own_fields<'a>(object: &'a Value, api_version: &str) -> Option<&'a Map<String, Value>> {
    let mut mine = entries(object).filter(|e| e.manager == FIELD_MANAGER && e.subresource.is_empty());
    let entry = mine.next()?;
    let only = mine.next().is_none();
    (only && entry.operation == "Apply" && entry.api_version == api_version).then_some(entry.fields)
}

/// Returns a field set without the fields of another.
pub(crate) fn subtract(fields: &Map<String, Value>, others: &Map<String, Value>) -> Map<String, Value> {
    let kept = fields.iter().filter_map(|(key, below)| {
        let (Some(mine), Some(theirs)) = (below.as_object(), others.get(key).and_then(Value::as_object))
        else {
            return Some((key.clone(), below.clone()));
        };
        if mine.is_empty() {
            return (!theirs.is_empty()).then(|| (key.clone(), below.clone()));
        }
        let left = subtract(mine, theirs);
        (!left.is_empty()).then(|| (key.clone(), Value::Object(left)))
    });
    kept.collect()
}

/// Returns the intersection of two field sets.
pub(crate) fn intersection(fields: &Map<String, Value>, others: &Map<String, Value>) -> Map<String, Value> {
    let common = fields.iter().filter_map(|(key, below)| {
        let (mine, theirs) = (below.as_object()?, others.get(key)?.as_object()?);
        if mine.is_empty() || theirs.is_empty() {
            return (mine.is_empty() && theirs.is_empty()).then(|| (key.clone(), below.clone()));
        }
        let common = intersection(mine, theirs);
        (!common.is_empty()).then(|| (key.clone(), Value::Object(common)))
    });
    common.collect()
}

/// Returns the union of two field sets.
pub(crate) fn union(fields: &Map<String, Value>, others: &Map<String, Value>) -> Map<String, Value> {
    let mut all = fields.clone();
    for (key, theirs) in others {
        let both = match (all.get(key).and_then(Value::as_object), theirs.as_object()) {
            (Some(mine), Some(theirs)) => Value::Object(union(mine, theirs)),
            _ => theirs.clone(),
        };
        all.insert(key.clone(), both);
    }
    all
}

/// Returns the part of a field set at a path of the object and below; `None` if it is empty. A field that is
/// owned as part of an atomic value has no entry of its own.
pub(crate) fn fields_below(
    fields: &Map<String, Value>,
    object: &Value,
    path: &FieldPath,
) -> Option<Map<String, Value>> {
    let Some((component, rest)) = path.split_first() else {
        return Some(fields.clone());
    };
    let (key, below, value) = match object {
        Value::Array(items) => {
            let item = items.iter().find(|item| is_item(item, &component))?;
            let named =
                |(name, _): &(&String, &Value)| ItemName::read(name).is_some_and(|name| name.is_of(item));
            let (name, below) = fields.iter().find(named)?;
            (name.clone(), below, item)
        }
        _ => {
            let key = format!("f:{component}");
            let below = fields.get(&key)?;
            (key, below, object.get(&component)?)
        }
    };
    let below = fields_below(below.as_object()?, value, &rest)?;
    Some(Map::from_iter([(key, Value::Object(below))]))
}

/// Returns the field set of a whole field or item, with everything below it. `None` if the path does not
/// exist.
pub(crate) fn whole_field(object: &Value, path: &FieldPath) -> Option<Map<String, Value>> {
    set_of(object, "", path)
}

fn set_of(object: &Value, list: &str, path: &FieldPath) -> Option<Map<String, Value>> {
    let (component, rest) = path.split_first()?;
    let (key, value) = match object {
        Value::Array(items) => {
            let item = items.iter().find(|item| is_item(item, &component))?;
            let mut keys = diff::list_keys(list, items, items)?;
            keys.sort_unstable();
            let keys = keys.into_iter();
            let named = keys.filter_map(|key| Some((key.to_owned(), item.get(key)?.clone())));
            let name = format!("k:{}", Value::Object(named.collect()));
            (name, item)
        }
        _ => (format!("f:{component}"), object.get(&component)?),
    };
    let below = if rest.is_root() {
        Map::from_iter([(".".to_owned(), Value::Object(Map::new()))])
    } else {
        set_of(value, &component, &rest)?
    };
    Some(Map::from_iter([(key, Value::Object(below))]))
}

/// Returns true for the entry with which this manager applies.
pub(crate) fn is_applied_by(entry: &Value, manager: &str) -> bool {
    entry["manager"] == manager
        && entry["operation"] == "Apply"
        && entry["subresource"].as_str().unwrap_or_default().is_empty()
}

/// Returns the part of a value that a field set covers. Lists keep the order of the object; missing fields
/// are left out.
pub(crate) fn project(value: &Value, fields: &Map<String, Value>) -> Value {
    if fields.keys().all(|key| key == ".") {
        return value.clone();
    }
    match value {
        Value::Object(map) => {
            let owned = map.iter().filter_map(|(key, value)| {
                let below = fields.get(&format!("f:{key}"))?.as_object()?;
                Some((key.clone(), project(value, below)))
            });
            Value::Object(owned.collect())
        }
        Value::Array(items) => {
            let owned = Items::from_fields(fields);
            let below = |item| Some(project(item, owned.fields_of(item)?));
            items.iter().filter_map(below).collect()
        }
        other => other.clone(),
    }
}

/// The field set of a list, with parsed names of items.
pub(crate) struct Items<'a>(Vec<(ItemName, &'a Map<String, Value>)>);

/// The name of a list item in a field set.
pub(crate) enum ItemName {
    /// `k:{…}`: the values of the item's keys.
    Keys(Map<String, Value>),
    /// `v:…`: the value of the item itself.
    Literal(Value),
}

impl ItemName {
    /// Parses a name; `None` if it is invalid.
    pub(crate) fn read(name: &str) -> Option<Self> {
        match name.strip_prefix("k:") {
            Some(keys) => Some(Self::Keys(serde_json::from_str(keys).ok()?)),
            None => Some(Self::Literal(
                serde_json::from_str(name.strip_prefix("v:")?).ok()?,
            )),
        }
    }

    /// Returns true if the name is that of an item.
    pub(crate) fn is_of(&self, item: &Value) -> bool {
        match self {
            Self::Keys(keys) => keys
                .iter()
                .all(|(key, value)| item.get(key).is_some_and(|found| diff::same(found, value))),
            Self::Literal(literal) => diff::same(literal, item),
        }
    }
}

impl<'a> Items<'a> {
    pub(crate) fn from_fields(fields: &'a Map<String, Value>) -> Self {
        let items = fields.iter();
        let read = |(name, below): (&String, &'a Value)| Some((ItemName::read(name)?, below.as_object()?));
        Self(items.filter_map(read).collect())
    }

    /// Returns the fields of an item, if the list has it.
    pub(crate) fn fields_of(&self, item: &Value) -> Option<&'a Map<String, Value>> {
        let found = self.0.iter().find(|(name, _)| name.is_of(item));
        found.map(|(_, below)| *below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn projection_keeps_what_is_owned() {
        let object = json!({"spec": {"replicas": 3, "paused": false, "ports": [{"port": 80, "protocol": "TCP", "name": "web", "nodePort": 30000}, {"port": 81, "protocol": "TCP"}],
            "finalizers": ["a", "b"], "args": ["x"]}});
        let fields = json!({"f:spec": {"f:replicas": {}, "f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}, "f:name": {}}},
            "f:finalizers": {"v:\"b\"": {}}, "f:args": {}, "f:gone": {}}});
        assert_eq!(
            project(&object, fields.as_object().unwrap()),
            json!({"spec": {"replicas": 3, "ports": [{"port": 80, "name": "web"}], "finalizers": ["b"], "args": ["x"]}})
        );
    }

    #[test]
    fn a_set_without_another_keeps_what_is_only_its_own() {
        let set = |value: Value| value.as_object().unwrap().clone();
        let port = "k:{\"port\":80,\"protocol\":\"TCP\"}";
        let theirs = set(
            json!({"f:data": {"f:a": {}, "f:b": {}}, "f:ports": {port: {".": {}, "f:port": {}, "f:name": {}}},
            "f:labels": {}, "f:gone": {"f:x": {}}}),
        );
        let ours = set(
            json!({"f:data": {"f:a": {}, "f:c": {}}, "f:ports": {port: {".": {}, "f:port": {}}},
            "f:labels": {"f:x": {}}, "f:gone": {"f:x": {}}}),
        );
        assert_eq!(
            Value::Object(subtract(&theirs, &ours)),
            json!({"f:data": {"f:b": {}}, "f:ports": {port: {"f:name": {}}}, "f:labels": {}})
        );
    }

    #[test]
    fn a_whole_field_is_named_as_the_server_names_it() {
        let object = json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 1}},
            "ports": [{"port": 80, "protocol": "TCP"}], "containers": [{"name": "a/b", "env": [{"name": "A", "value": "1"}]}]}});
        let whole = |path: &str| whole_field(&object, &path.into()).map(Value::Object);
        assert_eq!(
            whole("/spec/strategy/rollingUpdate"),
            Some(json!({"f:spec": {"f:strategy": {"f:rollingUpdate": {".": {}}}}}))
        );
        assert_eq!(
            whole("/spec/ports/port=80"),
            Some(json!({"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}}}}}))
        );
        assert_eq!(
            whole("/spec/containers/name=a~1b/env/name=A/value"),
            Some(
                json!({"f:spec": {"f:containers": {"k:{\"name\":\"a/b\"}": {"f:env": {"k:{\"name\":\"A\"}": {"f:value": {".": {}}}}}}}})
            )
        );
        assert_eq!(whole("/spec/none"), None);
    }

    #[test]
    fn our_entry_must_be_the_only_one_and_of_the_same_version() {
        let entry = |operation: &str| json!({"manager": "konverge", "operation": operation, "apiVersion": "v1", "fieldsV1": {"f:data": {}}});
        let object = |entries: Value| json!({"metadata": {"managedFields": entries}});
        assert!(own_fields(&object(json!([entry("Apply")])), "v1").is_some());
        assert!(own_fields(&object(json!([entry("Apply")])), "v2").is_none());
        assert!(own_fields(&object(json!([entry("Update")])), "v1").is_none());
        assert!(own_fields(&object(json!([entry("Apply"), entry("Apply")])), "v1").is_none());
    }
}
