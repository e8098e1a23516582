//! Commits files to Konverge's own branch, at forges that write and commit files in one request to a branch. They do
//! not report the tree of a commit, so our commits are recognized by message, author and changed files.

use async_trait::async_trait;
use konverge_base::model::{CommitId, RepoPath};
use konverge_forge::{Changes, CommittedFiles, FilesCommit, ForgeError, Result};

/// The maximum number of our commits on a branch. There is one for each change of the proposed files.
const MOST_COMMITS: usize = 20;

/// A file on a branch.
pub struct BranchFile {
    /// The content of the file.
    pub content: Vec<u8>,
    /// What the forge compares before it replaces the file: the id of the content, or the last commit that changed it.
    pub version: String,
}

/// The requests of a forge for the files of a branch. All errors come from the forge.
#[async_trait]
pub trait BranchFiles: Changes {
    /// The status with which the forge refuses to write a file that has changed since it was read.
    const CHANGED: u16;

    /// Returns the parent of a commit that Konverge made; `None` for a commit of others. Anybody can copy our message
    /// and address, so the commit must also change only the proposed files.
    async fn parent_of_own(&self, commit: &FilesCommit<'_>, at: &CommitId) -> Result<Option<CommitId>>;

    /// Reads a file at a commit; `None` if it does not exist.
    async fn file(&self, commit: &CommitId, path: &RepoPath) -> Result<Option<BranchFile>>;

    /// Commits files to the tip of the branch, or to a new branch. The forge refuses the request if a file has changed
    /// since it was read.
    async fn write_files(
        &self,
        commit: &FilesCommit<'_>,
        is_new: bool,
        there: &[Option<BranchFile>],
    ) -> Result<CommitId>;

    /// Commits the files, if the branch has only our commits. `tip` is `None` for a branch that does not exist.
    async fn commit_to(&self, commit: FilesCommit<'_>, tip: Option<CommitId>) -> Result<CommittedFiles> {
        let start = tip.as_ref().unwrap_or(commit.base);
        let is_own = match &tip {
            Some(tip) => self.is_own(&commit, tip).await?,
            None => false,
        };
        // A run that was killed early may have left a branch without a commit. The tip of such a branch is a commit
        // of the base, so it contains nobody's work and may be used.
        if !is_own && start != commit.base && self.commits_after(start, commit.base).await?.is_none() {
            return Ok(CommittedFiles::Conflict);
        }
        let there = self.files(start, &commit).await?;
        if is_own && have(&there, commit.files) {
            return Ok(CommittedFiles::Present(start.clone()));
        }
        match self.write_files(&commit, tip.is_none(), &there).await {
            // Somebody may have pushed between the check of the branch and the write, so the new commit's ancestors
            // are checked too.
            Ok(made) if self.is_own(&commit, &made).await? => Ok(CommittedFiles::Committed(made)),
            Ok(_) => Ok(CommittedFiles::Conflict),
            // Either somebody else wrote first, or our request succeeded and its response was lost. The tip of the
            // branch shows which.
            Err(error)
                if error.is_uncertain()
                    || matches!(error, ForgeError::Refused { status, .. } if status == Self::CHANGED) =>
            {
                match self.branch_tip(commit.branch).await? {
                    now if now == tip => Err(error),
                    Some(now) => {
                        let there = self.files(&now, &commit).await?;
                        let done = self.is_own(&commit, &now).await? && have(&there, commit.files);
                        Ok(if done {
                            CommittedFiles::Committed(now)
                        } else {
                            CommittedFiles::Conflict
                        })
                    }
                    None => Ok(CommittedFiles::Conflict),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Returns true if a branch has only our commits after a commit of the base.
    async fn is_own(&self, commit: &FilesCommit<'_>, tip: &CommitId) -> Result<bool> {
        let mut at = tip.clone();
        for _ in 0..MOST_COMMITS {
            let Some(parent) = self.parent_of_own(commit, &at).await? else {
                return Ok(false);
            };
            if parent == *commit.base || self.commits_after(&parent, commit.base).await?.is_some() {
                return Ok(true);
            }
            at = parent;
        }
        Ok(false)
    }

    /// Reads the files that are proposed, as they are at a commit.
    async fn files(&self, at: &CommitId, commit: &FilesCommit<'_>) -> Result<Vec<Option<BranchFile>>> {
        let mut found = Vec::new();
        for (path, _) in commit.files {
            found.push(self.file(at, path).await?);
        }
        Ok(found)
    }
}

/// Returns true if all files already have their new contents.
fn have(there: &[Option<BranchFile>], files: &[(RepoPath, String)]) -> bool {
    let mut pairs = there.iter().zip(files);
    pairs.all(|(there, (_, content))| {
        there
            .as_ref()
            .is_some_and(|there| there.content == content.as_bytes())
    })
}
