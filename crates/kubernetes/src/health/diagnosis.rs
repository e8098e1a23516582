//! Finds out why a workload is not ready: problems, probes and exits of its pods, or refusals to create pods.

use konverge_base::model::GroupKind;
use serde_json::Value;

use super::{
    Related,
    object_view::ObjectView,
    pods::{self, ContainerState, PodProblem},
    verdict::{HealthVerdict, WaitPolicy},
};

/// Returns a failure that pods or events of a workload show before a deadline has passed.
pub(super) fn early_failure(workload: &ObjectView, related: &Related) -> Option<HealthVerdict> {
    let mut found = [from_pods(workload, related), refused_by(workload, related)]
        .into_iter()
        .flatten();
    let first = found.next()?;
    match found.next() {
        Some(second) if second.weight == WaitPolicy::Blocked && first.weight != WaitPolicy::Blocked => {
            Some(second)
        }
        _ => Some(first),
    }
}

/// Returns a failure of the workload's pods: `pod web-1 (and 2 more): container app: ImagePullBackOff: …`.
pub(super) fn from_pods(workload: &ObjectView, related: &Related) -> Option<HealthVerdict> {
    // A Job counts the crashes of its pods itself, up to its back-off limit.
    let crashes_count = workload.group_kind() == GroupKind::JOB;
    let mut stuck = stuck(&related.pods_of(workload), related);
    stuck.retain(|(_, start_problem)| !(crashes_count && start_problem.crashes));
    let more = stuck.len().saturating_sub(1);
    let (pod, start_problem) = stuck.into_iter().next()?;
    let words = format!("{}: {}", and_more(&pod, more), start_problem.words);
    Some(HealthVerdict::failed(words).with_wait_policy(start_problem.weight()))
}

/// Returns the pods that do not start. Those that waiting cannot fix come first.
fn stuck<'a>(pods: &[ObjectView<'a>], related: &Related) -> Vec<(ObjectView<'a>, PodProblem)> {
    let start_problem = |pod: &ObjectView<'a>| Some((*pod, pods::start_problem(pod, related)?));
    let mut stuck: Vec<_> = pods.iter().filter_map(start_problem).collect();
    stuck.sort_by_key(|(_, start_problem)| start_problem.heals);
    stuck
}

fn and_more(pod: &ObjectView, more: usize) -> String {
    match more {
        0 => format!("pod {}", pod.name()),
        more => format!("pod {} (and {more} more)", pod.name()),
    }
}

/// Describes the first running pod that is not ready: `pod web-1: container app: its readiness probe (GET
/// :8080/healthz) has not succeeded`.
pub(super) fn unready(workload: &ObjectView, related: &Related) -> Option<String> {
    let mut pods = related.pods_of(workload);
    pods.sort_by_key(ObjectView::name);
    let mut unready = pods
        .iter()
        .filter_map(|pod| Some((pod, pods::unready_container(pod)?)));
    let (pod, container) = unready.next()?;
    Some(format!("{}: {}", and_more(pod, unready.count()), container.words))
}

/// Describes how the pods of a failed Job ended, the last one first: `pod once-x (and 2 more): container app
/// ended with exit code 3: …`.
pub(super) fn ends(job: &ObjectView, related: &Related) -> Option<String> {
    let ended = failed_pods(&related.pods_of(job));
    let (pod, end) = ended.first()?;
    Some(format!("{}: {}", and_more(pod, ended.len() - 1), end.words))
}

/// Returns the failed pods, the newest first.
fn failed_pods<'a>(pods: &[ObjectView<'a>]) -> Vec<(ObjectView<'a>, ContainerState)> {
    let end = |pod: &ObjectView<'a>| Some((*pod, pods::bad_end(pod)?));
    let mut ended: Vec<_> = pods.iter().filter_map(end).collect();
    ended.sort_by_key(|(pod, _)| std::cmp::Reverse(pod.time("/metadata/creationTimestamp")));
    ended
}

