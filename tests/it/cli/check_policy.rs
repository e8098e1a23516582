//! `konverge check --policy`: policy sets and their own tests, without a cluster.

use crate::support::{
    git::Repository,
    process::{Konverge, Outcome},
};

/// Adds a policy set to the example's configuration.
fn add_set(repository: &Repository, set: &str) {
    let config = repository.read("konverge.yaml");
    repository.write(
        "konverge.yaml",
        config.replacen("  sets:\n", &format!("  sets:\n    - {set}\n"), 1),
    );
}

fn check(repository: &Repository, output: &str, code: i32) -> Outcome {
    let run = Konverge::new(["check", "appops/orders/dev", "--policy"]);
    let run = run.dir(repository.path()).with_kcl();
    run.arg(format!("--output={output}")).run().expect(code)
}

/// What is found: file and message.
fn remarks(repository: &Repository, code: i32) -> Vec<(String, String)> {
    let document = check(repository, "json", code).json();
    let remarks = document["remarks"].as_array().unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let remarks = remarks.iter();
    remarks
        .map(|remark| (text(&remark["file"]), text(&remark["message"])))
        .collect()
}

#[test]
fn rules_as_code_and_their_tests_are_checked_without_a_cluster() {
    let repository = Repository::konfig_example();
    add_set(&repository, "{name: house, path: ops/policy, input: objects}");
    repository
        .write(
            "ops/policy/a.rego",
            "package main\ndeny contains \"no deployment today\" if input.kind == \"Deployment\"\n",
        )
        .write(
            "ops/policy/a_test.rego",
            "package main\ntest_wrong if { count(deny) == 1 with input as {} }\n",
        );
    let run = |output: &str, code| check(&repository, output, code).json();
    let found = remarks(&repository, 1);
    let [(stack, denied), (test, failed)] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!(stack, "appops/orders/dev/stack.yaml");
    assert!(
        denied.starts_with("house/main.deny: apps/v1:Deployment:"),
        "{denied}"
    );
    assert_eq!(test, "ops/policy/a_test.rego");
    assert_eq!(failed, "policy set `house`: test_wrong: it is not true");
    let sarif = run("sarif", 1);
    let result = &sarif["runs"][0]["results"][0];
    assert_eq!(result["ruleId"], "house/main.deny", "{sarif}");
    let place = &result["locations"][0]["logicalLocations"][0]["fullyQualifiedName"];
    assert!(
        place.as_str().unwrap().starts_with("apps/v1:Deployment:"),
        "{sarif}"
    );

    // A set that cannot be read is told once.
    repository.write("ops/policy/a.rego", "package main\ndeny contains if\n");
    assert_eq!(remarks(&repository, 1).len(), 1);
    repository.write(
        "ops/policy/a.rego",
        "package main\ndeny contains \"x\" if input.kind == \"Nothing\"\n",
    );
    std::fs::remove_file(repository.path().join("ops/policy/a_test.rego")).unwrap();
    run("json", 0);

    // A rule behind a link is not left out in silence.
    std::os::unix::fs::symlink("a.rego", repository.path().join("ops/policy/b.rego")).unwrap();
    let found = remarks(&repository, 1);
    assert!(found[0].1.contains("ops/policy/b.rego is a link"), "{found:?}");
}

/// Brackets within each other double the time of the parser: a worker does that, and is ended.
#[test]
fn a_rule_that_takes_for_ever_to_parse_fails_in_time_and_is_named() {
    let repository = Repository::konfig_example();
    add_set(&repository, "{name: house, path: ops/policy, input: objects}");
    let nested = format!("{}1{}", "[".repeat(30), "]".repeat(30));
    repository
        .write(
            "ops/policy/a.rego",
            "package main\ndeny contains \"m\" if false\n",
        )
        .write("ops/policy/b.rego", format!("package main\nx := {nested}\n"));
    let started = std::time::Instant::now();
    let found = remarks(&repository, 1);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        found[0].1,
        "policy set `house`: load: ops/policy/b.rego: it took more than 5 s of processor time"
    );
    assert!(started.elapsed().as_secs() < 120);
}
