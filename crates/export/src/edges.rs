//! The order in which tools create objects: by a fixed list of kinds, unless something else orders them.

use std::collections::HashMap;

use konverge_base::model::{GroupKind, ResourceId};
use konverge_engine::spec::graph::Edge;

use crate::{
    bundle::{Bundle, BundleEdge},
    document::{Holds, Loss},
};

/// Helm 3's order of kinds. Helm 4 adds two at the end. Argo CD has the same list without the first kind and
/// without the `List` kinds. All compare only the name of the kind and ignore its group.
const KINDS: [&str; 36] = [
    "PriorityClass",
    "Namespace",
    "NetworkPolicy",
    "ResourceQuota",
    "LimitRange",
    "PodSecurityPolicy",
    "PodDisruptionBudget",
    "ServiceAccount",
    "Secret",
    "SecretList",
    "ConfigMap",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "CustomResourceDefinition",
    "ClusterRole",
    "ClusterRoleList",
    "ClusterRoleBinding",
    "ClusterRoleBindingList",
    "Role",
    "RoleList",
    "RoleBinding",
    "RoleBindingList",
    "Service",
    "DaemonSet",
    "Pod",
    "ReplicationController",
    "ReplicaSet",
    "Deployment",
    "HorizontalPodAutoscaler",
    "StatefulSet",
    "Job",
    "CronJob",
    "IngressClass",
    "Ingress",
    "APIService",
];

/// The kinds that Helm 4 adds at the end of the list. For Helm 3 they are unknown kinds.
const WEBHOOKS: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// A tool that sorts objects by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KindOrder {
    /// The order that Helm 3 and Helm 4 have in common. Unknown kinds come last, by name.
    Helm,
    /// Argo CD's order within a wave. Unknown kinds come last, in any order.
    ArgoCd,
}

impl KindOrder {
    /// Returns true if the tool creates all objects of the first kind before any of the second.
    pub(crate) fn is_before(self, first: GroupKind<'_>, second: GroupKind<'_>) -> bool {
        let (first, second) = (first.kind, second.kind);
        let rank = |kind: &str| KINDS.iter().position(|known| *known == kind);
        match self {
            Self::Helm => {
                let three = |kind: &str| {
                    (
                        rank(kind).unwrap_or(KINDS.len()),
                        rank(kind).map_or(kind, |_| "").to_owned(),
                    )
                };
                let four = |kind: &str| {
                    let webhook = WEBHOOKS.iter().position(|known| *known == kind);
                    let known = rank(kind).or(webhook.map(|at| KINDS.len() + at));
                    let last = KINDS.len() + WEBHOOKS.len();
                    (known.unwrap_or(last), known.map_or(kind, |_| "").to_owned())
                };
                three(first) < three(second) && four(first) < four(second)
            }
            // The first kind of the list is unknown to Argo CD.
            Self::ArgoCd => {
                let rank = |kind: &str| rank(kind).filter(|rank| *rank > 0).unwrap_or(KINDS.len());
                rank(first) < rank(second)
            }
        }
    }
}

/// The kinds that are ready as soon as they exist.
const READY_AT_ONCE: [GroupKind<'static>; 14] = [
    GroupKind::CLUSTER_ROLE,
    GroupKind::CLUSTER_ROLE_BINDING,
    GroupKind::CONFIG_MAP,
    GroupKind::INGRESS_CLASS,
    GroupKind::LIMIT_RANGE,
    GroupKind::NAMESPACE,
    GroupKind::NETWORK_POLICY,
    GroupKind::PRIORITY_CLASS,
    GroupKind::ROLE,
    GroupKind::ROLE_BINDING,
    GroupKind::RUNTIME_CLASS,
    GroupKind::SECRET,
    GroupKind::SERVICE_ACCOUNT,
    GroupKind::STORAGE_CLASS,
];

/// Decides what an edge keeps if objects are sorted by kind. An edge that exists because of the kinds only needs
/// the order; other edges also need the first object to be ready.
pub(crate) fn sorted_by_kind(
    edge: &BundleEdge,
    first: GroupKind<'_>,
    is_before: bool,
) -> Result<Holds, Loss> {
    match (is_before, edge.kind) {
        (false, _) => Err(Loss::Order),
        (true, Edge::Order) => Ok(Holds::Created),
        (true, _) if READY_AT_ONCE.contains(&first) => Ok(Holds::Created),
        (true, _) => Err(Loss::Readiness),
    }
}

/// Returns the positions of the objects by id.
pub(crate) fn positions(bundle: &Bundle) -> HashMap<&ResourceId, usize> {
    let objects = bundle.objects.iter().enumerate();
    objects.map(|(at, object)| (&object.id, at)).collect()
}

/// Returns the wave of each object: the lowest numbers with which every edge is respected. Within a wave, the order
/// of kinds counts.
pub(crate) fn waves(bundle: &Bundle) -> Vec<usize> {
    let at = positions(bundle);
    let mut waves = vec![0; bundle.objects.len()];
    let mut incoming: HashMap<usize, Vec<&BundleEdge>> = HashMap::new();
    for edge in &bundle.edges {
        incoming.entry(at[&edge.to]).or_default().push(edge);
    }
    // The objects are sorted by level, so dependencies come first and already have a wave.
    for index in 0..bundle.objects.len() {
        let kind = bundle.objects[index].kind();
        for edge in incoming.get(&index).into_iter().flatten() {
            let before = at[&edge.from];
            let is_sorted = KindOrder::ArgoCd.is_before(bundle.objects[before].kind(), kind);
            let step = usize::from(edge.kind != Edge::Order || !is_sorted);
            waves[index] = waves[index].max(waves[before] + step);
        }
    }
    waves
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_both_helms_do_is_an_order() {
        let kind = |kind| GroupKind::new("", kind);
        let helm = |first, second| KindOrder::Helm.is_before(kind(first), kind(second));
        assert!(helm("Namespace", "ConfigMap") && !helm("ConfigMap", "Namespace"));
        assert!(!helm("ConfigMap", "ConfigMap") && helm("APIService", "Gateway"));
        assert!(helm("Gateway", "HTTPRoute") && !helm("HTTPRoute", "Gateway"));
        assert!(helm("Deployment", "ValidatingWebhookConfiguration"));
        assert!(
            !helm("ValidatingWebhookConfiguration", "Gateway"),
            "Helm 3 sorts both by name"
        );
        assert!(
            !helm("Gateway", "ValidatingWebhookConfiguration"),
            "Helm 4 knows one of them"
        );
        let argo = |first, second| KindOrder::ArgoCd.is_before(kind(first), kind(second));
        assert!(argo("Namespace", "Pod") && !argo("PriorityClass", "Pod") && !argo("Gateway", "HTTPRoute"));
    }
}
