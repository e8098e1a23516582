//! `--keep` in a job: the digest of a drift issue becomes a pull request, or the issue says why it does not. A secret
//! never does.

use serde_json::json;

use super::hotfix::{MAIN, applied, maps};
use crate::support::{ci_stage::Stage, objects::Objects, process::Outcome, tiny_monorepo};

/// The step of the workflow `konverge-keep`: it has the digest alone, and the token of an App.
fn keep_in_job(stage: &Stage, digest: &str) -> Outcome {
    stage
        .konverge(["set", "--keep", digest, "--pull-request"])
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_SERVER_URL", "https://github.com")
        .env("GITHUB_API_URL", stage.github.api_url())
        .env("GITHUB_REPOSITORY", "acme/konfig")
        .env("GITHUB_RUN_ID", "77")
        .env("GITHUB_RUN_ATTEMPT", "1")
        .env("GITHUB_TOKEN", "ghs_app")
        .run()
}

/// Looks for drift, as the scheduled job does: the number of the issue, and the digest that it offers to keep.
fn look(stage: &mut Stage) -> (u64, String) {
    stage.schedule().outcome.check(0);
    stage.github.world(|world| {
        let issue = world
            .issues
            .iter()
            .find(|issue| issue.labels[0] == "konverge-drift")
            .unwrap();
        let (_, digest) = issue.body.split_once("--keep ").expect("the issue offers it");
        let digest = digest.chars().take_while(char::is_ascii_hexdigit).collect();
        (issue.number, digest)
    })
}

fn branches(stage: &Stage) -> Vec<String> {
    stage.github.world(|world| {
        let branches = world.pulls.iter().map(|pull| pull.branch.clone());
        branches
            .filter(|branch| branch.starts_with("konverge/set-"))
            .collect()
    })
}

