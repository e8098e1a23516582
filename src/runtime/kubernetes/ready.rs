//! Whether an object is ready, by its own status: the built-in kinds. An answer counts only when the controller has seen the
//! object as it is now (`observedGeneration`): a read right after a write else looks ready by its old status.

use serde_json::Value;

/// How an object stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Readiness {
    /// As wanted.
    Ready,
    /// On its way; what is missing.
    Progressing(String),
    /// It will not get there by itself.
    Failed(String),
    /// Held by its author (paused, suspended).
    Suspended(String),
}

use Readiness::{Failed, Progressing, Ready, Suspended};

/// The verdict on one object. Kinds without a rule are ready unless their conditions say otherwise.
pub fn readiness(object: &Value) -> Readiness {
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return Progressing("being deleted".to_owned());
    }
    let status = &object["status"];
    let (spec, kind) = (&object["spec"], object["kind"].as_str().unwrap_or_default());
    let group = object["apiVersion"]
        .as_str()
        .unwrap_or_default()
        .split_once('/')
        .map_or("", |(group, _)| group);
    let seen = status["observedGeneration"].as_i64();
    let generation = object["metadata"]["generation"].as_i64();
    let must_be_seen = matches!(
        (group, kind),
        ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
    );
    if (seen.is_some() || must_be_seen) && seen != generation {
        return Progressing("the controller has not seen the change yet".to_owned());
    }
    match (group, kind) {
        ("apps", "Deployment") => deployment(spec, status),
        ("apps", "StatefulSet") => stateful_set(spec, status),
        ("apps", "DaemonSet") => daemon_set(spec, status),
        ("batch", "Job") => job(spec, status),
        ("", "Pod") => pod(spec, status),
        ("", "PersistentVolumeClaim") => claim(status),
        ("", "Namespace") => match status["phase"].as_str() {
            Some("Active") | None => Ready,
            Some(phase) => Progressing(phase.to_owned()),
        },
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(status),
        ("", _) => Ready,
        _ => conditions(status),
    }
}

/// The status of a condition, its reason and message.
fn condition<'a>(status: &'a Value, name: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let text = |condition: &'a Value, key: &str| condition[key].as_str().unwrap_or_default();
    let all = status["conditions"].as_array()?;
    let found = all.iter().find(|condition| condition["type"] == name)?;
    Some((
        text(found, "status"),
        text(found, "reason"),
        text(found, "message"),
    ))
}

fn count(value: &Value, key: &str) -> i64 {
    value[key].as_i64().unwrap_or(0)
}

fn deployment(spec: &Value, status: &Value) -> Readiness {
    if let Some(("False", "ProgressDeadlineExceeded", message)) = condition(status, "Progressing") {
        return Failed(message.to_owned());
    }
    if spec["paused"] == true {
        return Suspended("paused".to_owned());
    }
    let wanted = spec["replicas"].as_i64().unwrap_or(1);
    let (updated, all, available) = (
        count(status, "updatedReplicas"),
        count(status, "replicas"),
        count(status, "availableReplicas"),
    );
    if updated < wanted {
        return Progressing(format!("{updated} of {wanted} pods updated"));
    }
    if all > updated {
        return Progressing(format!("{} old pods still there", all - updated));
    }
    if available < wanted {
        return Progressing(format!("{available} of {wanted} pods available"));
    }
    Ready
}

fn stateful_set(spec: &Value, status: &Value) -> Readiness {
    if spec["updateStrategy"]["type"] == "OnDelete" {
        return Ready;
    }
    let wanted = spec["replicas"].as_i64().unwrap_or(1);
    let ready = count(status, "readyReplicas");
    if ready < wanted {
        return Progressing(format!("{ready} of {wanted} pods ready"));
    }
    let partition = count(&spec["updateStrategy"]["rollingUpdate"], "partition");
    let to_update = (wanted - partition).max(0);
    let updated = count(status, "updatedReplicas");
    if updated < to_update {
        return Progressing(format!("{updated} of {to_update} pods updated"));
    }
    if partition == 0 && status["currentRevision"] != status["updateRevision"] {
        return Progressing("the new revision is not current yet".to_owned());
    }
    if count(status, "replicas") > wanted {
        return Progressing(format!("{} pods too many", count(status, "replicas") - wanted));
    }
    Ready
}

fn daemon_set(spec: &Value, status: &Value) -> Readiness {
    let wanted = count(status, "desiredNumberScheduled");
    let updated = count(status, "updatedNumberScheduled");
    if spec["updateStrategy"]["type"] != "OnDelete" && updated < wanted {
        return Progressing(format!("{updated} of {wanted} pods updated"));
    }
    let available = count(status, "numberAvailable");
    if available < wanted {
        return Progressing(format!("{available} of {wanted} pods available"));
    }
    Ready
}

