//! Identifies fields that are names, references or selectors. The value of a Secret may equal the name of an object or
//! a host: if the Spec has that text in such a field, the field is shown and not masked.

use serde_json::Value;

use super::secret_names::{self, NameClass};
use konverge_base::model::FieldPath;

/// The maps whose keys the author chooses freely. A key in them does not identify a field.
const FREE_MAPS: [&str; 7] = [
    "data",
    "stringData",
    "binaryData",
    "annotations",
    "values",
    "variables",
    "environment",
];

/// The maps whose members are labels.
const LABELS: [&str; 3] = ["labels", "matchLabels", "selector"];

/// The keys of fields with names and hosts.
const NAMES: [&str; 11] = [
    "name",
    "names",
    "generateName",
    "namespace",
    "namespaces",
    "kind",
    "serviceAccount",
    "host",
    "hosts",
    "hostname",
    "hostnames",
];

/// The keys that lead to a value in a resource, without list indices.
#[derive(Clone, Default)]
pub(super) struct FieldKeys<'a>(Vec<&'a str>);

impl<'a> FieldKeys<'a> {
    /// Returns the keys of a path. A key with an escape is not the name of a field.
    pub(super) fn of_path(path: &'a FieldPath) -> Self {
        let keys = path.as_str().split('/').filter(|key| !key.is_empty());
        Self(
            keys.filter(|key| !key.bytes().all(|byte| byte.is_ascii_digit()))
                .collect(),
        )
    }

    pub(super) fn child<'b>(&self, key: &'b str) -> FieldKeys<'b>
    where
        'a: 'b,
    {
        let mut keys: Vec<&'b str> = self.0.clone();
        keys.push(key);
        FieldKeys(keys)
    }

    /// Returns true if the value is a name, a reference or a selector.
    pub(super) fn is_name(&self) -> bool {
        let Some((key, above)) = self.0.split_last() else {
            return false;
        };
        let in_expressions = above.contains(&"matchExpressions");
        if above.iter().any(|key| FREE_MAPS.contains(key)) || is_secret(key) {
            return false;
        }
        let is_label = above
            .last()
            .is_some_and(|map| LABELS.contains(map) || map.ends_with("Selector"));
        let is_reference = above
            .iter()
            .any(|key| key.ends_with("Ref") || key.ends_with("Reference"));
        is_label || is_reference || is_name_key(key) || in_expressions && matches!(*key, "key" | "values")
    }
}

/// Returns true if the field at a path of an object is a name, a reference or a selector.
pub fn is_name_field(path: &FieldPath) -> bool {
    FieldKeys::of_path(path).is_name()
}

fn is_name_key(key: &str) -> bool {
    const ENDS: [&str; 5] = ["Name", "Names", "Namespace", "_name", "_names"];
    let is_user = key.to_ascii_lowercase().contains("user");
    NAMES.contains(&key) || !is_user && ENDS.iter().any(|end| key.ends_with(end))
}

/// Returns true for a key that names a secret value, not the name of a Secret.
fn is_secret(key: &str) -> bool {
    secret_names::says(key) != NameClass::Nothing
}

/// Collects the texts in a resource's fields that are names, references or selectors.
pub(super) fn names_in<'v>(value: &'v Value, path: &FieldKeys<'_>, found: &mut Vec<&'v str>) {
    match value {
        Value::String(text) if path.is_name() => found.push(text),
        Value::Array(items) => items.iter().for_each(|item| names_in(item, path, found)),
        Value::Object(map) => {
            for (key, member) in map {
                names_in(member, &path.child(key), found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_references_and_selectors_are_known_by_their_keys() {
        for path in [
            "/metadata/name",
            "/metadata/labels/app",
            "/spec/selector/app.kubernetes.io~1name",
            "/spec/selector/matchLabels/app",
            "/spec/selector/matchExpressions/0/values/1",
            "/spec/template/spec/nodeSelector/disk",
            "/spec/template/spec/containers/0/name",
            "/spec/template/spec/containers/0/env/0/valueFrom/secretKeyRef/key",
            "/spec/serviceName",
            "/spec/volumeName",
            "/spec/template/spec/volumes/0/persistentVolumeClaim/claimName",
            "/spec/rules/0/host",
            "/spec/tls/0/hosts/0",
            "/spec/externalName",
            "/spec/scaleTargetRef/name",
            "/db_subnet_group_name",
        ] {
            assert!(is_name_field(&path.into()), "{path}");
        }
    }

    #[test]
    fn texts_are_no_names() {
        for path in [
            "",
            "/data/name",
            "/data/host",
            "/stringData/hostname",
            "/metadata/annotations/name",
            "/spec/values/database/host",
            "/spec/template/spec/containers/0/env/0/value",
            "/spec/template/spec/containers/0/args/1",
            "/spec/template/spec/containers/0/image",
            "/environment/0/variables/name",
            "/username",
            "/spec/userName",
            "/master_user_name",
            "/spec/password",
        ] {
            assert!(!is_name_field(&path.into()), "{path}");
        }
    }
}
