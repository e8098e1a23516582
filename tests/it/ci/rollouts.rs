//! Rollouts: a change goes to the stacks of one wave, and what comes behind it gets the same commit or waits.

use konverge_base::model::rollout::RolloutPhase;
use serde_json::{Value, json};

use crate::support::{
    ci_stage::{Ran, Stage},
    payloads,
    prometheus::PrometheusServer,
};

const APPROVED: &str = "rollouts:\n- name: web\n  waves:\n  - {match: 'appops/*/canary', bake: 1s, gates: [go]}\n  - {match: 'appops/*/eu'}\n  - {match: 'appops/*/us'}\ngates: {go: {approve: {by: [acme/sre]}}}\n";

pub(super) fn people(stage: &Stage) {
    stage.github.world(|world| {
        for login in ["dev", "grace", "bob"] {
            world.collaborators.insert(login.into(), "write");
        }
        world.teams.insert("acme/sre".into(), vec!["grace".into()]);
        let token = world.tokens.get_mut("ghs_token").unwrap();
        token.permissions.insert("members", "read");
    });
}

pub(super) fn stacks(stage: &Stage, project: &str, names: &[&str], value: &str) {
    for name in names {
        let (id, map) = (format!("{project}/{name}"), format!("{project}-{name}"));
        stage.stack(&id, &[(map.as_str(), value)]);
    }
}

async fn values(stage: &Stage, project: &str) -> Vec<Option<String>> {
    let mut values = Vec::new();
    for name in ["canary", "eu", "us"] {
        values.push(stage.value(&format!("{project}-{name}")).await);
    }
    values
}

fn all(values: [&str; 3]) -> Vec<Option<String>> {
    values.map(|value| Some(value.to_owned())).into()
}

pub(super) async fn phase(stage: &Stage) -> (usize, RolloutPhase, String) {
    let stored = stage.states().await.rollout("web").await.unwrap().unwrap();
    (stored.record.wave, stored.record.phase, stored.record.why)
}

/// The workflow started by `repository_dispatch`.
pub(super) fn continued(stage: &mut Stage) -> Ran {
    let tip = stage.monorepo.rev("main");
    let payload = payloads::repository_dispatch("konverge-continue", json!({}));
    stage.ci("repository_dispatch", &payload, &tip, "refs/heads/main")
}

fn report(ran: &Ran) -> Value {
    serde_json::from_str(&std::fs::read_to_string(ran.output("result-path")).unwrap()).unwrap()
}

/// What waits at a gate is not released by a merge that takes the rollout, or a wave, out of the configuration.
#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_leaves_the_configuration_keeps_its_stacks_until_it_ends() {
    let mut stage = Stage::small("").await;
    people(&stage);
    let names = ["canary", "eu", "us"];
    stage.reviewed(6, "zero", |stage| stacks(stage, "gone", &names, "zero"));
    stage.merge(6, "zero").outcome.check(0);
    stage
        .straight_to_main(|stage| stage.configure(APPROVED))
        .outcome
        .check(0);
    stage.reviewed(7, "first", |stage| stacks(stage, "gone", &names, "one"));
    stage.merge(7, "first").outcome.check(0);
    assert_eq!(values(&stage, "gone").await, all(["one", "zero", "zero"]));

    // One wave less.
    let fewer = APPROVED.replace("  - {match: 'appops/*/us'}\n", "");
    stage.reviewed(8, "fewer", |stage| stage.configure(&fewer));
    let comment = stage.comments().pop().unwrap().1;
    assert!(comment.contains("- `rollouts`: "), "{comment}");
    assert!(comment.contains("gone/us"), "{comment}");
    let merged = stage.merge(8, "fewer");
    assert_ne!(merged.outcome.code, Some(0));
    let said = &merged.outcome.stdout;
    assert!(
        said.contains("konverge.yaml no longer has gone/us in its waves"),
        "{said}"
    );
    assert_eq!(values(&stage, "gone").await, all(["one", "zero", "zero"]));

    // No rollout at all.
    stage.reviewed(9, "none", |stage| stage.configure(""));
    let merged = stage.merge(9, "none");
    assert_ne!(merged.outcome.code, Some(0));
    let said = &merged.outcome.stdout;
    assert!(said.contains("konverge rollout abort web"), "{said}");
    assert_eq!(values(&stage, "gone").await, all(["one", "zero", "zero"]));

    // The end lets them go.
    stage
        .konverge(["rollout", "abort", "web", "--reason", "no waves any more"])
        .run()
        .expect(0);
    stage.again().outcome.check(0);
    assert_eq!(values(&stage, "gone").await, all(["one", "one", "one"]));
}

