//! Two stacks of a project on one cluster share the CRDs of `<project>/crd`. The CRDs are deleted with the last stack.

use serde_json::{Value, json};

use crate::support::{ci_stage::Stage, objects::Objects, tiny_monorepo};

const FILE: &str = "appops/duo/crd/pair.yaml";

fn definition(label: &str) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "pairs.duo.example.com", "labels": {"said": label}},
        "spec": {"group": "duo.example.com", "scope": "Namespaced", "names": {"plural": "pairs", "kind": "Pair"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "properties": {"spec": {"type": "object", "properties": {"value": {"type": "string"}}}}}}}]}})
}

fn pair(stack: &str) -> Value {
    json!({"apiVersion": "duo.example.com/v1", "kind": "Pair", "metadata": {"name": format!("of-{stack}"), "namespace": "default"},
        "spec": {"value": stack}})
}

fn project(stage: &Stage, stacks: &[&str], label: &str) {
    for stack in stacks {
        let program = format!("resources = [{}]\n", pair(stack));
        tiny_monorepo::write_program(&stage.monorepo, &format!("duo/{stack}"), &program);
    }
    stage.monorepo.write(FILE, definition(label).to_string());
}

/// A reviewed change of the project, merged.
fn merged(stage: &mut Stage, number: u64, change: impl FnOnce(&Stage)) -> String {
    let branch = format!("change-{number}");
    let (_, preview) = stage.reviewed(number, &branch, change);
    let merged = stage.merge(number, &branch);
    merged.outcome.check(0);
    preview.outcome.stdout
}

#[tokio::test(flavor = "multi_thread")]
async fn they_are_of_every_stack_of_the_project_and_of_no_other() {
    let mut stage = Stage::small("").await;
    let objects = Objects::of(stage.cluster).await;
    // Apply both at once. Either one may create the CRD.
    merged(&mut stage, 7, |stage| project(stage, &["dev", "prod"], "one"));
    for stack in ["dev", "prod"] {
        assert!(objects.get(&pair(stack)).await.is_some(), "{stack}");
    }
    // A third stack is added: it needs no change of the CRD. Then all three stacks change the CRD.
    let preview = merged(&mut stage, 8, |stage| project(stage, &["qa"], "one"));
    assert!(!preview.contains("CustomResourceDefinition"), "{preview}");
    merged(&mut stage, 9, |stage| {
        project(stage, &["dev", "prod", "qa"], "two")
    });
    let live = objects.get(&definition("two")).await.unwrap();
    assert_eq!(live["metadata"]["labels"]["said"], "two");
    stage.schedule().outcome.check(0);
    let drifted = stage.github.world(|world| world.issues.len());
    assert_eq!(drifted, 0, "no stack finds what another one did of it different");

    // Another project may not have it.
    stage.monorepo.checkout("main").branch("foreign");
    stage.stack("solo/dev", &[("shared-solo", "x")]);
    stage
        .monorepo
        .write("appops/solo/crd/pair.yaml", definition("three").to_string());
    stage.monorepo.commit("foreign");
    let foreign = stage.pull_request(10, "foreign", "opened");
    foreign.outcome.check(1);
    assert!(
        foreign.outcome.stdout.contains("belongs to stack `duo/"),
        "{}",
        foreign.outcome.stdout
    );

    // Destroying the first stack keeps the CRD; destroying the last stack deletes it.
    let remove = |stacks: &'static [&str]| {
        move |stage: &Stage| {
            for stack in stacks {
                stage.monorepo.remove(&format!("appops/duo/{stack}"));
            }
        }
    };
    let preview = merged(&mut stage, 11, remove(&["dev", "qa"]));
    assert!(preview.contains("manages it too"), "{preview}");
    assert!(objects.get(&pair("dev")).await.is_none());
    assert!(objects.get(&pair("prod")).await.is_some());
    assert!(objects.get(&definition("two")).await.is_some());
    merged(&mut stage, 12, |stage| {
        stage.monorepo.remove("appops/duo");
    });
    assert!(objects.get(&definition("two")).await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_stack_wants_any_more_goes_with_the_first_of_them() {
    let mut stage = Stage::small("").await;
    let objects = Objects::of(stage.cluster).await;
    let kept = |stage: &Stage, definition: &Value| {
        for stack in ["one", "two"] {
            stage.stack(&format!("trio/{stack}"), &[(&format!("trio-{stack}"), "x")]);
        }
        stage
            .monorepo
            .write("appops/trio/crd/x.yaml", definition.to_string());
    };
    let mut other = definition("x");
    other["metadata"]["name"] = json!("pairs.trio.example.com");
    other["spec"]["group"] = json!("trio.example.com");
    merged(&mut stage, 7, |stage| kept(stage, &other));
    assert!(objects.get(&other).await.is_some());
    merged(&mut stage, 8, |stage| {
        stage.monorepo.remove("appops/trio/crd");
    });
    assert!(objects.get(&other).await.is_none());
    stage.again().outcome.check(0);
}
