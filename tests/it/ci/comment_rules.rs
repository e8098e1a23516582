//! What the outputs count, when a comment is written (`comment: always`, `changes`, `never`), and how it links the
//! page.

use serde_json::json;

use crate::support::{
    ci_stage::{Ran, Stage},
    objects::Objects,
    payloads,
};

/// A pull request with this change, previewed by a job with these variables.
fn preview(stage: &mut Stage, number: u64, value: Option<&str>, variables: &[(&'static str, &str)]) -> Ran {
    let branch = format!("branch-{number}");
    stage.monorepo.checkout("main").branch(&branch);
    match value {
        Some(value) => stage.stack("web/dev", &[("settings-of-a-rule", value)]),
        None => {
            let text = format!("Nothing of a stack: {number}");
            stage.monorepo.write("README.md", text);
        }
    }
    stage.monorepo.commit(&branch);
    run(stage, number, variables)
}

fn run(stage: &mut Stage, number: u64, variables: &[(&'static str, &str)]) -> Ran {
    let variables = variables.iter().map(|(name, value)| (*name, (*value).to_owned()));
    stage.env = variables.collect();
    let ran = stage.pull_request(number, &format!("branch-{number}"), "synchronize");
    stage.env.clear();
    ran.outcome.check(0);
    ran
}

/// The pull requests with a comment.
fn commented(stage: &Stage) -> Vec<u64> {
    let comments = stage.github.world(|world| world.comments.clone());
    comments.iter().map(|comment| comment.issue).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_comment_is_written_when_the_rule_says_so() {
    let mut stage = Stage::small("").await;
    let rule = |rule: &'static str| [("KONVERGE_COMMENT", rule)];
    let ran = preview(&mut stage, 1, None, &rule("always"));
    assert_eq!(commented(&stage), [1], "also where nothing changes");
    assert!(
        ran.output("comment-url").contains("/1"),
        "{}",
        ran.output("comment-url")
    );
    preview(&mut stage, 2, None, &rule("changes"));
    assert_eq!(commented(&stage), [1]);
    let ran = preview(&mut stage, 3, Some("new"), &rule("changes"));
    assert_eq!(commented(&stage), [1, 3]);
    assert!(
        ran.output("comment-url").contains("/3"),
        "{}",
        ran.output("comment-url")
    );
    // The change is gone with the next push, and the comment with it.
    stage.monorepo.checkout("branch-3");
    stage.monorepo.git(["rm", "-rq", "appops"]);
    stage.monorepo.commit("Without it");
    run(&mut stage, 3, &rule("changes"));
    assert_eq!(commented(&stage), [1]);
    let ran = preview(&mut stage, 4, Some("newer"), &rule("never"));
    assert_eq!(commented(&stage), [1]);
    assert_eq!(ran.output("comment-url"), "");
    let head = stage.monorepo.rev("branch-4");
    let status = stage.status(&head, "konverge/preview").unwrap_or_default();
    assert!(
        status.contains("success"),
        "the status does not depend on it: {status}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_comment_links_the_uploaded_page() {
    let mut stage = Stage::small("").await;
    preview(
        &mut stage,
        1,
        Some("new"),
        &[("KONVERGE_PAGE_ARTIFACT", "preview")],
    );
    let body = |stage: &Stage| stage.comments()[0].1.clone();
    let list = "https://github.com/acme/konfig/actions/runs/5001#artifacts";
    let before = body(&stage);
    assert!(before.contains(list), "{before}");
    // The step after the upload is a part of the same run.
    let page = "https://github.com/acme/konfig/actions/runs/5001/artifacts/123";
    let link = |stage: &mut Stage, address: &str, run: &str| {
        let payload = stage.opened(1, "branch-1", "synchronize", "acme/konfig").0;
        let (folder, sha) = (stage.monorepo.path().to_owned(), stage.monorepo.rev("branch-1"));
        let (konverge, _) = stage.prepared(&folder, "pull_request", &payload, &sha, "refs/pull/1/merge");
        konverge
            .env("GITHUB_RUN_ID", run)
            .env("KONVERGE_PAGE_URL", address)
            .run()
    };
    for elsewhere in [
        "https://evil.example/page",
        "https://github.com/acme/konfig/actions/runs/5001/artifacts/123)](https://evil.example",
        "https://github.com/acme/konfig/actions/runs/4000/artifacts/123",
    ] {
        let refused = link(&mut stage, elsewhere, "5001").expect(64);
        assert!(
            refused.stderr.contains("is not an artifact of this run"),
            "{}",
            refused.stderr
        );
        assert_eq!(body(&stage), before);
    }
    let other_run = page.replace("5001", "5999");
    let left = link(&mut stage, &other_run, "5999").expect(0);
    assert!(left.stderr.contains("nothing is changed"), "{}", left.stderr);
    assert_eq!(body(&stage), before);
    link(&mut stage, page, "5001").expect(0);
    assert_eq!(body(&stage), before.replace(list, page));
}

/// A job of another event, or of a shard, links its page where it wrote: in the comment, and in the summary of the run.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_linked_for_every_event() {
    let mut stage = Stage::small("").await;
    let sharded = [("KONVERGE_PAGE_ARTIFACT", "preview"), ("KONVERGE_SHARD", "1/2")];
    preview(&mut stage, 1, Some("new"), &sharded);
    stage.monorepo.checkout("main").branch("contribute");
    stage.stack("outside/dev", &[("outside-page", "one")]);
    let head = stage.monorepo.commit("contribute");
    stage.opened(9, "contribute", "opened", "mallory/konfig");
    let tip = stage.monorepo.rev("main");
    stage.monorepo.checkout("main");
    let outside = payloads::workflow_run(("contribute", &head), "mallory/konfig", "mallory");
    stage.env = vec![("KONVERGE_PAGE_ARTIFACT", "preview".to_owned())];
    let previewed = stage.ci("workflow_run", &outside, &tip, "refs/heads/main");
    previewed.outcome.check(0);
    stage.env.clear();
    let opened = stage.opened(1, "branch-1", "synchronize", "acme/konfig").0;
    let by_hand = payloads::workflow_dispatch("main", json!({}));
    let pushed = payloads::push("main", &tip, &tip, false);
    let comments =
        |stage: &Stage| -> Vec<_> { stage.comments().into_iter().map(|comment| comment.1).collect() };
    for (event, payload, git_ref, run, shard) in [
        ("pull_request", &opened, "refs/pull/1/merge", "5001", "1/2"),
        ("workflow_run", &outside, "refs/heads/main", "5002", ""),
        ("workflow_dispatch", &by_hand, "refs/heads/main", "5009", ""),
        ("push", &pushed, "refs/heads/main", "5010", ""),
        ("schedule", &payloads::schedule(), "refs/heads/main", "5011", ""),
    ] {
        let page = format!("https://github.com/acme/konfig/actions/runs/{run}/artifacts/123");
        let list = format!("https://github.com/acme/konfig/actions/runs/{run}#artifacts");
        let before = comments(&stage);
        let is_commented = before.iter().any(|body| body.contains(&list));
        assert_eq!(
            is_commented,
            ["5001", "5002"].contains(&run),
            "{event}: {before:?}"
        );
        let folder = stage.monorepo.path().to_owned();
        let (konverge, files) = stage.prepared(&folder, event, payload, &tip, git_ref);
        let konverge = konverge.env("GITHUB_RUN_ID", run).env("KONVERGE_SHARD", shard);
        konverge.env("KONVERGE_PAGE_URL", &page).run().expect(0);
        let summary = std::fs::read_to_string(files.join("summary.md")).unwrap_or_default();
        assert!(
            summary.contains(&format!("[The preview as a page]({page})")),
            "{event}: {summary}"
        );
        let linked: Vec<_> = before.iter().map(|body| body.replace(&list, &page)).collect();
        assert_eq!(comments(&stage), linked, "{event}");
    }
}

/// What somebody else changed is no change of the pull request: neither its outputs nor its comment count it.
#[tokio::test(flavor = "multi_thread")]
async fn the_outputs_count_what_the_change_does() {
    let mut stage = Stage::small("").await;
    let both = [("counted-by-hand", "one"), ("counted", "one")];
    stage.reviewed(1, "first", |stage| stage.stack("counted/dev", &both[..1]));
    stage.merge(1, "first").outcome.check(0);
    let metadata = json!({"name": "counted-by-hand", "namespace": "default"});
    let by_hand = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
    let patch = json!({"data": {"value": "by hand"}});
    let objects = Objects::of(stage.cluster).await;
    objects.merge(&by_hand, "somebody", &patch).await;
    let (_, ran) = stage.reviewed(2, "second", |stage| stage.stack("counted/dev", &both));
    let counts = ["create-count", "update-count"].map(|output| ran.output(output));
    assert_eq!(counts, ["1", "0"], "{}", ran.outputs);
    let log = &ran.outcome.stdout;
    assert!(
        log.contains("1 to create, 1 resource already different on the cluster"),
        "{log}"
    );
    // Of drift alone nothing is said where only changes are.
    stage.monorepo.checkout("main").branch("branch-3");
    stage.stack("counted/dev", &both[..1]);
    stage
        .monorepo
        .write("appops/counted/dev/note.k", "a = 1\n")
        .commit("branch-3");
    let ran = run(&mut stage, 3, &[("KONVERGE_COMMENT", "changes")]);
    assert_eq!(ran.output("has-changes"), "false", "{}", ran.outputs);
    assert_eq!(commented(&stage).iter().filter(|number| **number == 3).count(), 0);
}
