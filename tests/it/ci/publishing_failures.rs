//! Comments and statuses without permission or from an outdated run: a failure to publish never fails a preview.

use std::path::Path;

use serde_json::json;

use crate::support::{
    ci_stage::{Ran, Stage, storefront},
    github::{Act, FakeGithub, World},
    payloads, tiny_monorepo, webhook_receiver,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_late_run_without_permissions_and_a_fork() {
    let mut stage = Stage::set_up("").await;
    stage.propose("add-storefront", storefront);

    // No `checks: write`: one warning that names it. A newer head: the comment says so.
    let (payload, trial) = stage.opened(7, "add-storefront", "opened", "acme/konfig");
    stage.github.world(|world| {
        let token = world.tokens.get_mut("ghs_token").unwrap();
        token.permissions.remove("checks");
        world.pulls[0].head = "1".repeat(40);
    });
    let late = stage.preview(7, &payload, &trial);
    late.outcome.check(0);
    let stderr = &late.outcome.stderr;
    assert_eq!(
        stderr.matches("warning: not every stack has a check run").count(),
        1,
        "{stderr}"
    );
    assert!(stderr.contains("checks: write"), "{stderr}");
    // Once more as an annotation.
    let command = "::warning title=konverge::not every stack has a check run";
    assert_eq!(stderr.matches(command).count(), 1, "{stderr}");
    let comments = stage.comments();
    assert_eq!(comments.len(), 1);
    assert!(
        comments[0].1.contains("a newer commit was pushed"),
        "{}",
        comments[0].1
    );
    assert!(!comments[0].1.contains("| Details "), "{}", comments[0].1);
    let kept = |ran: &Ran| files(&ran.folder.join("caches/konverge/compile"));
    assert_eq!(kept(&late), 1);

    // A fork's pull request: compiled and summed up, but nothing of it is kept or told.
    let (payload, trial) = stage.opened(8, "add-storefront", "opened", "evil/konfig");
    let fork = stage.preview(8, &payload, &trial);
    fork.outcome.check(0);
    assert!(fork.summary.contains("storefront/dev"), "{}", fork.summary);
    assert_eq!(kept(&fork), 0);
    assert_eq!(stage.comments().len(), 1);
}

/// The store to which the example's orders refer.
const ORDERS_SECRETS: &str =
    "secrets: {stores: {job: {kind: env, allow: [{stacks: 'appops/orders/*', paths: 'ORDERS_*'}]}}}\n";

/// A stack that does not compile: told at its place, in the comment, on the check and in the log; the other is shown.
#[tokio::test(flavor = "multi_thread")]
async fn a_kcl_error_is_told_at_its_place_and_the_others_are_previewed() {
    let mut stage = Stage::set_up(ORDERS_SECRETS).await;
    let head = stage.propose("broken", |monorepo| {
        storefront(monorepo);
        monorepo.replace(
            "appops/storefront/dev/main.k",
            "server: frontend.Server {",
            "server: frontend.Server {\n    replicas = \"many\"",
        );
        monorepo.git(["checkout", "-q", "main~1", "--", "appops/orders"]);
        monorepo.git(["rm", "-rqf", "appops/orders/prod"]);
    });
    let ran = stage.pull_request(9, "broken", "opened");
    ran.outcome.check(1);
    let (_, comment) = &stage.comments()[0];
    assert!(comment.contains("appops/storefront/dev/main.k:"), "{comment}");
    assert!(
        comment.contains("orders/dev") && comment.contains("Deployment"),
        "{comment}"
    );
    assert_eq!(
        stage.status(&head, "konverge/preview").as_deref(),
        Some("failure")
    );
    let check = stage.check("konverge: storefront/dev").unwrap();
    assert_eq!(check["conclusion"], "failure");
    let note = &check["output"]["annotations"][0];
    assert_eq!(note["path"], "appops/storefront/dev/main.k", "{check}");
    assert!(note["start_line"].as_u64().unwrap() > 1, "{check}");
    // The runner takes commands from both streams.
    let log = &ran.outcome.stderr;
    assert!(
        log.contains("\n::error file=appops/storefront/dev/main.k,line=8,"),
        "{log}"
    );
}

/// Whatever GitHub answers: the apply is done, and what could not be told is a warning.
#[tokio::test(flavor = "multi_thread")]
async fn feedback_that_fails_never_fails_an_apply() {
    let mut stage = Stage::with("unheard", tiny_monorepo::monorepo(), "").await;
    stage.propose("add-web", |repository| {
        tiny_monorepo::write_stack(repository, "web/dev", "unheard-web-dev", "info");
    });
    stage.pull_request(7, "add-web", "opened").outcome.check(0);
    let (before, after) = stage.press_merge(7, "add-web");
    // The token has expired, GitHub is down, and the text is refused for a reason that nobody knows.
    let expired = || Act::Answer(401, Vec::new(), json!({"message": "Bad credentials"}));
    let down = || Act::Answer(502, Vec::new(), json!({}));
    let refused = || Act::Answer(422, Vec::new(), json!({"message": "Validation Failed"}));
    for act in [expired(), refused()] {
        stage.github.next("POST", &format!("/statuses/{after}"), act);
    }
    stage
        .github
        .next("GET", &format!("/commits/{after}/pulls"), expired());
    for _ in 0..5 {
        stage.github.next("GET", "/konfig/issues", down());
    }
    let applied = stage.push(&before, &after);
    applied.outcome.check(0);
    let stderr = &applied.outcome.stderr;
    for words in [
        "warning: the status konverge/apply could not be set: GitHub refuses the token",
        "warning: the status konverge/apply could not be set: GitHub refused",
        "warning: the merged pull request could not be found: GitHub refuses the token",
        "warning: the issues could not be listed: GitHub answered 502",
    ] {
        assert_eq!(stderr.matches(words).count(), 1, "{words}: {stderr}");
    }
    assert!(applied.summary.contains("1 applied"), "{}", applied.summary);
    let keys = stage.keys().await;
    assert!(keys.iter().any(|key| key.contains("/state/")), "{keys:?}");
}

/// Two runs look at one commit, as when the base is changed, and the older one ends last.
#[tokio::test(flavor = "multi_thread")]
async fn an_older_preview_leaves_the_status_of_a_newer_one() {
    let mut stage = Stage::small("").await;
    let head = stage.propose("late", |_| stage.stack("late/dev", &[("late-map", "one")]));
    let newer = json!({"context": "konverge/preview", "state": "failure", "description": "no",
        "target_url": "https://github.com/acme/konfig/actions/runs/9999"});
    stage
        .github
        .next("POST", &format!("/statuses/{head}"), Act::ThenStatus(newer));
    let ran = stage.pull_request(7, "late", "opened");
    ran.outcome.check(0);
    let stderr = &ran.outcome.stderr;
    assert!(
        stderr.contains("note: a newer run has set the status of this commit"),
        "{stderr}"
    );
    assert_eq!(
        stage.status(&head, "konverge/preview").as_deref(),
        Some("failure")
    );
}

/// GitHub Enterprise Server: its API lies below a path, and its pages on another host than github.com.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_ones_own_is_spoken_to_and_linked() {
    let mut stage = Stage::small("").await;
    stage.github = FakeGithub::start_at(World::of(&stage.monorepo), "/api/v3").await;
    stage.env = vec![("GITHUB_SERVER_URL", "https://git.acme.example".to_owned())];
    let (head, _) = stage.reviewed(7, "own", |stage| stage.stack("own/dev", &[("own-map", "one")]));
    stage.merge(7, "own").outcome.check(0);
    assert_eq!(stage.value("own-map").await.as_deref(), Some("one"));
    let page = "https://git.acme.example/acme/konfig/actions/runs/";
    let comments = stage.comments();
    assert_eq!(comments.len(), 2, "{comments:?}");
    for (_, body) in &comments {
        assert!(body.contains(page), "{body}");
        assert!(!body.contains("github.com/acme/konfig/actions"), "{body}");
    }
    assert_eq!(
        stage.status(&head, "konverge/preview").as_deref(),
        Some("success")
    );
    let linked = |(_, status): &(String, serde_json::Value)| {
        status["target_url"]
            .as_str()
            .is_some_and(|url| url.starts_with(page))
    };
    assert!(stage.github.world(|world| world.statuses.iter().all(linked)));
}

