//! Values of a desired object that a controller of the cluster fills in, so that the controller and an apply
//! would overwrite each other. The list of such values is fixed, and each has a condition by which its
//! controller is recognized.

use serde_json::{Map, Value};

use super::{super::api::discovery::items, managed_fields, managed_fields::FieldsEntry};
use konverge_base::model::{FieldPath, GroupKind, field_path::label};

/// A value that is left to a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ControllerValue {
    path: FieldPath,
    /// The field manager of the controller; `None` for the aggregation of roles, which is a part of the
    /// server.
    manager: Option<String>,
}

impl ControllerValue {
    /// Returns a note for the reader of the plan.
    pub(crate) fn note(&self) -> String {
        match &self.manager {
            None => format!(
                "`{}` is left to the cluster, which fills it by `aggregationRule`",
                self.path
            ),
            Some(manager) => format!(
                "`{}` is left to `{}`, which fills it",
                self.path,
                manager.escape_debug()
            ),
        }
    }
}

/// Removes the rules of a role that aggregates others.
pub(crate) fn give_up_aggregated_rules(object: &mut Map<String, Value>) {
    if aggregated_rules(object).is_some() {
        object.shift_remove("rules");
    }
}

/// Returns the rules of a role that aggregates others, as a value of the controller.
pub(crate) fn aggregated_rules(object: &Map<String, Value>) -> Option<ControllerValue> {
    if GroupKind::from_attributes(object) != GroupKind::CLUSTER_ROLE {
        return None;
    }
    let selectors = object.get("aggregationRule")?.get("clusterRoleSelectors")?;
    if selectors.as_array().is_none_or(Vec::is_empty) {
        return None;
    }
    object.get("rules")?;
    Some(ControllerValue {
        path: "/rules".into(),
        manager: None,
    })
}

/// Removes values that are empty in the Spec and that a controller has filled in the live object.
pub(crate) fn give_up_filled(
    object: Map<String, Value>,
    live: &Value,
    manager: &str,
) -> (Map<String, Value>, Vec<ControllerValue>) {
    let places = fillable(&object);
    if places.is_empty() {
        return (object, Vec::new());
    }
    let mut object = Value::Object(object);
    let mut given_up = Vec::new();
    for place in places {
        let is_filled = place.get(live).is_some_and(|found| !is_empty(found));
        let Some(controller) = controller(live, &place, manager).filter(|_| is_filled) else {
            continue;
        };
        if let Some((map, key)) = place.member(&mut object) {
            map.shift_remove(&key);
        }
        given_up.push(ControllerValue {
            path: place,
            manager: Some(controller.to_owned()),
        });
    }
    match object {
        Value::Object(object) => (object, given_up),
        _ => (Map::new(), given_up),
    }
}

/// Returns true if an object has empty values that a controller may fill.
pub(crate) fn may_be_filled(object: &Map<String, Value>) -> bool {
    !fillable(object).is_empty()
}

