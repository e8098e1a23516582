//! The addresses of pages, to which the portal links.

use konverge_forge::{ForgeKind, RepositoryPages, WorkflowPage};
use serde_json::json;

use crate::support::gitea_stage::{GiteaStage, KONFIG, id};

/// The server whose place the real one takes: links are of servers with TLS alone.
const SERVER: &str = "https://forge.example";

#[tokio::test]
#[ignore = "needs `scripts/parts install gitea`; `make test-all` runs it"]
async fn each_link_leads_to_a_page() {
    links(GiteaStage::start().await).await;
}

pub(super) async fn links(stage: GiteaStage) {
    let (number, head) = stage.opened(&stage.bob, "topic", "a.txt", "a\n").await;
    let issues = format!("/repos/{KONFIG}/issues");
    let drift = json!({"title": "Drift"});
    let issue = stage.gitea.post(&stage.ada.token, &issues, drift).await;
    let pages = RepositoryPages::new(ForgeKind::Gitea, SERVER, KONFIG).unwrap();
    let workflow = format!("{}/actions?workflow=konverge.yml", pages.url());
    assert!(WorkflowPage::parse(&workflow).is_some());
    for link in [
        pages.url(),
        pages.commit(&id(&head)),
        pages.pull_request(number),
        pages.issue(issue["number"].as_u64().unwrap()),
        pages.history("README.md"),
        pages.person("bob").unwrap(),
        workflow,
    ] {
        let page = link.replacen(SERVER, stage.gitea.url(), 1);
        let answer = reqwest::get(&page).await.unwrap();
        assert!(answer.status().is_success(), "{page}: {}", answer.status());
    }
}
