//! `konverge health`: the verdict on manifests, by our rules and by the user's.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::process::{Konverge, Outcome};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/health")
        .join(name)
}

fn health(arguments: &[&str]) -> Outcome {
    Konverge::new(["health"]).arg_all(arguments).run()
}

#[test]
fn users_rules_are_run_unchanged_in_the_order_of_the_input() {
    let (objects, rules) = (fixture("objects.yaml"), fixture("rules"));
    let outcome = health(&[
        objects.to_str().unwrap(),
        "--rules",
        rules.to_str().unwrap(),
        "--output",
        "json",
    ])
    .expect(0);
    let row = |id: &str, health: &str, message: &str| json!({"id": id, "health": health, "message": message});
    let expected = json!([
        row("certs.example.com/v1:Certificate:shop:web", "ready", "up to date"),
        row(
            "certs.example.com/v1:Certificate:shop:api",
            "progressing",
            "being issued"
        ),
        row("certs.example.com/v1:Certificate:shop:old", "failed", "expired"),
        row(
            "certs.example.com/v1:Certificate:shop:new",
            "progressing",
            "Waiting for certificate"
        ),
        row(
            "rollouts.example.com/v1:Rollout:shop:web",
            "progressing",
            "2 of 3 replicas updated (66%)"
        ),
        row("rollouts.example.com/v1:Rollout:shop:done", "ready", ""),
        row(
            "rollouts.example.com/v1:Rollout:shop:paused",
            "suspended",
            "paused at step 2"
        ),
        row(
            "rollouts.example.com/v1:Rollout:shop:late",
            "failed",
            "ProgressDeadlineExceeded: "
        ),
        row(
            "rollouts.example.com/v1:Rollout:shop:fresh",
            "progressing",
            "waiting for generation 4 to be observed"
        ),
        row("sql.cloud.example.com/v1:Instance:db", "failed", "no quota"),
        row(
            "sql.cloud.example.com/v1:ProviderConfig:default",
            "ready",
            "Resource is up-to-date."
        ),
        row("s3.cloud.example.com/v1:Bucket:my-files", "ready", "FILES"),
        row("v1:Service:shop:node", "ready", "port 30080"),
        row(
            "v1:Service:shop:lb",
            "progressing",
            "no load balancer address yet"
        ),
        row(
            "db.example.com/v1:Table:shop:orders",
            "progressing",
            "its rule says that it is in progress"
        ),
        row("db.example.com/v1:Table:shop:users", "ready", ""),
        row(
            "db.example.com/v1:Table:shop:lost",
            "failed",
            "its rule says that it failed"
        ),
    ]);
    assert_eq!(outcome.json(), expected);
    // The keys stand in the order of the contract, and nothing else is on stdout.
    assert!(
        outcome
            .stdout
            .starts_with(r#"[{"id":"certs.example.com/v1:Certificate:shop:web","health":"ready","message":"#)
    );
    assert_eq!(outcome.stderr, "");
}

/// Assertions as Kusion's health policies have them, and a verdict in so many words.
const ASSERTIONS: &str = r#"
assert res.metadata.generation == res.status?.observedGeneration, "its controller has not seen it yet"
_phase = res.status.phase
status = "Degraded" if _phase == "Broken" else "Healthy"
message = "phase ${_phase}"
"#;

#[test]
fn assertions_in_kcl_are_run_by_the_core() {
    let folder = tempfile::tempdir().unwrap();
    let rule = |kind: &str, text: &str| {
        let folder = folder.path().join("rules/kcl.example.com").join(kind);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("health.k"), text).unwrap();
    };
    rule("Table", ASSERTIONS);
    let check = "schema Seen:\n    size: int\n    check:\n        size > 2, \"too few\"\nseen = Seen {size = option(\"object\").size}\n";
    rule("Pool", check);
    rule("Odd", "assert = \n");
    rule("Wordy", "status = \"Fine\"\n");
    let object = |kind: &str, name: &str, rest: Value| {
        let mut object = json!({"apiVersion": "kcl.example.com/v1", "kind": kind, "metadata": {"name": name, "generation": 2}});
        object
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        object
    };
    let seen = |phase: &str| json!({"status": {"observedGeneration": 2, "phase": phase}});
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        object("Table", "new", json!({})), object("Table", "up", seen("Up")), object("Table", "down", seen("Broken")),
        object("Pool", "small", json!({"size": 2})), object("Pool", "large", json!({"size": 3})),
        object("Odd", "x", json!({})), object("Wordy", "x", json!({}))]});
    let file = folder.path().join("objects.json");
    std::fs::write(&file, objects.to_string()).unwrap();
    let rows = Konverge::new(["health", "objects.json", "--rules", "rules", "--output", "json"])
        .with_kcl()
        .dir(folder.path())
        .run()
        .expect(0)
        .json();
    let said: Vec<_> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| (row["health"].as_str().unwrap(), row["message"].as_str().unwrap()))
        .collect();
    assert_eq!(
        said[..5],
        [
            ("progressing", "its controller has not seen it yet"),
            ("ready", "phase Up"),
            ("failed", "phase Broken"),
            ("progressing", "too few"),
            ("ready", ""),
        ]
    );
    // What the rule is to blame for is said with its place, and is no verdict.
    assert!(
        said[5].0 == "unknown" && said[5].1.contains("health.k:1"),
        "{:?}",
        said[5]
    );
    assert!(
        said[6].0 == "unknown" && said[6].1.contains("`Fine`"),
        "{:?}",
        said[6]
    );
}

