//! `konverge test`: stack tests on compiled Specs, alone and as a part of `konverge check`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{
    git::Repository,
    process::{Konverge, Outcome},
    tiny_monorepo::{monorepo, write_program},
};

/// The program of a stack: a Deployment whose replicas depend on an option, and a Secret.
const PROGRAM: &str = r#"
import base.app

_env = option("env", default="dev")
_replicas = 3 if _env == "prod" else 1
assert _env != "nowhere", "policy known-env: ${_env} is not an environment"

_containers = [{"name": "proxy", "image": "envoy:1"}, {"name": "web", "image": "web:latest"}]
_template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": _containers}}
_spec = {"replicas": _replicas, "selector": {"matchLabels": {"app": "web"}}, "template": _template}

resources = [
    {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "spec": _spec}
    {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login", "namespace": "shop"}, "stringData": {"password": "correct-horse-battery"}}
]
"#;

fn shop() -> Repository {
    let repository = monorepo();
    write_program(&repository, "shop/dev", PROGRAM);
    repository.commit("A shop");
    repository
}

/// Writes a test of `shop/dev` with these assertions.
fn write_test(repository: &Repository, name: &str, assertions: &str) {
    let text = format!("name: {name}\nassert:\n{assertions}");
    repository.write(&format!("appops/shop/dev/test/{name}.test.yaml"), text);
}

fn konverge(repository: &Repository, arguments: &[&str]) -> Outcome {
    Konverge::new(arguments).dir(repository.path()).with_kcl().run()
}

/// The results by name: the result, then `line message` of each failure.
fn results(outcome: &Outcome) -> Vec<(String, Vec<String>)> {
    let document = outcome.json();
    let tests = document["tests"].as_array().unwrap().clone();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let told = |test: &Value| {
        let failures = test["failures"].as_array().cloned().unwrap_or_default();
        let failures = failures
            .iter()
            .map(|one| format!("{} {}", one["line"], text(&one["message"])));
        let first = text(&test["result"]);
        (text(&test["name"]), [first].into_iter().chain(failures).collect())
    };
    tests.iter().map(told).collect()
}

#[test]
fn the_tests_of_the_example_pass_and_are_shared_out() {
    let repository = Repository::konfig_example();
    let outcome = konverge(&repository, &["test", "--all", "--output=json"]).expect(0);
    let all: BTreeSet<String> = results(&outcome).into_iter().map(|(name, _)| name).collect();
    assert!(all.len() >= 4, "{all:?}");
    let mut shared = Vec::new();
    for shard in ["1/3", "2/3", "3/3"] {
        let outcome = konverge(&repository, &["test", "--all", "--output=json", "--shard", shard]).expect(0);
        shared.extend(results(&outcome).into_iter().map(|(name, _)| name));
    }
    assert_eq!(shared.len(), all.len(), "{shared:?}");
    assert_eq!(shared.into_iter().collect::<BTreeSet<_>>(), all);
}

#[test]
fn a_failure_shows_the_nearest_object_and_no_secret() {
    let repository = shop();
    write_test(
        &repository,
        "wrong",
        "- kind: Deployment\n  has: {spec: {replicas: 2, template: {spec: {containers: [{name: web, image: 'web:1'}]}}}}\n\
         - {kind: Secret, has: {stringData: {password: another-secret-word}}}\n\
         - {kind: Deployment, name: web}\n",
    );
    let outcome = konverge(&repository, &["test", "shop/dev"]).expect(1);
    for line in [
        "FAIL shop/dev: wrong\n    appops/shop/dev/test/wrong.test.yaml:3\n",
        "    nearest: apps/v1:Deployment:shop:web\n",
        "    spec.replicas: expected 2, found 1\n",
        "    spec.template.spec.containers[name=web].image: expected \"web:1\", found \"web:latest\"\n",
        "    stringData.password: expected (secret), found (secret)\n",
        "1 test in 1 stack: 0 passed, 1 failed, 0 not run\n",
    ] {
        assert!(outcome.stdout.contains(line), "{line}\n{}", outcome.stdout);
    }
    let check = konverge(&repository, &["check", "shop/dev", "--output=json"]).expect(1);
    let remarks = check.json()["remarks"].as_array().unwrap().clone();
    let tests: Vec<_> = remarks.iter().filter(|one| one["rule"] == "test").collect();
    let lines: Vec<_> = tests.iter().map(|one| one["line"].as_u64().unwrap()).collect();
    assert_eq!(lines, [3, 5], "{tests:?}");
    konverge(
        &repository,
        &[
            "check",
            "shop/dev",
            "--skip=test",
            "--skip=schema",
            "--skip=format",
        ],
    )
    .expect(0);
    for text in [&outcome.stdout, &outcome.stderr, &check.stdout, &check.stderr] {
        for secret in ["correct-horse-battery", "another-secret-word"] {
            assert!(!text.contains(secret), "{text}");
        }
    }
}

#[test]
fn options_compile_a_variant_of_the_stack() {
    let repository = shop();
    let folder = "appops/shop/dev/test";
    for (env, replicas) in [("prod", 3), ("dev", 1), ("staging", 1)] {
        let text = format!(
            "name: {env}\nwith: {{options: {{env: {env}}}}}\nassert: [{{kind: Deployment, has: {{spec: {{replicas: {replicas}}}}}}}]\n"
        );
        repository.write(&format!("{folder}/{env}.test.yaml"), text);
    }
    write_test(
        &repository,
        "own",
        "- {cel: 'resources.exists(r, r.kind == \"Deployment\" && r.spec.replicas == 1)'}\n",
    );
    repository
        .write(
            &format!("{folder}/refused.test.yaml"),
            "name: refused\nwith: {options: {env: nowhere}}\nassert: [{fails: 'policy known-env'}]\n",
        )
        .write(
            &format!("{folder}/typo.test.yaml"),
            "name: typo\nwith: {options: {evn: prod}}\nassert: [{kind: Deployment}]\n",
        )
        .write(
            &format!("{folder}/broken.test.yaml"),
            "name: broken\nwith: {options: {env: nowhere}}\nassert: [{absent: {kind: Ingress}}]\n",
        );
    let outcome = konverge(&repository, &["test", "shop/dev", "--output=json"]).expect(1);
    for (name, result) in results(&outcome) {
        let why = result.get(1).map(String::as_str).unwrap_or_default();
        match name.as_str() {
            "typo" => assert!(
                result[0] == "error" && why.contains("reads the option `evn`"),
                "{result:?}"
            ),
            "broken" => assert!(
                result[0] == "error" && why.contains("policy known-env"),
                "{result:?}"
            ),
            _ => assert_eq!(result, ["passed"], "{name}"),
        }
    }
}

/// A Spec that a policy set denies.
#[test]
fn a_test_may_expect_that_a_policy_denies() {
    let repository = shop();
    repository
        .write("konverge.yaml", "policy: {sets: [{name: house, path: policy, input: objects}]}\n")
        .write(
            "policy/a.rego",
            "package main\ndeny_latest contains \"latest moves\" if {\n  some c in input.spec.template.spec.containers\n  endswith(c.image, \":latest\")\n}\nwarn_size contains \"small\" if input.kind == \"Secret\"\n",
        );
    write_test(
        &repository,
        "denied",
        "- {fails: 'policy deny_latest'}\n- {fails: 'policy house'}\n",
    );
    write_test(&repository, "warned", "- {fails: 'policy warn_size'}\n");
    write_test(&repository, "absent", "- {fails: 'policy no-such-rule'}\n");
    let outcome = konverge(&repository, &["test", "shop/dev", "--output=json"]).expect(1);
    let found = results(&outcome);
    assert_eq!(
        found[1],
        ("denied".to_owned(), vec!["passed".to_owned()]),
        "{found:?}"
    );
    assert!(
        found[0].1[1].contains("it is denied by house/main.deny_latest"),
        "{found:?}"
    );
    assert!(found[2].1[1].contains("it only says"), "{found:?}");
}

/// What would be a wrong green elsewhere is an error with its file and line.
#[test]
fn what_asserts_nothing_is_an_error() {
    let repository = shop();
    let mut bomb = "name: bomb\nwith:\n  options:\n    a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("    a{level}: &a{level} [{aliases}]\n"));
    }
    bomb.push_str("assert: [{kind: Secret}]\n");
    repository
        .write(
            "appops/shop/dev/test/a.test.yaml",
            "name: same\nassert: [{kind: Secret}]\n",
        )
        .write(
            "appops/shop/dev/test/b.test.yaml",
            "name: same\nassert: [{kind: Deployment}]\n",
        )
        .write("appops/shop/dev/test/bomb.test.yaml", bomb)
        .write(
            "appops/shop/dev/test/deep/void.test.yaml",
            "name: void\nassert: []\n",
        )
        .write(
            "appops/shop/dev/test/old.test.yml",
            "name: old\nassert: [{kind: Secret}]\n",
        )
        .write(
            "appops/shop/dev/test/two.test.yaml",
            "name: two\nassert: [{kind: Secret}]\n---\nname: three\n",
        )
        .write(
            "appops/shop/dev/test/typo.test.yaml",
            "name: typo\nassert: [{absent: {kind: Ingres}}]\n",
        );
    std::os::unix::fs::symlink(
        "nowhere",
        repository.path().join("appops/shop/dev/test/link.test.yaml"),
    )
    .unwrap();
    let outcome = konverge(&repository, &["test", "shop/dev", "--output=json"]).expect(1);
    let found = results(&outcome);
    let names: Vec<_> = found
        .iter()
        .map(|(name, result)| (name.as_str(), result[0].as_str()))
        .collect();
    assert_eq!(
        names,
        [
            ("same", "passed"),
            ("b.test.yaml", "error"),
            ("bomb.test.yaml", "error"),
            ("void.test.yaml", "error"),
            ("link.test.yaml", "error"),
            ("old.test.yml", "error"),
            ("two.test.yaml", "error"),
            ("typo", "failed"),
        ],
        "{found:?}"
    );
    assert!(
        found[1].1[1].starts_with("1 the name `same` is also"),
        "{found:?}"
    );
    assert!(
        found[3].1[1].starts_with("1 the test asserts nothing"),
        "{found:?}"
    );
    // `check` reports the same, each at its file.
    let check = konverge(&repository, &["check", "shop/dev", "--output=json"]).expect(1);
    let remarks = check.json()["remarks"].as_array().unwrap().clone();
    let tests = remarks.iter().filter(|one| one["rule"] == "test").count();
    assert_eq!(tests, 7, "{remarks:?}");
}

