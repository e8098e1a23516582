//! Workflows around the apply of a stack (`apply.hooks.workflows`): what is dispatched, how often, and what its end means.

use serde_json::{Value, json};

use crate::support::{
    ci_stage::{Ran, Stage},
    github::{Act, DispatchableWorkflow, Token, World},
    webhook_receiver,
};

const DISPATCHES: &str = "/actions/workflows/smoke.yml/dispatches";

fn around(stacks: &str) -> String {
    format!(
        "apply:\n  hooks:\n    workflows:\n    - {{when: pre, stacks: '{stacks}', workflow: backup.yml}}\n    - {{when: post, stacks: '{stacks}', workflow: smoke.yml, timeout: 1s}}\n"
    )
}

/// The ConfigMap of a stack.
fn map(stack: &str) -> String {
    stack.replace('/', "-")
}

fn token(world: &mut World) -> &mut Token {
    world.tokens.get_mut("ghs_token").unwrap()
}

/// A stage whose token may dispatch two workflows, which succeed.
async fn stage(config: &str) -> Stage {
    let stage = Stage::small(config).await;
    stage.github.world(|world| {
        token(world).permissions.insert("actions", "write");
    });
    for file in ["backup.yml", "smoke.yml"] {
        end(&stage, file, Some("success"));
    }
    stage
}

/// From now on the runs of a workflow end so.
fn end(stage: &Stage, file: &str, conclusion: Option<&'static str>) {
    let workflow = DispatchableWorkflow {
        conclusion,
        names_inputs: true,
    };
    stage
        .github
        .world(|world| world.workflows.insert(file.to_owned(), workflow));
}

/// The files of what was dispatched.
fn files(stage: &Stage) -> Vec<String> {
    let dispatched = stage.github.world(|world| world.dispatched.clone());
    dispatched.into_iter().map(|(file, _)| file).collect()
}

/// A stack with one ConfigMap of its name is merged.
fn merge(stage: &mut Stage, number: u64, stack: &str, value: &str) -> Ran {
    let branch = format!("branch-{number}");
    let name = map(stack);
    stage.reviewed(number, &branch, |stage| stage.stack(stack, &[(&name, value)]));
    stage.merge(number, &branch)
}