#[test]
fn objects_of_one_input_explain_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop", "generation": 1,
            "uid": "d"}, "spec": {"replicas": 1}, "status": {"observedGeneration": 1, "replicas": 1}},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web-1", "namespace": "shop", "generation": 1,
            "uid": "r", "ownerReferences": [{"kind": "Deployment", "name": "web", "uid": "d", "controller": true}]},
            "spec": {"replicas": 1}, "status": {"observedGeneration": 1, "replicas": 1}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-1-x", "namespace": "shop",
            "ownerReferences": [{"kind": "ReplicaSet", "name": "web-1", "uid": "r", "controller": true}]},
            "status": {"phase": "Pending", "containerStatuses": [
                {"name": "app", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such tag"}}}]}},
    ]});
    let file = folder.path().join("objects.json");
    std::fs::write(&file, objects.to_string()).unwrap();
    let rows = health(&[file.to_str().unwrap(), "--output", "json"])
        .expect(0)
        .json();
    assert_eq!(rows[0]["health"], "failed");
    let message = rows[0]["message"].as_str().unwrap();
    assert!(
        message.contains("pod web-1-x: container app: ImagePullBackOff: no such tag"),
        "{message}"
    );
}

#[test]
fn exit_code_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, phase: &str| {
        let file = folder.path().join(name);
        let object =
            format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nstatus: {{phase: {phase}}}\n");
        std::fs::write(&file, object).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (good, bad) = (write("good", "Succeeded"), write("bad", "Failed"));
    health(&[&good, &bad]).expect(0);
    health(&[&good, &bad, "--exit-code"]).expect(2);
    let text = health(&[&good, "--exit-code"]).expect(0).stdout;
    assert_eq!(text, "ready        v1:Pod:good  completed\n");
}

#[test]
fn standard_input_is_a_manifest() {
    let shell = format!(
        "printf 'apiVersion: v1\\nkind: Namespace\\nmetadata: {{name: shop}}\\n' | '{}' health - --output json",
        env!("CARGO_BIN_EXE_konverge")
    );
    let outcome = Konverge::of(Path::new("/bin/sh"), ["-c", &shell]).run().expect(0);
    assert_eq!(
        outcome.json(),
        json!([{"id": "v1:Namespace:shop", "health": "ready", "message": ""}])
    );
}

#[test]
fn errors_have_a_place_and_a_code() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broken.yaml");
    std::fs::write(
        &file,
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n---\nspec: {}\n",
    )
    .unwrap();
    let outcome = health(&[file.to_str().unwrap(), "--output", "json"]).expect(1);
    let error = &outcome.json()["error"];
    assert_eq!(
        (&error["line"], &error["file"]),
        (&json!(5), &json!(file.to_str().unwrap()))
    );
    assert!(
        error["message"].as_str().unwrap().contains("needs `kind`"),
        "{error}"
    );
    assert!(outcome.stderr.contains("broken.yaml:5"), "{}", outcome.stderr);

    health(&["nowhere.yaml"]).expect(64);
    health(&[]).expect(64);
    std::fs::write(&file, "").unwrap();
    health(&[file.to_str().unwrap(), "--rules", "nowhere"]).expect(1);
    assert_eq!(
        health(&[file.to_str().unwrap(), "--output", "json"])
            .expect(0)
            .json(),
        Value::Array(vec![])
    );
}

#[test]
fn a_rule_that_fails_is_unknown_and_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let rule = folder.path().join("rules/example.com/Thing");
    std::fs::create_dir_all(&rule).unwrap();
    let file = folder.path().join("thing.yaml");
    std::fs::write(
        &file,
        "apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: a}\n",
    )
    .unwrap();
    let rules = folder.path().join("rules");
    for (script, why) in [
        ("return obj.status.phase", "health.lua:1"),
        ("return {", "health.lua:1"),
        ("while true do end", "stopped"),
        ("os.execute('touch pwned')", "health.lua:1"),
        ("return {status = 'Splendid'}", "invalid health status"),
    ] {
        std::fs::write(rule.join("health.lua"), script).unwrap();
        let arguments = [
            file.to_str().unwrap(),
            "--rules",
            rules.to_str().unwrap(),
            "--output",
            "json",
        ];
        let rows = health(&arguments).expect(0).json();
        assert_eq!(rows[0]["health"], "unknown", "{script}");
        let message = rows[0]["message"].as_str().unwrap();
        assert!(message.contains(why), "{script}: {message}");
    }
}
