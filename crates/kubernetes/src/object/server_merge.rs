//! Merges a desired object into a live one like a server-side apply. The object's own `managedFields` show
//! which lists have keys and which values are atomic. The result is never shown unchanged: the server
//! completes it in a dry-run.

use serde_json::{Map, Value, json};

use super::managed_fields::{self, ItemName, Items};
use konverge_base::model::{FieldPath, diff};

/// Returns the live object after `manager` applies the desired one.
pub(crate) fn merge(live: &Value, desired: &Value, manager: &str) -> Value {
    let (mut ours, mut others) = (Map::new(), Map::new());
    for entry in managed_fields::entries(live) {
        let is_ours = entry.manager == manager && entry.operation == "Apply" && entry.subresource.is_empty();
        let set = if is_ours { &mut ours } else { &mut others };
        *set = managed_fields::union(set, entry.fields);
    }
    let owners = Owners {
        ours: Some(&ours),
        others: Some(&others),
    };
    merged(live, desired, owners).unwrap_or(Value::Null)
}

/// Returns a JSON patch from one object to the other, without fields that only the server writes.
pub(crate) fn patch(live: &Value, becomes: &Value) -> Value {
    let mut steps = Vec::new();
    let nothing = Map::new();
    let map = |value: &'_ Value| value.as_object().cloned().unwrap_or_else(|| nothing.clone());
    let mut compare = |parent: &FieldPath,
                       from: &Map<String, Value>,
                       to: &Map<String, Value>,
                       is_part: &dyn Fn(&str) -> bool| {
        let keys = from
            .keys()
            .chain(to.keys().filter(|key| !from.contains_key(*key)));
        for key in keys.filter(|key| is_part(key)) {
            let path = parent.join(key);
            match (from.get(key), to.get(key)) {
                (Some(from), Some(to)) if from == to => {}
                (_, Some(to)) => steps.push(json!({"op": "add", "path": path, "value": to})),
                (_, None) => steps.push(json!({"op": "remove", "path": path})),
            }
        }
    };
    let is_content = |key: &str| !["apiVersion", "kind", "metadata", "status"].contains(&key);
    compare(&FieldPath::root(), &map(live), &map(becomes), &is_content);
    let is_metadata = |key: &str| ["labels", "annotations", "finalizers", "ownerReferences"].contains(&key);
    compare(
        &"/metadata".into(),
        &map(&live["metadata"]),
        &map(&becomes["metadata"]),
        &is_metadata,
    );
    Value::Array(steps)
}

/// The owners of a value, or of a value below it.
#[derive(Clone, Copy)]
struct Owners<'a> {
    ours: Option<&'a Map<String, Value>>,
    others: Option<&'a Map<String, Value>>,
}

/// The way in which the server merges a list.
enum ListKind {
    /// The server merges item by item, and compares items by these keys.
    Keyed(Vec<String>),
    /// The server merges item by item, and compares items by value.
    Set,
    /// The server replaces the list as one value.
    Atomic,
}

impl<'a> Owners<'a> {
    fn sets(self) -> impl Iterator<Item = &'a Map<String, Value>> {
        [self.ours, self.others].into_iter().flatten()
    }

    fn of_member(self, key: &str) -> Self {
        let name = format!("f:{key}");
        let below = |set: Option<&'a Map<String, Value>>| set?.get(&name)?.as_object();
        Self {
            ours: below(self.ours),
            others: below(self.others),
        }
    }

    fn of_item(self, item: &Value) -> Self {
        let below = |set: Option<&'a Map<String, Value>>| Items::from_fields(set?).fields_of(item);
        Self {
            ours: below(self.ours),
            others: below(self.others),
        }
    }

    /// Returns true if a manager owns the map as one value, and none owns a member of it.
    fn is_atomic(self) -> bool {
        self.sets().any(Map::is_empty) && self.sets().flat_map(Map::keys).all(|name| name == ".")
    }

    fn list_kind(self) -> ListKind {
        let mut names = self
            .sets()
            .flat_map(Map::keys)
            .filter_map(|name| ItemName::read(name));
        match names.next() {
            Some(ItemName::Keys(keys)) => ListKind::Keyed(keys.keys().cloned().collect()),
            Some(ItemName::Literal(_)) => ListKind::Set,
            None => ListKind::Atomic,
        }
    }
}