/// The pod that keeps an object from becoming ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingPod {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// The failing container; empty if the whole pod fails.
    pub container: String,
    /// The log that shows the cause.
    pub log: Log,
}

/// The log of a container that shows the cause of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Log {
    /// No log, because the container never ran.
    None,
    /// The log of the previous run, which crashed.
    Previous,
    /// The log of the current run, or of the last run if the pod has ended.
    Current,
}

/// Returns the failing pod of an object, or the object itself if it is a pod. A pod that does not start comes
/// before one that failed, and that before one that is not ready.
pub fn culprit(object: &Value, related: &Related) -> Option<FailingPod> {
    let view = ObjectView(object);
    let is_job = view.group_kind() == GroupKind::JOB;
    let pods = match view.group_kind() {
        GroupKind::POD => vec![view],
        _ => related.pods_of(&view),
    };
    let of = |pod: &ObjectView, container: &str, log: Log| FailingPod {
        namespace: pod.text("/metadata/namespace").to_owned(),
        pod: pod.name().to_owned(),
        container: container.to_owned(),
        log: if container.is_empty() { Log::None } else { log },
    };
    if let Some((pod, start_problem)) = stuck(&pods, related).first() {
        let log = if start_problem.crashes {
            Log::Previous
        } else {
            Log::None
        };
        return Some(of(pod, &start_problem.container, log));
    }
    let failed = |pod: &ObjectView| is_job || pod.text("/status/phase") == "Failed";
    if let Some((pod, end)) = failed_pods(&pods).iter().find(|(pod, _)| failed(pod)) {
        return Some(of(pod, &end.container, Log::Current));
    }
    let waiting = |pod: &&ObjectView| {
        let done = ["Succeeded", "Failed"].contains(&pod.text("/status/phase"));
        let going = pod.at("/metadata/deletionTimestamp").is_some();
        !done && !going && !pod.condition_is_true("Ready")
    };
    let pod = pods.iter().filter(waiting).min_by_key(|pod| pod.name())?;
    let unready = pods::unready_container(pod).map(|unready| unready.container);
    Some(of(pod, unready.as_deref().unwrap_or_default(), Log::Current))
}

/// Returns the failure of a workload whose pods the server refuses to create, from the newest `FailedCreate`
/// event of the workload or of its replica sets.
fn refused_by(workload: &ObjectView, related: &Related) -> Option<HealthVerdict> {
    let words = refusal(workload, related)?;
    let weight = refusal_weight(&words);
    Some(HealthVerdict::failed(words).with_wait_policy(weight))
}

/// Returns how a wait treats a refusal to create pods. A missing service account may still be created, and a
/// quota has room again when other pods end, unless none of it is in use.
pub(super) fn refusal_weight(message: &str) -> WaitPolicy {
    let used = message
        .split_once("used: ")
        .and_then(|(_, rest)| rest.split_once(", limited: "));
    let is_free = |used: &str| used.split(',').any(|one| one.ends_with("=0"));
    let heals = if message.contains("exceeded quota") {
        !used.is_some_and(|(used, _)| is_free(used))
    } else {
        message.contains("not found")
    };
    if heals {
        WaitPolicy::Transient
    } else {
        WaitPolicy::Blocked
    }
}

fn refusal(workload: &ObjectView, related: &Related) -> Option<String> {
    let sets = match workload.group_kind() {
        GroupKind::DEPLOYMENT => related.replica_sets_of(workload),
        _ => Vec::new(),
    };
    let by_condition = std::iter::once(workload)
        .chain(&sets)
        .filter_map(|object| object.condition("ReplicaFailure"))
        .find(|condition| condition.is_true() && is_refusal(condition.message));
    if let Some(condition) = by_condition {
        return Some(condition.lowercase_words());
    }
    let wanted = workload.number("/spec/replicas").unwrap_or(1);
    if workload.count("/status/replicas") >= wanted && workload.group_kind() != GroupKind::JOB {
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

/// Returns true if the API server refused for a reason that a person must fix.
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
