//! Workflows around the apply of a stack (`apply.hooks.workflows`): what is dispatched, how often, and what its end
//! means.

use std::collections::BTreeMap;

use nix::sys::signal::Signal::SIGKILL;
use serde_json::{Value, json};

use crate::support::{
    ci_stage::{Ran, Stage},
    github::{Act, DispatchableWorkflow, Hold, Token, World},
    payloads, terraform, tiny_monorepo, webhook_receiver,
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
        shown_late: 0,
    };
    stage
        .github
        .world(|world| world.workflows.insert(file.to_owned(), workflow));
}

/// Nobody knows whether the workflow ran: the error says so, and what to do.
fn says_unknown(ran: &Ran) {
    ran.outcome.check(1);
    let said = &ran.outcome.stdout;
    for words in [
        "it is unknown whether the workflow ran",
        "it is not started again",
        "start `smoke.yml` by hand",
        "run-name: ${{ inputs.stack }} ${{ inputs.digest }}",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// Somebody starts the workflow by hand, as the error says.
fn start_by_hand(stage: &Stage, said: &Ran) {
    let text = &said.outcome.stdout;
    let named = |name: &str| {
        let (_, rest) = text
            .split_once(&format!("the {name} `"))
            .unwrap_or_else(|| panic!("{text}"));
        rest.split('`').next().unwrap().to_owned()
    };
    let inputs: BTreeMap<_, _> = ["stack", "commit", "digest"]
        .map(|name| (name, named(name)))
        .into();
    let body = json!({"ref": "main", "inputs": inputs, "return_run_details": true});
    let route = format!("/repos/acme/konfig{DISPATCHES}");
    let answer = stage.github.world(|world| {
        let query = BTreeMap::new();
        world.route("ghs_token", "POST", &route, &query, &body)
    });
    assert_eq!(answer.unwrap().0, 200);
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
async fn the_stacks_of_each_wave_have_their_workflows() {
    let rollout =
        "rollouts:\n- name: web\n  waves:\n  - {match: 'appops/*/canary'}\n  - {match: 'appops/*/eu'}\n";
    let mut stage = stage(&format!("{}{rollout}", around("wf-wave/*"))).await;
    for (number, value) in [(1, "one"), (2, "two")] {
        let branch = format!("branch-{number}");
        stage.reviewed(number, &branch, |stage| {
            stage.stack("wf-wave/canary", &[("wf-wave-canary", value)]);
            stage.stack("wf-wave/eu", &[("wf-wave-eu", value)]);
        });
        stage.merge(number, &branch).outcome.check(0);
        for map in ["wf-wave-canary", "wf-wave-eu"] {
            assert_eq!(stage.value(map).await.as_deref(), Some(value));
        }
        let each = ["backup.yml", "smoke.yml"].repeat(2 * number as usize);
        assert_eq!(files(&stage), each);
    }
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

    // The request was carried out and its answer was lost: the same apply finds the run.
    end(&stage, "smoke.yml", Some("success"));
    stage.github.next("POST", DISPATCHES, Act::DropAfter);
    merge(&mut stage, 8, "wf-lost/dev", "two").outcome.check(0);
    assert_eq!(files(&stage)[2..], ["backup.yml", "smoke.yml"]);
    stage.again().outcome.check(0);
    assert_eq!(files(&stage).len(), 4);

    // It never arrived: nobody knows that, so it is not sent again.
    stage.github.next("POST", DISPATCHES, Act::DropBefore);
    let unknown = merge(&mut stage, 9, "wf-lost/dev", "three");
    says_unknown(&unknown);
    says_unknown(&stage.again());
    assert_eq!(files(&stage)[4..], ["backup.yml"]);
    start_by_hand(&stage, &unknown);
    stage.again().outcome.check(0);
    assert_eq!(files(&stage)[4..], ["backup.yml", "smoke.yml"]);
}

/// GitHub shows a new run late, in its list and by its number: it is waited for, and not started again.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_github_shows_late_is_started_once() {
    let mut stage = stage(&around("wf-late/*")).await;
    let shown_late = |stage: &Stage| {
        stage.github.world(|world| {
            world.workflows.get_mut("smoke.yml").unwrap().shown_late = 1;
        });
    };
    shown_late(&stage);
    merge(&mut stage, 7, "wf-late/dev", "one").outcome.check(0);
    stage.github.next("POST", DISPATCHES, Act::DropAfter);
    merge(&mut stage, 8, "wf-late/dev", "two").outcome.check(0);
    // It failed, and is not in the list when the next one is started. Then it is, and the next one is not.
    end(&stage, "smoke.yml", Some("failure"));
    merge(&mut stage, 9, "wf-late/dev", "three").outcome.check(1);
    end(&stage, "smoke.yml", Some("success"));
    shown_late(&stage);
    stage.github.world(|world| {
        world.runs.last_entry().unwrap().get_mut()["shown_late"] = json!(1);
    });
    stage.github.next("POST", DISPATCHES, Act::DropAfter);
    stage.again().outcome.check(0);
    let smoke = files(&stage).into_iter().filter(|file| file == "smoke.yml");
    assert_eq!(smoke.count(), 4);
}

/// GitHub shows a run later than the apply waits: it may not be taken for deleted, and not be started again.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_github_does_not_show_in_time_is_not_started_again() {
    let mut stage = stage(&around("wf-hidden/*")).await;
    stage.github.world(|world| {
        world.workflows.get_mut("smoke.yml").unwrap().shown_late = 1000;
    });
    let unknown = merge(&mut stage, 7, "wf-hidden/dev", "one");
    unknown.outcome.check(1);
    let said = &unknown.outcome.stdout;
    assert!(
        said.contains("after 1 s") && said.contains("the next apply waits for the same run"),
        "{said}"
    );
    stage.github.world(|world| {
        world.runs.last_entry().unwrap().get_mut()["shown_late"] = json!(0);
    });
    stage.again().outcome.check(0);
    assert_eq!(files(&stage), ["backup.yml", "smoke.yml"]);
}

/// The process is killed while it asks GitHub to start a workflow, before GitHub takes the request and after it: there
/// is one run in the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_is_killed_while_it_starts_a_workflow_starts_it_once() {
    for is_taken in [false, true] {
        let stack = format!("wf-killed-{is_taken}/dev");
        let mut stage = stage(&around("wf-killed-*/*")).await;
        let name = map(&stack);
        stage.reviewed(7, "one", |stage| stage.stack(&stack, &[(&name, "one")]));
        let (before, after) = stage.press_merge(7, "one");
        stage.monorepo.checkout(&after);
        let checkout = stage.monorepo.path().to_owned();
        let payload = payloads::push("main", &before, &after, false);
        let (konverge, _) = stage.prepared(&checkout, "push", &payload, &after, "refs/heads/main");
        let hold = Hold::new();
        let act = if is_taken {
            Act::HoldAnswer(hold.clone())
        } else {
            Act::Hold(hold.clone())
        };
        stage.github.next("POST", DISPATCHES, act);
        let running = konverge.start();
        hold.came().await;
        running.signal(SIGKILL);
        assert_eq!(running.wait().code, None);
        let taken: &[&str] = if is_taken {
            &["backup.yml", "smoke.yml"]
        } else {
            &["backup.yml"]
        };
        assert_eq!(files(&stage), taken);
        assert_eq!(stage.value(&name).await.as_deref(), Some("one"));
        assert_eq!(digest(&stage, &stack).await, None);
        // GitHub says that the job is over, so nobody waits for its lease.
        let run = 5000 + stage.runs;
        stage.github.world(|world| {
            let over = json!({"id": run, "status": "completed", "run_attempt": 1});
            world.runs.insert(run, over);
        });
        if !is_taken {
            let unknown = stage.again();
            says_unknown(&unknown);
            assert_eq!(files(&stage), taken);
            start_by_hand(&stage, &unknown);
        }
        for _ in 0..2 {
            stage.again().outcome.check(0);
            assert_eq!(files(&stage), ["backup.yml", "smoke.yml"], "{is_taken}");
        }
        assert!(digest(&stage, &stack).await.is_some());
    }
}

