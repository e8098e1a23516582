//! The commits after the applied one, as GitHub knows them: the checkout of a job is shallow.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::job::Job;
use konverge_base::{error::UserError, model::CommitId};
use konverge_github::{Client, DefaultBranch, GithubError};
use konverge_run::BranchHistory;

/// The default branch on GitHub, seen from a commit.
pub(super) struct GithubHistory {
    client: Option<Client>,
    head: CommitId,
    branch: DefaultBranch,
}

impl GithubHistory {
    pub(crate) fn new(job: &Job, head: &CommitId, branch: &DefaultBranch) -> Self {
        Self {
            client: job.client.clone(),
            head: head.clone(),
            branch: branch.clone(),
        }
    }
}

#[async_trait]
impl BranchHistory for GithubHistory {
    async fn newer_commits(&self) -> Result<BTreeSet<CommitId>, UserError> {
        match &self.client {
            Some(client) => Ok(after(client, &self.head, &self.branch.tip).await?),
            None => Ok(BTreeSet::new()),
        }
    }

    async fn newer_commits_now(&self, _: &[CommitId]) -> Result<BTreeSet<CommitId>, UserError> {
        let Some(client) = &self.client else {
            return Ok(BTreeSet::new());
        };
        let tip = client.branch(&self.branch.name).await?.tip;
        Ok(after(client, &self.head, &tip).await?)
    }
}

/// The commits in a branch's tip that are not in a commit.
async fn after(
    client: &Client,
    commit: &CommitId,
    tip: &CommitId,
) -> Result<BTreeSet<CommitId>, GithubError> {
    if commit == tip {
        return Ok(BTreeSet::new());
    }
    // A commit that left the branch has no newer ones: a forced push may be a rollback.
    Ok(client.commits_after(commit, tip).await?.unwrap_or_default())
}
