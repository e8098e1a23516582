//! The properties of built-in kinds that the server requires.
//!
//! In the documents of built-in kinds, `required` reflects how the Go field is declared, not what the server
//! validates: it accepts a PriorityClass without `value` and a LimitRange without `limits`. A model requires a
//! property only if the server itself rejects an object without it. `tests/it/oracle.rs` checks these rows on a
//! real server.

/// The definitions, with the properties that the server requires.
const REQUIRED: &[(&str, &[&str])] = &[
    ("ClusterRoleBinding", &["roleRef"]),
    ("ConfigMapKeySelector", &["key"]),
    ("Container", &["name"]),
    ("ContainerPort", &["containerPort"]),
    ("CronJobSpec", &["schedule", "jobTemplate"]),
    ("CrossVersionObjectReference", &["kind", "name"]),
    ("DaemonSetSpec", &["selector", "template"]),
    ("DeploymentSpec", &["selector", "template"]),
    ("EnvVar", &["name"]),
    ("HTTPGetAction", &["port"]),
    ("HTTPIngressPath", &["pathType", "backend"]),
    ("HTTPIngressRuleValue", &["paths"]),
    ("HorizontalPodAutoscalerSpec", &["scaleTargetRef", "maxReplicas"]),
    ("IngressServiceBackend", &["name"]),
    ("JobSpec", &["template"]),
    ("KeyToPath", &["key", "path"]),
    ("LabelSelectorRequirement", &["key", "operator"]),
    ("NodeSelector", &["nodeSelectorTerms"]),
    ("NodeSelectorRequirement", &["key", "operator"]),
    ("ObjectFieldSelector", &["fieldPath"]),
    ("PersistentVolumeClaimVolumeSource", &["claimName"]),
    ("PodAffinityTerm", &["topologyKey"]),
    ("PodSpec", &["containers"]),
    ("PolicyRule", &["verbs"]),
    ("ReplicaSetSpec", &["selector"]),
    ("RoleBinding", &["roleRef"]),
    ("RoleRef", &["kind", "name"]),
    ("SecretKeySelector", &["key"]),
    ("ServicePort", &["port"]),
    ("StatefulSetSpec", &["selector", "template"]),
    ("StorageClass", &["provisioner"]),
    ("TCPSocketAction", &["port"]),
    (
        "TopologySpreadConstraint",
        &["maxSkew", "topologyKey", "whenUnsatisfiable"],
    ),
    ("Volume", &["name"]),
    ("VolumeMount", &["name", "mountPath"]),
];

/// Returns true if the server rejects an object of this definition without the property.
pub(crate) fn is_required(definition: &str, property: &str) -> bool {
    let name = definition.rsplit('.').next().unwrap_or_default();
    let row = REQUIRED.iter().find(|(known, _)| *known == name);
    row.is_some_and(|(_, properties)| properties.contains(&property))
}
