//! The health of Deployment, StatefulSet, DaemonSet, ReplicaSet, Job and CronJob.

use super::{
    Related, diagnosis,
    kstatus::{reconciling, unobserved},
    object_view::ObjectView,
    verdict::{HealthVerdict, WaitPolicy},
};

/// The reasons with which the Deployment controller reports a failure.
const DEPLOYMENT_FAILURES: [&str; 3] = [
    "ProgressDeadlineExceeded",
    "ReplicaSetCreateError",
    "FailedCreate",
];

pub(super) fn deployment(view: &ObjectView, related: &Related) -> HealthVerdict {
    if view.flag("/spec/paused") {
        return HealthVerdict::suspended("paused");
    }
    if let Some(verdict) = unobserved(view, true).or_else(|| reconciling(view)) {
        return verdict;
    }
    let progressing = view.condition("Progressing");
    if let Some(condition) = progressing.filter(|c| DEPLOYMENT_FAILURES.contains(&c.reason) && !c.is_true()) {
        let mut words = condition.lowercase_words();
        let cause = diagnosis::from_pods(view, related).map(|verdict| verdict.message);
        if let Some(cause) = cause.or_else(|| diagnosis::unready(view, related)) {
            words.push_str(&format!("; {cause}"));
        }
        let weight = match condition.reason {
            "ProgressDeadlineExceeded" if sets_deadline(view) => WaitPolicy::Final,
            // This deadline is the server's own: it only means that the rollout is slow, and the controller
            // continues.
            "ProgressDeadlineExceeded" => WaitPolicy::Transient,
            _ if diagnosis::is_refusal(condition.message) => diagnosis::refusal_weight(condition.message),
            _ => WaitPolicy::Transient,
        };
        return HealthVerdict::failed(words).with_wait_policy(weight);
    }
    let wanted = view.number("/spec/replicas").unwrap_or(1);
    let replicas = view.count("/status/replicas");
    let updated = view.count("/status/updatedReplicas");
    let available = view.count("/status/availableReplicas");
    let ready = view.count("/status/readyReplicas");
    let has_deadline = view
        .number("/spec/progressDeadlineSeconds")
        .is_some_and(|s| s < i64::from(i32::MAX));
    let complete = progressing.is_some_and(|c| c.is_true() && c.reason == "NewReplicaSetAvailable");
    let waiting = if replicas < wanted {
        format!("{replicas} of {wanted} replicas created")
    } else if updated < wanted {
        format!("{updated} of {wanted} replicas updated")
    } else if replicas > wanted {
        format!("{} old replicas are terminating", replicas - wanted)
    } else if available < updated {
        format!("{available} of {updated} updated replicas available")
    } else if ready < wanted {
        format!("{ready} of {wanted} replicas ready")
    } else if has_deadline && !complete {
        progressing.map_or_else(
            || "its new replica set is not available yet".to_owned(),
            |c| c.lowercase_words(),
        )
    } else if !view.condition_is_true("Available") {
        view.condition("Available")
            .map_or_else(|| "not available yet".to_owned(), |c| c.lowercase_words())
    } else {
        return HealthVerdict::ready(format!("{ready} replicas"));
    };
    unfinished(view, related, waiting)
}

pub(super) fn stateful_set(view: &ObjectView, related: &Related) -> HealthVerdict {
    if let Some(verdict) = unobserved(view, true).or_else(|| reconciling(view)) {
        return verdict;
    }
    if view.text("/spec/updateStrategy/type") == "OnDelete" {
        return HealthVerdict::ready("updated by deleting its pods (OnDelete)");
    }
    let wanted = view.number("/spec/replicas").unwrap_or(1);
    let replicas = view.count("/status/replicas");
    let ready = view.count("/status/readyReplicas");
    let updated = view.count("/status/updatedReplicas");
    let partition = view.count("/spec/updateStrategy/rollingUpdate/partition").max(0);
    let to_update = (wanted - partition).max(0);
    let (current, update) = (
        view.text("/status/currentRevision"),
        view.text("/status/updateRevision"),
    );
    // At the end of a rollout, some servers count all replicas as current and none as updated, so the larger
    // count is used.
    let at_newest = if current == update {
        updated.max(view.count("/status/currentReplicas"))
    } else {
        updated
    };
    let waiting = if replicas < wanted {
        format!("{replicas} of {wanted} replicas created")
    } else if ready < wanted {
        format!("{ready} of {wanted} replicas ready")
    } else if replicas > wanted {
        format!("{} replicas are terminating", replicas - wanted)
    } else if at_newest < to_update {
        format!("{at_newest} of {to_update} replicas updated")
    } else if partition == 0 && current != update {
        format!("revision {update} is not the current one yet")
    } else if partition > 0 {
        return HealthVerdict::ready(format!(
            "{ready} replicas, {at_newest} updated from ordinal {partition} on"
        ));
    } else {
        return HealthVerdict::ready(format!("{ready} replicas"));
    };
    unfinished(view, related, waiting)
}

