//! What goes wrong between a job and its Gitea, each with the next step.

use std::sync::{Arc, Mutex};

use axum::{Router, extract::State, http::Uri, response::Html};
use konverge_base::error::{UserError, chain};
use konverge_forge::{
    Changes as _, CommentAccess, ForgeError, People as _, Publishing as _, Runs as _, StatusState,
};
use konverge_gitea::Client;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    git::Repository,
    gitea::Gitea,
    gitea_stage::{GiteaStage, KONFIG, client, id},
    process::Konverge,
};

#[tokio::test]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn a_token_without_a_scope_is_told_which() {
    let stage = GiteaStage::start().await;
    let head = id(&stage.fetched_main());
    let token = stage
        .gitea
        .token("konverge", &["read:repository", "read:issue"])
        .await;
    let konverge = stage.client_with(&token);
    konverge.default_branch().await.unwrap();
    let status = konverge
        .set_status(&head, "konverge/preview", StatusState::Pending, "", None)
        .await;
    let refused = status.unwrap_err();
    assert!(
        matches!(&refused, ForgeError::Forbidden { permission, .. } if permission == "write:repository"),
        "{refused}"
    );
    let failure = UserError::from(refused);
    assert!(
        failure.hints.iter().any(|hint| hint.contains("GITEA_TOKEN")),
        "{failure:?}"
    );
    let refused = konverge.own_login().await.unwrap_err();
    assert!(refused.to_string().contains("`read:user`"), "{refused}");
    let refused = konverge
        .is_team_member("acme", "developers", "bob")
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("read:organization"), "{refused}");

    let wrong = stage.client_with("0123456789012345678901234567890123456789");
    let refused = wrong.default_branch().await.unwrap_err();
    assert!(matches!(refused, ForgeError::Token { .. }), "{refused}");
}

#[tokio::test]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn an_instance_below_a_path_a_renamed_repository_and_a_locked_conversation() {
    let stage = GiteaStage::of(Gitea::start_below("/forge").await, Repository::init()).await;
    let konverge = stage.client();
    let (number, _) = stage.opened(&stage.bob, "topic", "a.txt", "a\n").await;
    assert_eq!(konverge.pull_request(number).await.unwrap().number, number);
    let page = format!("{}/{KONFIG}/actions/runs/1", stage.gitea.url());
    assert!(page.contains("/forge/acme/"));
    konverge.is_over(&page).await.unwrap_err();

    // Renamed: the answer leads to the new address, on the same server.
    let rename = json!({"name": "konfig-2"});
    let path = format!("/repos/{KONFIG}");
    stage
        .gitea
        .call(&stage.ada.token, Method::PATCH, &path, rename)
        .await;
    assert_eq!(konverge.pull_request(number).await.unwrap().number, number);
    let head = konverge.default_branch().await.unwrap().tip;
    konverge
        .set_status(&head, "konverge/apply", StatusState::Success, "well", None)
        .await
        .unwrap();
    assert_eq!(konverge.statuses(&head).await.unwrap().len(), 1);

    let lock = format!("/repos/acme/konfig-2/issues/{number}/lock");
    stage
        .gitea
        .call(
            &stage.ada.token,
            Method::PUT,
            &lock,
            json!({"lock_reason": "Spam"}),
        )
        .await;
    let eve = stage.client_with(&stage.eve.token);
    let marker = crate::support::gitea_stage::marker(1);
    let refused = eve.create_comment(number, &marker, "hello").await.unwrap_err();
    assert!(matches!(refused, ForgeError::Locked { .. }), "{refused}");
}

/// Serves a Gitea of a version, whose every other answer is the page of a proxy that asks for a login.
async fn behind_a_proxy(version: &'static str) -> (String, Arc<Mutex<Vec<String>>>) {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let answer = move |State(asked): State<Arc<Mutex<Vec<String>>>>, uri: Uri| async move {
        asked.lock().unwrap().push(uri.path().to_owned());
        if uri.path().ends_with("/version") {
            return Html(format!("{{\"version\":\"{version}\"}}"));
        }
        Html("<!DOCTYPE html><title>Sign in</title>".to_owned())
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/api/v1", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state(Arc::clone(&asked));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (address, asked)
}

