//! The jobs around a rollout: those of several environments, of a schedule, by hand; and the deployments that GitHub
//! shows.

use jiff::{Timestamp, ToSpan};
use konverge_base::model::rollout::RolloutPhase;
use serde_json::Value;

use super::rollouts::{continued, people, phase, stacks};
use crate::support::{ci_stage::Stage, payloads, prometheus::PrometheusServer};

/// The states of the deployment of a commit in an environment, the oldest first.
fn states(stage: &Stage, commit: &str, environment: &str) -> Vec<String> {
    stage.github.world(|world| {
        let is_it = |made: &&Value| made["ref"] == commit && made["environment"] == environment;
        let made: Vec<_> = world.deployments.iter().filter(is_it).collect();
        assert!(made.len() < 2, "one deployment for a commit: {made:?}");
        let of = |made: &Value| {
            let own = world
                .deployment_statuses
                .iter()
                .filter(|(id, _)| made["id"] == *id);
            own.map(|(_, status)| status["state"].as_str().unwrap().to_owned())
                .collect()
        };
        made.first().map(|made| of(made)).unwrap_or_default()
    })
}

const QUEUED: &str = "apply: {deployments: true}\nstacks:\n- {match: 'appops/*/canary', environment: canary}\n- {match: 'appops/*/eu', environment: eu}\n- {match: 'appops/*/us', environment: us}\nrollouts:\n- name: web\n  waves:\n  - {match: 'appops/*/canary', gates: [go]}\n  - {match: 'appops/*/eu'}\n  - {match: 'appops/*/us'}\ngates: {go: {approve: {by: [acme/sre]}}}\n";

/// What waits is `queued`, continues with the same deployment when it is applied, and is `inactive` if it never will
/// be.
#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_of_what_waits_is_queued_until_it_is_applied() {
    let mut stage = Stage::small("").await;
    people(&stage);
    let names = ["canary", "eu", "us"];
    stage.reviewed(6, "zero", |stage| stacks(stage, "row", &names, "zero"));
    stage.merge(6, "zero").outcome.check(0);
    stage
        .straight_to_main(|stage| stage.configure(QUEUED))
        .outcome
        .check(0);
    let (mut tips, mut asked) = (Vec::new(), None);
    for (number, value) in [(7, "one"), (8, "two"), (9, "three")] {
        stage.reviewed(number, value, |stage| stacks(stage, "row", &names, value));
        let merged = stage.merge(number, value);
        merged.outcome.check(0);
        // The first one is carried, and waits for an approval.
        asked.get_or_insert_with(|| merged.digest());
        tips.push(stage.monorepo.rev("main"));
    }
    let [one, two, three] = &tips[..] else { panic!() };
    assert_eq!(states(&stage, one, "canary"), ["in_progress", "success"]);
    for environment in ["eu", "us"] {
        assert_eq!(states(&stage, one, environment), ["queued"], "{environment}");
    }
    // The second change is behind the first one, until the third one takes its place.
    for environment in names {
        assert_eq!(
            states(&stage, two, environment),
            ["queued", "inactive"],
            "{environment}"
        );
        assert_eq!(states(&stage, three, environment), ["queued"], "{environment}");
    }
    let asked = asked.unwrap();
    stage.env = vec![("GITHUB_ACTOR", "grace".to_owned())];
    // Nobody approves as a member of a team that cannot be read.
    stage.github.world(|world| {
        let token = world.tokens.get_mut("ghs_token").unwrap();
        token.permissions.remove("members");
    });
    let unread = stage.approve(&asked);
    let says = "the members of acme/sre cannot be read";
    assert!(unread.outcome.stderr.contains(says), "{}", unread.outcome.stderr);
    assert_eq!(states(&stage, one, "eu"), ["queued"]);
    people(&stage);
    stage.approve(&asked).outcome.check(0);
    stage.env.clear();
    for environment in ["eu", "us"] {
        assert_eq!(
            states(&stage, one, environment),
            ["queued", "in_progress", "success"],
            "{environment}"
        );
        assert_eq!(states(&stage, three, environment), ["queued"], "{environment}");
    }
    assert_eq!(
        states(&stage, three, "canary"),
        ["queued", "in_progress", "success"]
    );
    assert_eq!(stage.value("row-us").await.as_deref(), Some("one"));

    // It stops, and what was queued says so.
    let edited = QUEUED.replace("'appops/*/us'}\ngates", "'appops/*/us', bake: 1s}\ngates");
    let stopped = stage.straight_to_main(|stage| stage.configure(&edited));
    stopped.outcome.check(3);
    assert_eq!(phase(&stage).await.1, RolloutPhase::Stopped);
    assert_eq!(states(&stage, three, "eu"), ["queued", "failure"]);
}

