//! Argo CD's own health scripts, unchanged, on the cases that it publishes with them.

use std::path::Path;

use konverge::{
    runtime::kubernetes::health::{Health, HealthRules, Related, documents, evaluate},
    yaml,
};
use serde_json::Value;

use crate::support::{cache, installed};

/// Not YAML by its specification (a quoted text that goes on at the column of its key, a key that stands there twice):
/// `konverge health` says so.
const UNREADABLE: [&str; 4] = [
    "db.atlasgo.io/AtlasSchema/testdata/healthy.yaml",
    "rabbitmq.com/User/testdata/unknown.yaml",
    "work.karmada.io/ClusterResourceBinding/testdata/progressing.yaml",
    "work.karmada.io/ResourceBinding/testdata/progressing.yaml",
];

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

#[test]
fn every_published_case_is_judged_as_argo_cd_judges_it() {
    let folder = installed("argo-rules", cache().join("argo-rules"));
    let rules = HealthRules::load(&folder).unwrap();
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
            let verdict = evaluate(&object, &Related::default(), &rules);
            let expected = &case["healthStatus"];
            let health = expected["status"].as_str().and_then(Health::from_argo_cd);
            let message = expected["message"].as_str().unwrap_or_default().trim();
            judged += 1;
            if health != Some(verdict.health) || (!message.is_empty() && message != verdict.message.trim()) {
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
