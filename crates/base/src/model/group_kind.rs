//! The kind of a Kubernetes object: its API group and its name. The name alone does not identify a kind, because a
//! CustomResourceDefinition may define a `Job` in another group.

use serde_json::{Map, Value};

/// An API group and a kind in it, in any version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKind<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The kind, such as `Deployment`.
    pub kind: &'a str,
}

/// The Kubernetes kinds that have rules in Konverge, as constants that a pattern may use.
impl GroupKind<'static> {
    /// `APIService`.
    pub const API_SERVICE: Self = Self::new("apiregistration.k8s.io", "APIService");
    /// `ClusterRole`.
    pub const CLUSTER_ROLE: Self = Self::new(GroupKind::RBAC, "ClusterRole");
    /// `ClusterRoleBinding`.
    pub const CLUSTER_ROLE_BINDING: Self = Self::new(GroupKind::RBAC, "ClusterRoleBinding");
    /// `ConfigMap`.
    pub const CONFIG_MAP: Self = Self::new("", "ConfigMap");
    /// `CronJob`.
    pub const CRON_JOB: Self = Self::new("batch", "CronJob");
    /// `CustomResourceDefinition`.
    pub const CUSTOM_RESOURCE_DEFINITION: Self =
        Self::new("apiextensions.k8s.io", "CustomResourceDefinition");
    /// `DaemonSet`.
    pub const DAEMON_SET: Self = Self::new("apps", "DaemonSet");
    /// `Deployment`.
    pub const DEPLOYMENT: Self = Self::new("apps", "Deployment");
    /// `Endpoints`.
    pub const ENDPOINTS: Self = Self::new("", "Endpoints");
    /// `HorizontalPodAutoscaler`.
    pub const HORIZONTAL_POD_AUTOSCALER: Self = Self::new("autoscaling", "HorizontalPodAutoscaler");
    /// `Ingress`.
    pub const INGRESS: Self = Self::new("networking.k8s.io", "Ingress");
    /// `IngressClass`.
    pub const INGRESS_CLASS: Self = Self::new("networking.k8s.io", "IngressClass");
    /// `Job`.
    pub const JOB: Self = Self::new("batch", "Job");
    /// `LimitRange`.
    pub const LIMIT_RANGE: Self = Self::new("", "LimitRange");
    /// `MutatingWebhookConfiguration`.
    pub const MUTATING_WEBHOOK_CONFIGURATION: Self =
        Self::new("admissionregistration.k8s.io", "MutatingWebhookConfiguration");
    /// `Namespace`.
    pub const NAMESPACE: Self = Self::new("", "Namespace");
    /// `NetworkPolicy`.
    pub const NETWORK_POLICY: Self = Self::new("networking.k8s.io", "NetworkPolicy");
    /// `PersistentVolume`.
    pub const PERSISTENT_VOLUME: Self = Self::new("", "PersistentVolume");
    /// `PersistentVolumeClaim`.
    pub const PERSISTENT_VOLUME_CLAIM: Self = Self::new("", "PersistentVolumeClaim");
    /// `Pod`.
    pub const POD: Self = Self::new("", "Pod");
    /// `PodDisruptionBudget`.
    pub const POD_DISRUPTION_BUDGET: Self = Self::new("policy", "PodDisruptionBudget");
    /// `PriorityClass`.
    pub const PRIORITY_CLASS: Self = Self::new("scheduling.k8s.io", "PriorityClass");
    /// `ReplicaSet`.
    pub const REPLICA_SET: Self = Self::new("apps", "ReplicaSet");
    /// `ReplicationController`.
    pub const REPLICATION_CONTROLLER: Self = Self::new("", "ReplicationController");
    /// `ResourceQuota`.
    pub const RESOURCE_QUOTA: Self = Self::new("", "ResourceQuota");
    /// `Role`.
    pub const ROLE: Self = Self::new(GroupKind::RBAC, "Role");
    /// `RoleBinding`.
    pub const ROLE_BINDING: Self = Self::new(GroupKind::RBAC, "RoleBinding");
    /// `RuntimeClass`.
    pub const RUNTIME_CLASS: Self = Self::new("node.k8s.io", "RuntimeClass");
    /// `Secret`.
    pub const SECRET: Self = Self::new("", "Secret");
    /// `Service`.
    pub const SERVICE: Self = Self::new("", "Service");
    /// `ServiceAccount`.
    pub const SERVICE_ACCOUNT: Self = Self::new("", "ServiceAccount");
    /// `StatefulSet`.
    pub const STATEFUL_SET: Self = Self::new("apps", "StatefulSet");
    /// `StorageClass`.
    pub const STORAGE_CLASS: Self = Self::new("storage.k8s.io", "StorageClass");
    /// `ValidatingWebhookConfiguration`.
    pub const VALIDATING_WEBHOOK_CONFIGURATION: Self =
        Self::new("admissionregistration.k8s.io", "ValidatingWebhookConfiguration");
    /// `VolumeAttributesClass`.
    pub const VOLUME_ATTRIBUTES_CLASS: Self = Self::new("storage.k8s.io", "VolumeAttributesClass");

    /// The group of roles and their bindings.
    pub const RBAC: &'static str = "rbac.authorization.k8s.io";
}