/// An apply that comes to nothing at all is told, and who cannot be told is a warning.
#[tokio::test(flavor = "multi_thread")]
async fn an_apply_that_can_not_begin_is_told() {
    let (url, heard) = webhook_receiver::receiver(Vec::new()).await;
    let mut stage = Stage::set_up("").await;
    stage.env = vec![("HOOK_URL", url), ("HOOK_KEY", "signing-key".to_owned())];
    let before = stage.monorepo.rev("main");
    let config = "version: 1\nstate: {url: 'az://container/prefix', id: konfig}\nnotify:\n- {kind: slack, url_env: CHAT_URL}\n- {kind: slack, url_env: OTHER_URL, on: [drift]}\n- {kind: webhook, url_env: HOOK_URL, key_env: HOOK_KEY}\n";
    stage
        .monorepo
        .checkout("main")
        .write("konverge.yaml", config)
        .commit("A store without credentials");
    let after = stage.monorepo.rev("main");
    let failed = stage.push(&before, &after);
    assert_ne!(failed.outcome.code, Some(0));
    let stderr = &failed.outcome.stderr;
    assert!(stderr.contains("AZURE_STORAGE_ACCOUNT_NAME"), "{stderr}");
    assert!(
        stderr.contains("warning: a notification was not delivered: CHAT_URL"),
        "{stderr}"
    );
    assert!(!stderr.contains("OTHER_URL"), "{stderr}");
    let heard = heard.lock().unwrap();
    let topics: Vec<_> = heard
        .iter()
        .map(|(_, body)| webhook_receiver::topic(body))
        .collect();
    assert_eq!(topics, ["apply-failed"]);
}