/// Two people approve at once what only one of them may, and a newer merge waits its turn.
#[tokio::test(flavor = "multi_thread")]
async fn each_wave_gets_the_commit_that_baked_and_a_newer_merge_queues() {
    let mut stage = Stage::small("").await;
    people(&stage);
    let names = ["canary", "eu", "us"];
    stage.reviewed(6, "zero", |stage| stacks(stage, "pin", &names, "zero"));
    stage.merge(6, "zero").outcome.check(0);
    stage
        .straight_to_main(|stage| stage.configure(APPROVED))
        .outcome
        .check(0);
    let (_, preview) = stage.reviewed(7, "first", |stage| stacks(stage, "pin", &names, "one"));
    let comments = stage.comments();
    let comment = &comments.last().unwrap().1;
    assert!(comment.contains("goes in 3 waves"), "{comment}");
    preview.outcome.check(0);

    let merged = stage.merge(7, "first");
    merged.outcome.check(0);
    let tip = stage.monorepo.rev("main");
    assert_eq!(stage.status(&tip, "konverge/apply").as_deref(), Some("pending"));
    assert_eq!(values(&stage, "pin").await, all(["one", "zero", "zero"]));
    let told = report(&merged);
    let of = |told: &Value, stack: &str| {
        let stacks = told["stacks"].as_array().unwrap();
        stacks.iter().find(|row| row["id"] == stack).unwrap().clone()
    };
    assert_eq!(of(&told, "pin/canary")["result"], "applied");
    assert_eq!(of(&told, "pin/eu")["result"], "waiting");
    assert_eq!(
        of(&told, "pin/eu")["waiting"],
        json!({"for": "approval", "wave": 2})
    );
    let digest = merged.digest();
    assert_eq!(digest.len(), 64, "{}", merged.outcome.stdout);

    // A newer change of the same stacks queues, and its pull request says behind what.
    stage.reviewed(8, "second", |stage| stacks(stage, "pin", &names, "two"));
    let second = stage.merge(8, "second");
    second.outcome.check(0);
    assert_eq!(values(&stage, "pin").await, all(["one", "zero", "zero"]));
    assert!(
        second
            .outcome
            .stdout
            .contains("queued: the rollout carries an older change"),
        "{}",
        second.outcome.stdout
    );
    let comments = stage.comments();
    let behind = comments
        .iter()
        .filter(|(_, text)| text.contains("behind the rollout"));
    assert!(behind.count() > 0, "{comments:?}");

    // Nobody but the team approves, and a digest of something else is nothing.
    let other = "ab".repeat(32);
    for (login, given) in [("bob", digest.as_str()), ("grace", other.as_str())] {
        stage.env = vec![("GITHUB_ACTOR", login.to_owned())];
        stage.approve(given);
        assert_eq!(
            values(&stage, "pin").await,
            all(["one", "zero", "zero"]),
            "{login}"
        );
    }
    stage.env = vec![("GITHUB_ACTOR", "grace".to_owned())];
    let approved = stage.approve(&digest);
    stage.env.clear();
    approved.outcome.check(0);
    // The later waves got what baked; then the queued change began with its first wave.
    let said = &approved.outcome.stderr;
    assert!(said.contains("rollout web: wave 3 of 3"), "{said}");
    let (wave, phase, _) = phase(&stage).await;
    assert_eq!((wave, phase), (0, RolloutPhase::Gate));
    assert_eq!(values(&stage, "pin").await, all(["two", "one", "one"]));
    let next = continued(&mut stage);
    next.outcome.check(0);
    stage.env = vec![("GITHUB_ACTOR", "grace".to_owned())];
    stage.approve(&next.digest()).outcome.check(0);
    assert_eq!(values(&stage, "pin").await, all(["two", "two", "two"]));
    let tip = stage.monorepo.rev("main");
    assert_eq!(stage.status(&tip, "konverge/apply").as_deref(), Some("success"));
}

