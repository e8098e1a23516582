//! `konverge serve`: the process, from its first line to its end.

use konverge_base::model::apply_result::StackResult;
use serde_json::{Value, json};

use super::recorded::{RecordedStacks, config_map};
use crate::support::{portal_server::PortalServer, process::binary};

#[tokio::test(flavor = "multi_thread")]
async fn it_answers_on_this_machine_with_no_variable_of_a_cluster_or_a_cloud_and_ends_when_asked() {
    let recorded = RecordedStacks::new().await;
    recorded
        .apply(
            "shop/prod",
            vec![config_map("web", &json!({"level": "1"}))],
            StackResult::Applied,
        )
        .await;
    recorded
        .apply(
            "shop/prod",
            vec![config_map("web", &json!({"level": "2"}))],
            StackResult::Applied,
        )
        .await;
    let home = tempfile::tempdir().unwrap();
    let server = PortalServer::start(
        &binary(),
        recorded.repository.path(),
        home.path(),
        "127.0.0.1:0",
        &[],
    );
    let root = &server.root;
    assert!(root.starts_with("http://127.0.0.1:"), "{root}");
    let client = reqwest::Client::new();
    let get = async |path: &str| client.get(format!("{root}{path}")).send().await.unwrap();

    let page = get("/").await.text().await.unwrap();
    assert!(
        page.contains("shop/prod") && page.contains("stacks/shop@prod/index.html"),
        "{page}"
    );
    let filtered = get("/?condition=failed").await.text().await.unwrap();
    assert!(filtered.contains("No stack matches"), "{filtered}");
    let answer = get("/api/v1/stacks/shop%2Fprod").await;
    let tag = answer.headers()["etag"].to_str().unwrap().to_owned();
    assert!(tag.starts_with("\"2-"), "{tag}");
    let stack: Value = answer.json().await.unwrap();
    assert_eq!(stack["applied"]["serial"], 2);
    assert_eq!(stack["state"]["resources"][0]["id"], "v1:ConfigMap:shop:web");
    assert!(!stack.to_string().contains("hidden-record"));
    assert_eq!(
        stack["history"][0]["receipt"]["pullRequests"][0]["reviewers"],
        json!(["grace"])
    );
    let known = client
        .get(format!("{root}/api/v1/stacks/shop%2Fprod"))
        .header("if-none-match", tag);
    assert_eq!(known.send().await.unwrap().status(), 304);
    let difference: Value = get("/api/v1/stacks/shop%2Fprod/diff?from=1&to=2")
        .await
        .json()
        .await
        .unwrap();
    assert_eq!(difference["resources"][0]["change"], "changed");
    assert_eq!(
        get("/api/v1/stacks/shop%2Fprod/diff?from=1&to=9").await.status(),
        404
    );
    assert_eq!(get("/healthz").await.status(), 200);

    let pid = nix::unistd::Pid::from_raw(server.pid().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let ended = tokio::task::spawn_blocking(move || server.wait()).await.unwrap();
    assert!(ended.success(), "{ended}");
}