/// Returns the paths of the empty values of an object that a controller may fill.
fn fillable(object: &Map<String, Value>) -> Vec<FieldPath> {
    let bundle = |around: &str| FieldPath::new(around).join("caBundle");
    let places = match GroupKind::from_attributes(object) {
        GroupKind::SERVICE_ACCOUNT => vec!["/imagePullSecrets".into()],
        GroupKind::API_SERVICE => vec![bundle("/spec")],
        GroupKind::CUSTOM_RESOURCE_DEFINITION => {
            vec![bundle("/spec/conversion/webhook/clientConfig")]
        }
        GroupKind::VALIDATING_WEBHOOK_CONFIGURATION | GroupKind::MUTATING_WEBHOOK_CONFIGURATION => {
            let webhooks = object.get("webhooks").into_iter().flat_map(items);
            let item = |webhook: &Value| FieldPath::new("/webhooks").join(&label(webhook, &["name"]));
            webhooks
                .map(|webhook| item(webhook).join("clientConfig").join("caBundle"))
                .collect()
        }
        _ => return Vec::new(),
    };
    let is_fillable = |place: &FieldPath| {
        let found = place.split_first();
        let found = found.and_then(|(first, rest)| rest.get(object.get(&first)?));
        found.is_some_and(is_empty)
    };
    places.into_iter().filter(is_fillable).collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Returns the controller that wrote a value: not Konverge, not a person with `kubectl`, and not the writer
/// of the object around it.
fn controller<'l>(live: &'l Value, path: &FieldPath, manager: &str) -> Option<&'l str> {
    let has = |entry: &FieldsEntry<'_>, path: &FieldPath| {
        managed_fields::fields_below(entry.fields, live, path).is_some()
    };
    let mut owners: Vec<_> = managed_fields::entries(live)
        .filter(|entry| has(entry, path))
        .collect();
    if owners.iter().any(|entry| entry.manager == manager) {
        return None;
    }
    let around = path.split_last().map(|(around, _)| around).unwrap_or_default();
    let by_author = if around.is_root() {
        vec!["/metadata/labels".into()]
    } else {
        vec![around.join("service"), around.join("url")]
    };
    owners.retain(|entry| {
        !entry.manager.starts_with("kubectl") && !by_author.iter().any(|path| has(entry, path))
    });
    owners.first().map(|entry| entry.manager)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn only_a_role_that_aggregates_gives_up_its_rules() {
        let role = |api_version: &str, rule: Value| {
            let mut role = map(
                json!({"apiVersion": api_version, "kind": "ClusterRole", "aggregationRule": rule, "rules": []}),
            );
            give_up_aggregated_rules(&mut role);
            !role.contains_key("rules")
        };
        let rule = json!({"clusterRoleSelectors": [{"matchLabels": {"x": "1"}}]});
        assert!(role("rbac.authorization.k8s.io/v1", rule.clone()));
        assert!(!role("rbac.authorization.k8s.io/v1", Value::Null));
        assert!(!role(
            "rbac.authorization.k8s.io/v1",
            json!({"clusterRoleSelectors": []})
        ));
        assert!(!role("example.com/v1", rule));
    }

    fn webhooks(bundle: &str) -> Value {
        json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration", "metadata": {"name": "w"},
            "webhooks": [{"name": "a.b", "clientConfig": {"caBundle": bundle, "service": {"name": "s"}}}]})
    }

    #[test]
    fn an_empty_bundle_that_an_injector_filled_is_its_own() {
        let written = |manager: &str, fields: Value| {
            let mut live = webhooks("Q0E=");
            let fields = json!({"f:webhooks": {"k:{\"name\":\"a.b\"}": {"f:clientConfig": fields}}});
            live["metadata"]["managedFields"] =
                json!([{"manager": manager, "operation": "Update", "fieldsV1": fields}]);
            live
        };
        let bundle = json!({"f:caBundle": {}});
        let given_up = |wanted: &str, live: &Value| give_up_filled(map(webhooks(wanted)), live, "konverge");
        let (sent, values) = given_up("", &written("cainjector", bundle.clone()));
        assert_eq!(
            values[0].note(),
            "`/webhooks/name=a.b/clientConfig/caBundle` is left to `cainjector`, which fills it"
        );
        assert_eq!(
            sent["webhooks"][0]["clientConfig"],
            json!({"service": {"name": "s"}})
        );
        for (wanted, live) in [
            ("Q0I=", written("cainjector", bundle.clone())),
            ("", written("kubectl-edit", bundle.clone())),
            ("", written("konverge", bundle.clone())),
            ("", written("helm", json!({"f:caBundle": {}, "f:service": {}}))),
        ] {
            assert_eq!(given_up(wanted, &live), (map(webhooks(wanted)), Vec::new()));
        }
    }

    #[test]
    fn pull_secrets_of_another_kind_mean_what_they_say() {
        let account = |kind: &str, secrets: Value| json!({"apiVersion": "v1", "kind": kind, "imagePullSecrets": secrets});
        let mut live = account("ServiceAccount", json!([{"name": "registry"}]));
        live["metadata"] = json!({"managedFields": [{"manager": "pull-secrets", "operation": "Update", "fieldsV1": {"f:imagePullSecrets": {}}}]});
        let given_up = |kind: &str| {
            give_up_filled(map(account(kind, json!([]))), &live, "konverge")
                .1
                .len()
        };
        assert_eq!((given_up("ServiceAccount"), given_up("Other")), (1, 0));
    }
}