const MEASURED: &str = "rollouts:\n- name: web\n  waves:\n  - {match: 'appops/*/canary', bake: 1s, gates: [slo]}\n  - {match: 'appops/*/eu'}\n  - {match: 'appops/*/us'}\n  on_failure: ON_FAILURE\ngates: {slo: {prometheus: {url_env: PROM_URL, query: QUERY, values: {requests: 'sum(requests)'}}, pass: 'value < 0.3', fail: 'value > 0.4', least: 'requests > 20'}}\n";

fn measured(query: &str, on_failure: &str) -> String {
    MEASURED.replace("QUERY", query).replace("ON_FAILURE", on_failure)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_passes_by_a_real_number_alone_and_a_failure_holds_the_commit() {
    let server = PrometheusServer::start(&[
        ("good", &[0.2, 0.2]),
        ("bad", &[0.5, 0.5]),
        ("broken", &[f64::NAN, f64::NAN]),
        ("requests{zone=\"a\"}", &[100.0, 100.0]),
        ("requests{zone=\"b\"}", &[50.0, 50.0]),
    ]);
    let names = ["canary", "eu", "us"];
    let mut stage = Stage::small(&measured("missing", "stop")).await;
    stage.env = vec![("PROM_URL", server.address())];
    stage.reviewed(7, "first", |stage| stacks(stage, "slo", &names, "one"));
    let merged = stage.merge(7, "first");
    merged.outcome.check(0);
    let only_canary = [Some("one".to_owned()), None, None];
    assert!(
        merged.outcome.stderr.contains("the query finds no series"),
        "{}",
        merged.outcome.stderr
    );
    assert_eq!(values(&stage, "slo").await, only_canary);
    // A gate without a clear answer waits; without its variable too.
    stage.env.clear();
    let without = continued(&mut stage);
    without.outcome.check(0);
    assert!(
        without
            .outcome
            .stderr
            .contains("the variable PROM_URL is not set"),
        "{}",
        without.outcome.stderr
    );
    stage.env = vec![("PROM_URL", server.address())];

    // An edit of the rules while it runs stops it, and a person ends it.
    let rules = |stage: &mut Stage, query: &str| {
        stage.straight_to_main(|stage| stage.configure(&measured(query, "stop")))
    };
    let edited = rules(&mut stage, "broken");
    edited.outcome.check(3);
    assert!(
        edited.outcome.stdout.contains("has other rules for this rollout"),
        "{}",
        edited.outcome.stdout
    );
    let abort = |stage: &Stage| {
        stage.monorepo.checkout("main");
        for command in ["abort", "resume"] {
            stage
                .konverge(["rollout", command, "web", "--reason", "new rules"])
                .run()
                .check(0);
        }
    };
    abort(&stage);
    for (query, says) in [
        ("broken", "the query returns NaN"),
        ("requests", "the query returns 2 series"),
    ] {
        let unclear = match query {
            "broken" => continued(&mut stage),
            query => {
                abort(&stage);
                rules(&mut stage, query)
            }
        };
        unclear.outcome.check(0);
        assert!(
            unclear.outcome.stderr.contains(says),
            "{query}: {}",
            unclear.outcome.stderr
        );
        assert_eq!(values(&stage, "slo").await, only_canary, "{query}");
    }
    // It fails: the rollout stops, and an unrelated push changes nothing about it.
    abort(&stage);
    let failed = rules(&mut stage, "bad");
    failed.outcome.check(3);
    assert!(
        failed
            .outcome
            .stdout
            .contains("gate `slo` does not pass: requests = 150, value = 0.5"),
        "{}",
        failed.outcome.stdout
    );
    assert_eq!(phase(&stage).await.1, RolloutPhase::Stopped);
    stage.reviewed(8, "other", |stage| {
        stage.stack("free/dev", &[("slo-free", "one")])
    });
    stage.merge(8, "other").outcome.check(3);
    assert_eq!(
        stage.value("slo-free").await.as_deref(),
        Some("one"),
        "stacks outside are free"
    );
    assert_eq!(values(&stage, "slo").await, only_canary);
    let status = stage.konverge(["rollout", "status", "web"]).run();
    assert!(
        status.stdout.contains("wave 1 of 3") && status.stdout.contains("stopped"),
        "{}",
        status.stdout
    );
    // A newer commit on its stacks starts a new one.
    stage.monorepo.checkout("main");
    stage.configure(&measured("good", "stop"));
    stage.monorepo.commit("Another gate");
    stage.reviewed(9, "second", |stage| stacks(stage, "slo", &names, "two"));
    let second = stage.merge(9, "second");
    second.outcome.check(0);
    assert_eq!(values(&stage, "slo").await, all(["two", "two", "two"]));
    assert_eq!(phase(&stage).await.1, RolloutPhase::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_wave_gets_what_it_had_and_the_next_push_does_not_undo_that() {
    let server = PrometheusServer::start(&[
        ("bad", &[0.5, 0.5]),
        ("good", &[0.2, 0.2]),
        ("requests", &[50.0, 50.0]),
    ]);
    let names = ["canary", "eu", "us"];
    let mut stage = Stage::small(&measured("good", "rollback")).await;
    stage.env = vec![("PROM_URL", server.address())];
    stage.reviewed(7, "first", |stage| stacks(stage, "back", &names, "one"));
    stage.merge(7, "first").outcome.check(0);
    assert_eq!(values(&stage, "back").await, all(["one", "one", "one"]));
    stage.monorepo.checkout("main");
    stage.configure(&measured("bad", "rollback"));
    stage.monorepo.commit("A gate that fails");
    stage.reviewed(8, "second", |stage| stacks(stage, "back", &names, "two"));
    let failed = stage.merge(8, "second");
    assert_eq!(
        values(&stage, "back").await,
        all(["one", "one", "one"]),
        "{}",
        failed.outcome.stdout
    );
    failed.outcome.check(3);
    let (wave, phase, why) = phase(&stage).await;
    assert_eq!((wave, phase), (0, RolloutPhase::Stopped), "{why}");
    assert!(why.contains("are rolled back"), "{why}");
    for _ in 0..2 {
        stage.again().outcome.check(3);
        continued(&mut stage);
        assert_eq!(values(&stage, "back").await, all(["one", "one", "one"]));
    }
    let history = stage.state(&["history", "back/canary"]);
    assert!(history.stdout.contains("rolled back"), "{}", history.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_that_makes_no_sense_applies_none_of_its_stacks() {
    let mut stage = Stage::small("rollouts:\n- {name: web, waves: [{match: 'appops/*/canary'}, {match: 'appops/*/nowhere'}]}\n- {name: one, waves: [{match: 'appops/twice/*'}]}\n- {name: two, waves: [{match: 'appops/*/both'}]}\n- {name: loop, waves: [{match: 'appops/loop/a'}, {match: 'appops/loop/b'}]}\nstacks: [{match: 'appops/loop/a', after: ['appops/loop/b']}]\n").await;
    stage.reviewed(7, "all", |stage| {
        stage.stack("none/canary", &[("none-canary", "one")]);
        stage.stack("twice/both", &[("twice-both", "one")]);
        stage.stack("loop/a", &[("loop-a", "one")]);
        stage.stack("loop/b", &[("loop-b", "one")]);
        stage.stack("none/free", &[("none-free", "one")]);
    });
    let merged = stage.merge(7, "all");
    merged.outcome.check(1);
    for said in [
        "wave 2 of the rollout `web` (`appops/*/nowhere`) has no stack",
        "twice/both is in several rollouts: `one`, `two`",
        "form a cycle: loop/a of wave 1 comes after loop/b of wave 2",
    ] {
        assert!(
            merged.outcome.stdout.contains(said),
            "{said}: {}",
            merged.outcome.stdout
        );
    }
    for map in ["none-canary", "twice-both", "loop-a", "loop-b"] {
        assert_eq!(stage.value(map).await, None, "{map}");
    }
    assert_eq!(stage.value("none-free").await.as_deref(), Some("one"));
}

/// Two runs of one push at the same time: each wave is applied once, and both end.
#[tokio::test(flavor = "multi_thread")]
async fn two_runs_at_once_move_one_rollout() {
    let mut stage = Stage::small("rollouts: [{name: web, waves: [{match: 'appops/*/canary', bake: 1s}, {match: 'appops/*/eu'}, {match: 'appops/*/us'}]}]\n").await;
    stage.reviewed(7, "both", |stage| {
        stacks(stage, "dual", &["canary", "eu", "us"], "one")
    });
    let (before, after) = stage.press_merge(7, "both");
    let payload = payloads::push("main", &before, &after, false);
    stage.monorepo.checkout(&after);
    let folder = stage.monorepo.path().to_owned();
    let runs: Vec<_> = (0..2)
        .map(|_| {
            stage
                .prepared(&folder, "push", &payload, &after, "refs/heads/main")
                .0
        })
        .collect();
    let ran: Vec<_> = std::thread::scope(|scope| {
        let runs: Vec<_> = runs
            .into_iter()
            .map(|run| scope.spawn(move || run.run()))
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for ran in &ran {
        assert!(matches!(ran.code, Some(0)), "{}{}", ran.stdout, ran.stderr);
    }
    stage.again().outcome.check(0);
    assert_eq!(values(&stage, "dual").await, all(["one", "one", "one"]));
    assert_eq!(phase(&stage).await.1, RolloutPhase::Done);
    for name in ["canary", "eu", "us"] {
        let shown = stage.state(&["show", &format!("dual/{name}"), "--output", "json"]);
        assert_eq!(shown.json()["serial"], 1, "{name} was written once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_is_judged_by_the_policy_sets_of_today() {
    let server = PrometheusServer::start(&[
        ("bad", &[0.5, 0.5]),
        ("good", &[0.2, 0.2]),
        ("requests", &[50.0, 50.0]),
    ]);
    let names = ["canary", "eu", "us"];
    let mut stage = Stage::small(&measured("good", "rollback")).await;
    stage.env = vec![("PROM_URL", server.address())];
    stage.reviewed(7, "first", |stage| stacks(stage, "judged", &names, "one"));
    stage.merge(7, "first").outcome.check(0);
    stage.monorepo.checkout("main");
    let rules = "package main\n\ndeny contains \"one is forbidden\" if {\n\tinput.kind == \"ConfigMap\"\n\tinput.data.value == \"one\"\n}\n";
    stage.monorepo.write("ops/policy/maps.rego", rules);
    let sets = "policy: {sets: [{name: maps, path: ops/policy, input: objects, enforce: always}]}\n";
    stage.configure(&format!("{}{sets}", measured("bad", "rollback")));
    stage.monorepo.commit("A gate that fails, and a rule");
    stage.reviewed(8, "second", |stage| stacks(stage, "judged", &names, "two"));
    let failed = stage.merge(8, "second");
    assert_eq!(
        values(&stage, "judged").await,
        all(["two", "one", "one"]),
        "{}",
        failed.outcome.stdout
    );
    let (wave, phase, why) = phase(&stage).await;
    assert_eq!((wave, phase), (0, RolloutPhase::Stopped), "{why}");
    assert!(
        why.contains("judged/canary was not rolled back") && why.contains("one is forbidden"),
        "{why}"
    );
}