const SPLIT: &str = "stacks:\n- {match: 'appops/*/*-eu', environment: eu}\n- {match: 'appops/*/*-us', environment: us}\nrollouts:\n- name: web\n  waves:\n  - {match: 'appops/*/canary-*', bake: 1s}\n  - {match: 'appops/*/prod-*', bake: 1s}\n";

/// A wave of two environments: neither job sees all of it, and together they measure it. Then both at the same time.
#[tokio::test(flavor = "multi_thread")]
async fn the_jobs_of_two_environments_move_one_rollout() {
    let mut stage = Stage::small(SPLIT).await;
    let names = ["canary-eu", "canary-us", "prod-eu", "prod-us"];
    stage.reviewed(7, "split", |stage| stacks(stage, "split", &names, "one"));
    let (before, after) = stage.press_merge(7, "split");
    let payload = payloads::push("main", &before, &after, false);
    let prepare = |stage: &mut Stage, environment: &str| {
        stage.env = vec![("KONVERGE_FOR_ENVIRONMENT", environment.to_owned())];
        stage.monorepo.checkout(&after);
        let folder = stage.monorepo.path().to_owned();
        let (run, _) = stage.prepared(&folder, "push", &payload, &after, "refs/heads/main");
        run
    };
    let job = |stage: &mut Stage, environment: &str| {
        let ran = prepare(stage, environment).run();
        ran.check(0);
        ran
    };
    job(&mut stage, "eu");
    assert_eq!(stage.value("split-canary-eu").await.as_deref(), Some("one"));
    assert_eq!(phase(&stage).await.1, RolloutPhase::Applying);
    // It brings the rest of the wave, sees it ready after the bake, and cannot see the other part.
    let ran = job(&mut stage, "us");
    assert!(
        ran.stderr
            .contains("the job of its environment must report split/canary-eu as ready"),
        "{}",
        ran.stderr
    );
    let record = stage.states().await.rollout("web").await.unwrap().unwrap().record;
    assert_eq!((record.wave, record.phase), (0, RolloutPhase::Baking));
    assert_eq!(record.ready.len(), 1, "{:?}", record.ready);
    assert_eq!(stage.value("split-prod-us").await, None);
    job(&mut stage, "us");
    assert_eq!(
        stage.value("split-prod-us").await,
        None,
        "it waits for the other job"
    );
    job(&mut stage, "eu");
    assert_eq!(stage.value("split-prod-eu").await.as_deref(), Some("one"));

    for _ in 0..4 {
        let runs = ["eu", "us"].map(|name| prepare(&mut stage, name));
        std::thread::scope(|scope| {
            let runs: Vec<_> = runs
                .into_iter()
                .map(|run| scope.spawn(move || run.run()))
                .collect();
            for run in runs {
                run.join().unwrap().check(0);
            }
        });
        if phase(&stage).await.1 == RolloutPhase::Done {
            break;
        }
    }
    assert_eq!(phase(&stage).await.1, RolloutPhase::Done);
    stage.env.clear();
    for name in names {
        let map = format!("split-{name}");
        assert_eq!(stage.value(&map).await.as_deref(), Some("one"), "{name}");
        let shown = stage.state(&["show", &format!("split/{name}"), "--output", "json"]);
        assert_eq!(shown.json()["serial"], 1, "{name} was written once");
    }
}

const MEASURED: &str = "rollouts:\n- name: web\n  waves:\n  - {match: 'appops/*/canary', bake: 1s, gates: [slo]}\n  - {match: 'appops/*/eu'}\n  - {match: 'appops/*/us'}\ngates: {slo: {prometheus: {url_env: PROM_URL, query: good}, pass: 'value < 0.3'}}\n";

