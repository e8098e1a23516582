//! The same stories at a real Forgejo, which was made of Gitea 1.22. What needs a newer API is refused before it is asked for.

use konverge_base::error::UserError;
use konverge_forge::{ForgeError, RepositoryPages, Runs as _};
use serde_json::json;

use super::{changes, people, proposals, publishing};
use crate::support::gitea_stage::{GiteaStage, KONFIG};

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
