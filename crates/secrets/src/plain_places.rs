//! Decides where a secret value may be written outside of a Secret, if its store is configured with `into: any`: in a
//! field that only its owner reads. A field that identifies an object, or that other objects copy, would show its value
//! in locations that are not masked.

use super::secret_paths::is_last_applied;
use konverge_base::model::{FieldPath, GroupKind};

/// The names of fields that identify an object or refer to one.
const IDENTITIES: [&str; 7] = [
    "apiVersion",
    "kind",
    "name",
    "namespace",
    "generateName",
    "uid",
    "id",
];

/// The endings of fields that refer to another object: `secretName`, `sourceNamespace`, `databaseRef`, `accountId`.
const ENDINGS: [&str; 5] = ["Name", "Namespace", "Ref", "Id", "ID"];

/// Returns the reason why no secret value may be at a path (RFC 6901) of an object; `None` if it may.
pub fn why_never_secret(object: GroupKind<'_>, path: &FieldPath) -> Option<&'static str> {
    let components: Vec<_> = path.components().collect();
    let components: Vec<_> = components.iter().map(String::as_str).collect();
    match components.as_slice() {
        [.., "metadata", "annotations", name] => return why_no_annotation(name),
        ["data", _] if object == GroupKind::CONFIG_MAP => return None,
        _ => {}
    }
    if object == GroupKind::SECRET {
        return Some("a Secret can have a reference only in `data` or `stringData`, or in an annotation");
    }
    if object.group == GroupKind::CUSTOM_RESOURCE_DEFINITION.group {
        return Some("definitions of kinds are read before the values of secrets");
    }
    let is = |names: &[&str], component: &str| names.contains(&component);
    let is_selecting = |component: &&str| {
        is(&["labels", "matchLabels", "matchExpressions"], component)
            || component.to_ascii_lowercase().ends_with("selector")
    };
    if components.iter().any(is_selecting) {
        return Some("objects are found by their labels, which appear in requests and in other objects");
    }
    if components.contains(&"metadata") {
        return Some("in the metadata only an annotation can have a reference");
    }
    if components.first() == Some(&"status") {
        return Some("the server writes the status");
    }
    if components.contains(&"binaryData") {
        return Some("`binaryData` is base64: write the value into `data`");
    }
    let is_index = |component: &&str| component.bytes().all(|byte| byte.is_ascii_digit());
    if components.iter().any(is_index) {
        return Some("an item of a list can move, so its value could not be found again for masking");
    }
    let last = components.last().copied().unwrap_or_default();
    if is(&IDENTITIES, last) || ENDINGS.iter().any(|ending| last.ends_with(ending)) {
        return Some("this field identifies an object: names appear in requests, errors and events");
    }
    None
}

fn why_no_annotation(name: &str) -> Option<&'static str> {
    if is_last_applied(name) {
        return Some("`kubectl` writes this annotation");
    }
    name.starts_with("konverge/")
        .then_some("Konverge reads this annotation")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(api_version: &str, kind: &str, path: &str) -> bool {
        why_never_secret(GroupKind::from_api_version(api_version, kind), &path.into()).is_none()
    }

    #[test]
    fn a_value_stands_where_only_its_owner_reads() {
        for (api_version, kind, path) in [
            ("v1", "ConfigMap", "/data/name"),
            ("v1", "ConfigMap", "/data/0"),
            ("v1", "ConfigMap", "/metadata/annotations/a~1b"),
            ("v1", "Secret", "/metadata/annotations/a"),
            (
                "apps/v1",
                "Deployment",
                "/spec/template/metadata/annotations/example.com~1token",
            ),
            ("example.com/v1", "Database", "/spec/auth/password"),
        ] {
            assert!(is_allowed(api_version, kind, path), "{kind} {path}");
        }
    }

    #[test]
    fn no_value_stands_where_an_object_is_found_by_it() {
        for (api_version, kind, path) in [
            ("v1", "ConfigMap", "/apiVersion"),
            ("v1", "ConfigMap", "/kind"),
            ("v1", "ConfigMap", "/metadata/name"),
            ("v1", "ConfigMap", "/metadata/namespace"),
            ("v1", "ConfigMap", "/metadata/labels/a"),
            ("v1", "ConfigMap", "/metadata/annotations/konverge~1stack"),
            (
                "v1",
                "ConfigMap",
                "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
            ),
            ("v1", "ConfigMap", "/metadata/uid"),
            ("v1", "ConfigMap", "/binaryData/a"),
            ("v1", "Secret", "/type"),
            ("v1", "Service", "/spec/selector/app"),
            ("apps/v1", "Deployment", "/spec/selector/matchLabels/app"),
            ("apps/v1", "Deployment", "/spec/template/metadata/labels/app"),
            ("apps/v1", "Deployment", "/spec/template/metadata/name"),
            ("apps/v1", "Deployment", "/spec/template/spec/nodeSelector/zone"),
            (
                "apps/v1",
                "Deployment",
                "/spec/template/spec/containers/0/env/0/value",
            ),
            ("apps/v1", "Deployment", "/spec/template/spec/serviceAccountName"),
            ("example.com/v1", "Database", "/spec/id"),
            ("example.com/v1", "Database", "/spec/accountId"),
            ("example.com/v1", "Database", "/spec/secretRef/name"),
            ("example.com/v1", "Database", "/status/token"),
            (
                "apiextensions.k8s.io/v1",
                "CustomResourceDefinition",
                "/spec/group",
            ),
        ] {
            assert!(!is_allowed(api_version, kind, path), "{kind} {path}");
        }
    }

    #[test]
    fn a_part_of_a_name_forbids_nothing() {
        for path in [
            "/spec/status",
            "/spec/labelsOf",
            "/spec/selectors",
            "/spec/a1",
            "/spec/names",
            "/spec/refs",
        ] {
            assert!(is_allowed("example.com/v1", "Database", path), "{path}");
        }
        for path in [
            "/data/name",
            "/spec/labels/a",
            "/spec/podSelector/a",
            "/spec/matchExpressions/a",
            "/spec/list/0",
            "/spec/binaryData/a",
            "/spec/generateName",
            "/spec/sourceNamespace",
            "/spec/databaseRef",
            "/spec/accountID",
            "/metadata/a",
        ] {
            assert!(!is_allowed("example.com/v1", "Database", path), "{path}");
        }
        assert!(!is_allowed("v1", "Service", "/data/name"));
        assert!(!is_allowed("example.com/v1", "ConfigMap", "/data/name"));
        assert!(is_allowed("example.com/v1", "Secret", "/spec/token"));
        assert!(is_allowed("v1", "Thing", "/spec/token"));
    }
}
