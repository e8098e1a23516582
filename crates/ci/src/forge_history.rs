//! The commits after the applied one, read from the forge, because the checkout of a job is shallow.

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::trust::authority::Upstream;
use konverge_base::{error::UserError, model::CommitId};
use konverge_forge::{Forge, ForgeError};
use konverge_run::BranchHistory;

/// The default branch at the forge, compared with one commit.
pub(super) struct ForgeHistory {
    upstream: Upstream,
    head: CommitId,
}

impl ForgeHistory {
    pub(crate) fn new(upstream: &Upstream, head: &CommitId) -> Self {
        Self {
            upstream: upstream.clone(),
            head: head.clone(),
        }
    }
}

#[async_trait]
impl BranchHistory for ForgeHistory {
    async fn newer_commits(&self) -> Result<BTreeSet<CommitId>, UserError> {
        let Upstream { branch, client } = &self.upstream;
        Ok(after(client.as_ref(), &self.head, &branch.tip).await?)
    }

    async fn newer_commits_now(&self, _: &[CommitId]) -> Result<BTreeSet<CommitId>, UserError> {
        let Upstream { branch, client } = &self.upstream;
        let tip = client.branch(&branch.name).await?.tip;
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
