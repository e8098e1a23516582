//! Other field managers: who changed fields since Konverge's last write.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{super::api::discovery::items, managed_fields};
use konverge_base::model::{
    FieldPath,
    field_path::is_item,
    plan::{ChangeOrigin, FieldChange},
};

/// Returns the manager other than `own` that owns the value at a path of the object; the latest one if there
/// are several. `path` is a path of a plan, in which an item of a keyed list is `name=web`.
pub(crate) fn owner(object: &Value, path: &FieldPath, own: &str) -> Option<String> {
    last_write(object, path, own).map(|(manager, _)| manager.to_owned())
}

/// Returns the latest manager other than `own` that owns the value at a path, with the time of its last write (empty if
/// unknown).
fn last_write<'o>(object: &'o Value, path: &FieldPath, own: &str) -> Option<(&'o str, &'o str)> {
    managed_fields::entries(object)
        .filter(|entry| entry.manager != own && entry.subresource != "status")
        .filter(|entry| owns(entry.fields, object, path))
        .max_by(|a, b| a.time.cmp(b.time).then_with(|| b.manager.cmp(a.manager)))
        .map(|entry| (entry.manager, entry.time))
}

/// Returns notes about the managers that changed fields since Konverge's last write, with the time:
/// `\`kubectl-edit\` wrote /spec/replicas at TIME`.
pub(crate) fn blame_notes(live: &Value, changes: &[FieldChange], own: &str) -> Vec<String> {
    let mut writes: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for change in changes
        .iter()
        .filter(|change| matches!(change.origin, ChangeOrigin::Manager(_)))
    {
        if let Some(write) = last_write(live, &change.path, own) {
            writes.entry(write).or_default().push(change.path.as_str());
        }
    }
    let words = writes.into_iter().map(|((manager, time), paths)| {
        let at = match time {
            "" => String::new(),
            time => format!(" at {time}"),
        };
        format!("`{manager}` wrote {}{at}", paths.join(", "))
    });
    words.collect()
}

/// Returns true if the HorizontalPodAutoscaler set the number of replicas last. It writes the scale
/// subresource as the controller manager.
pub(crate) fn is_autoscaled(object: &Value) -> bool {
    let replicas = FieldPath::new("/spec/replicas");
    let mut entries = managed_fields::entries(object);
    entries.any(|entry| {
        (entry.manager, entry.subresource) == ("kube-controller-manager", "scale")
            && owns(entry.fields, object, &replicas)
    })
}

/// Returns true if a field set covers the path, or a path below it.
fn owns(fields: &serde_json::Map<String, Value>, object: &Value, path: &FieldPath) -> bool {
    let mut at = fields;
    let mut value = Some(object);
    for component in path.components() {
        if at.keys().all(|key| key == ".") {
            return !at.is_empty() || value.is_some();
        }
        let next = at.get(&format!("f:{component}")).and_then(Value::as_object);
        if let Some(next) = next {
            at = next;
            value = value.and_then(|v| v.get(&component));
            continue;
        }
        let item = value.and_then(|list| items(list).find(|item| is_item(item, &component)));
        match item.and_then(|item| Some((item, managed_fields::Items::from_fields(at).fields_of(item)?))) {
            Some((item, below)) => {
                at = below;
                value = Some(item);
            }
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_latest_other_manager_is_named() {
        let entry = |manager: &str, time: &str, fields: Value| json!({"manager": manager, "operation": "Update", "time": time, "fieldsV1": fields});
        let object = json!({"metadata": {"managedFields": [
            entry("konverge", "9", json!({"f:spec": {"f:replicas": {}}})),
            entry("old", "1", json!({"f:spec": {"f:replicas": {}}})),
            entry("kubectl-edit", "2", json!({"f:spec": {"f:replicas": {}, "f:containers": {"k:{\"name\":\"web\"}": {".": {}, "f:image": {}}}}})),
            entry("args", "3", json!({"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {"f:args": {}}}}}))]},
            "spec": {"replicas": 3, "containers": [{"name": "web", "image": "x", "args": ["a"]}]}});
        assert_eq!(
            owner(&object, &"/spec/replicas".into(), "konverge").as_deref(),
            Some("kubectl-edit")
        );
        assert_eq!(
            owner(&object, &"/spec/containers/name=web/image".into(), "konverge").as_deref(),
            Some("kubectl-edit")
        );
        assert_eq!(
            owner(&object, &"/spec/containers/name=web/args/0".into(), "konverge").as_deref(),
            Some("args")
        );
        assert_eq!(
            owner(&object, &"/spec/containers/name=log/image".into(), "konverge"),
            None
        );
        assert_eq!(owner(&object, &"/spec/paused".into(), "konverge"), None);
    }

    #[test]
    fn what_the_controller_of_a_delivery_wrote_is_not_blamed_on_it() {
        let entry = |manager: &str, time: &str, fields: Value| json!({"manager": manager, "operation": "Apply", "time": time, "fieldsV1": fields});
        let object = json!({"metadata": {"managedFields": [
            entry("argocd-controller", "9", json!({"f:spec": {"f:replicas": {}, "f:paused": {}}})),
            entry("kubectl-edit", "2", json!({"f:spec": {"f:replicas": {}}}))]},
            "spec": {"replicas": 3, "paused": true}});
        let change = |path: &str| FieldChange {
            path: path.into(),
            from: None,
            to: None,
            origin: ChangeOrigin::Manager("x".to_owned()),
        };
        let changes = [change("/spec/replicas"), change("/spec/paused")];
        let own = "argocd-controller";
        assert_eq!(
            owner(&object, &"/spec/replicas".into(), own).as_deref(),
            Some("kubectl-edit")
        );
        assert_eq!(owner(&object, &"/spec/paused".into(), own), None);
        assert_eq!(
            blame_notes(&object, &changes, own),
            ["`kubectl-edit` wrote /spec/replicas at 2"]
        );
        assert_eq!(
            owner(&object, &"/spec/paused".into(), "konverge").as_deref(),
            Some("argocd-controller")
        );
    }
}
