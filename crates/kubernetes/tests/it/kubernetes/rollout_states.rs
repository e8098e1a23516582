//! The states that Argo Rollouts and Flagger publish in their Go modules, each judged by our rules. A state of a newer
//! version that no row has fails here.

use std::{collections::BTreeMap, path::PathBuf};

use konverge_kubernetes::health::{
    Health::{self, Failed, Progressing, Ready, Suspended},
    HealthRules, HealthVerdict, Related, WaitPolicy, built_in, documents,
};
use serde_json::{Value, json};

use crate::support::{cache, installed};

fn file(path: &str) -> String {
    let folder: PathBuf = installed("rollout-states", cache().join("rollout-states"));
    std::fs::read_to_string(folder.join(path)).unwrap()
}

/// The values of the Go constants of a type: `Name Type = "Value"`.
fn constants(source: &str, kind: &str) -> Vec<String> {
    let assigned = format!(" {kind} = \"");
    let values = source.lines().filter_map(|line| line.split_once(&assigned));
    values
        .map(|(_, value)| value.trim_end().trim_end_matches('"').to_owned())
        .collect()
}

fn judged(object: &Value) -> HealthVerdict {
    built_in(object, &Related::default(), &HealthRules::default())
}

fn waits(verdict: &HealthVerdict) -> bool {
    matches!(verdict.weight, WaitPolicy::Waiting(_))
        && verdict.message.starts_with("paused, waits for promotion")
}

/// Each published value has a row, and each row is published.
fn check(published: &[String], rows: &[(&str, Health)], object: impl Fn(&str) -> Value) -> usize {
    let rows: BTreeMap<&str, Health> = rows.iter().copied().collect();
    let names: Vec<_> = published.iter().map(String::as_str).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, rows.keys().copied().collect::<Vec<_>>());
    for name in names {
        let verdict = judged(&object(name));
        assert_eq!(verdict.health, rows[name], "{name}: {verdict:?}");
        assert_eq!(waits(&verdict), rows[name] == Suspended, "{name}: {verdict:?}");
    }
    rows.len()
}

#[test]
fn each_phase_of_flagger_is_judged() {
    let rows = [
        ("Initializing", Progressing),
        ("Initialized", Ready),
        ("Waiting", Suspended),
        ("Progressing", Progressing),
        ("WaitingPromotion", Suspended),
        ("Promoting", Progressing),
        ("Finalising", Progressing),
        ("Succeeded", Ready),
        ("Failed", Failed),
        ("Terminating", Progressing),
        ("Terminated", Progressing),
    ];
    let canary = |phase: &str| {
        json!({"apiVersion": "flagger.app/v1beta1", "kind": "Canary", "metadata": {"name": "web", "generation": 1},
            "status": {"phase": phase, "canaryWeight": 0, "conditions": [{"type": "Promoted", "status": "Unknown", "message": "said"}]}})
    };
    let published = constants(&file("flagger/status.go"), "CanaryPhase");
    assert_eq!(check(&published, &rows, canary), 11);
    // An apply of a Canary waits for none of them: its own write starts nothing.
    for (phase, _) in rows
        .iter()
        .filter(|(_, health)| matches!(health, Progressing | Failed))
    {
        assert_eq!(judged(&canary(phase)).weight, WaitPolicy::Indirect, "{phase}");
    }
}

#[test]
fn each_phase_and_each_pause_of_argo_rollouts_is_judged() {
    let rollout = |status: Value| {
        json!({"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "metadata": {"name": "web", "generation": 3},
            "spec": {"strategy": {"canary": {"steps": [{"pause": {}}]}}}, "status": status})
    };
    let types = file("argo-rollouts/types.go");
    let rows = [
        ("Healthy", Ready),
        ("Degraded", Failed),
        ("Progressing", Progressing),
        ("Paused", Suspended),
    ];
    let of_phase = |phase: &str| rollout(json!({"observedGeneration": "3", "phase": phase}));
    assert_eq!(check(&constants(&types, "RolloutPhase"), &rows, of_phase), 4);
    let of_pause = |reason: &str| {
        let pause = json!({"reason": reason, "startTime": "2026-11-21T10:00:00Z"});
        rollout(
            json!({"observedGeneration": "3", "phase": "Paused", "controllerPause": true, "pauseConditions": [pause]}),
        )
    };
    let reasons = [
        ("InconclusiveAnalysisRun", Suspended),
        ("InconclusiveExperiment", Suspended),
        ("CanaryPauseStep", Suspended),
        ("BlueGreenPause", Suspended),
    ];
    assert_eq!(check(&constants(&types, "PauseReason"), &reasons, of_pause), 4);
    // `IsUnpausing`: somebody promoted it, and the controller has not seen that.
    let promoted = rollout(json!({"observedGeneration": "3", "phase": "Paused", "controllerPause": true}));
    assert_eq!(judged(&promoted).health, Progressing);
}

/// The Rollouts with which Argo's own tests of the phase work. They are older than `status.phase`.
#[test]
fn the_rollouts_of_argos_own_tests_are_judged() {
    let rows = [
        ("bluegreen-rollout.yaml", Suspended),
        ("canary-rollout.yaml", Failed),
        ("canary-rollout2.yaml", Failed),
        ("canary-rollout3.yaml", Failed),
        ("canary-rollout4.yaml", Failed),
        ("canary-rollout5.yaml", Failed),
        ("canary-rollout6.yaml", Failed),
        ("rollout-experiment-analysis.yaml", Failed),
        ("rollout-invalid.yaml", Failed),
        ("rollout.yaml", Failed),
    ];
    for (name, expected) in rows {
        let text = file(&format!("argo-rollouts/{name}"));
        let object = documents(name, &text).unwrap().remove(0).object;
        let verdict = judged(&object);
        assert_eq!(verdict.health, expected, "{name}: {verdict:?}");
        assert_eq!(waits(&verdict), expected == Suspended, "{name}: {verdict:?}");
    }
}
