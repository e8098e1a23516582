//! What the portal answers to its readers: the difference of a drift and of a change that is not applied, the live
//! objects, the rollouts, the numbers over time, who may do what.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use konverge_base::model::{
    Digest, RepoPath, StackId,
    apply_result::StackResult,
    health::Health,
    plan::{Action, Basis},
    review::{ReviewRecord, ReviewUnit, ReviewedStack},
    rollout::{ClockReading, RolloutPhase, RolloutRecord, RolloutStack},
    stack_look::{HealthCounts, StackLook},
    stack_status::ObjectStatus,
    week_activity::Week,
};
use konverge_config::Config;
use konverge_state::{Clock, DriftCheck, DriftWeek, KnownDrift, SystemClock};
use serde_json::{Value, json};

use super::recorded::{ID, RecordedStacks, config_map};
use crate::support::portal_server::PortalServer;
use crate::support::process::binary;

/// The run of a check at the forge.
const RUN: &str = "https://github.com/acme/infra/actions/runs/4711";

pub fn unit(stack: &str, path: &str, from: Value, to: Value) -> ReviewUnit {
    ReviewUnit {
        stack: stack.parse().unwrap(),
        resource: "v1:ConfigMap:shop:web".parse().unwrap(),
        action: Action::Update,
        path: path.into(),
        to: Some(to),
        from: Some(from),
    }
}

/// A check of a stack whose level somebody changed, and one of whose objects is not ready.
pub fn drifted(stack: &str, at: Timestamp) -> DriftCheck {
    let object = ObjectStatus {
        id: "apps/v1:Deployment:shop:web".parse().unwrap(),
        cluster: "main".parse().ok(),
        health: Health::Failed,
        message: "`web`: the image does not exist".to_owned(),
        suspended_by_spec: false,
    };
    let units = vec![unit(stack, "/data/level", json!("debug"), json!("info"))];
    let objects = [object];
    let mut look = StackLook::new(RUN, units, &objects).unwrap();
    look.issue = Some(12);
    DriftCheck {
        at,
        drift: Some(KnownDrift {
            digest: Digest::of_bytes(b"drift"),
            since: at - SignedDuration::from_hours(50),
        }),
        health: HealthCounts::from_objects(&objects),
        look: Some(Box::new(look)),
    }
}

/// A check that saw nothing to tell.
pub fn calm(at: Timestamp) -> DriftCheck {
    DriftCheck {
        at,
        drift: None,
        health: Some(HealthCounts {
            ready: 7,
            ..HealthCounts::default()
        }),
        look: None,
    }
}

/// Records the preview of a pull request.
pub async fn preview(recorded: &RecordedStacks, number: u64, stack: &str, units: Vec<ReviewUnit>) {
    let record = ReviewRecord {
        version: 1,
        pull_request: number,
        head: "e".repeat(40).parse().unwrap(),
        base: "b".repeat(40).parse().unwrap(),
        power: None,
        run: RUN.to_owned(),
        findings: Default::default(),
        stacks: vec![ReviewedStack {
            id: stack.parse().unwrap(),
            basis: Basis::Live,
            digest: Digest::of_bytes(b"plan"),
            spec_digest: None,
            claims: Default::default(),
            units,
        }],
        comment: None,
    };
    let states = recorded.states();
    assert!(states.reviews().save(&record, 1, 1, None).await.unwrap());
}

/// Two waves with a bake and two gates.
pub const ROLLOUT: &str = "rollouts:
- name: web
  waves:
  - {match: 'apps/storefront/canary', bake: 30m, gates: [slo, go]}
  - {match: 'apps/storefront/prod'}
gates:
  slo: {prometheus: {url_env: PROM_URL, query: error_ratio}, pass: 'value < 0.01'}
  go: {approve: {by: [acme/sre]}}
policy: {approvals: 2, reviewers: [acme/sre]}
";

/// Adds to konverge.yaml of the default branch.
pub fn configure(recorded: &RecordedStacks, more: &str) -> Config {
    let text = format!("{}{more}", recorded.repository.read("konverge.yaml"));
    recorded.repository.write("konverge.yaml", &text);
    recorded.repository.commit("settings");
    Config::parse(&text).unwrap()
}