/// The comments on an issue, with their authors.
fn comments(stage: &Stage, issue: u64) -> Vec<(String, String)> {
    stage.github.world(|world| {
        let comments = world.comments.iter().filter(|comment| comment.issue == issue);
        comments
            .map(|comment| (comment.login.clone(), comment.body.clone()))
            .collect()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn one_candidate_is_a_pull_request_and_others_are_named_on_the_issue() {
    let settings = "    first = \"one\"\n    left = \"two\"\n    \"right @octocat <b>\" = \"two\"\n";
    let either = "_settings.left if _settings.left != \"two\" else _settings[\"right @octocat <b>\"]";
    let list = maps(&[
        ("job-keep-one", "_settings.first"),
        ("job-keep-two", either),
        ("job-keep-none", "\"com\" + \"puted\""),
    ]);
    let mut stage = applied(settings, &list).await;
    stage.github.world(|world| {
        let mut token = world.tokens["ghs_token"].clone();
        token.login = "konverge-app[bot]";
        token.permissions.insert("contents", "write");
        world.tokens.insert("ghs_app", token);
    });
    let before = stage.monorepo.read(MAIN);

    stage.by_hand("job-keep-one", Some("by hand")).await;
    let (issue, digest) = look(&mut stage);
    let kept = keep_in_job(&stage, &digest).expect(0);
    assert!(
        kept.stderr
            .contains("opened https://github.com/acme/konfig/pull/"),
        "{}",
        kept.stderr
    );
    let [branch] = &branches(&stage)[..] else {
        panic!("{:?}", branches(&stage));
    };
    assert_eq!(
        stage.monorepo.git(["show", &format!("{branch}:{MAIN}")]),
        before
            .replace("first = \"one\"", "first = \"by hand\"")
            .trim_end()
    );
    assert!(comments(&stage, issue).is_empty());
    stage.by_hand("job-keep-one", Some("one")).await;

    // Several: each with its line. Once more is the same comment.
    stage.by_hand("job-keep-two", Some("by hand")).await;
    let (same, digest) = look(&mut stage);
    assert_eq!(same, issue);
    for _ in 0..2 {
        let refused = keep_in_job(&stage, &digest).expect(1);
        assert!(
            refused.stderr.contains("several attributes of keep/dev"),
            "{}",
            refused.stderr
        );
        let [(author, text)] = &comments(&stage, issue)[..] else {
            panic!("{:?}", comments(&stage, issue));
        };
        assert_eq!(author, "konverge-app[bot]");
        let line = |name: &str| {
            let at = before.lines().position(|line| line.contains(name)).unwrap() + 1;
            format!("({MAIN}:{at})")
        };
        let left = format!("`_settings.left` {}", line("    left ="));
        let right = format!(
            "`_settings.\"right @octocat <b>\"` {}",
            line("right @octocat <b>\" =")
        );
        for said in [
            "the difference is not kept",
            "Nothing was written",
            &left,
            &right,
            "runs/77",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        // What comes from the code stands in a fence: it mentions nobody.
        let (_, fenced) = text.split_once("> ```text\n").unwrap();
        assert!(
            fenced.split_once("> ```\n").unwrap().0.contains("@octocat"),
            "{text}"
        );
    }
    stage.by_hand("job-keep-two", Some("two")).await;

    // None.
    stage.by_hand("job-keep-none", Some("by hand")).await;
    let (_, digest) = look(&mut stage);
    keep_in_job(&stage, &digest).expect(1);
    let said = comments(&stage, issue);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[1].1.contains("no file of keep/dev sets the value of"),
        "{}",
        said[1].1
    );
    // A digest that no drift check knows.
    let unknown = keep_in_job(&stage, &"0".repeat(64)).expect(64);
    assert!(
        unknown.stderr.contains("no drift check found"),
        "{}",
        unknown.stderr
    );
    assert_eq!(comments(&stage, issue).len(), 2);
    assert_eq!(branches(&stage).len(), 1);
    assert_eq!(stage.monorepo.git(["status", "--porcelain"]), "");
}

const SECRETS: &str = "appops/secret/dev/main.k";

/// The data of a Secret, and a value with the name of a secret in another object.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_never_kept() {
    let stage = Stage::small("").await;
    let namespace = stage.cluster.namespace("keep-secret").await;
    let hands = Objects::of(stage.cluster).await;
    stage.monorepo.checkout("main");
    let program = format!(
        "_s = {{\n    word = \"aHVudGVyMi1vbmU=\"\n    password = \"hunter2-two\"\n    level = \"info\"\n}}\nresources = [\n    {{apiVersion = \"v1\", kind = \"Secret\", metadata = {{name = \"web\", namespace = \"{namespace}\"}}, data.word = _s.word}}\n    {{apiVersion = \"v1\", kind = \"ConfigMap\", metadata = {{name = \"web\", namespace = \"{namespace}\"}}, data = {{API_PASSWORD = _s.password, level = _s.level}}}}\n]\n"
    );
    tiny_monorepo::write_program(&stage.monorepo, "secret/dev", &program);
    stage.monorepo.commit("A stack");
    stage
        .konverge(["apply", "secret/dev", "--yes", "--no-wait"])
        .run()
        .expect(0);
    let before = stage.monorepo.read(SECRETS);
    let object = |kind: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "web", "namespace": namespace}});
    let keep = || {
        let checked = stage.konverge(["drift", "secret/dev", "--output", "json"]).run();
        let drift = checked.expect(0).json()["stacks"][0].clone();
        stage
            .konverge(["set", "secret/dev", "--keep", drift["digest"].as_str().unwrap()])
            .run()
    };
    for (kind, data, back) in [
        (
            "Secret",
            json!({"word": "aHVudGVyMi1saXZl"}),
            json!({"word": "aHVudGVyMi1vbmU="}),
        ),
        (
            "ConfigMap",
            json!({"API_PASSWORD": "hunter2-live"}),
            json!({"API_PASSWORD": "hunter2-two"}),
        ),
    ] {
        hands
            .strategic_merge(&object(kind), "kubectl-edit", &json!({"data": data}))
            .await;
        let refused = keep().expect(1);
        assert!(
            refused
                .stderr
                .contains("is a secret, which is never written into code"),
            "{}",
            refused.stderr
        );
        let said = refused.stdout + &refused.stderr;
        assert!(!said.contains("hunter2") && !said.contains("aHVudGVy"), "{said}");
        assert_eq!(stage.monorepo.read(SECRETS), before, "{kind}");
        hands
            .strategic_merge(&object(kind), "kubectl-edit", &json!({"data": back}))
            .await;
    }
    let plain = json!({"data": {"level": "debug"}});
    hands
        .strategic_merge(&object("ConfigMap"), "kubectl-edit", &plain)
        .await;
    keep().expect(0);
    assert_eq!(
        stage.monorepo.read(SECRETS),
        before.replace("level = \"info\"", "level = \"debug\"")
    );
}
