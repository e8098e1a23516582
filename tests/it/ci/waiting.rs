//! A merge whose rollout waits for promotion: what a job says, records and does next.

use konverge_base::model::stack_status::HeadStatus;
use konverge_state::StateStore;
use serde_json::{Value, json};

use crate::{
    kubernetes::waiting_rollouts::{definition, healthy, paused, report, rollout},
    support::{ci_stage::Stage, objects::Objects, tiny_monorepo},
};

/// Writes a stack whose one resource is this object.
fn write(stage: &Stage, id: &str, object: &Value) {
    tiny_monorepo::write_program(
        &stage.monorepo,
        id,
        &format!("import json\n\nresources = [json.decode(r'''{object}''')]\n"),
    );
}

async fn has_digest(states: &StateStore, stack: &str) -> bool {
    let stack = stack.parse().unwrap();
    let found = states.load(&stack).await.unwrap();
    found.is_some_and(|found| found.state.input_digest.is_some())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_waits_leaves_the_stack_pending_until_a_run_sees_it_promoted() {
    let mut stage = Stage::small("stacks: [{match: 'canary/prod', after: ['canary/dev']}]\n").await;
    let ns = stage.cluster.namespace("ci-waiting").await;
    let objects = Objects::of(stage.cluster).await;
    objects.create_definition(&definition()).await;
    let web = rollout(&ns, "web:1", &json!({}));
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "behind", "namespace": ns}});
    let (_, preview) = stage.reviewed(7, "canary", |stage| {
        write(stage, "canary/dev", &web);
        write(stage, "canary/prod", &map);
    });
    preview.outcome.check(0);
    let controller = tokio::spawn({
        let web = web.clone();
        async move {
            let at_step = paused(1, jiff::Timestamp::now());
            report(&objects, &web, 1, &at_step).await;
            objects
        }
    });
    let merged = stage.merge(7, "canary");
    merged.outcome.check(0);
    let objects = controller.await.unwrap();
    let said = &merged.outcome.stdout;
    for words in [
        "canary/dev: waiting",
        "paused, waits for promotion: CanaryPauseStep",
        "canary/prod: skipped",
        "canary/dev must be applied first and is not ready yet",
        "2 stacks: 0 applied, 0 unchanged, 1 waiting, 0 failed, 0 stopped, 1 skipped.",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let comment = stage.comments().pop().unwrap().1;
    for words in [
        "### Konverge apply: 1 waiting · 1 skipped",
        "`canary/dev` waits for promotion; the next apply continues",
        "| `canary/dev` | waiting | 1 of 1 resource |",
    ] {
        assert!(comment.contains(words), "{words}: {comment}");
    }
    let tip = stage.monorepo.rev("main");
    assert_eq!(stage.status(&tip, "konverge/apply").as_deref(), Some("pending"));
    let result: Value =
        serde_json::from_str(&std::fs::read_to_string(merged.output("result-path")).unwrap()).unwrap();
    let stack = &result["stacks"][0];
    assert_eq!(
        (&stack["result"], &stack["waiting"]),
        (&json!("waiting"), &json!({"for": "promotion"}))
    );
    assert_eq!(stack["resources"][0]["result"], "waiting");
    assert_eq!(stage.receipt("canary/dev")["result"], "waiting");
    let states = stage.states().await;
    assert!(!has_digest(&states, "canary/dev").await);
    let status = stage
        .konverge(["status", "canary/dev", "--output", "json"])
        .run()
        .json();
    assert_eq!(status["stacks"][0]["head"], json!(HeadStatus::Waiting));
    let object = &status["stacks"][0]["objects"][0];
    assert_eq!(object["health"], "suspended");
    assert_eq!(object["message"], "paused, waits for promotion: CanaryPauseStep");

    // Nothing changed: each run takes it up and says the same. What is recorded already is not recorded again.
    let serial = |stage: &Stage| {
        let shown = stage.state(&["show", "canary/dev", "--output", "json"]);
        shown.json()["serial"].as_u64().unwrap()
    };
    let mut serials = Vec::new();
    for _ in 0..2 {
        let again = stage.again();
        again.outcome.check(0);
        let said = &again.outcome.stdout;
        assert!(said.contains("1 waiting"), "{said}");
        assert_eq!(stage.receipt("canary/dev")["result"], "waiting");
        assert!(!has_digest(&states, "canary/dev").await);
        serials.push(serial(&stage));
    }
    assert_eq!(serials[0], serials[1]);

    // It is promoted: the next run does the rest.
    report(&objects, &web, 1, &healthy(1)).await;
    let done = stage.again();
    done.outcome.check(0);
    let said = &done.outcome.stdout;
    assert!(
        said.contains("canary/prod: applied") && said.contains("1 unchanged, 0 failed"),
        "{said}"
    );
    assert_eq!(stage.status(&tip, "konverge/apply").as_deref(), Some("success"));
    for stack in ["canary/dev", "canary/prod"] {
        assert!(has_digest(&states, stack).await, "{stack}");
    }
}