pub(super) fn daemon_set(view: &ObjectView, related: &Related) -> HealthVerdict {
    if let Some(verdict) = unobserved(view, true).or_else(|| reconciling(view)) {
        return verdict;
    }
    if view.number("/metadata/generation").is_none() {
        return HealthVerdict::progressing("its generation is not known");
    }
    let Some(wanted) = view.number("/status/desiredNumberScheduled") else {
        return HealthVerdict::progressing("not observed by its controller yet");
    };
    if view.text("/spec/updateStrategy/type") == "OnDelete" {
        return HealthVerdict::ready("updated by deleting its pods (OnDelete)");
    }
    let steps = [
        ("currentNumberScheduled", "scheduled"),
        ("updatedNumberScheduled", "updated"),
        ("numberAvailable", "available"),
        ("numberReady", "ready"),
    ];
    for (field, word) in steps {
        let reached = view.count(&format!("/status/{field}"));
        if reached < wanted {
            return unfinished(view, related, format!("{reached} of {wanted} pods {word}"));
        }
    }
    HealthVerdict::ready(if wanted == 1 {
        "1 pod".to_owned()
    } else {
        format!("{wanted} pods")
    })
}

/// Returns the health of a ReplicaSet or ReplicationController.
pub(super) fn replica_set(view: &ObjectView, related: &Related) -> HealthVerdict {
    if let Some(verdict) = unobserved(view, true).or_else(|| reconciling(view)) {
        return verdict;
    }
    let wanted = view.number("/spec/replicas").unwrap_or(1);
    if let Some(failure) = view.condition("ReplicaFailure").filter(|c| c.is_true()) {
        let waiting = format!("replicas cannot be created: {}", failure.lowercase_words());
        return unfinished(view, related, waiting);
    }
    let steps = [
        ("fullyLabeledReplicas", "labelled"),
        ("availableReplicas", "available"),
        ("readyReplicas", "ready"),
    ];
    for (field, word) in steps {
        let reached = view.count(&format!("/status/{field}"));
        if reached < wanted {
            return unfinished(view, related, format!("{reached} of {wanted} replicas {word}"));
        }
    }
    let replicas = view.count("/status/replicas");
    if replicas > wanted {
        let waiting = format!("{} replicas are terminating", replicas - wanted);
        return unfinished(view, related, waiting);
    }
    HealthVerdict::ready(format!("{wanted} replicas"))
}

/// Returns the health of a Job, which is ready when it has completed, not when it has started.
pub(super) fn job(view: &ObjectView, related: &Related) -> HealthVerdict {
    if let Some(verdict) = unobserved(view, false).or_else(|| reconciling(view)) {
        return verdict;
    }
    for kind in ["Failed", "FailureTarget"] {
        if let Some(condition) = view.condition(kind).filter(|c| c.is_true()) {
            let mut words = condition.lowercase_words();
            if let Some(ends) = diagnosis::ends(view, related) {
                words.push_str(&format!("; {ends}"));
            }
            return HealthVerdict::failed(words);
        }
    }
    if view.condition_is_true("Complete") {
        return HealthVerdict::ready("completed");
    }
    // The condition may stay true for a moment after the Job was resumed.
    let resumed = view.at("/spec/suspend").is_some() && !view.flag("/spec/suspend");
    if view.condition_is_true("Suspended") && !resumed {
        return HealthVerdict::suspended("suspended");
    }
    if view.condition_is_true("SuccessCriteriaMet") {
        return HealthVerdict::progressing("succeeded, its last pods are ending");
    }
    if view.at("/status/startTime").is_none() {
        return unfinished(view, related, "not started yet".to_owned());
    }
    let (active, done, bad) = (
        view.count("/status/active"),
        view.count("/status/succeeded"),
        view.count("/status/failed"),
    );
    let mut words = format!("running: {active} active, {done} succeeded");
    if let Some(wanted) = view.number("/spec/completions") {
        words.push_str(&format!(" of {wanted}"));
    }
    if bad > 0 {
        words.push_str(&format!(", {bad} failed"));
    }
    unfinished(view, related, words)
}

pub(super) fn cron_job(view: &ObjectView) -> HealthVerdict {
    if view.flag("/spec/suspend") {
        return HealthVerdict::suspended("suspended");
    }
    HealthVerdict::ready("")
}

/// Returns a progressing verdict, unless the pods show that the object will not succeed.
fn unfinished(view: &ObjectView, related: &Related, waiting: String) -> HealthVerdict {
    match diagnosis::early_failure(view, related) {
        Some(mut failure) => {
            failure.message = format!("{waiting}; {}", failure.message);
            failure
        }
        None => match diagnosis::unready(view, related) {
            Some(unready) => HealthVerdict::progressing(format!("{waiting}; {unready}")),
            None => HealthVerdict::progressing(waiting),
        },
    }
}

/// Returns true if the user set the deadline of the rollout: only the server's default (600 s) has no field
/// manager.
fn sets_deadline(view: &ObjectView) -> bool {
    const SERVER_DEFAULT: i64 = 600;
    const FIELD: &str = "/fieldsV1/f:spec/f:progressDeadlineSeconds";
    view.count("/spec/progressDeadlineSeconds") != SERVER_DEFAULT
        || view
            .list("/metadata/managedFields")
            .any(|entry| entry.at(FIELD).is_some())
}
