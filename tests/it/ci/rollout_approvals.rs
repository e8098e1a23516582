//! An approval of a wave whose stacks are in several environments: each job plans its own stacks, and an approval is
//! for the plans of all of them.

use konverge_base::model::rollout::{RolloutPhase, RolloutRecord};
use serde_json::json;

use super::rollouts::{people, phase};
use crate::support::{
    ci_stage::Stage,
    payloads,
    process::{Konverge, Outcome},
};

const APPROVED: &str = "stacks:\n- {match: 'appops/*/*-eu', environment: eu}\n- {match: 'appops/*/*-us', environment: us}\nrollouts:\n- name: web\n  waves:\n  - {match: 'appops/*/canary-*', gates: [go]}\n  - {match: 'appops/*/prod-*'}\ngates: {go: {approve: {by: [acme/sre]}}}\n";
const NAMES: [&str; 4] = ["canary-eu", "canary-us", "prod-eu", "prod-us"];

/// Each stack has two maps: one that the change is about, and one that others can change.
fn stacks(stage: &Stage, project: &str, value: &str) {
    for name in NAMES {
        let (map, other) = (format!("{project}-{name}"), format!("{project}-{name}-other"));
        stage.stack(&format!("{project}/{name}"), &[(&map, value), (&other, "kept")]);
    }
}

/// The job of an environment, started by a member of the team with digests, or by `repository_dispatch` without.
fn prepared(stage: &mut Stage, environment: &str, approve: &str) -> Konverge {
    stage.env = vec![
        ("KONVERGE_FOR_ENVIRONMENT", environment.to_owned()),
        ("GITHUB_ACTOR", "grace".to_owned()),
    ];
    let tip = stage.monorepo.rev("main");
    stage.monorepo.checkout(&tip);
    let folder = stage.monorepo.path().to_owned();
    let (event, payload) = match approve {
        "" => (
            "repository_dispatch",
            payloads::repository_dispatch("konverge-continue", json!({})),
        ),
        digest => (
            "workflow_dispatch",
            json!({"ref": "refs/heads/main", "inputs": {"approve": digest, "reason": "all is well"},
                "repository": {"full_name": "acme/konfig", "default_branch": "main"}}),
        ),
    };
    stage
        .prepared(&folder, event, &payload, &tip, "refs/heads/main")
        .0
}

fn job(stage: &mut Stage, environment: &str, approve: &str) -> Outcome {
    let ran = prepared(stage, environment, approve).run();
    ran.check(0);
    ran
}

/// The jobs of both environments at the same time.
fn both(stage: &mut Stage, approve: &str) -> Vec<Outcome> {
    let runs = ["eu", "us"].map(|name| prepared(stage, name, approve));
    std::thread::scope(|scope| {
        let runs = runs.map(|run| scope.spawn(move || run.run()));
        runs.map(|run| run.join().unwrap()).into()
    })
}

fn digest(said: &str) -> Option<String> {
    let (_, digest) = said.rsplit_once("approve: ")?;
    Some(digest.chars().take_while(char::is_ascii_hexdigit).collect())
}

async fn record(stage: &Stage) -> RolloutRecord {
    stage.states().await.rollout("web").await.unwrap().unwrap().record
}

/// The values of the second wave.
async fn second_wave(stage: &Stage, project: &str) -> [String; 2] {
    let value = async |name: &str| stage.value(&format!("{project}-prod-{name}")).await.unwrap();
    [value("eu").await, value("us").await]
}

