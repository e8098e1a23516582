//! The commits of the default branch that are newer than the commit to apply, as far as the clone has them. Used where
//! no job of a forge runs: for an apply by hand, and in other CI systems.

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::{RunContext, newer_commits::BranchHistory};
use konverge_base::{error::UserError, model::CommitId};
use konverge_repo::git::{GitCredentials, GitError, Repository};

/// The default branch of a clone, seen from the commit that is checked out or applied.
pub struct CloneHistory {
    run: RunContext,
    repository: Repository,
    /// The commit that is checked out or applied; `None` before the first commit.
    head: Option<CommitId>,
    credentials: Option<GitCredentials>,
}

impl CloneHistory {
    /// Creates the history of a commit. For a working tree, `head` is the commit that is checked out.
    pub fn new(run: &RunContext, repository: &Repository, head: Option<CommitId>) -> Self {
        Self {
            run: run.clone(),
            repository: repository.clone(),
            head,
            credentials: run.clone_credentials(),
        }
    }

    /// Returns the newest commit that two commits share; `None` if they share none. In a shallow clone, the missing
    /// commits are fetched.
    async fn merge_base(&self, a: &CommitId, b: &CommitId) -> Result<Option<CommitId>, GitError> {
        let found = self
            .repository
            .merge_base_fetching(a, b, self.credentials.as_ref());
        match found.await {
            Ok(base) => Ok(Some(base)),
            Err(GitError::NoMergeBase(..)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[async_trait]
impl BranchHistory for CloneHistory {
    async fn newer_commits(&self) -> Result<BTreeSet<CommitId>, UserError> {
        let Some(head) = &self.head else {
            return Ok(BTreeSet::new());
        };
        let tip = match self.repository.default_branch() {
            Ok(branch) => self.repository.resolve(&branch)?,
            Err(error) => {
                self.run.notes.warning(&format!(
                    "stacks to which a newer commit was applied are not recognized: {error}; \
                     `git remote set-head origin --auto` sets the default branch"
                ));
                return Ok(BTreeSet::new());
            }
        };
        if tip == *head {
            return Ok(BTreeSet::new());
        }
        // In a shallow clone, finding the merge base also fetches the missing commits.
        self.merge_base(&tip, head).await?;
        Ok(self.repository.commits_after(head, &tip)?)
    }

    async fn newer_commits_now(&self, applied: &[CommitId]) -> Result<BTreeSet<CommitId>, UserError> {
        let mut newer = self.newer_commits().await?;
        // Another run may have used a newer clone, so each applied commit that contains the head counts as newer, too.
        for commit in applied {
            if let Some(head) = &self.head
                && commit != head
                && self.merge_base(head, commit).await?.as_ref() == Some(head)
            {
                newer.insert(commit.clone());
            }
        }
        Ok(newer)
    }
}
