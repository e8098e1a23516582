//! Fields outside the Spec that make the server refuse it: the other branch of a one-of, or a list item whose
//! key somebody changed. An apply does not remove them, because it removes only fields that its manager has
//! applied before. This module finds them by the fields that the server names in its refusal.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    managed_fields,
    server_field::{Step, steps},
};
use konverge_base::model::{FieldPath, diff, field_path::label};

/// A field outside the Spec because of which the server refuses the Spec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockingField {
    /// The path of the field, as in a plan.
    pub path: FieldPath,
    /// The owner of the field.
    pub holder: Holder,
    /// True if the field is an item of the Spec whose key was changed.
    pub is_rekeyed: bool,
}

/// The owner of a field, or of a field below it, other than Konverge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holder {
    /// No manager: the server set a default.
    Server,
    /// A manager that updated the object.
    Updates(String),
    /// A manager that applies the field, or a controller that writes a subresource. Such a field is never
    /// removed.
    Applies(String),
}

impl BlockingField {
    /// Describes the field at a path of the live object. `manager` is the field manager of this apply.
    pub(crate) fn new(live: &Value, path: &FieldPath, manager: &str) -> Self {
        let mut holder = Holder::Server;
        for entry in managed_fields::entries(live) {
            let is_ours = entry.manager == manager && !entry.is_update();
            if is_ours || managed_fields::fields_below(entry.fields, live, path).is_none() {
                continue;
            }
            if !entry.is_update() {
                holder = Holder::Applies(entry.manager.to_owned());
                break;
            }
            holder = Holder::Updates(entry.manager.to_owned());
        }
        Self {
            path: path.clone(),
            holder,
            is_rekeyed: false,
        }
    }

    /// Returns a note for the reader of the plan.
    pub(crate) fn note(&self) -> String {
        let whose = match &self.holder {
            Holder::Server => "which the server filled in".to_owned(),
            Holder::Updates(manager) | Holder::Applies(manager) => {
                format!("which `{}` wrote", manager.escape_debug())
            }
        };
        let why = if self.is_rekeyed {
            "the Spec has the same item under another key"
        } else {
            "the server does not accept the Spec together with it"
        };
        format!("removes `{}`, {whose}: {why}", self.path)
    }
}

/// Returns the paths of live fields outside the Spec that may have caused a refusal, which names the fields
/// `fields`.
///
/// These are the named field itself, its siblings and children, and the items of the lists above it, because
/// an index in a name counts items of the server's merged object.
pub(crate) fn suspects<'f>(
    fields: impl Iterator<Item = &'f str>,
    live: &Value,
    desired: &Value,
) -> BTreeSet<FieldPath> {
    let (mut found, root) = (BTreeSet::new(), FieldPath::root());
    for field in fields {
        let steps = steps(field);
        collect(live, desired, "", &steps, &root, &mut found);
        if let Some(Step::Name(name)) = steps.last() {
            collect_named(live, desired, name, "", &root, &mut found);
        }
    }
    found.retain(|path| !path.is_within("/metadata") && !path.is_within("/status"));
    let all = found.clone();
    found.retain(|path| !all.iter().any(|above| above != path && path.is_within(above)));
    found
}

/// Returns the live items whose key somebody has changed. Updating managers own these items, and each is
/// equal, except for its keys, to a missing item that the last apply wrote and the Spec still has. If the
/// server accepts the Spec, the object would then have both items.
pub(crate) fn rekeyed(prior: &Value, desired: &Value, live: &Value, manager: &str) -> Vec<BlockingField> {
    let (mut found, root) = (Vec::new(), FieldPath::root());
    collect_rekeyed([prior, desired, live], "", &root, &mut found);
    let fields = found.iter().map(|path| BlockingField {
        is_rekeyed: true,
        ..BlockingField::new(live, path, manager)
    });
    fields
        .filter(|field| matches!(field.holder, Holder::Updates(_)))
        .collect()
}

/// Collects the paths of rekeyed items in the prior, the desired and the live value.
fn collect_rekeyed(values: [&Value; 3], list: &str, path: &FieldPath, found: &mut Vec<FieldPath>) {
    match values {
        [Value::Object(prior), Value::Object(desired), Value::Object(live)] => {
            for (name, wanted) in desired {
                if let (Some(prior), Some(live)) = (prior.get(name), live.get(name)) {
                    collect_rekeyed([prior, wanted, live], name, &path.join(name), found);
                }
            }
        }
        [Value::Array(prior), Value::Array(desired), Value::Array(live)] => {
            let keys = diff::list_keys(list, live, desired);
            let Some(keys) = keys.filter(|_| diff::is_merged_list(list)) else {
                return;
            };
            let find = |items: &'_ [Value], item: &Value| {
                let wanted = label(item, &keys);
                items.iter().position(|other| label(other, &keys) == wanted)
            };
            let mut gone: Vec<&Value> = Vec::new();
            for wanted in desired {
                match (find(prior, wanted), find(live, wanted)) {
                    (Some(before), Some(now)) => {
                        let path = &path.join(&label(wanted, &keys));
                        collect_rekeyed([&prior[before], wanted, &live[now]], "", path, found);
                    }
                    (Some(_), None) => gone.push(wanted),
                    (None, _) => {}
                }
            }
            let is_new = |item: &&Value| find(desired, item).is_none() && find(prior, item).is_none();
            for item in live.iter().filter(is_new) {
                if let Some(place) = gone.iter().position(|wanted| holds_besides(item, wanted, &keys)) {
                    gone.remove(place);
                    found.push(path.join(&label(item, &keys)));
                }
            }
        }
        _ => {}
    }
}