/// Records a rollout of two waves whose first one is in this phase.
pub async fn rollout(recorded: &RecordedStacks, config: &Config, phase: RolloutPhase, since: Timestamp) {
    let wave = |stack: &str| {
        let id: StackId = stack.parse().unwrap();
        let folder = RepoPath::normalize(&format!("apps/{stack}")).unwrap();
        let stack = RolloutStack {
            folder,
            input: Some(Digest::of_bytes(b"inputs")),
            before: None,
        };
        BTreeMap::from([(id, stack)])
    };
    let since = ClockReading {
        local: since,
        server: None,
    };
    let waves = vec![wave("storefront/canary"), wave("storefront/prod")];
    let rules = config.rollouts[0].digest(&config.gates);
    let mut record = RolloutRecord::at_start("web", "b".repeat(40).parse().unwrap(), rules, waves, since);
    record.phase = phase;
    record.why = "the stacks are ready".to_owned();
    record.measured = BTreeMap::from([("slo".to_owned(), "value is 0.002".to_owned())]);
    let states = recorded.states_of(RUN);
    let number = states.rollout_number("web").await.unwrap() + 1;
    assert!(states.write_rollout(number, &record).await.unwrap());
}

/// A clock whose time of day is set.
#[derive(Debug)]
pub struct SetClock(Timestamp, SystemClock);

#[async_trait]
impl Clock for SetClock {
    fn monotonic(&self) -> Duration {
        self.1.monotonic()
    }

    fn wall_clock(&self) -> Timestamp {
        self.0
    }

    async fn sleep(&self, time: Duration) {
        self.1.sleep(time).await;
    }
}

/// Records applies of two stacks and the oldest drift of the last weeks.
pub async fn weeks(recorded: &RecordedStacks, now: Timestamp) {
    let week = SignedDuration::from_hours(7 * 24);
    for (back, applies) in [(5, 2), (3, 4), (2, 1), (1, 3)] {
        let at = now - week * back;
        for number in 0..applies {
            let result = if number == 3 {
                StackResult::Failed
            } else {
                StackResult::Applied
            };
            let states = recorded
                .states_of(RUN)
                .with_clock(Arc::new(SetClock(at, SystemClock::default())));
            let stack = if number % 2 == 0 {
                "storefront/canary"
            } else {
                "storefront/staging"
            };
            let data = json!({"level": format!("{back}-{number}")});
            let merged = Some(at - SignedDuration::from_mins(10 + 5 * i64::from(number)));
            recorded
                .apply_by(states, merged, stack, vec![config_map("web", &data)], result)
                .await;
        }
    }
    let known = |back: i32, stacks, hours: u64| {
        let known = DriftWeek {
            stacks,
            oldest: 3600 * hours,
        };
        (Week::from_timestamp(now - week * back), known)
    };
    let weeks = [known(4, 1, 20), known(3, 2, 188), known(2, 0, 0), known(1, 1, 30)];
    recorded.look(Vec::new(), weeks.into()).await;
}

