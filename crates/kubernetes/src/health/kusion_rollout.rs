//! The health of KusionStack's Rollout and RolloutRun. The status of a Rollout shows that a run is in
//! progress, but only the status of the run shows if it is paused.

use super::{
    Health, Related,
    kstatus::unobserved,
    object_view::ObjectView,
    promotion::{is_of_spec, waits},
    verdict::{HealthVerdict, WaitPolicy},
};

/// Evaluates a Rollout by `status.phase`. `None` for a phase of another version.
pub(super) fn rollout(view: &ObjectView, related: &Related, manager: &str) -> Option<HealthVerdict> {
    if let Some(verdict) = unobserved(view, true) {
        return Some(verdict);
    }
    Some(match view.text("/status/phase") {
        "Initialized" => match view.condition("Available").filter(|found| found.is_false()) {
            // The condition may still change, because the strategy of the Rollout may be created later.
            Some(missing) => HealthVerdict::progressing(missing.lowercase_words()),
            None => HealthVerdict::ready("waits for a change of its workloads"),
        },
        "Disabled" => {
            if is_of_spec(view, "/spec/disabled", manager) {
                HealthVerdict::suspended("disabled")
            } else {
                waits("somebody disabled it")
            }
        }
        "Progressing" => {
            let name = view.text("/status/rolloutID");
            let under_way = HealthVerdict::progressing(format!("its run {name} is in progress"));
            let Some(runs) = &related.rollout_runs else {
                return Some(under_way);
            };
            let mut own = runs.iter().map(ObjectView).filter(|found| {
                found.name() == name && found.text("/metadata/namespace") == view.text("/metadata/namespace")
            });
            let verdict = match own.next().and_then(|found| run(&found)) {
                // A run that is ready has ended, and the Rollout has not noticed it yet.
                Some(verdict) if verdict.health != Health::Ready => verdict,
                _ => under_way,
            };
            match verdict.weight {
                WaitPolicy::Waiting(_) => verdict,
                // The Rollout only reacts to changes of its workloads, so its own write is not waited for, as
                // with a Canary.
                _ => verdict.with_wait_policy(WaitPolicy::Indirect),
            }
        }
        "Terminating" => HealthVerdict::progressing("it ends"),
        _ => return None,
    })
}

