//! [`Head`]: a revision of the repository, which recorded stacks are compared with.

use std::collections::{BTreeMap, BTreeSet};

use crate::{OpenRevision, RevisionSpec, RunContext, StateBackend, pending_stacks, renamed_stacks};
use konverge_base::{
    error::UserError,
    model::{CommitId, RepoPath, StackId},
};
use konverge_portal::HeadFact;
use konverge_repo::git::Repository;
use konverge_state::{IndexedStates, Proven};

/// A revision of the repository. Opened once, and compared with the records for each request.
pub struct Head {
    revision: OpenRevision,
    commit: CommitId,
}

/// The data of a revision about each stack.
pub(super) struct HeadFacts {
    pub commit: CommitId,
    /// The stacks of the revision, with their folders.
    pub stacks: BTreeMap<StackId, RepoPath>,
    /// The stacks that the next run applies or destroys.
    pending: BTreeSet<StackId>,
    /// The recorded identities that stacks of the revision continue, each with the new identity.
    pub renamed: BTreeMap<StackId, StackId>,
}

impl Head {
    /// Opens the commit that is checked out, with its own configuration. `None` without a repository or a commit, or if
    /// the commit has no stacks.
    ///
    /// # Errors
    /// The commit cannot be read.
    pub fn open(run: &RunContext) -> Result<Option<Self>, UserError> {
        let Some(commit) = Self::commit_of(run) else {
            return Ok(None);
        };
        let repository = Repository::discover(&run.dir)?;
        Self::open_commit(run, &repository, commit)
    }

    /// Opens a commit.
    ///
    /// # Errors
    /// The commit cannot be read.
    pub fn open_commit(
        run: &RunContext,
        repository: &Repository,
        commit: CommitId,
    ) -> Result<Option<Self>, UserError> {
        let revision = OpenRevision::open(run, repository, &RevisionSpec::Commit(commit.clone()))?;
        Ok((!revision.layout.stacks.is_empty()).then_some(Self { revision, commit }))
    }

    /// Returns the commit that is checked out, if there is one.
    pub fn commit_of(run: &RunContext) -> Option<CommitId> {
        Repository::discover(&run.dir).ok()?.resolve("HEAD").ok()
    }

    /// Returns the commit of this revision.
    pub fn commit(&self) -> &CommitId {
        &self.commit
    }

    pub(super) async fn compare(
        &self,
        backend: &StateBackend,
        known: &Proven<IndexedStates>,
    ) -> Result<HeadFacts, UserError> {
        let renamed = renamed_stacks::renamed_stacks(backend, &self.revision.layout, known).await?;
        let pending = pending_stacks::pending_targets(&self.revision, backend, known, &renamed).await?;
        let stacks = self.revision.layout.stacks.iter();
        Ok(HeadFacts {
            commit: self.commit.clone(),
            stacks: stacks
                .map(|stack| (stack.id.clone(), stack.folder.clone()))
                .collect(),
            pending: pending.into_iter().map(|target| target.id).collect(),
            renamed: renamed.into_iter().map(|(now, earlier)| (earlier, now)).collect(),
        })
    }
}

impl HeadFacts {
    /// Returns the data of the revision about a recorded or a new stack.
    pub(super) fn fact(&self, id: &StackId) -> HeadFact {
        let now = self.renamed.get(id).unwrap_or(id);
        match (self.stacks.contains_key(now), self.pending.contains(now)) {
            (true, true) => HeadFact::Changed,
            (true, false) => HeadFact::Same,
            (false, true) => HeadFact::Removed,
            (false, false) => HeadFact::Kept,
        }
    }
}
