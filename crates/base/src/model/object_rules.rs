//! The documented rules of Kubernetes for its built-in kinds: which fields are immutable, and what data is lost when
//! an object is deleted. Used where no server can be asked.

use serde_json::Value;

use super::{FieldPath, GroupKind};

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

/// The mutable fields in the `spec` of a Pod. In its containers only the image is mutable.
const MUTABLE_IN_POD: [&str; 4] = [
    "activeDeadlineSeconds",
    "terminationGracePeriodSeconds",
    "tolerations",
    "schedulingGates",
];

/// Immutable paths by kind.
const IMMUTABLE: [(GroupKind<'static>, &[&str]); 15] = [
    (GroupKind::DEPLOYMENT, &["/spec/selector"]),
    (GroupKind::DAEMON_SET, &["/spec/selector"]),
    (GroupKind::REPLICA_SET, &["/spec/selector"]),
    (
        GroupKind::JOB,
        &["/spec/selector", "/spec/template", "/spec/completionMode"],
    ),
    (GroupKind::SERVICE, &["/spec/clusterIP"]),
    (GroupKind::SECRET, &["/type"]),
    (
        GroupKind::PERSISTENT_VOLUME,
        &[
            "/spec/csi",
            "/spec/nfs",
            "/spec/hostPath",
            "/spec/local",
            "/spec/volumeMode",
        ],
    ),
    (
        GroupKind::STORAGE_CLASS,
        &[
            "/provisioner",
            "/parameters",
            "/reclaimPolicy",
            "/volumeBindingMode",
        ],
    ),
    (GroupKind::ROLE_BINDING, &["/roleRef"]),
    (GroupKind::CLUSTER_ROLE_BINDING, &["/roleRef"]),
    (GroupKind::INGRESS_CLASS, &["/spec/controller"]),
    (GroupKind::PRIORITY_CLASS, &["/value", "/preemptionPolicy"]),
    (GroupKind::RUNTIME_CLASS, &["/handler"]),
    (
        GroupKind::CUSTOM_RESOURCE_DEFINITION,
        &[
            "/spec/group",
            "/spec/scope",
            "/spec/names/kind",
            "/spec/names/plural",
        ],
    ),
    (
        GroupKind::new("certificates.k8s.io", "CertificateSigningRequest"),
        &["/spec"],
    ),
];

/// Returns true if a field of an object cannot be changed in place, by the documented rules of its built-in kind.
/// `before` is the object before the change.
pub fn is_immutable(before: &Value, path: &FieldPath) -> bool {
    let kind = GroupKind::from_object(before);
    let in_spec = path
        .as_str()
        .strip_prefix("/spec/")
        .and_then(|rest| rest.split('/').next());
    match kind {
        GroupKind::STATEFUL_SET => in_spec.is_some_and(|field| !MUTABLE_IN_STATEFUL_SET.contains(&field)),
        GroupKind::PERSISTENT_VOLUME_CLAIM => in_spec.is_some_and(|field| !MUTABLE_IN_CLAIM.contains(&field)),
        GroupKind::POD => {
            let is_image = path.as_str().ends_with("/image")
                && in_spec.is_some_and(|field| field.ends_with("ontainers"));
            !is_image && in_spec.is_some_and(|field| !MUTABLE_IN_POD.contains(&field))
        }
        GroupKind::CONFIG_MAP | GroupKind::SECRET if before["immutable"] == true => {
            ["/data", "/binaryData", "/stringData", "/immutable", "/type"]
                .iter()
                .any(|field| path.is_within(field))
        }
        _ => IMMUTABLE
            .iter()
            .filter(|(of, _)| *of == kind)
            .flat_map(|(_, fields)| *fields)
            .any(|field| path.is_within(field)),
    }
}

/// Removes the server's fields that code generators write without a value: `creationTimestamp: null` of the object
/// and of its templates, and an empty `status`.
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

/// Returns a description of what is lost if the object is deleted; `None` if nothing is lost.
pub fn data_loss(object: &Value) -> Option<&'static str> {
    let spec = &object["spec"];
    match GroupKind::from_object(object) {
        GroupKind::PERSISTENT_VOLUME_CLAIM => Some("the volume's data may be deleted with the claim"),
        GroupKind::PERSISTENT_VOLUME => Some("the volume is released"),
        GroupKind::NAMESPACE => Some("everything in the namespace is deleted"),
        GroupKind::CUSTOM_RESOURCE_DEFINITION => Some("every object of this kind is deleted"),
        GroupKind::STATEFUL_SET
            if spec["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete" =>
        {
            Some("its volume claims are deleted with it")
        }
        GroupKind::STATEFUL_SET
            if spec["volumeClaimTemplates"]
                .as_array()
                .is_some_and(|claims| !claims.is_empty()) =>
        {
            Some(
                "its pods are terminated; its volume claims remain, and are reused only with the same templates",
            )
        }
        GroupKind::SERVICE if spec["type"] == "LoadBalancer" => {
            Some("the address of its load balancer is released")
        }
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
            assert_eq!(
                is_immutable(&object(api, kind), &path.into()),
                immutable,
                "{kind} {path}"
            );
        }
        let mut map = object("v1", "ConfigMap");
        map["immutable"] = json!(true);
        assert!(is_immutable(&map, &"/data/a".into()) && !is_immutable(&map, &"/metadata/labels/a".into()));
    }

    #[test]
    fn only_the_kinds_of_kubernetes_hold_what_would_be_lost() {
        let object = |api: &str, kind: &str| json!({"apiVersion": api, "kind": kind, "spec": {"type": "LoadBalancer", "volumeClaimTemplates": [{}]}});
        for (api, kind) in [
            ("v1", "PersistentVolumeClaim"),
            ("v1", "PersistentVolume"),
            ("v1", "Namespace"),
            ("v1", "Service"),
            ("apps/v1", "StatefulSet"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ] {
            assert!(data_loss(&object(api, kind)).is_some(), "{kind}");
            assert_eq!(data_loss(&object("example.org/v1", kind)), None, "{kind}");
        }
    }
}