/// Evaluates one run by `status.phase`. After an error it does not continue by itself.
pub(super) fn run(view: &ObjectView) -> Option<HealthVerdict> {
    if let Some(verdict) = unobserved(view, true) {
        return Some(verdict);
    }
    if view.at("/status/error").is_some() {
        let (reason, message) = (
            view.text("/status/error/reason"),
            view.text("/status/error/message"),
        );
        return Some(HealthVerdict::failed(format!("{reason}: {message}")));
    }
    let step = match view.number("/status/batchStatus/currentBatchIndex") {
        Some(batch) if !view.text("/status/batchStatus/currentBatchState").is_empty() => {
            format!("batch {}", batch + 1)
        }
        _ => "canary".to_owned(),
    };
    Some(match view.text("/status/phase") {
        "Succeeded" => HealthVerdict::ready(""),
        "Canceled" => HealthVerdict::failed("it was canceled"),
        "Paused" => waits(&step),
        phase @ ("Initial" | "PreRollout" | "Pausing" | "Progressing" | "PostRollout" | "Canceling") => {
            HealthVerdict::progressing(format!("{}, {step}", phase.to_lowercase()))
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use konverge_base::model::apply_result::WaitReason;
    use serde_json::{Value, json};

    use super::{
        super::{HealthRules, built_in},
        *,
    };

    const API: &str = "rollout.kusionstack.io/v1alpha1";

    fn object(kind: &str, name: &str, spec: Value, status: Value) -> Value {
        json!({"apiVersion": API, "kind": kind, "spec": spec, "status": status,
            "metadata": {"name": name, "namespace": "shop", "generation": 2}})
    }

    fn run(phase: &str, batch: Value) -> Value {
        object(
            "RolloutRun",
            "web-x1",
            json!({}),
            json!({"observedGeneration": 2, "phase": phase, "batchStatus": batch}),
        )
    }

    fn judged(object: &Value, runs: &[Value]) -> (Health, String, Option<WaitReason>) {
        let related = Related {
            rollout_runs: Some(runs.to_vec()),
            ..Related::default()
        };
        let verdict = built_in(object, &related, &HealthRules::default());
        let reason = match verdict.weight {
            WaitPolicy::Waiting(waiting) => Some(waiting.reason),
            _ => None,
        };
        (verdict.health, verdict.message, reason)
    }

    /// The phases of `RolloutRunPhase` in kusionstack.io/kube-api at 496f60ee.
    #[test]
    fn each_phase_of_a_run_is_told() {
        let batch = json!({"currentBatchIndex": 1, "currentBatchState": "Pending"});
        for (phase, expected) in [
            ("Initial", Health::Progressing),
            ("PreRollout", Health::Progressing),
            ("Pausing", Health::Progressing),
            ("Paused", Health::Suspended),
            ("Progressing", Health::Progressing),
            ("PostRollout", Health::Progressing),
            ("Canceling", Health::Progressing),
            ("Canceled", Health::Failed),
            ("Succeeded", Health::Ready),
        ] {
            let (health, message, reason) = judged(&run(phase, batch.clone()), &[]);
            assert_eq!(health, expected, "{phase}");
            let waits = phase == "Paused";
            assert_eq!(reason, waits.then_some(WaitReason::Promotion), "{phase}");
            assert_eq!(
                message == "paused, waits for promotion: batch 2",
                waits,
                "{phase}: {message}"
            );
        }
        let (.., said, _) = judged(&run("Paused", json!(null)), &[]);
        assert_eq!(said, "paused, waits for promotion: canary");
        let mut failed = run("Progressing", batch);
        failed["status"]["error"] = json!({"code": "Error", "reason": "UnknownStepState", "message": "no"});
        assert_eq!(judged(&failed, &[]).0, Health::Failed);
        failed["status"]["observedGeneration"] = json!(1);
        assert_eq!(
            judged(&failed, &[]).0,
            Health::Progressing,
            "an older generation says nothing"
        );
    }

    /// The phases of `RolloutPhase`.
    #[test]
    fn a_rollout_is_as_its_run_is() {
        let rollout = |phase: &str| {
            let status = json!({"observedGeneration": 2, "phase": phase, "rolloutID": "web-x1"});
            object("Rollout", "web", json!({}), status)
        };
        let paused = run(
            "Paused",
            json!({"currentBatchIndex": 0, "currentBatchState": "Pending"}),
        );
        let (health, message, reason) = judged(&rollout("Progressing"), std::slice::from_ref(&paused));
        assert_eq!((health, reason), (Health::Suspended, Some(WaitReason::Promotion)));
        assert_eq!(message, "paused, waits for promotion: batch 1");
        // A run of another name or namespace, one that has ended, and none that may be read.
        let (mut other, mut elsewhere) = (paused.clone(), paused);
        other["metadata"]["name"] = json!("web-x0");
        elsewhere["metadata"]["namespace"] = json!("other");
        for runs in [
            vec![other, elsewhere],
            vec![run("Succeeded", json!({}))],
            Vec::new(),
        ] {
            let (health, message, _) = judged(&rollout("Progressing"), &runs);
            assert_eq!(health, Health::Progressing, "{message}");
            assert!(message.contains("web-x1"), "{message}");
        }
        // Until somebody looked for the run, an apply waits.
        let unread = built_in(
            &rollout("Progressing"),
            &Related::default(),
            &HealthRules::default(),
        );
        assert_eq!(
            (unread.health, unread.weight),
            (Health::Progressing, WaitPolicy::Final)
        );
        assert_eq!(judged(&rollout("Initialized"), &[]).0, Health::Ready);
        assert_eq!(judged(&rollout("Terminating"), &[]).0, Health::Progressing);
        let mut missing = rollout("Initialized");
        missing["status"]["conditions"] = json!([{"type": "Available", "status": "False", "reason": "DependencyFailure", "message": "no strategy"}]);
        assert_eq!(judged(&missing, &[]).0, Health::Progressing);
        // As a paused Deployment: the Spec wants it so.
        let mut disabled = rollout("Disabled");
        disabled["spec"]["disabled"] = json!(true);
        assert_eq!(
            judged(&disabled, &[]),
            (Health::Suspended, "disabled".to_owned(), None)
        );
        let mut unseen = rollout("Initialized");
        unseen["status"] = json!({});
        assert_eq!(judged(&unseen, &[]).0, Health::Progressing);
    }
}