fn files(folder: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .map(|path| if path.is_dir() { files(&path) } else { 1 })
        .sum()
}

/// One commit may be the head of two pull requests. What is required speaks of the default branch: of another one's
/// preview, which asks neither store nor cluster, it says nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_preview_into_another_branch_has_a_status_of_its_own() {
    let mut stage = Stage::small("").await;
    let main = stage.monorepo.rev("main");
    stage.monorepo.git(["branch", "release"]);
    stage.monorepo.branch("both");
    stage.stack("elsewhere/dev", &[("No_Name_For_The_Server", "one")]);
    let head = stage.monorepo.commit("What a server refuses");
    stage.pull_request(7, "both", "opened").outcome.check(1);
    let required = |stage: &Stage| stage.status(&head, "konverge/preview");
    assert_eq!(required(&stage).as_deref(), Some("failure"));
    let told = stage.github.world(|world| world.statuses.len());

    // By the event, dealt out, as a fork's, and in the other branch's queue.
    let (mut payload, trial) = stage.opened(8, "both", "opened", "acme/konfig");
    payload["pull_request"]["base"]["ref"] = json!("release");
    stage.preview(8, &payload, &trial).outcome.check(0);
    let elsewhere = "konverge/preview into release";
    assert_eq!(stage.status(&head, elsewhere).as_deref(), Some("success"));
    for shard in ["1/2", "2/2", "all/2"] {
        stage.env = vec![
            ("KONVERGE_SHARD", shard.to_owned()),
            ("GITHUB_RUN_ID", "5005".to_owned()),
        ];
        stage.preview(8, &payload, &trial).outcome.check(0);
    }
    stage.env.clear();
    stage.opened(9, "both", "opened", "mallory/konfig");
    let into_release = |world: &mut World| world.pulls.last_mut().unwrap().base = "release".into();
    stage.github.world(into_release);
    let outside = payloads::workflow_run(("both", &head), "mallory/konfig", "mallory");
    let posted = stage.ci("workflow_run", &outside, &main, "refs/heads/main");
    posted.outcome.check(0);
    let mut queued = payloads::merge_group(8, &main, &head);
    queued["merge_group"]["base_ref"] = json!("refs/heads/release");
    let queue = format!("refs/heads/gh-readonly-queue/release/pr-8-{main}");
    stage.ci("merge_group", &queued, &head, &queue).outcome.check(0);

    assert_eq!(required(&stage).as_deref(), Some("failure"));
    let contexts = stage.github.world(|world| {
        let new = world.statuses[told..].iter();
        new.map(|(_, status)| status["context"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    });
    assert!(contexts.len() >= 10, "{contexts:?}");
    assert!(
        contexts.iter().all(|context| context.ends_with(" into release")),
        "{contexts:?}"
    );
}
