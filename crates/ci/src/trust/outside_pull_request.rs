//! The pull request from outside that a run of another workflow was about.

use konverge_base::error::UserError;
use konverge_github::{Client, PullRequest, WorkflowRunEvent};

/// The open pull request of a run's head. It is found by its branch, because GitHub knows no pull request for
/// a commit that only a fork has. Of several the one into the default branch is taken, which is the applied
/// one.
pub(crate) async fn find_pull_request(
    client: &Client,
    event: &WorkflowRunEvent,
    default_branch: &str,
) -> Result<Option<PullRequest>, UserError> {
    let Some((owner, _)) = event.head_repository.split_once('/') else {
        return Ok(None);
    };
    let pulls = client.open_pull_requests_from(owner, &event.head_branch).await?;
    let of_head = pulls
        .into_iter()
        .filter(|pull| pull.from_fork == event.from_fork && pull.head == event.head);
    Ok(of_head.min_by_key(|pull| (pull.base_branch != default_branch, pull.number)))
}
