//! The scripts of docs/guides/jenkins.md: comments, against a fake GitHub server that records the requests, and
//! applies, in a monorepo with a store and a cluster.

use std::{
    path::Path,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::docs::root;
use crate::support::{ci_stage::Stage, json_answer::Json, process::Konverge};

/// A forge: the comments of one pull request, each with its author, and who the token belongs to.
#[derive(Clone, Default)]
struct Forge(Arc<Mutex<Vec<Value>>>);

const TOKEN: &str = "glpat-of-a-test";

impl Forge {
    /// The same for both forges: `GET …/user`, the list, a new one, another text for one.
    async fn answer(
        State(forge): State<Self>,
        method: Method,
        uri: Uri,
        headers: HeaderMap,
        body: String,
    ) -> Response {
        let is_known = ["private-token", "authorization"].iter().any(|name| {
            headers
                .get(*name)
                .is_some_and(|value| value.to_str().unwrap().ends_with(TOKEN))
        });
        if !is_known {
            return StatusCode::UNAUTHORIZED.into_response();
        }
        let mut comments = forge.0.lock().unwrap();
        let path = uri.path();
        if method == Method::GET && path.ends_with("/user") {
            return Json(json!({"id": 7})).into_response();
        }
        if method == Method::GET {
            return Json(comments.clone()).into_response();
        }
        let text = serde_json::from_str::<Value>(&body).unwrap()["body"].clone();
        let user = json!({"id": 7});
        if method == Method::POST {
            let id = comments.len() + 1;
            comments.push(json!({"id": id, "body": text, "author": user, "user": user}));
            return StatusCode::CREATED.into_response();
        }
        let id: usize = path.rsplit('/').next().unwrap().parse().unwrap();
        match comments.get_mut(id - 1) {
            Some(comment) => comment["body"] = text,
            None => return StatusCode::NOT_FOUND.into_response(),
        }
        StatusCode::OK.into_response()
    }
}

/// The script posts once, edits after that, and leaves somebody else's copy of the marker alone.
async fn posts_and_edits(script: String, variables: impl Fn(&str) -> Vec<(&'static str, String)>) {
    let forge = Forge::default();
    // Somebody else copied our first line.
    let stranger = json!({"id": 9});
    forge.0.lock().unwrap().push(
        json!({"id": 1, "body": "<!-- konverge:v1 x -->\nmine now", "author": stranger, "user": stranger}),
    );
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(Forge::answer).with_state(forge.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let variables = variables(&url);
    tokio::task::spawn_blocking(move || {
        let folder = tempfile::tempdir().unwrap();
        for text in ["first \"quoted\" $HOME `x`", "second"] {
            let body = format!("<!-- konverge:v1 e30 -->\n{text}\n");
            std::fs::write(folder.path().join("preview.md"), &body).unwrap();
            let mut shell = Konverge::of(Path::new("/bin/sh"), ["-euc", &script])
                .dir(folder.path())
                .env("PATH", std::env::var("PATH").unwrap());
            for (name, value) in &variables {
                shell = shell.env(name, value);
            }
            shell.run().expect(0);
            let comments = forge.0.lock().unwrap();
            assert_eq!(comments.len(), 2, "{comments:#?}");
            assert_eq!(comments[0]["body"], "<!-- konverge:v1 x -->\nmine now");
            assert_eq!(comments[1]["body"], body);
            drop(comments);
            std::fs::remove_file(folder.path().join("preview.md")).unwrap();
        }
        // A job that was killed leaves nothing: what the comment says of an earlier push is not true any more.
        let mut shell = Konverge::of(Path::new("/bin/sh"), ["-euc", &script])
            .dir(folder.path())
            .env("PATH", std::env::var("PATH").unwrap());
        for (name, value) in &variables {
            shell = shell.env(name, value);
        }
        shell.run().expect(0);
        let comments = forge.0.lock().unwrap();
        let body = comments[1]["body"].as_str().unwrap();
        for part in [
            "<!-- konverge:v1 ",
            "it did not end\n",
            "0123abc",
            "Its log: https://ci.example.com/7",
        ] {
            assert!(body.contains(part), "{part}: {body}");
        }
    })
    .await
    .unwrap();
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join("docs/guides").join(name)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn jenkins_stage_edits_one_comment() {
    let block = super::docs::blocks(&page("jenkins.md"), "groovy").remove(0);
    let (before, rest) = block.split_once("'''").unwrap();
    let script = rest.split("'''").next().unwrap().to_owned();
    assert!(before.contains("post {\n        always {"), "{before}");
    let variables = |url: &str| {
        vec![
            ("GITHUB_API", url.to_owned()),
            ("REPOSITORY", "acme/konfig".to_owned()),
            ("CHANGE_ID", "7".to_owned()),
            ("TOKEN", TOKEN.to_owned()),
            ("GIT_COMMIT", "0123abc".to_owned()),
            ("BUILD_URL", "https://ci.example.com/7".to_owned()),
        ]
    };
    posts_and_edits(script, variables).await;
}

/// The script catches up on a commit whose run was skipped, does nothing if nothing is pending, and reverts nothing if
/// it runs for an older commit.
async fn catches_up(script: &str, prefix: &str) {
    let stage = Stage::small("").await;
    let monorepo = &stage.monorepo;
    let map = |name: &str| format!("{prefix}-{name}");
    let stack = |name: &str, value: &str| {
        stage.stack(&format!("{}/dev", map(name)), &[(&map(name), value)]);
    };
    let bin = Path::new(env!("CARGO_BIN_EXE_konverge")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let apply = |commit: &str| {
        monorepo.checkout(commit);
        let shell = Konverge::of(Path::new("/bin/sh"), ["-euc", script]);
        let ended = shell
            .with_kcl()
            .dir(monorepo.path())
            .env("PATH", &path)
            .env("KUBECONFIG", stage.cluster.kubeconfig())
            .env("CI_COMMIT_SHA", commit)
            .run();
        monorepo.checkout("main");
        ended.expect(0)
    };
    stack("a", "one");
    let first = monorepo.commit("One");
    apply(&first);
    stack("a", "two");
    stack("gone", "two");
    monorepo.commit("Its pipeline was cancelled");
    stack("b", "three");
    monorepo.remove(&format!("appops/{}", map("gone")));
    let newest = monorepo.commit("Three");
    let caught_up = apply(&newest);
    assert!(
        caught_up.stdout.contains("2 stacks: 2 applied"),
        "{}",
        caught_up.stdout
    );
    let again = apply(&newest);
    assert!(again.stdout.contains("0 stacks: "), "{}", again.stdout);
    let late = apply(&first);
    assert!(late.stderr.contains("newer commit"), "{}", late.stderr);
    for (name, value) in [("a", Some("two")), ("b", Some("three")), ("gone", None)] {
        assert_eq!(stage.value(&map(name)).await.as_deref(), value, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jenkins_stage_applies_what_is_pending() {
    let block = super::docs::blocks(&page("jenkins.md"), "groovy").remove(0);
    let scripts = block.lines().filter_map(|line| line.trim().strip_prefix("sh '"));
    let script = scripts.map(|script| script.trim_end_matches('\''));
    let apply: Vec<_> = script.filter(|script| script.contains(" apply ")).collect();
    catches_up(apply[0], "jenkins").await;
}
