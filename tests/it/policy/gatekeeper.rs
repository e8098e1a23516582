//! The same templates, constraints and objects give the same findings as in Gatekeeper's own program.

use std::{collections::BTreeSet, fs, process::Command};

use konverge_base::model::policy_finding::Enforcement;
use konverge_policy_sets::PolicyFile;
use serde_json::Value;

use super::created_objects;
use crate::support::{executable, service::folder};

const FILES: [&str; 2] = ["templates.yaml", "constraints.yaml"];

fn fixture(name: &str) -> String {
    fs::read_to_string(created_objects::fixtures("gatekeeper").join(name)).unwrap()
}

/// gator puts an object without a namespace into the namespace `default`; a cluster does not. So what selects by that
/// is left out for the object that is in none.
fn is_comparable(line: &str) -> bool {
    let by_namespace = ["cluster", "namespaced", "space", "in-shop", "ends", "middle"];
    !by_namespace
        .iter()
        .any(|rule| line.starts_with(&format!("Everything:{rule} reader ")))
}

/// Constraint, object, severity and message of each finding, one a line.
fn ours() -> BTreeSet<String> {
    let files = FILES.map(|name| PolicyFile {
        path: name.to_owned(),
        text: fixture(name),
    });
    let set = created_objects::set("language: gatekeeper", &files, &[]);
    let findings = created_objects::findings(
        &set,
        &created_objects::created(&created_objects::objects(&fixture("objects.yaml"))),
        &created_objects::secrets(),
    );
    let lines = findings.into_iter().map(|finding| {
        let place = finding.place.unwrap();
        let severity = match finding.verdict {
            Enforcement::Deny => "deny",
            _ => "warn",
        };
        let id = place.resource.map_or(String::new(), |id| id.to_string());
        let name = id.rsplit(':').next().unwrap();
        let rule = finding.rule.strip_prefix("s/").unwrap();
        format!("{rule} {name} {severity} {}", finding.message)
    });
    lines.collect()
}

fn text(lines: &BTreeSet<String>) -> String {
    lines
        .iter()
        .filter(|line| is_comparable(line))
        .map(|line| format!("{line}\n"))
        .collect()
}

#[test]
fn constraints_find_what_gator_said() {
    let said = fixture("said.txt");
    assert!(said.lines().count() > 40, "gator was never asked");
    assert_eq!(text(&ours()), said);
    // What gator cannot be asked: an object in no namespace.
    let lines = ours();
    let about = |rule: &str| {
        lines
            .iter()
            .any(|line| line.starts_with(&format!("Everything:{rule} reader ")))
    };
    assert!(
        about("cluster") && about("space") && !about("namespaced"),
        "{lines:#?}"
    );
}

#[test]
#[ignore = "needs gator: `make test-all` runs it"]
fn gator_still_says_so() {
    let folder = folder("gator");
    let file = folder.join("all.yaml");
    let all = [FILES[0], FILES[1], "objects.yaml"].map(fixture);
    fs::write(&file, all.join("\n---\n")).unwrap();
    let output = Command::new(executable("gator", "gator"))
        .args(["test", "--enable-k8s-native-validation", "--output", "json", "-f"])
        .arg(&file)
        .output()
        .unwrap();
    let answer: Vec<Value> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let mut lines = BTreeSet::new();
    for result in &answer {
        let string = |value: &Value| value.as_str().unwrap().to_owned();
        let (constraint, object) = (&result["constraint"], &result["violatingObject"]);
        // The templates and constraints are objects to it, too.
        if string(&object["apiVersion"]).contains("gatekeeper.sh") {
            continue;
        }
        let scoped = &constraint["spec"]["scopedEnforcementActions"][0]["action"];
        let action = match string(&result["enforcementAction"]).as_str() {
            "scoped" => string(scoped),
            action => action.to_owned(),
        };
        let severity = if action == "deny" { "deny" } else { "warn" };
        lines.insert(format!(
            "{}:{} {} {severity} {}",
            string(&constraint["kind"]),
            string(&constraint["metadata"]["name"]),
            string(&object["metadata"]["name"]),
            string(&result["msg"]),
        ));
    }
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(
            created_objects::fixtures("gatekeeper").join("said.txt"),
            text(&lines),
        )
        .unwrap();
    }
    assert_eq!(text(&lines), fixture("said.txt"));
}
