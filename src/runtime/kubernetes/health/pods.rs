//! Pods: how far one is, and what keeps it from starting.

use super::{Related, Verdict, Weight, view::View};

/// How long a pod may be unschedulable before that counts as a failure, seconds (kstatus: `ScheduleWindow`).
const SCHEDULE_WINDOW: i64 = 15;

/// Why a pod does not start.
pub(super) struct Obstacle {
    /// The container, empty if it is about the whole pod.
    pub container: String,
    /// For people, without the pod's name.
    pub words: String,
    /// Whether it is the program that ends, rather than the pod that can not be started.
    pub crashes: bool,
}

/// A Pod by itself.
pub(super) fn judge(pod: &View, related: &Related) -> Verdict {
    match pod.text("/status/phase") {
        "Succeeded" => return Verdict::ready("completed"),
        "Failed" => return Verdict::failed(end_of(pod)),
        _ => {}
    }
    if let Some(obstacle) = obstacle(pod, related) {
        return Verdict::failed(obstacle.words).weighing(Weight::Symptom);
    }
    match pod.text("/status/phase") {
        "Running" => running(pod),
        "Pending" | "" => Verdict::progressing(waiting_for(pod)),
        "Unknown" => Verdict::unknown("its node does not answer"),
        other => Verdict::unknown(format!("phase {other}")),
    }
}

fn running(pod: &View) -> Verdict {
    match pod.text("/spec/restartPolicy") {
        // Such a pod is a task: it is done when it has ended.
        "Never" | "OnFailure" => Verdict::progressing("running"),
        _ if pod.condition_is_true("Ready") => Verdict::ready(""),
        _ => Verdict::progressing(waiting_for(pod)),
    }
}

/// What a pod that is neither ready nor in trouble waits for.
fn waiting_for(pod: &View) -> String {
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];
    let first = conditions
        .iter()
        .filter_map(|kind| pod.condition(kind))
        .find(|condition| condition.is_false());
    match first {
        Some(condition) => condition.words(),
        None => "waiting for its containers".to_owned(),
    }
}

/// How a failed pod ended.
fn end_of(pod: &View) -> String {
    let status = View(pod.0);
    let message = status.text("/status/message");
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

fn containers<'a>(pod: &View<'a>) -> impl Iterator<Item = View<'a>> {
    let init = pod.list("/status/initContainerStatuses");
    init.chain(pod.list("/status/containerStatuses"))
}

/// `container app ended with exit code 1 (OOMKilled): message`, if it ended badly.
fn termination(container: &View, at: &str) -> Option<String> {
    let ended = View(container.at(at)?);
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

/// What keeps a pod from starting, unless it is just slow. Pods under deletion have none.
pub(super) fn obstacle(pod: &View, related: &Related) -> Option<Obstacle> {
    if pod.at("/metadata/deletionTimestamp").is_some() {
        return None;
    }
    if let Some(words) = unschedulable(pod, related) {
        return Some(Obstacle {
            container: String::new(),
            words,
            crashes: false,
        });
    }
    containers(pod).find_map(|container| {
        let waiting = View(container.at("/state/waiting")?);
        let reason = waiting.text("/reason");
        if !is_obstacle(reason) {
            return None;
        }
        let crashes = reason == "CrashLoopBackOff";
        let mut words = format!("container {}: {reason}", container.text("/name"));
        let detail = if crashes {
            termination(&container, "/lastState/terminated")
                .unwrap_or_else(|| waiting.text("/message").to_owned())
        } else {
            waiting.text("/message").to_owned()
        };
        if !detail.is_empty() {
            words.push_str(&format!(": {detail}"));
        }
        Some(Obstacle {
            container: container.text("/name").to_owned(),
            words,
            crashes,
        })
    })
}

/// The kubelet's reasons that waiting alone does not cure: `ErrImagePull`, `ImagePullBackOff`, `CrashLoopBackOff`,
/// `CreateContainerConfigError`, `RunContainerError`, `InvalidImageName`…
fn is_obstacle(reason: &str) -> bool {
    reason.starts_with("Err")
        || reason.ends_with("Error")
        || reason.ends_with("BackOff")
        || matches!(reason, "InvalidImageName" | "RegistryUnavailable")
}

fn unschedulable(pod: &View, related: &Related) -> Option<String> {
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
        .then(|| scheduled.words())
}
