//! The API groups of Kubernetes itself. The suffix `.k8s.io` does not identify them: Gateway API, snapshots
//! and others use it for CustomResourceDefinitions.

use super::GroupKind;

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
const CLUSTER_SCOPED: [GroupKind<'static>; 26] = [
    GroupKind::NAMESPACE,
    GroupKind::new("", "Node"),
    GroupKind::PERSISTENT_VOLUME,
    GroupKind::CLUSTER_ROLE,
    GroupKind::CLUSTER_ROLE_BINDING,
    GroupKind::STORAGE_CLASS,
    GroupKind::new("storage.k8s.io", "CSIDriver"),
    GroupKind::new("storage.k8s.io", "CSINode"),
    GroupKind::new("storage.k8s.io", "VolumeAttachment"),
    GroupKind::VOLUME_ATTRIBUTES_CLASS,
    GroupKind::PRIORITY_CLASS,
    GroupKind::RUNTIME_CLASS,
    GroupKind::INGRESS_CLASS,
    GroupKind::new("networking.k8s.io", "IPAddress"),
    GroupKind::new("networking.k8s.io", "ServiceCIDR"),
    GroupKind::CUSTOM_RESOURCE_DEFINITION,
    GroupKind::API_SERVICE,
    GroupKind::MUTATING_WEBHOOK_CONFIGURATION,
    GroupKind::VALIDATING_WEBHOOK_CONFIGURATION,
    GroupKind::new("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    GroupKind::new("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    GroupKind::new("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
    GroupKind::new("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
    GroupKind::new("certificates.k8s.io", "CertificateSigningRequest"),
    GroupKind::new("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    GroupKind::new("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"),
];

/// The built-in groups whose kinds are namespaced, except those in [`CLUSTER_SCOPED`].
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
pub fn is_namespaced(kind: GroupKind<'_>) -> Option<bool> {
    if CLUSTER_SCOPED.contains(&kind) {
        return Some(false);
    }
    NAMESPACED.contains(&kind.group).then_some(true)
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
        assert_eq!(
            is_namespaced(GroupKind::new("node.k8s.io", "RuntimeClass")),
            Some(false)
        );
        assert_eq!(is_namespaced(GroupKind::new("example.com", "RuntimeClass")), None);
        assert_eq!(is_namespaced(GroupKind::new("apps", "Deployment")), Some(true));
        assert_eq!(
            is_namespaced(GroupKind::new("gateway.networking.k8s.io", "Gateway")),
            None
        );
    }
}