fn job(spec: &Value, status: &Value) -> Readiness {
    if let Some(("True", reason, message)) = condition(status, "Failed") {
        return Failed(format!("{reason}: {message}"));
    }
    if let Some(("True", ..)) = condition(status, "Complete") {
        return Ready;
    }
    if spec["suspend"] == true {
        return Suspended("suspended".to_owned());
    }
    let wanted = spec["completions"].as_i64().unwrap_or(1);
    Progressing(format!("{} of {wanted} completions", count(status, "succeeded")))
}

fn pod(spec: &Value, status: &Value) -> Readiness {
    match status["phase"].as_str().unwrap_or_default() {
        "Succeeded" => return Ready,
        "Failed" => {
            let why = status["message"]
                .as_str()
                .or(status["reason"].as_str())
                .unwrap_or("the pod failed");
            return Failed(why.to_owned());
        }
        _ => {}
    }
    let containers = status["containerStatuses"].as_array().into_iter().flatten();
    for container in containers {
        let waiting = container["state"]["waiting"]["reason"]
            .as_str()
            .unwrap_or_default();
        if matches!(
            waiting,
            "CrashLoopBackOff" | "InvalidImageName" | "CreateContainerConfigError"
        ) {
            return Failed(format!(
                "container `{}`: {waiting}",
                container["name"].as_str().unwrap_or_default()
            ));
        }
    }
    if spec["restartPolicy"]
        .as_str()
        .is_some_and(|policy| policy != "Always")
    {
        return Progressing("running to its end".to_owned());
    }
    match condition(status, "Ready") {
        Some(("True", ..)) => Ready,
        _ => Progressing("not ready".to_owned()),
    }
}

fn claim(status: &Value) -> Readiness {
    match status["phase"].as_str() {
        Some("Bound") => Ready,
        Some("Lost") => Failed("its volume is lost".to_owned()),
        // A claim that waits for its first consumer never binds by itself: the pod that uses it waits instead.
        _ => Ready,
    }
}

fn definition(status: &Value) -> Readiness {
    if let Some(("False", _, message)) = condition(status, "NamesAccepted") {
        return Failed(message.to_owned());
    }
    match condition(status, "Established") {
        Some(("True", ..)) => Ready,
        Some(("False", reason, message)) if reason != "Installing" => Failed(message.to_owned()),
        _ => Progressing("not established yet".to_owned()),
    }
}

/// Objects of other kinds, by the conditions that most controllers keep.
fn conditions(status: &Value) -> Readiness {
    if let Some(("True", _, message)) = condition(status, "Stalled") {
        return Failed(message.to_owned());
    }
    if let Some(("True", _, message)) = condition(status, "Reconciling") {
        return Progressing(message.to_owned());
    }
    match condition(status, "Ready") {
        Some(("False" | "Unknown", reason, message)) => Progressing(format!("{reason}: {message}")),
        _ => Ready,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn deployment(status: Value) -> Readiness {
        readiness(
            &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": status}),
        )
    }

    #[test]
    fn an_old_status_is_no_answer() {
        let done =
            json!({"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2});
        assert!(matches!(deployment(done), Progressing(_)));
        assert!(matches!(deployment(json!({})), Progressing(_)));
    }

    #[test]
    fn a_rollout_is_followed_to_its_end() {
        let at = |updated: i64, all: i64, available: i64| {
            deployment(
                json!({"observedGeneration": 2, "replicas": all, "updatedReplicas": updated, "availableReplicas": available}),
            )
        };
        assert_eq!(at(1, 3, 2), Progressing("1 of 2 pods updated".to_owned()));
        assert_eq!(at(2, 3, 2), Progressing("1 old pods still there".to_owned()));
        assert_eq!(at(2, 2, 1), Progressing("1 of 2 pods available".to_owned()));
        assert_eq!(at(2, 2, 2), Ready);
        let stuck = json!({"observedGeneration": 2, "conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "slow"}]});
        assert_eq!(deployment(stuck), Failed("slow".to_owned()));
    }

    #[test]
    fn jobs_end_and_definitions_are_established() {
        let job = |status: Value| {
            readiness(
                &json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {}, "spec": {}, "status": status}),
            )
        };
        assert!(matches!(job(json!({"active": 1})), Progressing(_)));
        let ended = |name: &str| json!({"conditions": [{"type": name, "status": "True", "reason": "R", "message": "m"}]});
        assert_eq!(job(ended("Complete")), Ready);
        assert_eq!(job(ended("Failed")), Failed("R: m".to_owned()));
    }
}
