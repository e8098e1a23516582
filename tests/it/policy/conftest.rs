//! The same rules and objects give the same findings as in conftest.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use konverge_base::model::policy_finding::Enforcement;
use serde_json::{Value, json};

use super::created_objects;
use crate::support::{
    executable,
    random::{Random, setting},
    service::folder,
};

const CASES: [&str; 6] = ["kubernetes", "exceptions", "packages", "data", "functions", "v0"];

/// Severity, package and message of each finding, one a line.
fn ours(case: &str, objects: &[Value]) -> BTreeSet<String> {
    let at = created_objects::fixtures("conftest").join(case);
    let rego = if case == "v0" { "v0" } else { "v1" };
    let settings = format!("input: objects, rego: {rego}");
    let set = created_objects::set(
        &settings,
        &created_objects::files(&at.join("policy")),
        &created_objects::files(&at.join("data")),
    );
    let document = created_objects::created(objects);
    let findings = created_objects::findings(&set, &document, &created_objects::secrets()).into_iter();
    let line = findings.map(|finding| {
        let rule = finding.rule.strip_prefix("s/").unwrap();
        let (package, _) = rule.rsplit_once('.').unwrap_or((rule, ""));
        let severity = match finding.verdict {
            Enforcement::Deny => "deny",
            _ => "warn",
        };
        format!("{severity} {package} {}", finding.message)
    });
    line.collect()
}

/// What conftest says about the objects of a file.
fn theirs(case: &str, objects: &Path) -> BTreeSet<String> {
    let at = created_objects::fixtures("conftest").join(case);
    let mut command = Command::new(executable("conftest", "conftest"));
    command
        .arg("test")
        .arg(objects)
        .args(["--all-namespaces", "--output", "json", "--policy"])
        .arg(at.join("policy"));
    if at.join("data").exists() {
        command.arg("--data").arg(at.join("data"));
    }
    if case == "v0" {
        command.args(["--rego-version", "v0"]);
    }
    let output = command.output().unwrap();
    let answer: Vec<Value> = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let mut lines = BTreeSet::new();
    for result in &answer {
        for (severity, key) in [("deny", "failures"), ("warn", "warnings")] {
            for found in result[key].as_array().into_iter().flatten() {
                let (package, message) = (
                    result["namespace"].as_str().unwrap(),
                    found["msg"].as_str().unwrap(),
                );
                lines.insert(format!("{severity} {package} {message}"));
            }
        }
    }
    lines
}

fn text(lines: &BTreeSet<String>) -> String {
    lines
        .iter()
        .map(|line| format!("{}\n", line.escape_debug()))
        .collect()
}

#[test]
fn rules_find_what_conftest_said() {
    let file = created_objects::fixtures("conftest").join("objects.yaml");
    let objects = created_objects::objects(&fs::read_to_string(file).unwrap());
    for case in CASES {
        let said = fs::read_to_string(created_objects::fixtures("conftest").join(case).join("said.txt"))
            .unwrap_or_default();
        assert!(said.lines().count() > 2, "{case}: conftest was never asked");
        assert_eq!(text(&ours(case, &objects)), said, "{case}");
    }
}

/// A workload of random parts, which the cases speak of. What differs is left out: conftest takes a loop over what is
/// not a list as no finding, here it is an error; and `sprintf` writes a value of another type than its verb, `%t` and
/// a text with a width otherwise.
fn random_object(random: &mut Random, number: usize) -> Value {
    let mut some = |values: &[Value]| random.pick(values).clone();
    let images = ["registry.example.com/web:1", "log:latest", "bare", "", "a:b:c"].map(|text| json!(text));
    let container = json!({
        "name": some(&[json!("web"), json!("log")]),
        "image": some(&images),
        "resources": some(&[json!({}), json!({"limits": {"memory": "1Gi"}}), json!({"limits": null}), Value::Null]),
        "ports": some(&[json!([]), json!([{"containerPort": 80}]), json!([{"containerPort": 8080}, {"containerPort": 22}])]),
        "securityContext": some(&[json!({}), json!({"privileged": true}), json!({"privileged": false})]),
    });
    let name = format!(
        "{}-{number}",
        some(&[json!("web"), json!("nobody")]).as_str().unwrap()
    );
    json!({
        "apiVersion": "apps/v1",
        "kind": some(&[json!("Deployment"), json!("Service"), json!("CronJob"), json!("Deployment")]),
        "metadata": {
            "name": some(&[json!(name), json!("web")]),
            "namespace": format!("n{number}"),
            "labels": some(&[json!({}), json!({"app.kubernetes.io/name": "a"}), json!({"app.kubernetes.io/name": "a", "app.kubernetes.io/instance": "b"})]),
            "annotations": some(&[json!({}), json!({"note": "a \"b\"\n"}), json!({"note": "%s %d"})]),
        },
        "spec": {
            "replicas": some(&[json!(1), json!(3), json!(2.0), json!(1e3)]),
            "type": some(&[json!("LoadBalancer"), json!("ClusterIP")]),
            "loadBalancerSourceRanges": some(&[json!([]), json!(["10.0.0.0/8", "0.0.0.0/0"])]),
            "template": {"spec": {
                "securityContext": some(&[json!({"runAsNonRoot": true}), json!({"runAsNonRoot": false}), json!({})]),
                "containers": some(&[json!([container]), json!([container, container]), json!([])]),
            }},
        },
    })
}

#[test]
#[ignore = "needs conftest: `make test-all` runs it"]
fn conftest_still_says_so_and_about_random_objects() {
    let fixtures = created_objects::fixtures("conftest");
    for case in CASES {
        let said = text(&theirs(case, &fixtures.join("objects.yaml")));
        let path = fixtures.join(case).join("said.txt");
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&path, &said).unwrap();
        }
        assert_eq!(said, fs::read_to_string(path).unwrap_or_default(), "{case}");
    }
    let seed = setting("KONVERGE_SEED", 20_261_123);
    println!("KONVERGE_SEED={seed}");
    let mut random = Random::of(seed);
    let objects: Vec<_> = (0..500)
        .map(|number| random_object(&mut random, number))
        .collect();
    let folder = folder("conftest");
    let file = folder.join("objects.yaml");
    let documents: Vec<_> = objects.iter().map(Value::to_string).collect();
    fs::write(&file, documents.join("\n---\n")).unwrap();
    for case in ["kubernetes", "exceptions", "packages", "data", "v0"] {
        let (said, found) = (theirs(case, &file), ours(case, &objects));
        let differing: Vec<_> = said.symmetric_difference(&found).collect();
        assert!(said.len() > 1 && differing.is_empty(), "{case}: {differing:#?}");
    }
}
