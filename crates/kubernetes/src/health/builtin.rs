//! The health of built-in kinds that have their own rule.

use konverge_base::model::GroupKind;
use serde_json::Value;

use super::{
    Related,
    kstatus::{reconciling, unobserved},
    object_view::{Condition, ObjectView},
    pods,
    verdict::{HealthVerdict, WaitPolicy},
    workloads,
};

// The API group of these kinds before Kubernetes 1.16. Old manifests with it are evaluated without a cluster.
const EARLIER_DEPLOYMENT: GroupKind<'static> = GroupKind::new("extensions", "Deployment");
const EARLIER_DAEMON_SET: GroupKind<'static> = GroupKind::new("extensions", "DaemonSet");
const EARLIER_REPLICA_SET: GroupKind<'static> = GroupKind::new("extensions", "ReplicaSet");
const EARLIER_INGRESS: GroupKind<'static> = GroupKind::new("extensions", "Ingress");

/// Returns the health of a built-in kind that has its own rule.
pub(super) fn evaluate(of: GroupKind<'_>, view: &ObjectView, related: &Related) -> Option<HealthVerdict> {
    Some(match of {
        GroupKind::DEPLOYMENT | EARLIER_DEPLOYMENT => workloads::deployment(view, related),
        GroupKind::STATEFUL_SET => workloads::stateful_set(view, related),
        GroupKind::DAEMON_SET | EARLIER_DAEMON_SET => workloads::daemon_set(view, related),
        GroupKind::REPLICA_SET | EARLIER_REPLICA_SET | GroupKind::REPLICATION_CONTROLLER => {
            workloads::replica_set(view, related)
        }
        GroupKind::JOB => workloads::job(view, related),
        GroupKind::CRON_JOB => workloads::cron_job(view),
        GroupKind::POD => pods::evaluate(view, related),
        GroupKind::PERSISTENT_VOLUME_CLAIM => volume_claim(view, related),
        GroupKind::PERSISTENT_VOLUME => volume(view),
        GroupKind::SERVICE => service(view),
        GroupKind::INGRESS | EARLIER_INGRESS => ingress(view),
        GroupKind::NAMESPACE => namespace(view),
        GroupKind::CUSTOM_RESOURCE_DEFINITION => resource_definition(view),
        GroupKind::API_SERVICE => api_service(view),
        GroupKind::POD_DISRUPTION_BUDGET => {
            unobserved(view, true).unwrap_or_else(|| HealthVerdict::ready(""))
        }
        GroupKind::HORIZONTAL_POD_AUTOSCALER => autoscaler(view),
        GroupKind::CONFIG_MAP
        | GroupKind::SECRET
        | GroupKind::SERVICE_ACCOUNT
        | GroupKind::ENDPOINTS
        | GroupKind::LIMIT_RANGE
        | GroupKind::RESOURCE_QUOTA
        | GroupKind {
            group: GroupKind::RBAC,
            ..
        } => HealthVerdict::ready(""),
        _ => return None,
    })
}

fn volume_claim(view: &ObjectView, related: &Related) -> HealthVerdict {
    match view.text("/status/phase") {
        "Bound" => HealthVerdict::ready("bound"),
        "Lost" => HealthVerdict::failed("its volume is lost"),
        _ if waits_for_consumer(view, related) => {
            HealthVerdict::ready("binds when the first pod uses it (WaitForFirstConsumer)")
        }
        "" => HealthVerdict::progressing("not bound yet"),
        phase => HealthVerdict::progressing(format!("not bound yet, phase {phase}")),
    }
}

/// Returns true if the claim's class binds a volume only when a pod uses the claim, so that there is nothing
/// to wait for.
fn waits_for_consumer(claim: &ObjectView, related: &Related) -> bool {
    const SELECTED_NODE: &str = "/metadata/annotations/volume.kubernetes.io~1selected-node";
    const REASON: &str = "WaitForFirstConsumer";
    let class = claim.text("/spec/storageClassName");
    let late = related
        .storage_classes
        .iter()
        .map(ObjectView)
        .any(|candidate| candidate.name() == class && candidate.text("/volumeBindingMode") == REASON);
    let said = claim
        .list("/status/conditions")
        .any(|condition| condition.text("/reason") == REASON)
        || related
            .events_of(claim)
            .last()
            .is_some_and(|event| event.text("/reason") == REASON);
    let used = related.pods.iter().map(ObjectView).any(|pod| {
        pod.text("/metadata/namespace") == claim.text("/metadata/namespace")
            && pod
                .list("/spec/volumes")
                .any(|volume| volume.text("/persistentVolumeClaim/claimName") == claim.name())
    });
    (late || said) && !used && claim.text(SELECTED_NODE).is_empty()
}

