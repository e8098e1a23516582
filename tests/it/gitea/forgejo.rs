//! The same stories at a real Forgejo, which has the API of Gitea 1.22. What needs a newer one is refused before it is
//! asked for.

use konverge_base::error::UserError;
use konverge_forge::ForgeError;

use super::{bad_input, changes, pages, people, proposals, publishing};
use crate::support::gitea_stage::GiteaStage;

#[tokio::test]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn a_merged_pull_request_keeps_its_head() {
    changes::merged_head(GiteaStage::start_forgejo().await).await;
}

#[tokio::test]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn the_commits_of_a_branch_are_those_that_another_lacks() {
    changes::commits_of_a_branch(GiteaStage::start_forgejo().await).await;
}

#[tokio::test]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn a_head_from_outside_is_known_as_one() {
    changes::heads_from_outside(GiteaStage::start_forgejo().await).await;
}

#[tokio::test]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn one_comment_is_edited_in_place() {
    publishing::comment(GiteaStage::start_forgejo().await).await;
}

#[tokio::test]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn statuses_come_newest_first() {
    publishing::statuses(GiteaStage::start_forgejo().await).await;
}

#[tokio::test]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn issues_are_kept() {
    publishing::issues(GiteaStage::start_forgejo().await).await;
}

#[tokio::test]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn an_approval_counts_while_it_is_official() {
    people::approvals(GiteaStage::start_forgejo().await).await;
}

#[tokio::test]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn permissions_are_told_to_administrators() {
    people::permissions(GiteaStage::start_forgejo().await).await;
}

#[tokio::test]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn files_are_committed_to_a_branch() {
    proposals::committed_files(GiteaStage::start_forgejo().await).await;
}

#[tokio::test]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn a_proposal_is_merged_when_its_rules_allow_it() {
    proposals::merge_when_allowed(GiteaStage::start_forgejo().await).await;
}

#[tokio::test]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn each_link_leads_to_a_page() {
    pages::links(GiteaStage::start_forgejo().await).await;
}

#[tokio::test]
#[ignore = "needs `scripts/parts install forgejo`; `make test-all` runs it"]
async fn what_needs_a_newer_gitea_is_refused_by_the_name_of_the_server() {
    let stage = GiteaStage::start_forgejo().await;
    for error in bad_input::questions_about_runs(&stage.client(), stage.gitea.url()).await {
        assert!(matches!(error, ForgeError::Outdated { .. }), "{error}");
        let said = error.to_string();
        assert!(said.starts_with("Forgejo 10.0.0-dev-"), "{said}");
        assert!(said.ends_with(": it needs Gitea 1.26"), "{said}");
        let hints = UserError::from(error).hints;
        assert!(hints[0].starts_with("use Gitea 1.26 or later"), "{hints:?}");
    }
    let found = bad_input::doctor(&stage, &stage.bot.token);
    assert_eq!(bad_input::finding(&found, "Gitea token")["verdict"], "ok");
    let version = bad_input::finding(&found, "forge version");
    assert_eq!(version["verdict"], "unused");
    assert!(
        version["says"]
            .as_str()
            .unwrap()
            .starts_with("Forgejo 10.0.0-dev-"),
        "{version}"
    );
}
