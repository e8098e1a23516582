//! The keys of a workspace's `context` that have a meaning in Kusion.

use std::collections::BTreeMap;

use serde_json::Value;

use konverge_secrets::is_secret_name;

/// Keys by which Kusion chooses the cluster.
const CLUSTER_KEYS: [&str; 2] = ["KUBECONFIG_CONTENT", "KUBECONFIG_PATH"];

/// The keys that hold credentials of cloud providers.
const CREDENTIAL_KEYS: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "ALICLOUD_ACCESS_KEY",
    "ALICLOUD_SECRET_KEY",
    "KUBECONFIG_CONTENT",
];

/// The keys that modules get as environment variables. Kusion passes them to Terraform, too.
const REGION_KEYS: [&str; 2] = ["AWS_REGION", "ALICLOUD_REGION"];

/// Returns the keys whose value is a credential in clear text.
pub(super) fn credentials_in_clear<'a>(
    context: impl Iterator<Item = (&'a String, &'a Value)>,
) -> Vec<String> {
    let clear = context.filter(|(key, value)| is_clear(key, value));
    clear.map(|(key, _)| key.clone()).collect()
}

/// Returns true for a credential in clear text. A module may define keys of its own, which are recognized as
/// credentials by their names.
fn is_clear(key: &str, value: &Value) -> bool {
    let is_credential = CREDENTIAL_KEYS.contains(&key) || is_secret_name(key);
    match value {
        Value::Object(fields) => fields.iter().any(|(key, value)| is_clear(key, value)),
        Value::String(text) => is_credential && !text.is_empty() && !text.starts_with("ref://"),
        Value::Number(_) => is_credential,
        Value::Array(items) => items.iter().any(|item| is_clear(key, item)),
        Value::Null | Value::Bool(_) => false,
    }
}

/// Returns notes about the keys that have no effect in Konverge.
pub(super) fn notes(context: &BTreeMap<String, Value>) -> Vec<String> {
    let ignored = |key: &String| {
        let key = key.as_str();
        if CLUSTER_KEYS.contains(&key) {
            Some(format!(
                "the workspace's `context.{key}` is not used: name the cluster under `clusters` in konverge.yaml"
            ))
        } else if CREDENTIAL_KEYS.contains(&key) {
            Some(format!(
                "the workspace's `context.{key}` is not used: Terraform reads this value from the environment of the job"
            ))
        } else if REGION_KEYS.contains(&key) {
            Some(format!(
                "the workspace's `context.{key}` is passed to modules only: Terraform reads this value from the environment of the job"
            ))
        } else {
            None
        }
    };
    context.keys().filter_map(ignored).collect()
}

/// Returns the context that modules get, and on which a Spec therefore depends: all keys but those that
/// choose Kusion's cluster, which Konverge does not read.
pub(super) fn of_modules(context: &BTreeMap<String, Value>) -> BTreeMap<&str, &Value> {
    let all = context.iter().map(|(key, value)| (key.as_str(), value));
    all.filter(|(key, _)| !CLUSTER_KEYS.contains(key)).collect()
}

/// Returns the environment variables of modules.
pub(super) fn environment(context: &BTreeMap<String, Value>) -> BTreeMap<String, String> {
    let value = |key: &&str| context.get(*key).and_then(Value::as_str);
    let set = REGION_KEYS.iter().filter_map(|key| Some((*key, value(key)?)));
    let usable = set.filter(|(_, value)| !value.is_empty() && !value.contains('\0'));
    usable
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
