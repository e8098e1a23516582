//! Handles a run whose commit is no longer the newest: it was re-run, or is late. A stack with a newer
//! applied commit is skipped; a plan for the older commit would only revert it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;

use super::job::Job;
use crate::{
    error::UserError,
    github::{Client, DefaultBranch, GithubError},
    model::{CommitId, StackId},
    ops::{StateBackend, Target, apply::NewerCommitCheck},
};

/// The commits of the branch after the applied one, and the stacks that have them.
pub(super) struct NewerCommits {
    client: Option<Client>,
    head: CommitId,
    branch: String,
    /// The serials of the states at the start.
    looked_at: BTreeMap<StackId, u64>,
    after: Mutex<BTreeSet<CommitId>>,
    found: Mutex<BTreeMap<StackId, CommitId>>,
}

impl NewerCommits {
    /// Asks GitHub for the commits after a commit.
    ///
    /// # Errors
    /// GitHub cannot be asked.
    pub async fn find(
        job: &Job,
        known: &crate::state::IndexedStates,
        head: &CommitId,
        branch: &DefaultBranch,
    ) -> Result<Self, UserError> {
        let after = match &job.client {
            Some(client) => after(client, head, &branch.tip).await?,
            None => BTreeSet::new(),
        };
        let entries = known.entries.iter();
        Ok(Self {
            client: job.client.clone(),
            head: head.clone(),
            branch: branch.name.clone(),
            looked_at: entries.map(|(id, entry)| (id.clone(), entry.serial)).collect(),
            after: Mutex::new(after),
            found: Mutex::default(),
        })
    }

    /// The targets to which no newer commit was applied or attempted.
    ///
    /// # Errors
    /// A state cannot be read.
    pub async fn without(
        &self,
        backend: &StateBackend,
        targets: Vec<Target>,
    ) -> Result<Vec<Target>, UserError> {
        if lock(&self.after).is_empty() {
            return Ok(targets);
        }
        let mut left = Vec::new();
        for target in targets {
            let state = backend.states.load(&target.id).await?;
            let commits = state.iter().flat_map(|state| state.commits());
            match commits
                .into_iter()
                .find(|commit| lock(&self.after).contains(commit))
            {
                Some(commit) => {
                    lock(&self.found).insert(target.id, commit);
                }
                None => left.push(target),
            }
        }
        Ok(left)
    }

    /// The skipped stacks, each with its newer commit.
    pub fn superseded_stacks(&self) -> BTreeMap<StackId, CommitId> {
        lock(&self.found).clone()
    }

    /// Asks again for the commits after the head. Returns an error if GitHub does not answer: a plan for a commit
    /// that is not the newest shows a rollback, and would be reported as an unreviewed change.
    async fn ask_again(&self, stack: &StackId) -> Result<(), UserError> {
        let Some(client) = &self.client else { return Ok(()) };
        let asked = async {
            let tip = client.branch(&self.branch).await?.tip;
            after(client, &self.head, &tip).await
        };
        let after = asked.await.map_err(|error| {
            let failure = UserError::from(error);
            let what = format!(
                "another run applied {stack} in the meantime, and it is unknown which commit is newer"
            );
            UserError {
                message: format!("{what}: {}", failure.message),
                ..failure
            }
        })?;
        *lock(&self.after) = after;
        Ok(())
    }
}

#[async_trait]
impl NewerCommitCheck for NewerCommits {
    async fn has_newer(&self, stack: &StackId, serial: u64, commits: &[CommitId]) -> Result<bool, UserError> {
        let known = |commit: &&CommitId| lock(&self.after).contains(*commit);
        let mut newer = commits.iter().find(known).cloned();
        // Another run has written the state since: this run may not know its commit.
        if newer.is_none() && self.looked_at.get(stack) != Some(&serial) {
            self.ask_again(stack).await?;
            newer = commits.iter().find(known).cloned();
        }
        Ok(match newer {
            Some(commit) => {
                lock(&self.found).insert(stack.clone(), commit);
                true
            }
            None => false,
        })
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