#[test]
fn a_test_makes_its_stack_affected_and_changes_no_spec() {
    let repository = shop();
    write_program(&repository, "shop/prod", PROGRAM);
    write_test(&repository, "one", "- {kind: Secret}\n");
    repository.commit("Tests");
    let affected = |arguments: &[&str]| {
        let arguments = [&["affected", "--worktree", "--exact", "--output=json"], arguments].concat();
        let stacks = konverge(&repository, &arguments).expect(0).json()["stacks"].clone();
        let row = |stack: &Value| {
            let why = stack["why"].as_array().unwrap();
            let why = why
                .iter()
                .map(|one| format!("{} {}", one["kind"], one["path"]))
                .collect::<Vec<_>>();
            format!("{} {} {}", stack["id"], stack["spec"], why.join(", "))
        };
        stacks.as_array().unwrap().iter().map(row).collect::<Vec<_>>()
    };
    assert_eq!(affected(&["--base=HEAD"]), Vec::<String>::new());
    write_test(&repository, "one", "- {kind: Deployment}\n");
    write_test(&repository, "two", "- {kind: Ingress}\n");
    assert_eq!(
        affected(&["--base=HEAD"]),
        [
            "\"shop/dev\" \"same\" \"test\" \"appops/shop/dev/test/one.test.yaml\", \"test\" \"appops/shop/dev/test/two.test.yaml\""
        ]
    );
    // The tests of the change are run, and only those.
    let outcome = konverge(&repository, &["test", "--base=HEAD", "--output=json"]).expect(1);
    assert_eq!(results(&outcome).len(), 2);
    konverge(&repository, &["check", "--base=HEAD"]).expect(1);
    repository.commit("Two tests");
    repository
        .remove("appops/shop/dev/test/two.test.yaml")
        .commit("One test");
    repository.remove("appops/shop/dev/test/one.test.yaml");
    assert_eq!(
        affected(&["--base=HEAD"]),
        ["\"shop/dev\" \"same\" \"test\" \"appops/shop/dev/test/one.test.yaml\""]
    );
}

