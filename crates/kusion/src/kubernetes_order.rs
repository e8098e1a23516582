//! The order of an application's objects, as Kusion writes it into `dependsOn`: an object waits for all
//! objects of the kinds that come earlier.

use serde_json::Value;

use konverge_base::model::{
    ResourceId,
    spec::{Resource, RuntimeKind},
};

/// The kinds in their order. An object of a kind that is not listed waits for all of these.
const ORDER: [&str; 24] = [
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "CustomResourceDefinition",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Endpoints",
    "Service",
    "LimitRange",
    "PriorityClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
];

/// Adds the dependencies to the objects of one application. `shared` are objects that the application has in
/// common with others. Objects of different applications do not wait for each other.
pub(super) fn add(own: &mut [Resource], shared: &[&Resource]) {
    let mut ranked: Vec<(usize, ResourceId)> = Vec::new();
    for resource in shared.iter().copied().chain(own.iter()) {
        if resource.runtime == RuntimeKind::Kubernetes {
            ranked.push((rank(resource), resource.id.clone()));
        }
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    for resource in own {
        if resource.runtime != RuntimeKind::Kubernetes {
            continue;
        }
        let rank = rank(resource);
        for (_, id) in ranked.iter().take_while(|(earlier, _)| *earlier < rank) {
            if !resource.depends_on.contains(id) {
                resource.depends_on.push(id.clone());
            }
        }
    }
}

fn rank(resource: &Resource) -> usize {
    let kind = resource
        .attributes
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    ORDER
        .iter()
        .position(|known| *known == kind)
        .unwrap_or(ORDER.len())
}