/// Returns the merged value; `None` if nothing is left of it, because the desired value is null.
fn merged(live: &Value, desired: &Value, owners: Owners<'_>) -> Option<Value> {
    match (live, desired) {
        (_, Value::Null) => None,
        (Value::Object(found), Value::Object(wanted)) if !owners.is_atomic() => {
            let mut result = Map::new();
            for (key, value) in found {
                let owners = owners.of_member(key);
                let left = match wanted.get(key) {
                    Some(wanted) => merged(value, wanted, owners),
                    None => unwanted(value, owners),
                };
                result.extend(left.map(|left| (key.clone(), left)));
            }
            let new = wanted
                .iter()
                .filter(|(key, value)| !found.contains_key(*key) && !value.is_null());
            result.extend(new.map(|(key, value)| (key.clone(), value.clone())));
            Some(Value::Object(result))
        }
        (Value::Array(found), Value::Array(wanted)) => Some(match owners.list_kind() {
            ListKind::Keyed(keys) => merged_items(found, wanted, owners, &|item| keys_of(item, &keys)),
            ListKind::Set => merged_items(found, wanted, owners, &|item| vec![item.clone()]),
            ListKind::Atomic => desired.clone(),
        }),
        _ => Some(desired.clone()),
    }
}

/// Returns the rest of a value that is not desired, without the parts that only this manager owns.
fn unwanted(live: &Value, owners: Owners<'_>) -> Option<Value> {
    if owners.ours.is_none() {
        return Some(live.clone());
    }
    owners.others?;
    Some(match live {
        Value::Object(map) => {
            let left = map
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), unwanted(value, owners.of_member(key))?)));
            Value::Object(left.collect())
        }
        Value::Array(items) if !matches!(owners.list_kind(), ListKind::Atomic) => items
            .iter()
            .filter_map(|item| unwanted(item, owners.of_item(item)))
            .collect(),
        whole => whole.clone(),
    })
}

/// Returns the values of an item's keys. The only key with a default in built-in kinds is the protocol.
fn keys_of(item: &Value, keys: &[String]) -> Vec<Value> {
    let of = |key: &String| match (item.get(key), key.as_str()) {
        (Some(value), _) => value.clone(),
        (None, "protocol") => json!("TCP"),
        (None, _) => Value::Null,
    };
    keys.iter().map(of).collect()
}

