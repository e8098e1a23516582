//! The API groups of Kubernetes itself. The suffix `.k8s.io` does not identify them: Gateway API, snapshots
//! and others use it for CustomResourceDefinitions.

/// The built-in groups with a dot in their names. A group without a dot is always built in, because a
/// CustomResourceDefinition must have one.
const BUILT_IN: [&str; 17] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// The cluster-scoped kinds of the built-in groups.
const CLUSTER_SCOPED: [(&str, &str); 24] = [
    ("", "Namespace"),
    ("", "Node"),
    ("", "PersistentVolume"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("storage.k8s.io", "StorageClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "CSINode"),
    ("storage.k8s.io", "VolumeAttachment"),
    ("storage.k8s.io", "VolumeAttributesClass"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("node.k8s.io", "RuntimeClass"),
    ("networking.k8s.io", "IngressClass"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("apiregistration.k8s.io", "APIService"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
    ("certificates.k8s.io", "CertificateSigningRequest"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
];

/// The built-in groups of which all other kinds are namespaced.
const NAMESPACED: [&str; 8] = [
    "",
    "apps",
    "batch",
    "autoscaling",
    "policy",
    "networking.k8s.io",
    "rbac.authorization.k8s.io",
    "coordination.k8s.io",
];

/// Returns true if the group belongs to Kubernetes itself.
pub fn is_built_in(group: &str) -> bool {
    !group.contains('.') || BUILT_IN.contains(&group)
}

/// Returns true if a kind is namespaced; `None` for an unknown kind.
pub fn is_namespaced(group: &str, kind: &str) -> Option<bool> {
    if CLUSTER_SCOPED.contains(&(group, kind)) {
        return Some(false);
    }
    NAMESPACED.contains(&group).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_ends_like_ours_is_not_built_in() {
        for group in [
            "",
            "apps",
            "rbac.authorization.k8s.io",
            "resource.k8s.io",
            "storage.k8s.io",
        ] {
            assert!(is_built_in(group), "{group}");
        }
        for group in [
            "gateway.networking.k8s.io",
            "snapshot.storage.k8s.io",
            "metrics.k8s.io",
            "k8s.io",
            "a.example.com",
        ] {
            assert!(!is_built_in(group), "{group}");
        }
    }

    #[test]
    fn a_kind_is_known_by_its_group_too() {
        assert_eq!(is_namespaced("node.k8s.io", "RuntimeClass"), Some(false));
        assert_eq!(is_namespaced("example.com", "RuntimeClass"), None);
        assert_eq!(is_namespaced("apps", "Deployment"), Some(true));
        assert_eq!(is_namespaced("gateway.networking.k8s.io", "Gateway"), None);
    }
}