#[tokio::test]
async fn a_page_of_a_proxy_is_no_answer() {
    let (address, _) = behind_a_proxy("1.26.0").await;
    let konverge = client(&address, "token");
    let errors = [
        konverge.default_branch().await.unwrap_err(),
        konverge.approvals(1).await.unwrap_err(),
        konverge.permission("ada").await.unwrap_err(),
        konverge.comments(1, None, CommentAccess::Read).await.unwrap_err(),
    ];
    for error in errors {
        assert!(chain(&error).contains("HTML"), "{error:?}");
        let failure = UserError::from(error);
        assert!(
            failure.hints.iter().any(|hint| hint.contains("GITHUB_API_URL")),
            "{failure:?}"
        );
    }
}

/// What each question about a run is answered with by a server that is too old.
pub(super) async fn questions_about_runs(konverge: &Client, server: &str) -> [ForgeError; 4] {
    let page = format!("{server}/{KONFIG}/actions/runs/1");
    [
        konverge
            .dispatch_workflow("hook.yml", "main", &json!({}))
            .await
            .unwrap_err(),
        konverge.dispatched_runs("hook.yml", "main", 1).await.unwrap_err(),
        konverge.dispatched_run(1).await.unwrap_err(),
        konverge.is_over(&page).await.unwrap_err(),
    ]
}

#[tokio::test]
async fn a_server_that_is_too_old_is_told_what_it_must_be_and_asked_nothing() {
    for version in ["1.25.5", "11.0.1+gitea-1.22.0"] {
        let (address, asked) = behind_a_proxy(version).await;
        let server = address.strip_suffix("/api/v1").unwrap();
        for error in questions_about_runs(&client(&address, "token"), server).await {
            assert!(matches!(error, ForgeError::Outdated { .. }), "{error}");
            let said = error.to_string();
            let number = version.split('+').next().unwrap();
            assert!(
                said.contains(number) && said.ends_with("it needs Gitea 1.26"),
                "{said}"
            );
        }
        assert_eq!(*asked.lock().unwrap(), ["/api/v1/version"]);
    }
}

/// A Forgejo of tomorrow: with the API, its URLs would still name another run.
#[tokio::test]
async fn a_url_of_a_run_at_forgejo_tells_nothing_about_its_end() {
    let (address, asked) = behind_a_proxy("20.0.0+gitea-1.30.0").await;
    let server = address.strip_suffix("/api/v1").unwrap();
    let page = format!("{server}/{KONFIG}/actions/runs/1");
    assert_eq!(client(&address, "token").is_over(&page).await.unwrap(), None);
    assert_eq!(*asked.lock().unwrap(), ["/api/v1/version"]);
}

#[tokio::test]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn doctor_says_what_gitea_has_not_and_which_scope_the_token_lacks() {
    let stage = GiteaStage::start().await;
    let found = doctor(&stage, &stage.bot.token);
    assert_eq!(finding(&found, "Gitea token")["verdict"], "ok");
    assert!(found.iter().all(|finding| finding["what"] != "forge version"));
    let limits = finding(&found, "forge limits")["says"].to_string();
    for missing in ["deployments", "environments", "who pushed", "CODEOWNERS"] {
        assert!(limits.contains(missing), "{missing}: {limits}");
    }
    let lacking = stage.gitea.token("konverge", &["read:user"]).await;
    let found = finding(&doctor(&stage, &lacking), "Gitea token");
    assert_eq!(found["verdict"], "missing");
    assert!(found["fix"].to_string().contains("read:repository"), "{found}");
}

/// The findings of `konverge doctor` in a job with a token.
pub(super) fn doctor(stage: &GiteaStage, token: &str) -> Vec<Value> {
    let outcome = Konverge::new(["doctor", "--output", "json"])
        .dir(stage.konfig.path())
        .env("GITHUB_ACTIONS", "true")
        .env("GITEA_ACTIONS", "true")
        .env("GITHUB_REPOSITORY", KONFIG)
        .env("GITHUB_SERVER_URL", format!("{}/", stage.gitea.url()))
        .env("GITEA_TOKEN", token)
        .run();
    outcome.json()["findings"].as_array().unwrap().clone()
}

pub(super) fn finding(found: &[Value], what: &str) -> Value {
    let finding = found.iter().find(|finding| finding["what"] == what);
    finding
        .unwrap_or_else(|| panic!("{what} is not in {found:#?}"))
        .clone()
}
