//! What an apply leaves on record: which plan, at which commit, behind which pull request and whose approval, from
//! which run, and how it ended; and nothing that is secret.

use serde_json::json;

use crate::support::{
    ci_stage::{Stage, everything_in},
    webhook_receiver,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_names_plan_commit_people_run_and_outcome() {
    let mut stage = Stage::small("").await;
    let (head, _) = stage.reviewed(7, "receipt", |stage| {
        stage.stack("receipts/dev", &[("receipts-web", "one")]);
    });
    stage.approved_by(7, "grace", &head);
    // An approval of an older head approved something else, and a comment approves nothing.
    stage.approved_by(7, "linus", &"1".repeat(40));
    let comment = json!({"user": {"login": "bob"}, "state": "COMMENTED", "commit_id": head});
    stage.github.world(|world| world.reviews.push((7, comment)));
    let merged = stage.merge(7, "receipt");
    merged.outcome.check(0);
    let tip = stage.monorepo.rev("main");
    let receipt = stage.receipt("receipts/dev");
    let digest = receipt["digest"].as_str().unwrap();
    let merged_at = receipt["merged"].as_str().unwrap();
    assert_eq!(
        receipt,
        json!({"digest": digest, "commit": tip, "merged": merged_at, "result": "applied",
            "pullRequests": [{"number": 7, "head": head, "reviewers": ["grace"]}]})
    );
    // The same in the summary, in the result's JSON, and in the history with the run and who started it.
    let summary = &merged.summary;
    assert!(summary.contains("#7, approved by grace"), "{summary}");
    assert!(summary.contains(&digest[..12]), "{summary}");
    let result = std::fs::read_to_string(merged.output("result-path")).unwrap();
    assert!(
        result.contains("\"grounds\":{\"pullRequests\"") || result.contains("\"grounds\": {"),
        "{result}"
    );
    let history = stage.state(&["history", "receipts/dev"]).stdout;
    let run = format!(
        "https://github.com/acme/konfig/actions/runs/{}",
        5000 + stage.runs
    );
    assert!(history.contains(&run) && history.contains("(dev)"), "{history}");
    let line = format!("applied, plan {}: #7, approved by grace", &digest[..12]);
    assert!(history.contains(&line), "{line}: {history}");
    let shown = stage.state(&["show", "receipts/dev"]).stdout;
    assert!(shown.contains(&format!("# {line}")), "{shown}");

    // What nobody reviewed and somebody agreed to: their name stands there instead.
    let stopped = stage.straight_to_main(|stage| stage.stack("receipts/dev", &[("receipts-web", "two")]));
    stopped.outcome.check(3);
    assert_eq!(stage.receipt("receipts/dev")["digest"], *digest);
    stage.approve(&stopped.digest()).outcome.check(0);
    let receipt = stage.receipt("receipts/dev");
    assert_eq!(receipt["agreedBy"], json!(["dev"]));
    assert_eq!(receipt["why"], "the vendor fixes it by May");
    let history = stage.state(&["history", "receipts/dev"]).stdout;
    let line = "digest approved by dev (the vendor fixes it by May)";
    assert!(history.contains(line), "{history}");
    assert_eq!(receipt["digest"], stopped.digest());
    assert!(receipt["pullRequests"].is_null(), "{receipt}");
}

/// The receipt is feedback: who cannot be asked for is left out, and the apply continues.
#[tokio::test(flavor = "multi_thread")]
async fn reviewers_that_can_not_be_asked_for_are_left_out() {
    let mut stage = Stage::small("").await;
    let (head, _) = stage.reviewed(7, "unknown", |stage| {
        stage.stack("unknown/dev", &[("unknown-web", "one")]);
    });
    let gone = crate::support::github::Act::Answer(404, Vec::new(), json!({"message": "Not Found"}));
    stage.github.next("GET", "/pulls/7/reviews", gone);
    let merged = stage.merge(7, "unknown");
    merged.outcome.check(0);
    let stderr = &merged.outcome.stderr;
    assert!(
        stderr.contains("warning: the approvers of #7 are missing in the apply record")
            && stderr.contains("pull-requests: read"),
        "{stderr}"
    );
    let receipt = stage.receipt("unknown/dev");
    assert_eq!(receipt["pullRequests"], json!([{"number": 7, "head": head}]));
}

/// A secret of a stack, the addresses of the hooks and their key are in nothing that left the process: GitHub, the
/// hooks, the store, the runner's files, the log.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_secret_leaves() {
    let (url, heard) = webhook_receiver::receiver(Vec::new()).await;
    let chat = format!("{url}?token=chat-token-5cd1");
    let notify = "notify:\n- {kind: webhook, url_env: HOOK_URL, key_env: HOOK_KEY}\n- {kind: slack, url_env: CHAT_URL}\napply: {deployments: true}\n";
    let mut stage = Stage::small(notify).await;
    stage.env = vec![
        ("HOOK_URL", format!("{url}?token=hook-token-91ab")),
        ("CHAT_URL", chat),
        ("HOOK_KEY", "signing-key-77fe".to_owned()),
    ];
    let secret = |value: &str| {
        format!(
            "resources = [{{id = \"v1:Secret:default:secrets-db\", type = \"Kubernetes\", attributes = {{apiVersion = \"v1\", kind = \"Secret\", metadata = {{name = \"secrets-db\", namespace = \"default\"}}, stringData = {{password = \"{value}\"}}}}}}]\n"
        )
    };
    let mut ran = Vec::new();
    let (_, previewed) = stage.reviewed(7, "secrets", |stage| {
        stage.stack("secrets/dev", &[]);
        stage
            .monorepo
            .write("appops/secrets/dev/main.k", secret("hunter2-hunter2"));
    });
    ran.push(previewed);
    ran.push(stage.merge(7, "secrets"));
    ran[1].outcome.check(0);
    let stopped = stage.straight_to_main(|stage| {
        stage
            .monorepo
            .write("appops/secrets/dev/main.k", secret("hunter3-hunter3"));
    });
    stopped.outcome.check(3);
    ran.push(stopped);
    ran.push(stage.schedule());
    ran[3].outcome.check(0);

    let mut left = String::new();
    for request in stage.github.requests() {
        left += &format!("{} {:?} {}\n", request.path, request.query, request.body);
    }
    for (headers, body) in heard.lock().unwrap().iter() {
        left += &format!("{headers:?} {body}\n");
    }
    assert!(
        left.contains("secrets/dev") && heard.lock().unwrap().len() >= 4,
        "{left}"
    );
    for ran in &ran {
        left += &format!("{}{}{}", ran.outcome.stdout, ran.outcome.stderr, ran.summary);
        left += &everything_in(&ran.folder);
    }
    left += &everything_in(&stage.scratch.path().join("store"));
    let encoded = ["aHVudGVyMi1odW50ZXIy", "aHVudGVyMy1odW50ZXIz"];
    let words = [
        "hunter2-",
        "hunter3-",
        "token-91ab",
        "token-5cd1",
        "signing-key-77fe",
    ];
    for word in words.iter().chain(&encoded) {
        assert!(!left.contains(word), "{word} left the process");
    }
}