fn volume(view: &ObjectView) -> HealthVerdict {
    match view.text("/status/phase") {
        "Available" | "Bound" | "Released" => HealthVerdict::ready(view.text("/status/phase").to_lowercase()),
        "Failed" => HealthVerdict::failed(view.text("/status/message")),
        _ => HealthVerdict::progressing("not available yet"),
    }
}

fn service(view: &ObjectView) -> HealthVerdict {
    if view.text("/spec/type") != "LoadBalancer" {
        return HealthVerdict::ready("");
    }
    let addresses: Vec<_> = addresses(view);
    if !addresses.is_empty() {
        return HealthVerdict::ready(addresses.join(", "));
    }
    if view.list("/spec/externalIPs").next().is_some() {
        return HealthVerdict::ready("reached by its external addresses");
    }
    if view.text("/spec/clusterIP").is_empty() {
        return HealthVerdict::progressing("no cluster address yet");
    }
    HealthVerdict::progressing("no load balancer address yet")
}

/// Returns the health of an Ingress. Many controllers never write an address, so a missing one is only a
/// note.
fn ingress(view: &ObjectView) -> HealthVerdict {
    match addresses(view) {
        found if found.is_empty() => {
            HealthVerdict::ready("no load balancer address (not every controller writes one)")
        }
        found => HealthVerdict::ready(found.join(", ")),
    }
}

fn addresses<'a>(view: &ObjectView<'a>) -> Vec<&'a str> {
    view.list("/status/loadBalancer/ingress")
        .map(|address| match address.text("/ip") {
            "" => address.text("/hostname"),
            ip => ip,
        })
        .filter(|address| !address.is_empty())
        .collect()
}

fn namespace(view: &ObjectView) -> HealthVerdict {
    match view.text("/status/phase") {
        "" | "Active" => HealthVerdict::ready(""),
        phase => HealthVerdict::progressing(phase.to_lowercase()),
    }
}

fn resource_definition(view: &ObjectView) -> HealthVerdict {
    if let Some(verdict) = unobserved(view, false).or_else(|| reconciling(view)) {
        return verdict;
    }
    if let Some(refused) = view.condition("NamesAccepted").filter(|c| c.is_false()) {
        return HealthVerdict::failed(refused.lowercase_words());
    }
    match view.condition("Established") {
        Some(condition) if condition.is_true() => HealthVerdict::ready("established"),
        Some(condition) if condition.is_false() && condition.reason != "Installing" => {
            HealthVerdict::failed(condition.lowercase_words())
        }
        Some(condition) => HealthVerdict::progressing(condition.lowercase_words()),
        None => HealthVerdict::progressing("not established yet"),
    }
}

fn api_service(view: &ObjectView) -> HealthVerdict {
    match view.condition("Available") {
        Some(condition) if condition.is_true() => HealthVerdict::ready(condition.message),
        Some(condition) => HealthVerdict::progressing(condition.lowercase_words()),
        None => HealthVerdict::progressing("not available yet"),
    }
}

/// Returns the health of an autoscaler. It has no metrics while its target starts, so its errors are shown
/// but never waited for.
fn autoscaler(view: &ObjectView) -> HealthVerdict {
    const FAILURES: [(&str, &str); 8] = [
        ("AbleToScale", "FailedGetScale"),
        ("AbleToScale", "FailedUpdateScale"),
        ("ScalingActive", "FailedGetResourceMetric"),
        ("ScalingActive", "FailedGetObjectMetric"),
        ("ScalingActive", "FailedGetPodsMetric"),
        ("ScalingActive", "FailedGetExternalMetric"),
        ("ScalingActive", "FailedComputeMetricsReplicas"),
        ("ScalingActive", "InvalidSelector"),
    ];
    // The first version of the API has its conditions in an annotation.
    const ANNOTATION: &str = "/metadata/annotations/autoscaling.alpha.kubernetes.io~1conditions";
    let annotated: Value = serde_json::from_str(view.text(ANNOTATION)).unwrap_or_default();
    let in_annotation = annotated.as_array().into_iter().flatten().map(ObjectView);
    let conditions: Vec<_> = view
        .list("/status/conditions")
        .chain(in_annotation)
        .map(|condition| (condition.text("/type"), Condition::from(condition)))
        .collect();
    let failure = conditions
        .iter()
        .find(|(kind, condition)| !condition.is_true() && FAILURES.contains(&(*kind, condition.reason)));
    let works = conditions
        .iter()
        .find(|(kind, condition)| ["AbleToScale", "ScalingLimited"].contains(kind) && condition.is_true());
    let verdict = match (failure, works) {
        (Some((_, condition)), _) => HealthVerdict::failed(condition.lowercase_words()),
        (None, Some((_, condition))) => HealthVerdict::ready(condition.message),
        (None, None) if conditions.is_empty() => HealthVerdict::ready("does not scale yet"),
        (None, None) => HealthVerdict::progressing("waiting to scale"),
    };
    verdict.with_wait_policy(WaitPolicy::Advisory)
}
