//! The health of pods: their progress, and the problems that keep them from starting.

use serde_json::Value;

use super::{
    Related,
    object_view::ObjectView,
    verdict::{HealthVerdict, WaitPolicy},
};

/// Seconds for which a pod may be unschedulable before that counts as a failure (`ScheduleWindow` in
/// kstatus).
const SCHEDULE_WINDOW: i64 = 15;

/// A problem that keeps a pod from starting.
pub(super) struct PodProblem {
    /// The container; empty if the whole pod is affected.
    pub container: String,
    /// The text for people, without the pod's name.
    pub words: String,
    /// True if the program exits, false if the container cannot be started.
    pub crashes: bool,
    /// True if the problem may resolve itself without a change to the pod: a crash loop, a node or a Secret
    /// that is created later.
    pub heals: bool,
}

impl PodProblem {
    /// Returns how a wait treats the problem.
    pub(super) fn weight(&self) -> WaitPolicy {
        if self.heals {
            WaitPolicy::Transient
        } else {
            WaitPolicy::Blocked
        }
    }
}

/// Returns the health of a Pod.
pub(super) fn evaluate(pod: &ObjectView, related: &Related) -> HealthVerdict {
    match pod.text("/status/phase") {
        "Succeeded" => return HealthVerdict::ready("completed"),
        "Failed" => return HealthVerdict::failed(end_of(pod)),
        _ => {}
    }
    if let Some(start_problem) = start_problem(pod, related) {
        let weight = start_problem.weight();
        return HealthVerdict::failed(start_problem.words).with_wait_policy(weight);
    }
    match pod.text("/status/phase") {
        "Running" => running(pod),
        "Pending" | "" => HealthVerdict::progressing(waiting_for(pod)),
        "Unknown" => HealthVerdict::unknown("its node does not answer"),
        other => HealthVerdict::unknown(format!("phase {other}")),
    }
}

fn running(pod: &ObjectView) -> HealthVerdict {
    match pod.text("/spec/restartPolicy") {
        // With these restart policies the pod is a task, which is ready only when it has ended.
        "Never" | "OnFailure" => HealthVerdict::progressing("running"),
        _ if pod.condition_is_true("Ready") => HealthVerdict::ready(""),
        _ => HealthVerdict::progressing(waiting_for(pod)),
    }
}

/// Describes the reason why a pod is neither ready nor failing.
fn waiting_for(pod: &ObjectView) -> String {
    if let Some(unready) = unready_container(pod) {
        return unready.words;
    }
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];
    let first = conditions
        .iter()
        .filter_map(|kind| pod.condition(kind))
        .find(|condition| condition.is_false());
    match first {
        Some(condition) => condition.lowercase_words(),
        None => "waiting for its containers".to_owned(),
    }
}

/// Describes the end of a failed pod.
fn end_of(pod: &ObjectView) -> String {
    let message = pod.text("/status/message");
    if !message.is_empty() {
        return message.to_owned();
    }
    containers(pod)
        .find_map(|container| termination(&container, "/state/terminated"))
        .unwrap_or_else(|| {
            let reason = pod.text("/status/reason");
            if reason.is_empty() { "failed" } else { reason }.to_owned()
        })
}

fn containers<'a>(pod: &ObjectView<'a>) -> impl Iterator<Item = ObjectView<'a>> {
    let init = pod.list("/status/initContainerStatuses");
    init.chain(pod.list("/status/containerStatuses"))
}

/// Describes how a container failed: `container app ended with exit code 1 (OOMKilled): message`; `None` if
/// it did not fail.
fn termination(container: &ObjectView, at: &str) -> Option<String> {
    let ended = ObjectView(container.at(at)?);
    let (code, reason) = (ended.count("/exitCode"), ended.text("/reason"));
    if code == 0 && reason != "OOMKilled" {
        return None;
    }
    let mut words = format!(
        "container {} ended with exit code {code}",
        container.text("/name")
    );
    if !reason.is_empty() && reason != "Error" {
        words.push_str(&format!(" ({reason})"));
    }
    let message = ended.text("/message").trim();
    if !message.is_empty() {
        words.push_str(&format!(": {message}"));
    }
    Some(words)
}

/// Returns the problem that keeps a pod from starting; `None` if it is only slow or is being deleted.
pub(super) fn start_problem(pod: &ObjectView, related: &Related) -> Option<PodProblem> {
    if pod.at("/metadata/deletionTimestamp").is_some() {
        return None;
    }
    if let Some(words) = unschedulable(pod, related) {
        return Some(PodProblem {
            container: String::new(),
            words,
            crashes: false,
            heals: true,
        });
    }
    let mut found = containers(pod).filter_map(|container| {
        let waiting = ObjectView(container.at("/state/waiting")?);
        let reason = waiting.text("/reason");
        if !is_obstacle(reason) {
            return None;
        }
        let heals = !is_lasting(reason, waiting.text("/message"));
        let crashes = reason == "CrashLoopBackOff";
        let mut words = format!("container {}: {reason}", container.text("/name"));
        let end = termination(&container, "/lastState/terminated").filter(|_| crashes);
        let detail = end.unwrap_or_else(|| waiting.text("/message").to_owned());
        if !detail.is_empty() {
            words.push_str(&format!(": {detail}"));
        }
        Some(PodProblem {
            container: container.text("/name").to_owned(),
            words,
            crashes,
            heals,
        })
    });
    // If several containers have a problem, one that waiting cannot fix is reported.
    let first = found.next()?;
    if first.heals {
        found.find(|other| !other.heals).or(Some(first))
    } else {
        Some(first)
    }
}