impl<'a> GroupKind<'a> {
    /// Creates a kind from its API group and name.
    pub const fn new(group: &'a str, kind: &'a str) -> Self {
        Self { group, kind }
    }

    /// Returns the kind of an object with this `apiVersion` and `kind`.
    pub fn from_api_version(api_version: &'a str, kind: &'a str) -> Self {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        Self::new(group, kind)
    }

    /// Returns the kind of an object; its parts are empty if the object has no kind.
    pub fn from_object(object: &'a Value) -> Self {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        Self::from_api_version(text("apiVersion"), text("kind"))
    }

    /// Returns the kind of an object by its attributes; its parts are empty if the object has no kind.
    pub fn from_attributes(object: &'a Map<String, Value>) -> Self {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        Self::from_api_version(text("apiVersion"), text("kind"))
    }

    /// Returns the kind that a CustomResourceDefinition defines; `None` for other objects.
    pub fn defined_by(object: &'a Map<String, Value>) -> Option<Self> {
        if Self::from_attributes(object) != GroupKind::CUSTOM_RESOURCE_DEFINITION {
            return None;
        }
        let spec = object.get("spec")?;
        let kind = spec.get("names")?.get("kind")?.as_str()?;
        Some(Self::new(spec.get("group")?.as_str()?, kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_kind_of_another_group_is_another_kind() {
        let job = |api_version: &str| json!({"apiVersion": api_version, "kind": "Job"});
        assert_eq!(GroupKind::from_object(&job("batch/v1")), GroupKind::JOB);
        assert_eq!(GroupKind::from_object(&job("batch/v1beta1")), GroupKind::JOB);
        for other in ["v1", "batch.volcano.sh/v1alpha1", "", "batch"] {
            assert_ne!(GroupKind::from_object(&job(other)), GroupKind::JOB, "{other}");
        }
        assert_eq!(
            GroupKind::from_object(&json!({"apiVersion": "v1", "kind": "Pod"})),
            GroupKind::POD
        );
        assert_eq!(GroupKind::from_object(&json!([])), GroupKind::new("", ""));
    }

    #[test]
    fn only_a_definition_of_kubernetes_defines_a_kind() {
        let definition = |api_version: &str| {
            json!({"apiVersion": api_version, "kind": "CustomResourceDefinition",
                "spec": {"group": "x.io", "names": {"kind": "Thing"}}})
        };
        let defined = |object: &Value| GroupKind::defined_by(object.as_object().unwrap()).is_some();
        assert!(defined(&definition("apiextensions.k8s.io/v1")));
        assert!(!defined(&definition("example.com/v1")));
    }
}
