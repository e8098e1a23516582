//! The least `permissions:` of each job, as the guide for platform teams lists them: they are enough, and each that is
//! missing is named.

use konverge_base::yaml;
use serde_json::{Value, json};

use crate::support::{
    ci_stage::{Ran, Stage},
    objects::Objects,
    tiny_monorepo,
};

/// The keys as GitHub's fake has them.
const KEYS: [&str; 5] = ["contents", "pull_requests", "statuses", "checks", "issues"];

/// What the guide lists for a job: `("pull-requests", "write")`.
fn documented(job: &str) -> Vec<(String, String)> {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/guides/platform-teams.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let row = guide
        .lines()
        .find(|line| line.starts_with(&format!("| {job} | `")));
    let listed = row.expect("a row for the job").split('`').skip(1).step_by(2);
    let pair = |text: &str| {
        let (key, level) = text.split_once(": ").expect("a key and a level");
        (key.to_owned(), level.to_owned())
    };
    listed.map(pair).collect()
}

/// The token may do what is documented for the job, but for one key.
fn permit(stage: &Stage, job: &str, except: &str) {
    let mut permissions = std::collections::BTreeMap::from([("metadata", "read")]);
    for (key, level) in documented(job).iter().filter(|(key, _)| key != except) {
        let key = KEYS.into_iter().find(|known| *known == key.replace('-', "_"));
        let level = if level == "write" { "write" } else { "read" };
        permissions.insert(key.expect("a key that the fake knows"), level);
    }
    stage.github.world(|world| {
        world.tokens.get_mut("ghs_token").unwrap().permissions = permissions;
    });
}

/// The keys of a job that calls of the API need, so that one without them can be told.
fn asked_of_the_api(job: &str) -> Vec<String> {
    let keys = documented(job).into_iter().map(|(key, _)| key);
    // `contents: read` is what git fetches with.
    keys.filter(|key| key != "contents").collect()
}

fn warnings(ran: &Ran) -> Vec<&str> {
    let lines = ran.outcome.stderr.lines();
    lines.filter(|line| line.starts_with("warning")).collect()
}

#[test]
fn the_workflow_that_init_writes_grants_what_is_documented() {
    let workflow = include_str!("../../../src/commands/init/workflow.yml");
    let workflow: Value = yaml::from_str(workflow).unwrap();
    for job in ["preview", "apply", "drift"] {
        let granted = workflow["jobs"][job]["permissions"].as_object().unwrap();
        let granted = granted
            .iter()
            .map(|(key, level)| (key.clone(), level.as_str().unwrap().to_owned()));
        assert_eq!(granted.collect::<Vec<_>>(), documented(job), "{job}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_needs_what_is_documented() {
    let mut stage = Stage::with("may-preview", tiny_monorepo::monorepo(), "").await;
    stage.propose("add-web", |repository| {
        tiny_monorepo::write_stack(repository, "web/dev", "may-preview-web-dev", "info");
    });
    permit(&stage, "preview", "");
    let enough = stage.pull_request(7, "add-web", "opened");
    enough.outcome.check(0);
    assert!(warnings(&enough).is_empty(), "{}", enough.outcome.stderr);
    assert_eq!(stage.comments().len(), 1);
    assert!(stage.check("konverge: plan").is_some());
    for key in asked_of_the_api("preview") {
        permit(&stage, "preview", &key);
        let less = stage.pull_request(7, "add-web", "synchronize");
        less.outcome.check(0);
        assert_names(&less, &format!("{key}: write"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn apply_and_drift_need_what_is_documented() {
    let mut stage = Stage::with("may-apply", tiny_monorepo::monorepo(), "").await;
    let write = |level: &'static str| {
        move |repository: &_| tiny_monorepo::write_stack(repository, "web/dev", "may-apply-web-dev", level)
    };
    stage.propose("add-web", write("info"));
    stage.pull_request(7, "add-web", "opened").outcome.check(0);
    permit(&stage, "apply", "");
    let enough = stage.merge(7, "add-web");
    enough.outcome.check(0);
    assert!(warnings(&enough).is_empty(), "{}", enough.outcome.stderr);
    let told = stage.comments().pop().unwrap().1;
    assert!(told.contains("1 applied"), "{told}");

    // A review that waits: where there is none, no pull request is asked for.
    permit(&stage, "preview", "");
    stage.propose("later", write("trace"));
    stage.pull_request(8, "later", "opened").outcome.check(0);

    // An unreviewed change is reported on every channel at each attempt.
    let before = stage.monorepo.rev("main");
    write("debug")(stage.monorepo.checkout("main"));
    let after = stage.monorepo.commit("Straight to main");
    for key in asked_of_the_api("apply") {
        permit(&stage, "apply", &key);
        let less = stage.push(&before, &after);
        // Without the pull requests nobody knows what was reviewed.
        less.outcome.check(if key == "pull-requests" { 1 } else { 3 });
        let level = if key == "pull-requests" { "read" } else { "write" };
        assert_names(&less, &format!("{key}: {level}"));
    }

    let objects = Objects::of(stage.cluster).await;
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "settings", "namespace": "may-apply-web-dev"}});
    objects
        .merge(&settings, "somebody", &json!({"data": {"color": "red"}}))
        .await;
    for key in asked_of_the_api("drift") {
        permit(&stage, "drift", &key);
        let less = stage.schedule();
        less.outcome.check(0);
        assert_names(&less, &format!("{key}: write"));
    }
    permit(&stage, "drift", "");
    let enough = stage.schedule();
    enough.outcome.check(0);
    let complaints = warnings(&enough);
    assert!(
        complaints
            .iter()
            .all(|line| line.contains("is ahead of what is applied")),
        "{complaints:?}"
    );
    let drift = |world: &mut crate::support::github::World| {
        let labels = world.issues.iter().flat_map(|issue| issue.labels.clone());
        labels.filter(|label| label == "konverge-drift").count()
    };
    assert_eq!(stage.github.world(drift), 1);
}

/// The warning contains the missing line of `permissions:`, ready to paste.
fn assert_names(ran: &Ran, permission: &str) {
    let stderr = &ran.outcome.stderr;
    assert!(
        stderr.contains(&format!("`permissions:` with `{permission}`")),
        "{permission}: {stderr}"
    );
}
