//! What Kubernetes documents about its built-in kinds: which fields are immutable, and what is lost with an
//! object. Used where no server can be asked.

use serde_json::Value;

/// The mutable fields in the `spec` of a StatefulSet.
pub const MUTABLE_IN_STATEFUL_SET: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
    "revisionHistoryLimit",
];

/// The mutable fields in the `spec` of a PersistentVolumeClaim.
const MUTABLE_IN_CLAIM: [&str; 3] = ["resources", "volumeAttributesClassName", "volumeName"];

/// The mutable fields in the `spec` of a Pod; of its containers only the image.
const MUTABLE_IN_POD: [&str; 4] = [
    "activeDeadlineSeconds",
    "terminationGracePeriodSeconds",
    "tolerations",
    "schedulingGates",
];

/// Immutable paths, by API group and kind.
const IMMUTABLE: [(&str, &str, &[&str]); 15] = [
    ("apps", "Deployment", &["/spec/selector"]),
    ("apps", "DaemonSet", &["/spec/selector"]),
    ("apps", "ReplicaSet", &["/spec/selector"]),
    (
        "batch",
        "Job",
        &["/spec/selector", "/spec/template", "/spec/completionMode"],
    ),
    ("", "Service", &["/spec/clusterIP"]),
    ("", "Secret", &["/type"]),
    (
        "",
        "PersistentVolume",
        &[
            "/spec/csi",
            "/spec/nfs",
            "/spec/hostPath",
            "/spec/local",
            "/spec/volumeMode",
        ],
    ),
    (
        "storage.k8s.io",
        "StorageClass",
        &[
            "/provisioner",
            "/parameters",
            "/reclaimPolicy",
            "/volumeBindingMode",
        ],
    ),
    ("rbac.authorization.k8s.io", "RoleBinding", &["/roleRef"]),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding", &["/roleRef"]),
    ("networking.k8s.io", "IngressClass", &["/spec/controller"]),
    (
        "scheduling.k8s.io",
        "PriorityClass",
        &["/value", "/preemptionPolicy"],
    ),
    ("node.k8s.io", "RuntimeClass", &["/handler"]),
    (
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        &[
            "/spec/group",
            "/spec/scope",
            "/spec/names/kind",
            "/spec/names/plural",
        ],
    ),
    ("certificates.k8s.io", "CertificateSigningRequest", &["/spec"]),
];

/// Returns true if an object's field cannot be changed in place, by the published rules of its built-in kind.
/// `before` is the object before the change.
pub fn is_immutable(before: &Value, path: &str) -> bool {
    let api_version = before["apiVersion"].as_str().unwrap_or_default();
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let kind = before["kind"].as_str().unwrap_or_default();
    let in_spec = path
        .strip_prefix("/spec/")
        .and_then(|rest| rest.split('/').next());
    match (group, kind) {
        ("apps", "StatefulSet") => in_spec.is_some_and(|field| !MUTABLE_IN_STATEFUL_SET.contains(&field)),
        ("", "PersistentVolumeClaim") => in_spec.is_some_and(|field| !MUTABLE_IN_CLAIM.contains(&field)),
        ("", "Pod") => {
            let is_image =
                path.ends_with("/image") && in_spec.is_some_and(|field| field.ends_with("ontainers"));
            !is_image && in_spec.is_some_and(|field| !MUTABLE_IN_POD.contains(&field))
        }
        ("", "ConfigMap" | "Secret") if before["immutable"] == true => {
            ["/data", "/binaryData", "/stringData", "/immutable", "/type"]
                .iter()
                .any(|field| is_within(path, field))
        }
        _ => IMMUTABLE
            .iter()
            .filter(|rule| (rule.0, rule.1) == (group, kind))
            .flat_map(|rule| rule.2)
            .any(|field| is_within(path, field)),
    }
}

fn is_within(path: &str, field: &str) -> bool {
    path.strip_prefix(field)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Removes what code generators write for the fields of the server, without a value: `creationTimestamp: null` of the object
/// and of its templates, and a `status` without content.
pub fn drop_unset_server_fields(object: &mut Value) {
    if let Some(whole) = object.as_object_mut()
        && whole.get("status").is_some_and(has_no_content)
    {
        whole.shift_remove("status");
    }
    drop_unset_times(object);
}

fn drop_unset_times(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(metadata) = map.get_mut("metadata").and_then(Value::as_object_mut)
                && metadata.get("creationTimestamp").is_some_and(Value::is_null)
            {
                metadata.shift_remove("creationTimestamp");
            }
            map.values_mut().for_each(drop_unset_times);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_unset_times),
        _ => {}
    }
}

fn has_no_content(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.values().all(has_no_content),
        _ => false,
    }
}

/// What is lost if the object is deleted; `None` if nothing is.
pub fn data_loss(object: &Value) -> Option<&'static str> {
    let spec = &object["spec"];
    match object["kind"].as_str()? {
        "PersistentVolumeClaim" => Some("the volume's data may be deleted with the claim"),
        "PersistentVolume" => Some("the volume is released"),
        "Namespace" => Some("everything in the namespace is deleted"),
        "CustomResourceDefinition" => Some("every object of this kind is deleted"),
        "StatefulSet" if spec["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete" => {
            Some("its volume claims are deleted with it")
        }
        "StatefulSet"
            if spec["volumeClaimTemplates"]
                .as_array()
                .is_some_and(|claims| !claims.is_empty()) =>
        {
            Some(
                "its pods are terminated; its volume claims remain, and are reused only with the same templates",
            )
        }
        "Service" if spec["type"] == "LoadBalancer" => Some("the address of its load balancer is released"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn published_rules_name_what_cannot_be_changed_in_place() {
        let object = |api: &str, kind: &str| json!({"apiVersion": api, "kind": kind});
        for (api, kind, path, immutable) in [
            ("apps/v1", "Deployment", "/spec/selector/matchLabels/app", true),
            ("apps/v1", "Deployment", "/spec/replicas", false),
            ("apps/v1", "StatefulSet", "/spec/serviceName", true),
            ("apps/v1", "StatefulSet", "/spec/template/spec/containers", false),
            (
                "batch/v1",
                "Job",
                "/spec/template/spec/containers/name=a/image",
                true,
            ),
            ("batch/v1", "Job", "/spec/templates", false),
            ("v1", "PersistentVolumeClaim", "/spec/storageClassName", true),
            (
                "v1",
                "PersistentVolumeClaim",
                "/spec/resources/requests/storage",
                false,
            ),
            ("v1", "Pod", "/spec/containers/name=a/image", false),
            ("v1", "Pod", "/spec/containers/name=a/args", true),
            ("example.org/v1", "Deployment", "/spec/selector", false),
            ("v1", "ConfigMap", "/data/a", false),
            (
                "rbac.authorization.k8s.io/v1",
                "RoleBinding",
                "/roleRef/name",
                true,
            ),
        ] {
            assert_eq!(is_immutable(&object(api, kind), path), immutable, "{kind} {path}");
        }
        let mut map = object("v1", "ConfigMap");
        map["immutable"] = json!(true);
        assert!(is_immutable(&map, "/data/a") && !is_immutable(&map, "/metadata/labels/a"));
    }
}