/// A monorepo with a rollout whose first wave is applied and ready.
async fn at_the_gate(project: &str) -> Stage {
    let mut stage = Stage::small("").await;
    people(&stage);
    stage.reviewed(6, "zero", |stage| stacks(stage, project, "zero"));
    stage.merge(6, "zero").outcome.check(0);
    let configured = stage.straight_to_main(|stage| stage.configure(APPROVED));
    configured.outcome.check(0);
    stage.reviewed(7, "one", |stage| stacks(stage, project, "one"));
    stage.press_merge(7, "one");
    job(&mut stage, "eu", "");
    job(&mut stage, "us", "");
    assert_eq!(phase(&stage).await.1, RolloutPhase::Baking);
    stage
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_for_the_plans_of_every_environment_and_no_other_plan_is_applied() {
    let mut stage = at_the_gate("vote").await;
    // The job of one environment cannot plan the stacks of the other, so there is nothing to approve yet.
    let half = job(&mut stage, "eu", "");
    let says = "the job of the environment us must plan vote/prod-us before wave 2 can be approved";
    assert!(half.stderr.contains(says), "{}", half.stderr);
    assert!(half.stdout.contains(says), "{}", half.stdout);
    assert_eq!(digest(&half.stdout), None, "{}", half.stdout);
    let status = stage.konverge(["rollout", "status", "web"]).run();
    let says = "gate go: not planned yet: vote/prod-us";
    assert!(status.stdout.contains(says), "{}", status.stdout);
    let whole = job(&mut stage, "us", "");
    let first = digest(&whole.stdout).expect("it asks");
    assert_eq!(record(&stage).await.planned.len(), 2);
    let status = stage.konverge(["rollout", "status", "web"]).run();
    assert!(
        status.stdout.contains(&format!("gate go: approve: {first}")),
        "{}",
        status.stdout
    );

    // The plan of one environment changes: what was shown before stands for nothing.
    stage.by_hand("vote-prod-us-other", Some("by hand")).await;
    let changed = job(&mut stage, "us", &first);
    let says = "the plan of vote/prod-us has changed: an approval of the earlier plans does not count";
    assert!(changed.stderr.contains(says), "{}", changed.stderr);
    let second = digest(&changed.stdout).expect("it asks again");
    assert_ne!(first, second);
    job(&mut stage, "eu", &first);
    assert_eq!(second_wave(&stage, "vote").await, ["zero", "zero"]);

    // It is approved, and one environment is applied. Then the plan of the other one changes.
    let approved = job(&mut stage, "eu", &second);
    assert_eq!(
        second_wave(&stage, "vote").await,
        ["one", "zero"],
        "{}",
        approved.stderr
    );
    stage.by_hand("vote-prod-us-other", Some("kept")).await;
    let stale = job(&mut stage, "us", &second);
    let says = "the approval is no longer valid: the plan of vote/prod-us has changed";
    assert!(stale.stderr.contains(says), "{}", stale.stderr);
    assert!(stale.stdout.contains(says), "{}", stale.stdout);
    assert_eq!(second_wave(&stage, "vote").await, ["one", "zero"]);
    let now = record(&stage).await;
    assert_eq!(
        (now.wave, now.phase, now.begun_waves),
        (0, RolloutPhase::Gate, 2),
        "{}",
        now.why
    );

    // The job that has nothing to do any more plans too. Then the rest is approved.
    let whole = job(&mut stage, "eu", "");
    let third = digest(&whole.stdout).expect("it asks again");
    let ran = job(&mut stage, "us", &third);
    assert_eq!(
        second_wave(&stage, "vote").await,
        ["one", "one"],
        "{}",
        ran.stderr
    );
    job(&mut stage, "eu", "");
    job(&mut stage, "us", "");
    assert_eq!(phase(&stage).await.1, RolloutPhase::Done);
    stage.env.clear();
    for name in NAMES {
        let shown = stage.state(&["show", &format!("vote/{name}"), "--output", "json"]);
        assert_eq!(shown.json()["serial"], 2, "{name} was written once");
    }
}

/// Both jobs write their plans at the same time, and both apply at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn two_jobs_at_once_plan_one_wave_and_apply_what_was_approved() {
    let mut stage = at_the_gate("twin").await;
    let mut asked = None;
    for _ in 0..4 {
        let ran = both(&mut stage, "");
        ran.iter().for_each(|ran| ran.check(0));
        asked = ran.iter().find_map(|ran| digest(&ran.stdout));
        if asked.is_some() {
            break;
        }
    }
    let asked = asked.expect("each plan is written once");
    assert_eq!(record(&stage).await.planned.len(), 2);
    let ran = both(&mut stage, &asked);
    for ran in &ran {
        ran.check(0);
        let unmatched = "this run found no plan";
        assert!(
            !ran.stdout.contains(unmatched) && !ran.stderr.contains(unmatched),
            "{}",
            ran.stderr
        );
    }
    for _ in 0..4 {
        if phase(&stage).await.1 == RolloutPhase::Done {
            break;
        }
        both(&mut stage, &asked).iter().for_each(|ran| ran.check(0));
    }
    assert_eq!(phase(&stage).await.1, RolloutPhase::Done);
    assert_eq!(second_wave(&stage, "twin").await, ["one", "one"]);
    stage.env.clear();
    for name in NAMES {
        let shown = stage.state(&["show", &format!("twin/{name}"), "--output", "json"]);
        assert_eq!(shown.json()["serial"], 2, "{name} was written once");
    }
}
