//! An apply in GitHub's history of environments: asked for by konverge.yaml, and never in the apply's way.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use serde_json::{Value, json};

use crate::support::{ci_stage::Stage, cluster::Cluster, objects::Objects};

const ASKED: &str =
    "apply: {deployments: true}\nstacks:\n- {match: 'appops/*/prod', environment: production}\n";

/// Environment, states in their order.
fn told(stage: &Stage) -> Vec<(String, Vec<String>)> {
    stage.github.world(|world| {
        let states = |id: &Value| {
            let of = world.deployment_statuses.iter().filter(|(of, _)| *id == *of);
            of.map(|(_, body)| body["state"].as_str().unwrap().to_owned())
                .collect()
        };
        let mut told: Vec<_> = world
            .deployments
            .iter()
            .map(|made| {
                (
                    made["environment"].as_str().unwrap().to_owned(),
                    states(&made["id"]),
                )
            })
            .collect();
        told.sort();
        told
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn one_an_environment_from_before_the_first_write_to_the_end() {
    let mut stage = Stage::small(ASKED).await;
    stage.reviewed(7, "deployed", |stage| {
        stage.stack("deployed/dev", &[("deployed-dev", "one")]);
        stage.stack("deployed/prod", &[("deployed-prod", "one")]);
        stage.stack("deployed2/prod", &[("deployed2-prod", "one")]);
    });
    assert!(told(&stage).is_empty(), "a preview tells of none");
    stage.merge(7, "deployed").outcome.check(0);
    let done = || vec!["in_progress".to_owned(), "success".to_owned()];
    let expected = vec![
        ("deployed/dev".to_owned(), done()),
        ("production".to_owned(), done()),
    ];
    assert_eq!(told(&stage), expected);
    let tip = stage.monorepo.rev("main");
    let run = format!(
        "https://github.com/acme/konfig/actions/runs/{}/attempts/1",
        5000 + stage.runs
    );
    stage.github.world(|world| {
        for made in &world.deployments {
            assert_eq!(made["ref"], *tip);
            assert_eq!(
                (&made["auto_merge"], &made["required_contexts"]),
                (&json!(false), &json!([]))
            );
            assert_eq!(
                (&made["payload"]["run"], &made["payload"]["attempt"]),
                (&json!(run), &json!(1))
            );
        }
        for (_, status) in &world.deployment_statuses {
            assert_eq!(status["log_url"], *run);
        }
    });

    // Nothing to do, and what is stopped before anything is touched, are no deployments.
    stage.again().outcome.check(0);
    let pushed = stage.straight_to_main(|stage| stage.stack("deployed/dev", &[("deployed-dev", "two")]));
    pushed.outcome.check(3);
    assert_eq!(told(&stage), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_permission_it_is_a_warning_that_names_it() {
    let mut stage = Stage::small(ASKED).await;
    stage.github.world(|world| {
        let token = world.tokens.get_mut("ghs_token").unwrap();
        token.permissions.remove("deployments");
    });
    stage.reviewed(7, "silent", |stage| {
        stage.stack("silent/dev", &[("silent-dev", "one")]);
        stage.stack("silent/prod", &[("silent-prod", "one")]);
    });
    let merged = stage.merge(7, "silent");
    merged.outcome.check(0);
    assert_eq!(stage.value("silent-prod").await.as_deref(), Some("one"));
    let stderr = &merged.outcome.stderr;
    let warning = "warning: GitHub has no deployment of this apply";
    assert_eq!(stderr.matches(warning).count(), 1, "{stderr}");
    assert!(stderr.contains("deployments: write"), "{stderr}");
}

/// A write that the server refuses though it took the dry run: the environment's deployment says so, and so does the
/// receipt; the other's is as it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_stack_that_fails_is_a_deployment_that_failed() {
    let mut stage = Stage::small(ASKED).await;
    only_dry_runs_of("broken-dev").await;
    stage.reviewed(7, "broken", |stage| {
        stage.stack("broken/dev", &[("broken-dev", "one")]);
        stage.stack("broken/prod", &[("broken-prod", "one")]);
    });
    stage.merge(7, "broken").outcome.check(1);
    let states = |last: &str| vec!["in_progress".to_owned(), last.to_owned()];
    let expected = [
        ("broken/dev".to_owned(), states("failure")),
        ("production".to_owned(), states("success")),
    ];
    assert_eq!(told(&stage), expected);
    assert_eq!(stage.receipt("broken/dev")["result"], "failed");
    assert_eq!(stage.receipt("broken/prod")["result"], "applied");
}

/// From when this returns the shared server refuses real writes of ConfigMaps of this name.
pub(super) async fn only_dry_runs_of(name: &str) {
    let cluster = Cluster::shared();
    let objects = Objects::of(cluster).await;
    let group = "/apis/admissionregistration.k8s.io/v1";
    let rules = json!([{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}]);
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail", "matchConstraints": {"resourceRules": rules},
            "matchConditions": [{"name": "by-name", "expression": format!("request.name == '{name}'")}],
            "validations": [{"expression": "request.dryRun", "message": "dry runs only"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    let policies = format!("{group}/validatingadmissionpolicies");
    let bindings = format!("{group}/validatingadmissionpolicybindings");
    objects.create_at(&policies, &policy).await;
    objects.create_at(&bindings, &binding).await;
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client().await, "default");
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    };
    for _ in 0..200 {
        match maps.create(&PostParams::default(), &map).await {
            Err(error) if error.to_string().contains("dry runs only") => return,
            Err(error) => panic!("{error}"),
            Ok(_) => maps.delete(name, &DeleteParams::default()).await.unwrap(),
        };
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the policy is not in force after twenty seconds");
}

/// Each deployment costs three writes: a change of many stacks makes twenty, and says what it left out.
#[tokio::test(flavor = "multi_thread")]
async fn many_stacks_make_a_bounded_number() {
    let mut stage = Stage::small("apply: {deployments: true}\n").await;
    let names: Vec<_> = (0..22).map(|n| format!("crowd{n}")).collect();
    stage.reviewed(7, "crowd", |stage| {
        for name in &names {
            stage.stack(&format!("{name}/dev"), &[(&format!("{name}-web"), "one")]);
        }
    });
    let merged = stage.merge(7, "crowd");
    merged.outcome.check(0);
    let told = told(&stage);
    assert_eq!(told.len(), 20);
    assert!(
        told.iter()
            .all(|(_, states)| states == &["in_progress", "success"]),
        "{told:?}"
    );
    let stderr = &merged.outcome.stderr;
    assert!(
        stderr.contains("note: 2 environments have no deployment"),
        "{stderr}"
    );
}

/// The store was put back to an earlier day: GitHub knows of a later apply. A digest says that the state is right.
async fn a_later_deployment_stops_the_stack(name: &str, payload: Value) {
    let id = format!("{name}/dev");
    let mut stage = Stage::small("apply: {deployments: true}\n").await;
    stage.reviewed(7, "anchored", |stage| stage.stack(&id, &[(name, "one")]));
    stage.merge(7, "anchored").outcome.check(0);
    stage.github.world(|world| {
        let later = json!({"id": 900_001, "sha": "e".repeat(40), "task": "konverge:apply", "environment": id,
            "created_at": "2999-01-01T00:00:00Z", "payload": payload});
        // One of another stack, and one of another tool, say nothing of this one.
        for payload in [
            json!({"version": 1, "stack": "other/dev"}),
            json!({"by": "another tool"}),
        ] {
            let mut other = later.clone();
            other["sha"] = "d".repeat(40).into();
            other["payload"] = payload;
            world.deployments.push(other);
        }
        world.deployments.push(later);
        let status = json!({"id": 900_002, "state": "success"});
        world.deployment_statuses.push((900_001, status));
    });
    stage.reviewed(8, "again", |stage| stage.stack(&id, &[(name, "two")]));
    let stopped = stage.merge(8, "again");
    stopped.outcome.check(3);
    let said = &stopped.outcome.stdout;
    let why = format!("{id} was deployed from eeeeeee after its state was written");
    assert!(said.contains(&why), "{said}");
    assert_eq!(stage.value(name).await.as_deref(), Some("one"));
    let digest = stopped.digest();
    stage.approve(&digest).outcome.check(0);
    assert_eq!(stage.value(name).await.as_deref(), Some("two"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_deployment_than_the_state_stops_the_stack() {
    a_later_deployment_stops_the_stack("anchored", json!({"version": 1, "stack": "anchored/dev"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_deployment_of_a_rollout_stops_its_stack() {
    a_later_deployment_stops_the_stack("anchored-wave", json!({"version": 1, "rollout": "shop"})).await;
}