async fn digest(stage: &Stage, stack: &str) -> Option<String> {
    let found = stage.states().await.load(&stack.parse().unwrap()).await.unwrap();
    let state = found?.state;
    state.input_digest?;
    state.spec_digest.map(|digest| digest.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn workflows_run_around_a_change_once_for_each_spec() {
    let mut stage = stage(&around("wf-around/*")).await;
    merge(&mut stage, 7, "wf-around/dev", "one").outcome.check(0);
    let first = digest(&stage, "wf-around/dev").await.unwrap();
    let told = stage.github.world(|world| world.dispatched.clone());
    let inputs = json!({"stack": "wf-around/dev", "commit": stage.monorepo.rev("main"), "digest": first});
    let body = json!({"ref": "main", "inputs": inputs, "return_run_details": true});
    assert_eq!(
        told,
        [
            ("backup.yml".to_owned(), body.clone()),
            ("smoke.yml".to_owned(), body)
        ]
    );

    // Another stack is not meant, and nothing new runs nothing.
    merge(&mut stage, 8, "wf-other/dev", "one").outcome.check(0);
    stage.again().outcome.check(0);
    assert_eq!(files(&stage).len(), 2);
    merge(&mut stage, 9, "wf-around/dev", "two").outcome.check(0);
    assert_ne!(digest(&stage, "wf-around/dev").await.unwrap(), first);
    assert_eq!(files(&stage).len(), 4);

    // A stack that leaves runs none; one that comes back is new.
    stage.reviewed(10, "gone", |stage| {
        stage.monorepo.remove("appops/wf-around");
    });
    stage.merge(10, "gone").outcome.check(0);
    assert_eq!(files(&stage).len(), 4);
    merge(&mut stage, 11, "wf-around/dev", "two").outcome.check(0);
    assert_eq!(files(&stage)[4..], ["backup.yml", "smoke.yml"]);

    // Two stacks at the same time.
    stage.reviewed(12, "both", |stage| {
        for stack in ["wf-around/a", "wf-around/b"] {
            stage.stack(stack, &[(&map(stack), "one")]);
        }
    });
    stage.merge(12, "both").outcome.check(0);
    assert_eq!(files(&stage).len(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_workflow_fails_the_stack_and_its_inputs_are_not_recorded() {
    let (hook, heard) = webhook_receiver::receiver(Vec::new()).await;
    let notify = "notify:\n- {kind: webhook, url_env: HOOK_URL, key_env: HOOK_KEY}\n";
    let mut stage = stage(&format!("{}{notify}", around("wf-fails/*"))).await;
    stage.env = vec![("HOOK_URL", hook), ("HOOK_KEY", "signing-key".to_owned())];
    let name = map("wf-fails/dev");

    // Before the stack: nothing is touched.
    end(&stage, "backup.yml", Some("cancelled"));
    let failed = merge(&mut stage, 7, "wf-fails/dev", "one");
    failed.outcome.check(1);
    let said = &failed.outcome.stdout;
    assert!(
        said.contains("the workflow `backup.yml` (`pre`): it ended with `cancelled`: https://github.com/acme/konfig/actions/runs/"),
        "{said}"
    );
    assert_eq!(stage.value(&name).await, None);
    assert_eq!(files(&stage), ["backup.yml"]);
    assert_eq!(digest(&stage, "wf-fails/dev").await, None);
    let topics = || {
        let heard = std::mem::take(&mut *heard.lock().unwrap());
        heard
            .iter()
            .map(|(_, body)| webhook_receiver::topic(body))
            .collect::<Vec<_>>()
    };
    assert_eq!(topics(), ["hook-failed"]);

    // After it: it is applied, and the next run tries again.
    end(&stage, "backup.yml", Some("success"));
    end(&stage, "smoke.yml", Some("failure"));
    let failed = stage.again();
    failed.outcome.check(1);
    let said = &failed.outcome.stdout;
    assert!(
        said.contains("the workflow `smoke.yml` (`post`): it ended with `failure`"),
        "{said}"
    );
    assert_eq!(stage.value(&name).await.as_deref(), Some("one"));
    assert_eq!(digest(&stage, "wf-fails/dev").await, None);
    assert_eq!(stage.receipt("wf-fails/dev")["result"], "failed");
    assert_eq!(topics(), ["hook-failed"]);
    let tip = stage.monorepo.rev("main");
    assert_eq!(stage.status(&tip, "konverge/apply").as_deref(), Some("failure"));

    end(&stage, "smoke.yml", Some("success"));
    stage.again().outcome.check(0);
    assert!(digest(&stage, "wf-fails/dev").await.is_some());
    assert_eq!(
        files(&stage),
        ["backup.yml", "backup.yml", "smoke.yml", "smoke.yml"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_end_was_not_seen_is_found_again() {
    // It runs longer than the apply waits.
    let mut stage = stage(&around("wf-lost/*")).await;
    end(&stage, "smoke.yml", None);
    let failed = merge(&mut stage, 7, "wf-lost/dev", "one");
    failed.outcome.check(1);
    let said = &failed.outcome.stdout;
    assert!(said.contains("it has not ended after 1 s"), "{said}");
    let finish = |run: &mut Value| run["conclusion"] = json!("success");
    stage
        .github
        .world(|world| world.runs.values_mut().for_each(finish));
    stage.again().outcome.check(0);
    assert_eq!(files(&stage), ["backup.yml", "smoke.yml"]);

    // The request was carried out and its answer was lost; or it never arrived.
    for (number, act) in [(8, Act::DropAfter), (9, Act::DropBefore)] {
        let before = files(&stage).len();
        end(&stage, "smoke.yml", Some("success"));
        stage.github.next("POST", DISPATCHES, act);
        let value = format!("value-{number}");
        merge(&mut stage, number, "wf-lost/dev", &value).outcome.check(1);
        stage.again().outcome.check(0);
        assert_eq!(files(&stage)[before..], ["backup.yml", "smoke.yml"], "{number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_be_recognized_is_not_started_again() {
    let mut stage = stage(&around("wf-unnamed/*")).await;
    stage.github.world(|world| {
        let workflow = world.workflows.get_mut("smoke.yml").unwrap();
        workflow.names_inputs = false;
    });
    stage.github.next("POST", DISPATCHES, Act::DropAfter);
    merge(&mut stage, 7, "wf-unnamed/dev", "one").outcome.check(1);
    for _ in 0..2 {
        let unknown = stage.again();
        unknown.outcome.check(1);
        let said = &unknown.outcome.stdout;
        assert!(said.contains("whether it ran is not known"), "{said}");
        assert!(
            said.contains("run-name: ${{ inputs.stack }} ${{ inputs.digest }}"),
            "{said}"
        );
    }
    assert_eq!(files(&stage), ["backup.yml", "smoke.yml"]);

    // Somebody does what the hint says.
    stage.github.world(|world| {
        let inputs = world.dispatched[1].1["inputs"].clone();
        let (id, mut run) = world
            .runs
            .last_key_value()
            .map(|(id, run)| (*id, run.clone()))
            .unwrap();
        run["id"] = json!(id + 1);
        let title = ["stack", "digest"].map(|input| inputs[input].as_str().unwrap().to_owned());
        run["display_title"] = json!(title.join(" "));
        world.runs.insert(id + 1, run);
    });
    stage.again().outcome.check(0);
    assert_eq!(files(&stage).len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_named_and_nothing_is_changed() {
    let mut stage = stage(&around("wf-missing/*")).await;
    let name = map("wf-missing/dev");
    stage.github.world(|world| {
        token(world).permissions.insert("actions", "read");
    });
    let refused = merge(&mut stage, 7, "wf-missing/dev", "one");
    refused.outcome.check(1);
    let said = &refused.outcome.stdout;
    assert!(
        said.contains("the workflow `backup.yml` (`pre`)") && said.contains("`actions: write`"),
        "{said}"
    );
    stage.github.world(|world| {
        token(world).permissions.insert("actions", "write");
        world.workflows.remove("backup.yml");
    });
    let refused = stage.again();
    refused.outcome.check(1);
    let said = &refused.outcome.stdout;
    assert!(
        said.contains("not found") && said.contains("workflow_dispatch"),
        "{said}"
    );
    assert!(files(&stage).is_empty());
    assert_eq!(stage.value(&name).await, None);

    // By hand nothing is dispatched, so nothing is applied.
    stage.monorepo.checkout("main");
    let by_hand = stage
        .konverge(["apply", "--all", "--yes", "--no-wait"])
        .run()
        .expect(1);
    assert!(
        by_hand.stdout.contains("only by `konverge ci`"),
        "{}",
        by_hand.stdout
    );
    assert_eq!(stage.value(&name).await, None);
}