/// A stack of Terraform alone, in a repository without a cluster: the conclusion of its workflow counts.
#[tokio::test(flavor = "multi_thread")]
async fn the_workflow_of_a_stack_without_a_cluster_counts() {
    let config = format!(
        "terraform: {{binary: '{}'}}\n{}",
        terraform::binary().display(),
        around("wf-terraform/*")
    );
    let mut stage = stage(&config).await;
    let text = stage.monorepo.read("konverge.yaml");
    let without = text.replace("clusters: {test: {}}\n", "");
    assert_ne!(text, without);
    stage
        .monorepo
        .write("konverge.yaml", without)
        .commit("No cluster");
    let kept = |stage: &mut Stage, number: u64, value: &str| {
        let branch = format!("branch-{number}");
        let program = format!(
            "resources = [{{id = \"terraform:builtin:terraform_data:kept\", type = \"Terraform\", attributes = {{input = \"{value}\"}}}}]\n"
        );
        stage.reviewed(number, &branch, |stage| {
            tiny_monorepo::write_program(&stage.monorepo, "wf-terraform/dev", &program);
        });
        stage.merge(number, &branch)
    };
    end(&stage, "smoke.yml", Some("failure"));
    let failed = kept(&mut stage, 7, "one");
    failed.outcome.check(1);
    let said = &failed.outcome.stdout;
    assert!(
        said.contains("the workflow `smoke.yml` (`post`): it ended with `failure`"),
        "{said}"
    );
    let receipt = stage.receipt("wf-terraform/dev");
    assert_eq!(receipt["result"], "failed", "{receipt}");
    assert_eq!(digest(&stage, "wf-terraform/dev").await, None);

    end(&stage, "smoke.yml", Some("success"));
    stage.again().outcome.check(0);
    let applied = digest(&stage, "wf-terraform/dev").await.unwrap();
    assert_eq!(
        files(&stage),
        ["backup.yml", "smoke.yml", "smoke.yml"],
        "Terraform and `pre` had ended well"
    );
    stage.github.world(|world| {
        assert_eq!(world.dispatched[2].1["inputs"]["digest"], json!(applied));
    });
    kept(&mut stage, 8, "two").outcome.check(0);
    assert_eq!(files(&stage).len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_cannot_be_recognized_is_not_started_again() {
    let mut stage = stage(&around("wf-unnamed/*")).await;
    stage.github.world(|world| {
        let workflow = world.workflows.get_mut("smoke.yml").unwrap();
        workflow.names_inputs = false;
    });
    stage.github.next("POST", DISPATCHES, Act::DropAfter);
    let unknown = merge(&mut stage, 7, "wf-unnamed/dev", "one");
    says_unknown(&unknown);
    for _ in 0..2 {
        says_unknown(&stage.again());
    }
    assert_eq!(files(&stage), ["backup.yml", "smoke.yml"]);

    // Somebody does what the hints say.
    end(&stage, "smoke.yml", Some("success"));
    start_by_hand(&stage, &unknown);
    stage.again().outcome.check(0);
    assert_eq!(files(&stage).len(), 3);
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
