//! The fields that the server names when it refuses an object: which manager owns each of them, and how to
//! fix it.

use serde_json::Value;

use super::{
    super::api::{discovery::ResourceType, error::ApiStatus},
    managed_fields,
    server_field::{Step, steps},
};
use crate::FIELD_MANAGER;
use konverge_base::model::FieldPath;

/// Maximum number of fields that get a hint.
const MOST: usize = 3;

/// Maps whose keys the author chooses, so that no schema contains these keys.
const MAPS: [&str; 9] = [
    "annotations",
    "binaryData",
    "data",
    "labels",
    "limits",
    "matchLabels",
    "nodeSelector",
    "requests",
    "stringData",
];

/// Texts with which the server reports a missing field.
const MISSING: [&str; 3] = ["Required value", "must be specified", "missing required field"];

/// An object that the server refused.
pub(crate) struct RefusedObject<'a> {
    pub of: &'a ResourceType,
    /// The object that was sent.
    pub sent: &'a Value,
    /// The object in the cluster; `None` if there is none.
    pub live: Option<&'a Value>,
}

impl RefusedObject<'_> {
    /// Returns hints for the fields that the server names, at least one.
    pub(crate) fn hints(&self, status: &ApiStatus) -> Vec<String> {
        let mut hints: Vec<String> = Vec::new();
        for cause in status.causes.iter().filter(|cause| !cause.field.is_empty()) {
            let is_missing = MISSING.iter().any(|words| cause.message.contains(words));
            let hint = self.hint(&cause.field, is_missing);
            if !hints.contains(&hint) {
                hints.push(hint);
            }
        }
        hints.extend(unknown_fields(&status.message).map(|field| self.unknown(field)));
        // The server first compares the object with the types of the schema, and then names the field only in
        // its message.
        for (field, says) in typed_fields(&status.message) {
            hints.push(if says.starts_with("field not declared") {
                self.unknown(field)
            } else {
                self.hint(field, false)
            });
        }
        hints.truncate(MOST);
        if hints.is_empty() {
            hints.push(format!("`{}` lists the fields of the kind", self.explain("")));
        }
        hints
    }

    fn unknown(&self, field: &str) -> String {
        format!(
            "the kind has no `{}` in this version: `{}` lists the fields",
            field.escape_debug(),
            self.explain(parent(field))
        )
    }

    fn hint(&self, field: &str, is_missing: bool) -> String {
        let steps = steps(field);
        let shown = field.escape_debug();
        if at(self.sent, &steps).is_some_and(|value| !value.is_null()) {
            return format!(
                "the Spec sets `{shown}`: `{}` describes the allowed values",
                self.explain(field)
            );
        }
        if is_missing {
            return format!(
                "the Spec does not have `{shown}`, which is required: `{}` describes it",
                self.explain(field)
            );
        }
        match self.owner(&steps) {
            Some(manager) => {
                let manager = manager.escape_debug();
                format!(
                    "the Spec does not have `{shown}`: `{manager}` wrote it; add it to the Spec with a value that fits the other \
                     fields, or let `{manager}` remove it"
                )
            }
            None => format!(
                "the Spec does not have `{shown}`: the server has filled it in for other fields; write it into the Spec with a \
                 value that fits them"
            ),
        }
    }

    /// Returns another manager that owns a field of the live object, or a field below it.
    fn owner(&self, steps: &[Step<'_>]) -> Option<&str> {
        let live = self.live?;
        let keys: Option<Vec<_>> = steps
            .iter()
            .map(|step| match step {
                Step::Name(key) => Some(key),
                // `managedFields` names an item by its keys, but the message has only its index in the
                // server's merged object, so the item cannot be found.
                Step::Item(_) => None,
            })
            .collect();
        let path = FieldPath::from_components(keys?);
        let others = managed_fields::entries(live).filter(|entry| entry.manager != FIELD_MANAGER);
        let mut owners = others.filter(|entry| {
            managed_fields::fields_below(entry.fields, live, &path).is_some_and(|below| !below.is_empty())
        });
        owners.next().map(|entry| entry.manager)
    }

    /// Returns the command that explains a field.
    fn explain(&self, field: &str) -> String {
        let kind = self.of.kind.to_lowercase();
        let keys: Vec<_> = steps(field)
            .into_iter()
            .filter_map(|step| match step {
                Step::Name(key) if key.chars().all(|c| c.is_ascii_alphanumeric()) => Some(key),
                _ => None,
            })
            .collect();
        let of_kind = match keys.iter().position(|key| MAPS.contains(key)) {
            Some(map) => &keys[..=map],
            None => &keys,
        };
        let path = [&[kind.as_str()], of_kind].concat().join(".");
        format!("kubectl explain {path} --api-version={}", self.of.api_version())
    }
}

