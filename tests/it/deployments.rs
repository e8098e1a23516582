//! An apply in GitHub's history of environments: asked for by konverge.yaml, and never in the apply's way.

use serde_json::{Value, json};

use crate::support::stage::Stage;

const ASKED: &str =
    "apply: {deployments: true}\nstacks:\n- {match: 'apps/*/prod', environment: production}\n";

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
        "https://github.com/acme/konfig/actions/runs/{}",
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