/// The state of a container.
pub(super) struct ContainerState {
    /// The name of the container; empty if the pod failed as a whole.
    pub container: String,
    /// The text for people, without the pod's name.
    pub words: String,
}

/// Returns the first running container that is not ready, described with its probe. `None` for pods that are being
/// deleted.
pub(super) fn unready_container(pod: &ObjectView) -> Option<ContainerState> {
    if pod.at("/metadata/deletionTimestamp").is_some() || pod.text("/status/phase") != "Running" {
        return None;
    }
    let status =
        containers(pod).find(|status| status.at("/state/running").is_some() && !status.flag("/ready"))?;
    let name = status.text("/name");
    let mut specs = pod
        .list("/spec/initContainers")
        .chain(pod.list("/spec/containers"));
    let probe = specs.find(|spec| spec.text("/name") == name).and_then(|spec| {
        let starting = !status.flag("/started") && spec.at("/startupProbe").is_some();
        let kind = if starting { "startup" } else { "readiness" };
        let probe = ObjectView(spec.at(&format!("/{kind}Probe"))?);
        Some(format!(
            "its {kind} probe ({}) has not succeeded",
            probe_words(&probe)
        ))
    });
    let reason = probe.unwrap_or_else(|| "it is not ready".to_owned());
    Some(ContainerState {
        container: name.to_owned(),
        words: format!("container {name}: {reason}"),
    })
}

/// Describes the check of a probe: `GET :8080/healthz`, `TCP :5432`, `gRPC :9090`, `exec pg_isready`.
fn probe_words(probe: &ObjectView) -> String {
    let port = |at: &str| match probe.at(at) {
        Some(Value::String(name)) => name.clone(),
        Some(number) => number.to_string(),
        None => String::new(),
    };
    if probe.at("/httpGet").is_some() {
        return format!("GET :{}{}", port("/httpGet/port"), probe.text("/httpGet/path"));
    }
    if probe.at("/tcpSocket").is_some() {
        return format!("TCP :{}", port("/tcpSocket/port"));
    }
    if probe.at("/grpc").is_some() {
        return format!("gRPC :{}", port("/grpc/port"));
    }
    let command: Vec<_> = probe
        .list("/exec/command")
        .filter_map(|word| word.0.as_str())
        .collect();
    // A command may be a whole script, so it is shortened.
    let command: String = command.join(" ").chars().take(80).collect();
    format!("exec {command}")
}

/// Returns the failure of a pod, or the last failure of one of its containers.
pub(super) fn bad_end(pod: &ObjectView) -> Option<ContainerState> {
    let of = |at: &'static str| {
        containers(pod).find_map(move |container| {
            let words = termination(&container, at)?;
            let container = container.text("/name").to_owned();
            Some(ContainerState { container, words })
        })
    };
    let ended = of("/state/terminated").or_else(|| of("/lastState/terminated"));
    ended.or_else(|| {
        (pod.text("/status/phase") == "Failed").then(|| ContainerState {
            container: String::new(),
            words: reasoned_end_of(pod),
        })
    })
}

/// Describes the end of a failed pod with its reason, because the message of an eviction does not mention the
/// eviction.
fn reasoned_end_of(pod: &ObjectView) -> String {
    let (reason, words) = (pod.text("/status/reason"), end_of(pod));
    if reason.is_empty() || words.contains(reason) {
        words
    } else {
        format!("{reason}: {words}")
    }
}

/// Returns true for the kubelet's reasons that mean a problem, not only slowness: `ErrImagePull`,
/// `ImagePullBackOff`, `CrashLoopBackOff`, `CreateContainerConfigError`, `RunContainerError`,
/// `InvalidImageName`…
fn is_obstacle(reason: &str) -> bool {
    reason.starts_with("Err")
        || reason.ends_with("Error")
        || reason.ends_with("BackOff")
        || matches!(reason, "InvalidImageName" | "RegistryUnavailable")
}

/// Returns true if only a change to the pod or to a registry fixes the problem. Others may resolve
/// themselves: a registry that is down, a Secret that a controller creates later, or a program that crashes
/// until its database exists.
fn is_lasting(reason: &str, message: &str) -> bool {
    let image_is_missing = || {
        let message = message.to_lowercase();
        ["not found", "notfound", "manifest unknown", "no such tag", "invalid reference"]
            .iter()
            .any(|words| message.contains(words))
            // A name that does not resolve is a network problem, which may be temporary.
            && !message.contains("lookup")
    };
    match reason {
        "InvalidImageName" | "ErrImageNeverPull" => true,
        "ErrImagePull" | "ImagePullBackOff" => image_is_missing(),
        _ => false,
    }
}

fn unschedulable(pod: &ObjectView, related: &Related) -> Option<String> {
    let scheduled = pod.condition("PodScheduled")?;
    if !scheduled.is_false() || scheduled.reason != "Unschedulable" || pod.text("/status/phase") == "Running"
    {
        return None;
    }
    let since = scheduled
        .since
        .or_else(|| pod.time("/metadata/creationTimestamp"));
    let waited = since.map(|since| related.now().as_second() - since.as_second());
    waited
        .is_none_or(|seconds| seconds > SCHEDULE_WINDOW)
        .then(|| scheduled.lowercase_words())
}
