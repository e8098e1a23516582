//! Why a workload does not get on: the obstacles of its pods, and refusals to create them.

use serde_json::Value;

use super::{Related, Verdict, Weight, pods, view::View};

/// A failure that a workload's pods or its controller's events show, before any deadline has passed.
pub(super) fn early_failure(workload: &View, related: &Related) -> Option<Verdict> {
    let words = from_pods(workload, related).or_else(|| refused(workload, related))?;
    Some(Verdict::failed(words).weighing(Weight::Symptom))
}

/// `pod web-1 (and 2 more): container app: ImagePullBackOff: …`
pub(super) fn from_pods(workload: &View, related: &Related) -> Option<String> {
    // A crash of a Job's pod is counted by the Job itself, against its back-off limit.
    let crashes_count = workload.text("/kind") == "Job";
    let mut stuck = related
        .pods_of(workload)
        .into_iter()
        .filter_map(|pod| Some((pod.name(), pods::obstacle(&pod, related)?)))
        .filter(|(_, obstacle)| !(crashes_count && obstacle.crashes));
    let (name, obstacle) = stuck.next()?;
    Some(match stuck.count() {
        0 => format!("pod {name}: {}", obstacle.words),
        more => format!("pod {name} (and {more} more): {}", obstacle.words),
    })
}

/// The pod that keeps an object from getting on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Culprit {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// The container at fault; empty if it is about the whole pod.
    pub container: String,
    /// Whether a program ended, which left a log.
    pub crashed: bool,
}

/// The first pod of an object, or the object if it is one, that does not start.
pub fn culprit(object: &Value, related: &Related) -> Option<Culprit> {
    let view = View(object);
    let pods = match view.text("/kind") {
        "Pod" => vec![view],
        _ => related.pods_of(&view),
    };
    pods.into_iter().find_map(|pod| {
        let obstacle = pods::obstacle(&pod, related)?;
        Some(Culprit {
            namespace: pod.text("/metadata/namespace").to_owned(),
            pod: pod.name().to_owned(),
            container: obstacle.container,
            crashed: obstacle.crashes,
        })
    })
}

/// Why no pod may be created: the newest `FailedCreate` of the workload or of one of its replica sets, if waiting will
/// not cure it.
fn refused(workload: &View, related: &Related) -> Option<String> {
    let sets = match workload.text("/kind") {
        "Deployment" => related.replica_sets_of(workload),
        _ => Vec::new(),
    };
    let by_condition = std::iter::once(workload)
        .chain(&sets)
        .filter_map(|object| object.condition("ReplicaFailure"))
        .find(|condition| condition.is_true() && is_refusal(condition.message));
    if let Some(condition) = by_condition {
        return Some(condition.words());
    }
    let wanted = workload.number("/spec/replicas").unwrap_or(1);
    if workload.count("/status/replicas") >= wanted && workload.text("/kind") != "Job" {
        return None;
    }
    let event = std::iter::once(workload)
        .chain(&sets)
        .flat_map(|object| related.events_of(object))
        .filter(|event| event.text("/reason") == "FailedCreate")
        .last()?;
    let message = match event.text("/message") {
        "" => event.text("/note"),
        message => message,
    };
    is_refusal(message).then(|| format!("FailedCreate: {message}"))
}

/// Whether the API server refused for a reason that somebody has to change.
pub(super) fn is_refusal(message: &str) -> bool {
    [
        "exceeded quota",
        "is forbidden",
        "is invalid",
        "denied the request",
    ]
    .iter()
    .any(|words| message.contains(words))
}
