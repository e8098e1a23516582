//! Events of `acme/konfig`, made from GitHub's own examples. Real commits, forks and merges, which the examples lack,
//! are added.

use serde_json::{Value, json};

use super::octokit::webhooks;

const REPOSITORY: &str = "acme/konfig";

/// Returns the first example of `event` that fits, adapted to `acme/konfig`.
fn example(event: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let mut payload = webhooks(event)
        .into_iter()
        .find(fits)
        .unwrap_or_else(|| panic!("GitHub has no such example of {event}"));
    payload["repository"]["full_name"] = json!(REPOSITORY);
    payload["repository"]["default_branch"] = json!("main");
    payload
}

/// Returns a `pull_request` event. The head is in the repository `from`.
pub fn pull_request(action: &str, number: u64, base: &str, head: (&str, &str), from: &str) -> Value {
    let mut payload = example("pull_request", |one| one["action"] == action);
    payload["number"] = json!(number);
    let pull = &mut payload["pull_request"];
    pull["number"] = json!(number);
    pull["user"]["login"] = json!("dev");
    pull["merged"] = json!(false);
    pull["base"]["sha"] = json!(base);
    pull["base"]["ref"] = json!("main");
    pull["base"]["repo"]["full_name"] = json!(REPOSITORY);
    pull["head"]["ref"] = json!(head.0);
    pull["head"]["sha"] = json!(head.1);
    pull["head"]["repo"] = pull["base"]["repo"].clone();
    pull["head"]["repo"]["full_name"] = json!(from);
    payload
}

/// Returns a `push` event for a branch.
pub fn push(branch: &str, before: &str, after: &str, forced: bool) -> Value {
    let mut payload = example("push", |one| {
        one["ref"]
            .as_str()
            .is_some_and(|name| name.starts_with("refs/heads/"))
    });
    payload["ref"] = json!(format!("refs/heads/{branch}"));
    payload["before"] = json!(before);
    payload["after"] = json!(after);
    payload["forced"] = json!(forced);
    payload
}

/// Returns a `merge_group` event: the queue asks about `head`, which is on top of `base`.
pub fn merge_group(number: u64, base: &str, head: &str) -> Value {
    let mut payload = example("merge_group", |_| true);
    let group = &mut payload["merge_group"];
    group["base_sha"] = json!(base);
    group["base_ref"] = json!("refs/heads/main");
    group["head_sha"] = json!(head);
    group["head_ref"] = json!(format!("refs/heads/gh-readonly-queue/main/pr-{number}-{base}"));
    payload
}

/// Returns a `workflow_run` event: a workflow that `actor` started has ended for `head` (branch and commit) of the
/// repository `from`.
pub fn workflow_run(head: (&str, &str), from: &str, actor: &str) -> Value {
    let mut payload = example("workflow_run", |one| one["action"] == "completed");
    let run = &mut payload["workflow_run"];
    run["event"] = json!("pull_request");
    run["conclusion"] = json!("success");
    run["head_branch"] = json!(head.0);
    run["head_sha"] = json!(head.1);
    run["actor"]["login"] = json!(actor);
    run["head_repository"]["full_name"] = json!(from);
    // GitHub sends an empty list for forks: actions/runner#3444.
    run["pull_requests"] = json!([]);
    payload
}

/// Returns a `workflow_dispatch` event on a branch.
pub fn workflow_dispatch(branch: &str, inputs: Value) -> Value {
    let mut payload = example("workflow_dispatch", |_| true);
    payload["ref"] = json!(format!("refs/heads/{branch}"));
    payload["inputs"] = inputs;
    payload
}

/// Returns a `repository_dispatch` event of a type.
pub fn repository_dispatch(action: &str, payload: Value) -> Value {
    let mut call = example("repository_dispatch", |_| true);
    call["action"] = json!(action);
    call["client_payload"] = payload;
    call
}

/// Returns a `schedule` event, for which GitHub has no example: the cron line and the common fields.
pub fn schedule() -> Value {
    let push = example("push", |_| true);
    json!({"schedule": "17 5 * * *", "workflow": ".github/workflows/konverge.yml", "repository": push["repository"]})
}