/// Returns true if an item has all wanted values except those of its keys.
fn holds_besides(item: &Value, wanted: &Value, keys: &[&str]) -> bool {
    let (Some(item), Some(wanted)) = (item.as_object(), wanted.as_object()) else {
        return false;
    };
    let mut others = wanted.iter().filter(|(name, _)| !keys.contains(&name.as_str()));
    others.all(|(name, wanted)| item.get(name).is_some_and(|found| holds(found, wanted)))
}

fn holds(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .all(|(name, wanted)| found.get(name).is_some_and(|found| holds(found, wanted))),
        (Value::Array(found), Value::Array(wanted)) => {
            let mut pairs = found.iter().zip(wanted);
            found.len() == wanted.len() && pairs.all(|(found, wanted)| holds(found, wanted))
        }
        _ => diff::same(found, wanted),
    }
}

fn collect(
    live: &Value,
    desired: &Value,
    list: &str,
    steps: &[Step<'_>],
    path: &FieldPath,
    found: &mut BTreeSet<FieldPath>,
) {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => {
            let [Step::Name(name), rest @ ..] = steps else {
                return beside(live, desired, path, found);
            };
            match (live.get(*name), desired.get(*name)) {
                (Some(_), None) => drop(found.insert(path.join(name))),
                (Some(below), Some(wanted)) => {
                    collect(below, wanted, name, rest, &path.join(name), found);
                    if rest.is_empty() {
                        beside(live, desired, path, found);
                    }
                }
                // The server spells some names differently, such as `downwarAPI`.
                (None, _) => beside(live, desired, path, found),
            }
        }
        (Value::Array(live), Value::Array(desired)) => {
            let Some(keys) = diff::list_keys(list, live, desired) else {
                return;
            };
            for item in live {
                let name = label(item, &keys);
                let below = path.join(&name);
                match (desired.iter().find(|wanted| label(wanted, &keys) == name), steps) {
                    (None, _) => drop(found.insert(below)),
                    (Some(wanted), [Step::Item(_), rest @ ..]) => {
                        collect(item, wanted, "", rest, &below, found)
                    }
                    (Some(_), _) => {}
                }
            }
        }
        _ => {}
    }
}

/// Adds fields with this name, and siblings of desired fields with this name, anywhere in the object: the
/// server names some fields by their position in its own types.
fn collect_named(
    live: &Value,
    desired: &Value,
    name: &str,
    list: &str,
    path: &FieldPath,
    found: &mut BTreeSet<FieldPath>,
) {
    match (live, desired) {
        (Value::Object(live), Value::Object(desired)) => {
            match (live.contains_key(name), desired.contains_key(name)) {
                (true, false) => drop(found.insert(path.join(name))),
                (false, true) => beside(live, desired, path, found),
                _ => {}
            }
            for (key, wanted) in desired {
                if let Some(below) = live.get(key) {
                    collect_named(below, wanted, name, key, &path.join(key), found);
                }
            }
        }
        (Value::Array(live), Value::Array(desired)) => {
            let Some(keys) = diff::list_keys(list, live, desired) else {
                return;
            };
            for item in live {
                let item_label = label(item, &keys);
                if let Some(wanted) = desired.iter().find(|wanted| label(wanted, &keys) == item_label) {
                    collect_named(item, wanted, name, "", &path.join(&item_label), found);
                }
            }
        }
        _ => {}
    }
}

