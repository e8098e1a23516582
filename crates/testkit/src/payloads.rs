//! Events of `acme/konfig`, made of GitHub's own examples. What these lack (real commits, a fork, a merge) is put in.

use serde_json::{Value, json};

use super::octokit::webhooks;

const REPOSITORY: &str = "acme/konfig";

/// The first example of `event` that fits, in our repository.
fn example(event: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let mut payload = webhooks(event)
        .into_iter()
        .find(fits)
        .unwrap_or_else(|| panic!("GitHub has no such example of {event}"));
    payload["repository"]["full_name"] = json!(REPOSITORY);
    payload["repository"]["default_branch"] = json!("main");
    payload
}

/// `pull_request`; the head lies in the repository `from`.
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

/// `push` to a branch.
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

/// `merge_group`: the queue asks about `head`, which comes on top of `base`.
pub fn merge_group(number: u64, base: &str, head: &str) -> Value {
    let mut payload = example("merge_group", |_| true);
    let group = &mut payload["merge_group"];
    group["base_sha"] = json!(base);
    group["base_ref"] = json!("refs/heads/main");
    group["head_sha"] = json!(head);
    group["head_ref"] = json!(format!("refs/heads/gh-readonly-queue/main/pr-{number}-{base}"));
    payload
}

/// `workflow_run`: a workflow that `actor` started has ended for `head`, a branch and its commit, of the repository
/// `from`.
pub fn workflow_run(head: (&str, &str), from: &str, actor: &str) -> Value {
    let mut payload = example("workflow_run", |one| one["action"] == "completed");
    let run = &mut payload["workflow_run"];
    run["event"] = json!("pull_request");
    run["conclusion"] = json!("success");
    run["head_branch"] = json!(head.0);
    run["head_sha"] = json!(head.1);
    run["actor"]["login"] = json!(actor);
    run["head_repository"]["full_name"] = json!(from);
    // So it is with forks: actions/runner#3444.
    run["pull_requests"] = json!([]);
    payload
}

/// `workflow_dispatch` on a branch.
pub fn workflow_dispatch(branch: &str, inputs: Value) -> Value {
    let mut payload = example("workflow_dispatch", |_| true);
    payload["ref"] = json!(format!("refs/heads/{branch}"));
    payload["inputs"] = inputs;
    payload
}

/// `repository_dispatch` of a type.
pub fn repository_dispatch(action: &str, payload: Value) -> Value {
    let mut call = example("repository_dispatch", |_| true);
    call["action"] = json!(action);
    call["client_payload"] = payload;
    call
}

/// `schedule`, of which there is no example: the cron line beside what every event has.
pub fn schedule() -> Value {
    let push = example("push", |_| true);
    json!({"schedule": "17 5 * * *", "workflow": ".github/workflows/konverge.yml", "repository": push["repository"]})
}