#[test]
fn stacks_without_tests_are_told() {
    let repository = shop();
    let outcome = konverge(&repository, &["test", "shop/dev"]).expect(1);
    assert!(
        outcome.stderr.contains("stack shop/dev has no tests"),
        "{}",
        outcome.stderr
    );
    assert!(
        outcome.stderr.contains("appops/shop/dev/test/"),
        "{}",
        outcome.stderr
    );
    let outcome = konverge(&repository, &["test"]).expect(0);
    assert!(
        outcome.stdout.contains("0 tests in 0 stacks"),
        "{}",
        outcome.stdout
    );
    let nowhere = Konverge::new(["test"]).run();
    assert!(
        nowhere.code != Some(0) && nowhere.stderr.contains("hint"),
        "{}",
        nowhere.stderr
    );
}

#[test]
fn a_report_replaces_a_link_and_never_follows_it() {
    let repository = shop();
    write_test(&repository, "one", "- {kind: Secret}\n");
    let outside = tempfile::tempdir().unwrap();
    let victim = outside.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, repository.path().join("report.xml")).unwrap();
    konverge(&repository, &["test", "shop/dev", "--junit", "report.xml"]).expect(0);
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    assert!(
        repository
            .read("report.xml")
            .contains("<testcase classname=\"shop/dev\" name=\"one\"")
    );
    let refused = konverge(
        &repository,
        &["test", "shop/dev", "--junit", "/proc/nowhere/report.xml"],
    )
    .expect(64);
    assert!(
        refused.stderr.contains("the report cannot be written"),
        "{}",
        refused.stderr
    );
}
