//! Argo CD's own health scripts, unchanged, on the cases that it publishes with them.

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use konverge_base::{model::health::HealthReport, yaml};
use konverge_kubernetes::health::{
    AssertionResult, Evaluate, Health, HealthRules, Related, WaitPolicy, assess, built_in, documents, run_lua,
};
use serde_json::Value;

use crate::support::{cache, installed};

/// Not YAML by its specification (a quoted text that continues at the column of its key, a key that stands there
/// twice): `konverge health` says so.
const UNREADABLE: [&str; 4] = [
    "db.atlasgo.io/AtlasSchema/testdata/healthy.yaml",
    "rabbitmq.com/User/testdata/unknown.yaml",
    "work.karmada.io/ClusterResourceBinding/testdata/progressing.yaml",
    "work.karmada.io/ResourceBinding/testdata/progressing.yaml",
];

/// Runs scripts in this process: Argo CD's end.
#[derive(Debug)]
struct InProcess;

#[async_trait]
impl Evaluate for InProcess {
    async fn run_kcl(&self, _: &str, _: &str, _: &Value) -> Result<AssertionResult, String> {
        Err("no core".to_owned())
    }

    async fn run_lua(&self, script: &str, object: &Value) -> Result<Option<HealthReport>, String> {
        run_lua(script, object)
    }
}

/// Argo CD's scripts.
fn scripts(folder: &Path) -> HealthRules {
    HealthRules::load(folder)
        .unwrap()
        .with_evaluator(Arc::new(InProcess))
}

/// The folders below that hold published cases.
fn cases(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            cases(&path, found);
        } else if path.ends_with("health_test.yaml") {
            found.push(path);
        }
    }
}

#[tokio::test]
async fn every_published_case_is_judged_as_argo_cd_judges_it() {
    let folder = installed("argo-rules", cache().join("argo-rules"));
    let rules = scripts(&folder);
    let mut files = Vec::new();
    cases(&folder, &mut files);
    let (mut judged, mut wrong) = (0, Vec::new());
    for file in files {
        let home = file.parent().unwrap();
        let listed: Value = yaml::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        for case in listed["tests"].as_array().unwrap() {
            // Argo CD reads keys whatever their case.
            let input = case.get("inputPath").or(case.get("inputpath")).unwrap();
            let input = home.join(input.as_str().unwrap());
            if UNREADABLE.iter().any(|path| input.ends_with(path)) {
                continue;
            }
            let text = std::fs::read_to_string(&input).unwrap();
            let object = match documents(&input.display().to_string(), &text) {
                Ok(mut found) => found.remove(0).object,
                Err(error) => {
                    wrong.push(format!("{}: {error}", input.display()));
                    continue;
                }
            };
            let verdict = assess(&object, &Related::default(), &rules).await;
            let expected = &case["healthStatus"];
            let health = expected["status"].as_str().and_then(Health::from_argo_cd);
            let message = expected["message"].as_str().unwrap_or_default().trim();
            // What a rollout waits for stands before the words of the script.
            let said = verdict.message.trim();
            let said = said.strip_prefix("paused, waits for promotion: ").unwrap_or(said);
            judged += 1;
            if health != Some(verdict.health) || (!message.is_empty() && message != said) {
                wrong.push(format!("{}: {expected} is {verdict:?}", input.display()));
            }
        }
    }
    assert!(judged > 1_000, "{judged} cases");
    assert!(
        wrong.is_empty(),
        "{} of {judged}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Without Argo CD's scripts: the built-in rules for rollouts say of the published cases what the scripts say, where
/// the controller has written a phase or a pause.
#[tokio::test]
async fn rollouts_are_judged_by_built_in_rules_as_argo_cd_judges_them() {
    let folder = installed("argo-rules", cache().join("argo-rules"));
    let rules = HealthRules::default();
    let mut judged = Vec::new();
    for kind in ["argoproj.io/Rollout", "rollouts.kruise.io/Rollout"] {
        let home = folder.join(kind);
        let listed: Value =
            yaml::from_str(&std::fs::read_to_string(home.join("health_test.yaml")).unwrap()).unwrap();
        for case in listed["tests"].as_array().unwrap() {
            let input = home.join(case["inputPath"].as_str().unwrap());
            let text = std::fs::read_to_string(&input).unwrap();
            let object = documents(kind, &text).unwrap().remove(0).object;
            let expected = case["healthStatus"]["status"]
                .as_str()
                .and_then(Health::from_argo_cd)
                .unwrap();
            let is_suspended = expected == Health::Suspended;
            // OpenKruise's Rollout tells only its waits.
            let is_told = kind.starts_with("argoproj") && !object["status"]["phase"].is_null();
            if !is_suspended && !is_told {
                continue;
            }
            let verdict = built_in(&object, &Related::default(), &rules);
            assert_eq!(verdict.health, expected, "{}: {verdict:?}", input.display());
            let waits = matches!(verdict.weight, WaitPolicy::Waiting(_));
            let by_spec = object["spec"]["paused"] == true;
            assert_eq!(
                waits,
                is_suspended && !by_spec,
                "{}: {verdict:?}",
                input.display()
            );
            assert_eq!(
                waits,
                verdict.message.starts_with("paused, waits for promotion"),
                "{verdict:?}"
            );
            // The user's own rule says the same, and is told as what it is.
            let with_rules = assess(&object, &Related::default(), &scripts(&folder)).await;
            assert_eq!(
                matches!(with_rules.weight, WaitPolicy::Waiting(_)),
                waits,
                "{with_rules:?}"
            );
            judged.push(expected);
        }
    }
    let suspended = judged
        .iter()
        .filter(|health| **health == Health::Suspended)
        .count();
    assert_eq!((judged.len(), suspended), (8, 4), "{judged:?}");
}
