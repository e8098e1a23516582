//! The commits after the applied one, read from the forge, because the checkout of a job is shallow.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;

use super::job::Job;
use konverge_base::{error::UserError, model::CommitId};
use konverge_forge::{DefaultBranch, Forge, ForgeError};
use konverge_run::BranchHistory;

/// The default branch at the forge, compared with one commit.
pub(super) struct ForgeHistory {
    client: Option<Arc<dyn Forge>>,
    head: CommitId,
    branch: DefaultBranch,
}

impl ForgeHistory {
    pub(crate) fn new(job: &Job, head: &CommitId, branch: &DefaultBranch) -> Self {
        Self {
            client: job.client.clone(),
            head: head.clone(),
            branch: branch.clone(),
        }
    }
}

#[async_trait]
impl BranchHistory for ForgeHistory {
    async fn newer_commits(&self) -> Result<BTreeSet<CommitId>, UserError> {
        match &self.client {
            Some(client) => Ok(after(client.as_ref(), &self.head, &self.branch.tip).await?),
            None => Ok(BTreeSet::new()),
        }
    }

    async fn newer_commits_now(&self, _: &[CommitId]) -> Result<BTreeSet<CommitId>, UserError> {
        let Some(client) = &self.client else {
            return Ok(BTreeSet::new());
        };
        let tip = client.branch(&self.branch.name).await?.tip;
        Ok(after(client.as_ref(), &self.head, &tip).await?)
    }
}

/// Returns the commits in the tip of a branch that `commit` does not contain.
async fn after(
    client: &dyn Forge,
    commit: &CommitId,
    tip: &CommitId,
) -> Result<BTreeSet<CommitId>, ForgeError> {
    if commit == tip {
        return Ok(BTreeSet::new());
    }
    // `None` means that the tip does not contain the commit, after a force push. Then no commit counts as newer,
    // because the force push may be a rollback.
    Ok(client.commits_after(commit, tip).await?.unwrap_or_default())
}
