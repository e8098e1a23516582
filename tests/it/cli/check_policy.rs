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

const REPLICAS: &str = "apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}
  validations:
  - {expression: 'object.spec.replicas <= 100', message: at most 100 replicas}
  - {expression: 'oldObject == null || oldObject.spec.replicas <= object.spec.replicas', message: it only grows}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: replicas}
spec: {policyName: replicas, validationActions: [Deny]}
";

fn deployment(replicas: u32) -> String {
    format!(
        "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web, namespace: shop}}, spec: {{replicas: {replicas}}}}}"
    )
}

/// A suite in the form of `gator verify` tests a set of ValidatingAdmissionPolicies: creations and updates.
#[test]
fn a_suite_tests_admission_policies() {
    let repository = Repository::konfig_example();
    add_set(
        &repository,
        "{name: replicas, path: ops/vap, language: vap, input: admission}",
    );
    let review = format!(
        "{{apiVersion: admission.k8s.io/v1, kind: AdmissionReview, request: {{operation: UPDATE, object: {}, oldObject: {}}}}}",
        deployment(2),
        deployment(3)
    );
    let suite = |shrinks: &str| {
        format!(
            "kind: Suite
apiVersion: test.gatekeeper.sh/v1alpha1
tests:
- name: replicas
  cases:
  - {{name: few, object: tests/few.yaml, assertions: [{{violations: no}}]}}
  - {{name: many, object: tests/many.yaml, assertions: [{{violations: 1, message: at most 100}}]}}
  - {{name: shrinks, object: tests/shrinks.yaml, assertions: [{shrinks}]}}
"
        )
    };
    repository
        .write("ops/vap/policy.yaml", REPLICAS)
        .write("ops/vap/tests/few.yaml", deployment(2))
        .write("ops/vap/tests/many.yaml", deployment(200))
        .write("ops/vap/tests/shrinks.yaml", review)
        .write(
            "ops/vap/suite.yaml",
            suite("{violations: yes, message: only grows}"),
        );
    assert_eq!(remarks(&repository, 0), []);

    // An update is judged with its old object, so this case fails.
    repository.write("ops/vap/suite.yaml", suite("{violations: no}"));
    let [(file, failed)] = &remarks(&repository, 1)[..] else {
        panic!("one case fails")
    };
    assert_eq!(file, "ops/vap/suite.yaml");
    assert_eq!(
        failed,
        "policy set `replicas`: replicas, shrinks: it has 1 such violations; all are: it only grows"
    );

    // A case whose object is missing, and one that says nothing, are no passes.
    std::fs::remove_file(repository.path().join("ops/vap/tests/shrinks.yaml")).unwrap();
    let found = remarks(&repository, 1);
    assert!(
        found[0]
            .1
            .contains("the set has no file ops/vap/tests/shrinks.yaml"),
        "{found:?}"
    );
    repository.write("ops/vap/tests/shrinks.yaml", deployment(1));
    repository.write("ops/vap/suite.yaml", suite("").replace(", assertions: []}", "}"));
    let found = remarks(&repository, 1);
    assert!(found[0].1.contains("it has no `assertions`"), "{found:?}");
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