/// Merges items in the server's order: common items in the desired order, other managers' items at their
/// positions, and new items before the common item that follows them.
fn merged_items(
    found: &[Value],
    wanted: &[Value],
    owners: Owners<'_>,
    key: &dyn Fn(&Value) -> Vec<Value>,
) -> Value {
    let is_same = |a: &Vec<Value>, b: &Vec<Value>| a.iter().zip(b).all(|(a, b)| diff::same(a, b));
    let (found_keys, wanted_keys): (Vec<_>, Vec<_>) =
        (found.iter().map(key).collect(), wanted.iter().map(key).collect());
    let place_of = |one: &Vec<Value>| found_keys.iter().position(|other| is_same(other, one));
    let wanted_at = |one: &Vec<Value>| wanted_keys.iter().position(|other| is_same(other, one));
    let mut common = (0..wanted.len())
        .filter(|&at| place_of(&wanted_keys[at]).is_some())
        .peekable();
    let mut result = Vec::new();
    let (mut live, mut next) = (0, 0);
    while live < found.len() || next < wanted.len() {
        if live < found.len() {
            match wanted_at(&found_keys[live]) {
                None => {
                    result.extend(unwanted(&found[live], owners.of_item(&found[live])));
                    live += 1;
                    continue;
                }
                // A common item was already added, or will be added when it is the next common one.
                Some(at) if at < next || common.peek().is_some_and(|turn| *turn != at) => {
                    live += 1;
                    continue;
                }
                Some(_) => {}
            }
        }
        let item = &wanted[next];
        match place_of(&wanted_keys[next]) {
            Some(at) => {
                result.extend(merged(&found[at], item, owners.of_item(&found[at])));
                common.next();
            }
            None => result.push(item.clone()),
        }
        next += 1;
    }
    Value::Array(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn ports(numbers: &[u32]) -> Value {
        let of = |number: &u32| {
            (
                format!("k:{{\"port\":{number},\"protocol\":\"TCP\"}}"),
                json!({".": {}, "f:port": {}}),
            )
        };
        json!({"f:spec": {"f:ports": numbers.iter().map(of).collect::<Map<_, _>>()}})
    }

    fn service(numbers: &[u32], entries: Value) -> Value {
        let items: Vec<_> = numbers
            .iter()
            .map(|port| json!({"port": port, "protocol": "TCP"}))
            .collect();
        json!({"metadata": {"managedFields": entries}, "spec": {"ports": items}})
    }

    fn order(live: &[u32], ours: &[u32], wanted: &[u32]) -> Vec<u64> {
        let theirs: Vec<u32> = live.iter().filter(|port| !ours.contains(port)).copied().collect();
        let entries = json!([
            entry("konverge", "Apply", ports(ours)),
            entry("kubectl", "Update", ports(&theirs))
        ]);
        let desired: Vec<_> = wanted.iter().map(|port| json!({"port": port})).collect();
        let becomes = merge(
            &service(live, entries),
            &json!({"spec": {"ports": desired}}),
            "konverge",
        );
        let ports = becomes["spec"]["ports"].as_array().unwrap().iter();
        ports.map(|port| port["port"].as_u64().unwrap()).collect()
    }

    #[test]
    fn items_come_in_the_order_of_the_server() {
        assert_eq!(order(&[443], &[443], &[80, 443]), [80, 443]);
        assert_eq!(order(&[1, 2, 9], &[1, 2], &[2, 1]), [2, 9, 1]);
        assert_eq!(order(&[9, 1, 2], &[1, 2], &[1, 3]), [9, 1, 3]);
        assert_eq!(order(&[1, 9, 2], &[1, 2], &[1, 2]), [1, 9, 2]);
        assert_eq!(order(&[9], &[], &[]), [9]);
    }

    #[test]
    fn what_only_we_own_goes_and_what_nobody_wants_to_change_stays() {
        let live = json!({"metadata": {"managedFields": [
                entry("konverge", "Apply", json!({"f:spec": {"f:a": {}, "f:b": {}, "f:branch": {"f:x": {}}, "f:selector": {}, "f:list": {}}})),
                entry("kubectl", "Update", json!({"f:spec": {"f:b": {}, "f:c": {}}}))]},
            "spec": {"a": 1, "b": 2, "c": 3, "branch": {"x": 1, "defaulted": 2}, "filled": {"in": 1}, "selector": {"x": "1"}, "list": [1, 2]}});
        let desired = json!({"spec": {"selector": {"y": "1"}, "list": [3], "new": 1, "nothing": null}});
        assert_eq!(
            merge(&live, &desired, "konverge")["spec"],
            json!({"b": 2, "c": 3, "filled": {"in": 1}, "selector": {"y": "1"}, "list": [3], "new": 1})
        );
    }

    #[test]
    fn a_patch_has_what_differs() {
        let live = json!({"metadata": {"uid": "u", "labels": {"a": "1"}}, "spec": {"a": 1}, "data": {"x/y": "1"}, "status": {"a": 1}});
        let becomes =
            json!({"metadata": {"labels": {"a": "1"}, "annotations": {"o": "1"}}, "spec": {"a": 2}});
        assert_eq!(
            patch(&live, &becomes),
            json!([
                {"op": "add", "path": "/spec", "value": {"a": 2}},
                {"op": "remove", "path": "/data"},
                {"op": "add", "path": "/metadata/annotations", "value": {"o": "1"}}])
        );
    }
}
