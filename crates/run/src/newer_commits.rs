//! Handles a run whose commit is no longer the newest: it was re-run, or is late. A stack with a newer
//! applied commit is skipped; a plan for the older commit would only revert it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::{RunContext, StateBackend, Target, apply::NewerCommitCheck};
use konverge_base::{
    error::UserError,
    model::{CommitId, StackId, apply_result::ApplyReport},
};
use konverge_state::{IndexedStates, Proven};

/// The number of states read concurrently.
const AT_ONCE: usize = 8;

/// The history of the branch that is applied.
#[async_trait]
pub trait BranchHistory: Send + Sync {
    /// The commits of the branch that the applied commit does not contain.
    ///
    /// # Errors
    /// They cannot be determined.
    async fn newer_commits(&self) -> Result<BTreeSet<CommitId>, UserError>;

    /// Asks again, because another run has applied these commits in the meantime.
    ///
    /// # Errors
    /// They cannot be determined.
    async fn newer_commits_now(&self, applied: &[CommitId]) -> Result<BTreeSet<CommitId>, UserError>;
}

/// The commits of the branch after the applied one, and the stacks that have them.
pub struct NewerCommits {
    run: RunContext,
    history: Box<dyn BranchHistory>,
    /// The serials of the states at the start.
    looked_at: BTreeMap<StackId, u64>,
    after: Mutex<BTreeSet<CommitId>>,
    found: Mutex<BTreeMap<StackId, CommitId>>,
}

impl NewerCommits {
    /// Asks the history for the commits after the applied one.
    ///
    /// # Errors
    /// Errors of the history.
    pub async fn find(
        run: &RunContext,
        known: &Proven<IndexedStates>,
        history: Box<dyn BranchHistory>,
    ) -> Result<Self, UserError> {
        let after = history.newer_commits().await?;
        let entries = known.entries.iter();
        Ok(Self {
            run: run.clone(),
            history,
            looked_at: entries.map(|(id, entry)| (id.clone(), entry.serial)).collect(),
            after: Mutex::new(after),
            found: Mutex::default(),
        })
    }

    /// Returns the targets to which no newer commit was applied or tried, in their order. The others get a note.
    /// `renamed` are the recorded identities that targets continue.
    ///
    /// # Errors
    /// A state cannot be read.
    pub async fn without(
        &self,
        backend: &StateBackend,
        targets: Vec<Target>,
        renamed: &BTreeMap<StackId, StackId>,
    ) -> Result<Vec<Target>, UserError> {
        if lock(&self.after).is_empty() {
            return Ok(targets);
        }
        let kept = stream::iter(targets)
            .map(async |target| {
                let recorded = renamed.get(&target.id).unwrap_or(&target.id);
                let state = backend.states.load(recorded).await?;
                let commits: Vec<_> = state.iter().flat_map(|state| state.commits()).collect();
                Ok::<_, UserError>((!self.is_superseded(&target.id, &commits)).then_some(target))
            })
            .buffered(AT_ONCE)
            .try_collect::<Vec<_>>()
            .await?;
        Ok(kept.into_iter().flatten().collect())
    }

    /// The skipped stacks, each with its newer commit.
    pub fn superseded_stacks(&self) -> BTreeMap<StackId, CommitId> {
        lock(&self.found).clone()
    }

    /// Removes the skipped stacks from the report of an apply, and returns them.
    pub fn take_out_of(&self, report: &mut ApplyReport) -> BTreeMap<StackId, CommitId> {
        let newer = self.superseded_stacks();
        report.stacks.retain(|stack| !newer.contains_key(&stack.id));
        newer
    }

    /// Returns true if one of the commits that were applied to a stack is newer, and says so in a note.
    fn is_superseded(&self, stack: &StackId, commits: &[CommitId]) -> bool {
        let newer = commits.iter().find(|commit| lock(&self.after).contains(*commit));
        let Some(newer) = newer else { return false };
        self.run.notes.note(&format!(
            "{stack} has the newer commit {}, so it is left as it is",
            newer.short()
        ));
        lock(&self.found).insert(stack.clone(), newer.clone());
        true
    }

    /// Asks the history again. Returns an error if it does not answer: a plan for a commit that is not the
    /// newest shows a rollback, and would be reported as an unreviewed change.
    async fn ask_again(&self, stack: &StackId, commits: &[CommitId]) -> Result<(), UserError> {
        let after = self.history.newer_commits_now(commits).await;
        let after = after.map_err(|failure| {
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
        if self.is_superseded(stack, commits) {
            return Ok(true);
        }
        // Another run has written the state since: this run may not know its commit.
        if commits.is_empty() || self.looked_at.get(stack) == Some(&serial) {
            return Ok(false);
        }
        self.ask_again(stack, commits).await?;
        Ok(self.is_superseded(stack, commits))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