fn at<'v>(value: &'v Value, steps: &[Step<'_>]) -> Option<&'v Value> {
    steps.iter().try_fold(value, |value, step| match step {
        Step::Name(key) => match value {
            Value::Array(items) => items.iter().find(|item| is_item(item, key)),
            value => value.get(key),
        },
        Step::Item(index) => value.get(index),
    })
}

/// Returns true if an item has the keys in the server's name for it: `name="web"`, `port=80,protocol="TCP"`.
fn is_item(item: &Value, keys: &str) -> bool {
    keys.split(',').all(|pair| {
        let Some((key, wanted)) = pair.split_once('=') else {
            return false;
        };
        match &item[key] {
            Value::String(text) => *text == wanted.trim_matches('"'),
            Value::Null => false,
            number => wanted == number.to_string().as_str(),
        }
    })
}

/// Returns the fields in a message such as `failed to create typed patch object (…): .spec.replicas: expected
/// numeric`, each with its text.
fn typed_fields(message: &str) -> Vec<(&str, &str)> {
    let Some((_, rest)) = message.split_once("typed patch object (") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for line in rest.split('\n') {
        let line = line.rsplit_once("): ").map_or(line, |(_, line)| line).trim();
        if let Some((field, says)) = line.strip_prefix('.').and_then(|line| line.split_once(": ")) {
            found.push((field, says));
        }
    }
    found
}

/// Returns the fields in a message such as `strict decoding error: unknown field "spec.foo"`.
fn unknown_fields(message: &str) -> impl Iterator<Item = &str> {
    let parts = message.split("unknown field \"").skip(1);
    parts.filter_map(|part| Some(part.split_once('"')?.0))
}

fn parent(field: &str) -> &str {
    field.rsplit_once('.').map_or("", |(parent, _)| parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::error::StatusCause;
    use serde_json::json;

    fn hints(sent: &Value, live: Option<&Value>, field: &str, message: &str) -> Vec<String> {
        let of = ResourceType {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            kind: "Deployment".to_owned(),
            plural: "deployments".to_owned(),
            namespaced: true,
            reports_status: true,
        };
        let cause = StatusCause {
            reason: "FieldValueInvalid".to_owned(),
            message: message.to_owned(),
            field: field.to_owned(),
        };
        let status = ApiStatus {
            code: 422,
            causes: if field.is_empty() { Vec::new() } else { vec![cause] },
            message: message.to_owned(),
            ..ApiStatus::default()
        };
        RefusedObject { of: &of, sent, live }.hints(&status)
    }

    #[test]
    fn each_field_is_explained_by_whose_it_is() {
        let sent = json!({"spec": {"replicas": -1, "strategy": {"type": "Recreate"}, "template": {"spec": {"containers": [{"name": "a"}]}}}});
        let owned = json!([{"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {"f:strategy": {"f:rollingUpdate": {"f:maxSurge": {}}}}}}]);
        let live = json!({"metadata": {"managedFields": owned}, "spec": {"strategy": {"rollingUpdate": {"maxSurge": 1}}}});
        for (field, message, live, expected) in [
            (
                "spec.replicas",
                "Invalid value: -1",
                None,
                "the Spec sets `spec.replicas`: `kubectl explain deployment.spec.replicas --api-version=apps/v1`",
            ),
            (
                "spec.template.spec.containers[0].image",
                "Required value",
                None,
                "the Spec does not have `spec.template.spec.containers[0].image`, which is required: `kubectl explain deployment.spec.template.spec.containers.image --api-version=apps/v1`",
            ),
            (
                "spec.strategy.rollingUpdate",
                "Forbidden: may not be specified",
                None,
                "the Spec does not have `spec.strategy.rollingUpdate`: the server has filled it in",
            ),
            (
                "spec.strategy.rollingUpdate",
                "Forbidden: may not be specified",
                Some(&live),
                "the Spec does not have `spec.strategy.rollingUpdate`: `kubectl-edit` wrote it",
            ),
            (
                "",
                "strict decoding error: unknown field \"spec.replica\"",
                None,
                "the kind has no `spec.replica` in this version: `kubectl explain deployment.spec --api-version=apps/v1`",
            ),
        ] {
            let found = hints(&sent, live, field, message);
            assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
        }
        let typed = |says: &str| {
            hints(
                &sent,
                None,
                "",
                &format!("failed to create typed patch object (ns/web; apps/v1, Kind=Deployment): {says}"),
            )
        };
        let unknown = typed(".spec.replicsa: field not declared in schema");
        assert!(
            unknown[0].starts_with(
                "the kind has no `spec.replicsa` in this version: `kubectl explain deployment.spec --"
            ),
            "{unknown:?}"
        );
        let wrong = typed(
            "errors:\n  .spec.template.spec.containers[name=\"a\"].name: expected string\n  .spec.replicas: expected numeric",
        );
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(
            wrong.iter().all(|hint| hint.contains("the Spec sets `")),
            "{wrong:?}"
        );
        assert_eq!(
            hints(&sent, None, "", "is invalid"),
            ["`kubectl explain deployment --api-version=apps/v1` lists the fields of the kind"]
        );
    }
}