fn page(out: &Path, name: &str) -> String {
    fs::read_to_string(out.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drift_and_a_change_that_is_not_applied_are_shown_with_their_difference_and_their_links() {
    let recorded = RecordedStacks::new().await;
    recorded
        .repository
        .write("kcl.mod", "[package]\nname = \"shop\"\n")
        .write("apps/shop/project.yaml", "name: shop\n")
        .write("apps/shop/prod/stack.yaml", "name: prod\n")
        .write("apps/shop/prod/main.k", "x = 1\n");
    recorded.repository.commit("stacks");
    recorded.at_github();
    recorded
        .apply_by(
            recorded.states_of(RUN),
            None,
            "shop/prod",
            vec![config_map("web", &json!({"level": "info"}))],
            StackResult::Applied,
        )
        .await;
    let level = |to: &str| vec![unit("shop/prod", "/data/level", json!("info"), json!(to))];
    // Pull request 7 is in the state already.
    preview(&recorded, 7, "shop/prod", level("of-seven")).await;
    preview(&recorded, 8, "shop/prod", level("of-eight")).await;
    preview(&recorded, 9, "shop/dev", level("of-nine")).await;
    let at = "2026-11-26T03:00:00Z".parse().unwrap();
    recorded
        .look(vec![("shop/prod", drifted("shop/prod", at))], BTreeMap::new())
        .await;
    let out = recorded.folder.path().join("site");
    recorded.build(&out);
    let stack = page(&out, "stacks/shop@prod/index.html");
    let forge = "https://github.com/acme/infra";
    for words in [
        "Live objects: <strong>1 failed</strong>, looked at",
        "Not ready at the last look (1)",
        "the image does not exist",
        "<del>-  level: debug</del>",
        "<ins>+  level: info</ins>",
        "<ins>+  level: of-eight</ins>",
        &format!("href=\"{RUN}\""),
        &format!("href=\"{forge}/issues/12\""),
        &format!("href=\"{forge}/pull/8\""),
        &format!("href=\"{forge}/pull/7\""),
        &format!("href=\"{forge}/commit/{}\"", "b".repeat(40)),
        "href=\"https://github.com/ada\"",
        "href=\"https://github.com/grace\"",
    ] {
        assert!(stack.contains(words), "{words}: {stack}");
    }
    for absent in ["of-seven", "of-nine"] {
        assert!(!stack.contains(absent), "{absent}: {stack}");
    }
    let overview = page(&out, "index.html");
    assert!(overview.contains("<strong>1 failed</strong>"), "{overview}");
    assert!(overview.contains(&format!("{forge}/commit/")), "{overview}");
    let table = page(&out, "by-drift.html");
    assert!(
        table.contains("1 failed") && table.contains("2026-11-24 01:00:00 UTC"),
        "{table}"
    );

    let server = PortalServer::start(
        &binary(),
        recorded.repository.path(),
        recorded.folder.path(),
        "127.0.0.1:0",
        &[],
    );
    let root = server.root.clone();
    let address = format!("{root}/api/v1/stacks/shop%2Fprod");
    let document: Value = reqwest::get(&address).await.unwrap().json().await.unwrap();
    assert_eq!(document["driftDifference"]["issue"], 12);
    assert_eq!(document["driftDifference"]["units"][0]["from"], "debug");
    let pending = document["pendingDifferences"].as_array().unwrap();
    assert_eq!(pending.len(), 1, "{document}");
    assert_eq!(
        (&pending[0]["pullRequest"], &pending[0]["run"]),
        (&json!(8), &json!(RUN))
    );
    assert_eq!(document["unready"][0]["health"], "failed");
    assert_eq!(
        document["look"],
        json!({"checked": "2026-11-26T03:00:00Z", "health": {"ready": 0, "failed": 1}})
    );
    assert_eq!(document["forge"], forge);
}

/// Who may write to the store names no host of a link.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_another_host_is_a_text() {
    let recorded = RecordedStacks::new().await;
    recorded.at_github();
    let evil = "https://evil.example/acme/infra/actions/runs/7";
    recorded
        .apply_by(
            recorded.states_of(evil),
            None,
            "shop/prod",
            vec![config_map("web", &json!({}))],
            StackResult::Applied,
        )
        .await;
    let out = recorded.folder.path().join("site");
    recorded.build(&out);
    for name in ["index.html", "stacks/shop@prod/index.html"] {
        let page = page(&out, name);
        assert!(
            page.contains(evil) && !page.contains("href=\"https://evil"),
            "{page}"
        );
        assert!(
            !page.contains("github.com/ada") && !page.contains("github.com/grace"),
            "{page}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_that_saw_nothing_to_tell_rewrites_no_page_of_a_stack() {
    let recorded = RecordedStacks::new().await;
    recorded
        .apply(
            "shop/prod",
            vec![config_map("web", &json!({}))],
            StackResult::Applied,
        )
        .await;
    let at = |text: &str| text.parse().unwrap();
    recorded
        .look(
            vec![("shop/prod", calm(at("2026-11-26T03:00:00Z")))],
            BTreeMap::new(),
        )
        .await;
    let out = recorded.folder.path().join("site");
    recorded.build(&out);
    let before = page(&out, "stacks/shop@prod/index.html");
    assert!(
        before.contains("Live objects: 7 ready at the last look"),
        "{before}"
    );
    recorded
        .look(
            vec![("shop/prod", calm(at("2026-11-27T03:00:00Z")))],
            BTreeMap::new(),
        )
        .await;
    let said = recorded.build(&out);
    assert!(
        said.contains("1 stack: 0 read") && said.contains(" 1 written"),
        "{said}"
    );
    assert!(page(&out, "index.html").contains("7 ready, looked at <time datetime=\"2026-11-27T03:00:00Z\""));
    // A check that saw something does.
    let drifted = drifted("shop/prod", at("2026-11-28T03:00:00Z"));
    recorded.look(vec![("shop/prod", drifted)], BTreeMap::new()).await;
    let said = recorded.build(&out);
    assert!(said.contains("1 stack: 1 read"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_says_when_its_bake_ends_what_its_gates_said_and_whom_it_waits_for() {
    let recorded = RecordedStacks::new().await;
    recorded.at_github();
    let config = configure(&recorded, ROLLOUT);
    let since: Timestamp = "2026-11-26T03:00:00Z".parse().unwrap();
    let out = recorded.folder.path().join("site");
    recorded.build(&out);
    assert!(page(&out, "rollouts.html").contains("The rollout has not started"));
    rollout(&recorded, &config, RolloutPhase::Baking, since).await;
    recorded.build(&out);
    let baking = page(&out, "rollouts.html");
    for words in [
        "The bake ends <time datetime=\"2026-11-26T03:30:00Z\"",
        "Wave 1 of 2",
        "value is 0.002",
        "waits for wave 1",
        "bakes for 30m",
        "then gates slo, go",
        "stacks/storefront@canary/index.html",
        &format!("href=\"{RUN}\""),
    ] {
        assert!(baking.contains(words), "{words}: {baking}");
    }
    rollout(&recorded, &config, RolloutPhase::Gate, since).await;
    recorded.build(&out);
    let gate = page(&out, "rollouts.html");
    assert!(
        gate.contains("waits for one of acme/sre") && gate.contains("no job has planned all stacks"),
        "{gate}"
    );
    assert!(!gate.contains("The bake ends"), "{gate}");
    // The command says the same.
    let listed = recorded
        .konverge(&["rollout", "list", "--output", "json"])
        .run()
        .expect(0);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let web = &listed["rollouts"][0];
    assert_eq!(web["approvers"], json!({"go": ["acme/sre"]}));
    assert_eq!(web["unplanned"], json!(["storefront/prod"]));
    assert_eq!(web["waves"][0]["gates"], json!(["slo", "go"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_weeks_have_what_was_applied_what_failed_how_long_it_took_and_the_oldest_drift() {
    let recorded = RecordedStacks::new().await;
    let now = Timestamp::now();
    weeks(&recorded, now).await;
    let out = recorded.folder.path().join("site");
    recorded.build(&out);
    let trends = page(&out, "trends.html");
    assert_eq!(trends.matches("<svg").count(), 4, "{trends}");
    assert!(!trends.contains("style="), "{trends}");
    let server = PortalServer::start(
        &binary(),
        recorded.repository.path(),
        recorded.folder.path(),
        "127.0.0.1:0",
        &[],
    );
    let address = format!("{}/api/v1/trends", server.root);
    let document: Value = reqwest::get(&address).await.unwrap().json().await.unwrap();
    let weeks = document["weeks"].as_array().unwrap();
    assert_eq!(weeks.len(), 13);
    let numbers = |back: usize| {
        let week = &weeks[12 - back];
        (
            week["applies"].clone(),
            week["failures"].clone(),
            week["oldestDriftSeconds"].clone(),
        )
    };
    assert_eq!(numbers(5), (json!(2), json!(0), Value::Null));
    assert_eq!(numbers(3), (json!(3), json!(1), json!(188 * 3600)));
    assert_eq!(numbers(2), (json!(1), json!(0), json!(0)));
    // The current week has what the last check knew: no drift.
    assert_eq!(numbers(0), (json!(0), json!(0), json!(0)));
    assert_eq!(
        weeks[12 - 5]["leadSeconds"],
        750,
        "the commit is new to each of two stacks"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_do_what_is_of_the_default_branch_and_not_of_the_checkout() {
    let recorded = RecordedStacks::new().await;
    configure(&recorded, ROLLOUT);
    recorded.repository.git(["checkout", "--quiet", "-b", "work"]);
    recorded
        .repository
        .replace("konverge.yaml", "reviewers: [acme/sre]", "reviewers: [mallory]");
    recorded.repository.commit("mine");
    let out = recorded.folder.path().join("site");
    recorded.build(&out);
    let site = page(&out, "permissions.html");
    for words in [
        "a pull request needs 2 approvals",
        "acme/sre",
        "policy.reviewers",
        "gates.go.approve.by",
    ] {
        assert!(site.contains(words), "{words}: {site}");
    }
    assert!(!site.contains("mallory"), "{site}");
    assert!(site.contains(&recorded.repository.rev("main")), "{site}");
    assert_eq!(ID, "acme/infra");
}