/// Adds the members of a live map that the desired map does not have.
fn beside(
    live: &Map<String, Value>,
    desired: &Map<String, Value>,
    path: &FieldPath,
    found: &mut BTreeSet<FieldPath>,
) {
    let others = live.keys().filter(|key| !desired.contains_key(*key));
    found.extend(others.map(|key| path.join(key)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(fields: &[&str], live: Value, desired: Value) -> Vec<FieldPath> {
        suspects(fields.iter().copied(), &live, &desired)
            .into_iter()
            .collect()
    }

    #[test]
    fn a_field_that_is_named_and_not_wanted_is_suspected() {
        let live = json!({"spec": {"replicas": 1, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}});
        let desired = json!({"spec": {"strategy": {"type": "Recreate"}}});
        assert_eq!(
            found(&["spec.strategy.rollingUpdate"], live, desired),
            ["/spec/strategy/rollingUpdate"]
        );
    }

    #[test]
    fn what_stands_beside_a_wanted_branch_is_suspected() {
        let env = |one: Value| json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "env": [one]}]}});
        let live = env(json!({"name": "A", "value": "1"}));
        let desired = env(json!({"name": "A", "valueFrom": {"secretKeyRef": {}}}));
        assert_eq!(
            found(&["spec.containers[1].env[0].valueFrom"], live, desired),
            ["/spec/containers/name=b/env/name=A/value"]
        );
        let live = json!({"spec": {"minAvailable": 1, "selector": {}}});
        let desired = json!({"spec": {"maxUnavailable": 1, "selector": {}}});
        assert_eq!(found(&["spec"], live, desired), ["/spec/minAvailable"]);
    }

    #[test]
    fn a_name_at_another_place_is_found() {
        let pod = |one: &str| json!({"spec": {"securityContext": {}, one: true}});
        let field = "spec.securityContext.shareProcessNamespace";
        let [shares, host] = ["shareProcessNamespace", "hostPID"].map(pod);
        assert_eq!(
            found(&[field], shares.clone(), host.clone()),
            ["/spec/shareProcessNamespace"]
        );
        assert_eq!(found(&[field], host, shares), ["/spec/hostPID"]);
    }

    #[test]
    fn items_with_other_keys_are_suspected() {
        let live = json!({"spec": {"ports": [{"name": "web", "port": 8181, "protocol": "TCP"}, {"name": "dns", "port": 53, "protocol": "UDP"}]}});
        let desired = json!({"spec": {"ports": [{"name": "web", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}]}});
        assert_eq!(
            found(&["spec.ports[1].name"], live, desired),
            ["/spec/ports/port=8181"]
        );
    }

    #[test]
    fn who_has_a_field_is_read_from_the_managed_fields() {
        let entry = |manager: &str, operation: &str, fields: Value| json!({"manager": manager, "operation": operation, "fieldsV1": fields});
        let port = |number: u32| json!({"f:spec": {"f:ports": {format!("k:{{\"port\":{number},\"protocol\":\"TCP\"}}"): {".": {}, "f:port": {}}}}});
        let live = json!({"metadata": {"managedFields": [
                entry("konverge", "Apply", port(80)), entry("kubectl-patch", "Update", port(81)), entry("flux", "Apply", port(82))]},
            "spec": {"type": "ClusterIP", "ports": [{"port": 80, "protocol": "TCP"}, {"port": 81, "protocol": "TCP"}, {"port": 82, "protocol": "TCP"}]}});
        let holder = |path: &str| BlockingField::new(&live, &path.into(), "konverge").holder;
        assert_eq!(holder("/spec/type"), Holder::Server);
        assert_eq!(holder("/spec/ports/port=80"), Holder::Server);
        assert_eq!(
            holder("/spec/ports/port=81"),
            Holder::Updates("kubectl-patch".to_owned())
        );
        assert_eq!(holder("/spec/ports/port=82"), Holder::Applies("flux".to_owned()));
    }

    #[test]
    fn an_item_with_another_key_that_is_like_a_lost_one_is_found() {
        let pod = |containers: Value| json!({"spec": {"containers": containers}});
        let wanted = pod(
            json!([{"name": "a", "image": "x", "ports": [{"containerPort": 80}]}, {"name": "b", "image": "y"}]),
        );
        let entry = |containers: Value| json!([{"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {"f:containers": containers}}}]);
        let mut live = pod(
            json!([{"name": "a", "image": "x", "ports": [{"containerPort": 81, "protocol": "TCP"}]}, {"name": "c", "image": "y", "stdin": false},
            {"name": "side", "image": "z"}]),
        );
        let port = json!({"f:ports": {"k:{\"containerPort\":81,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}});
        live["metadata"]["managedFields"] = entry(
            json!({"k:{\"name\":\"a\"}": port, "k:{\"name\":\"c\"}": {".": {}}, "k:{\"name\":\"side\"}": {".": {}}}),
        );
        let found = rekeyed(&wanted, &wanted, &live, "konverge");
        let paths: Vec<_> = found.iter().map(|field| field.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "/spec/containers/name=a/ports/containerPort=81",
                "/spec/containers/name=c"
            ]
        );
        assert!(rekeyed(&pod(json!([])), &wanted, &live, "konverge").is_empty());
    }

    #[test]
    fn members_and_items_are_removed() {
        let mut object = json!({"spec": {"ports": [{"port": 1}, {"port": 2, "name": "x"}], "type": "y"}});
        for path in [
            "/spec/ports/port=1",
            "/spec/ports/port=2/name",
            "/spec/type",
            "/none/of/it",
        ] {
            FieldPath::new(path).remove(&mut object);
        }
        assert_eq!(object, json!({"spec": {"ports": [{"port": 2}]}}));
    }
}