/// A schedule moves a rollout on in the job that says so, and every run names one that is overdue.
#[tokio::test(flavor = "multi_thread")]
async fn a_scheduled_job_moves_a_rollout_on_and_every_run_names_an_overdue_one() {
    let server = PrometheusServer::start(&[("good", &[0.2, 0.2])]);
    let mut stage = Stage::small(MEASURED).await;
    let names = ["canary", "eu", "us"];
    stage.reviewed(7, "first", |stage| stacks(stage, "clock", &names, "one"));
    stage.merge(7, "first").outcome.check(0);
    assert_eq!(phase(&stage).await.1, RolloutPhase::Gate);
    stage.env = vec![("PROM_URL", "http://127.0.0.1:1".to_owned())];
    let unreachable = continued(&mut stage);
    unreachable.outcome.check(0);
    let says = "Prometheus cannot be reached";
    assert!(
        unreachable.outcome.stderr.contains(says),
        "{}",
        unreachable.outcome.stderr
    );
    stage.env.clear();
    assert_eq!(phase(&stage).await.1, RolloutPhase::Gate);

    // Nobody moved it on for a long time.
    let states = stage.states().await;
    let stored = states.rollout("web").await.unwrap().unwrap();
    let mut late = stored.record.clone();
    late.since.local = Timestamp::now() - 3.hours();
    late.since.server = Some(late.since.local);
    late.phase = RolloutPhase::Baking;
    assert!(states.write_rollout(stored.number + 1, &late).await.unwrap());
    let says = "the rollout `web` is overdue: wave 1 of 3 is baking since";
    let (_, preview) = stage.reviewed(8, "other", |stage| {
        stage.stack("clock-free/dev", &[("clock-free", "one")]);
    });
    stage.monorepo.checkout("main");
    let status = stage.konverge(["status"]).run();
    let list = stage.konverge(["rollout", "list"]).run();
    let drift = stage.schedule();
    for (name, said) in [
        ("preview", &preview.outcome.stderr),
        ("status", &status.stderr),
        ("list", &list.stdout),
        ("drift", &drift.outcome.stderr),
    ] {
        assert!(said.contains(says), "{name}: {said}");
    }
    assert_eq!(
        phase(&stage).await.1,
        RolloutPhase::Baking,
        "a drift check moves nothing"
    );
    assert_eq!(stage.value("clock-us").await, None);

    stage.env = vec![
        ("KONVERGE_ON_SCHEDULE", "often".to_owned()),
        ("PROM_URL", server.address()),
    ];
    let wrong = stage.schedule();
    wrong.outcome.check(64);
    assert!(
        wrong.outcome.stderr.contains("set it to `drift` or `apply`"),
        "{}",
        wrong.outcome.stderr
    );
    stage.env[0].1 = "apply".to_owned();
    let moved = stage.schedule();
    moved.outcome.check(0);
    assert!(moved.outcome.stderr.contains(says), "{}", moved.outcome.stderr);
    assert_eq!(phase(&stage).await.1, RolloutPhase::Done);
    assert_eq!(stage.value("clock-us").await.as_deref(), Some("one"));
}

/// A person's apply asks no rollout, and says which one it passes by.
#[tokio::test(flavor = "multi_thread")]
async fn an_apply_by_hand_says_which_rollout_it_passes_by() {
    let mut stage = Stage::small(MEASURED).await;
    let names = ["canary", "eu", "us"];
    stage.reviewed(7, "first", |stage| {
        stacks(stage, "hand", &names, "one");
        stage.stack("hand-free/dev", &[("hand-free", "one")]);
    });
    stage.merge(7, "first").outcome.check(0);
    stage.monorepo.checkout("main");
    let free = stage.konverge(["apply", "hand-free/dev", "--yes"]).run();
    free.check(0);
    assert!(!free.stderr.contains("bypasses the rollout"), "{}", free.stderr);
    let by_hand = stage.konverge(["apply", "hand/eu", "hand/us", "--yes"]).run();
    by_hand.check(0);
    let says = "warning: this apply bypasses the rollout web: it may change 2 stacks of its waves at once; it is in wave 1 of 3";
    assert!(by_hand.stderr.contains(says), "{}", by_hand.stderr);
    assert_eq!(stage.value("hand-us").await.as_deref(), Some("one"));
}
