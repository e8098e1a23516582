//! Proposals: a commit of a few files on a branch that only moves forward, and one pull request for it.

use async_trait::async_trait;

use crate::error::ForgeError;
use konverge_base::model::{CommitId, RepoPath};

/// Files that are to be committed to a branch of ours.
#[derive(Debug, Clone, Copy)]
pub struct FilesCommit<'a> {
    /// The branch.
    pub branch: &'a str,
    /// The commit of the default branch whose files were edited.
    pub base: &'a CommitId,
    /// The new contents of plain files.
    pub files: &'a [(RepoPath, String)],
    /// The first line of the message.
    pub title: &'a str,
    /// The digest of the proposal, which stands in every commit of the branch.
    pub digest: &'a str,
}

impl FilesCommit<'_> {
    /// Returns the message of the commit with this tree.
    pub fn message(&self, tree: &str) -> String {
        format!("{}\n\n{}", self.title, self.trailers(tree))
    }

    /// Returns true if a commit of the branch is ours: its message names its tree, so an amended commit does not match.
    pub fn is_own(&self, message: &str, tree: &str) -> bool {
        message.trim_end().ends_with(&self.trailers(tree))
    }

    /// Returns the message without the tree, for a forge that does not say which tree a commit has.
    pub fn plain_message(&self) -> String {
        format!("{}\n\n{}", self.title, self.trailer())
    }

    /// Returns true if a message is that of a commit of the branch. An amended commit may keep it, so this is no proof.
    pub fn has_message(&self, message: &str) -> bool {
        message.trim_end().ends_with(&self.trailer())
    }

    fn trailers(&self, tree: &str) -> String {
        format!("{}\nKonverge-Tree: {tree}", self.trailer())
    }

    fn trailer(&self) -> String {
        format!("Konverge-Set: {}", self.digest)
    }
}

/// The result of committing files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommittedFiles {
    /// The changes are in this new commit, the tip of the branch.
    Committed(CommitId),
    /// The tip of the branch has them already.
    Present(CommitId),
    /// Somebody else created or moved the branch; their commits stay.
    Conflict,
}

/// A pull request of a branch of this repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedPullRequest {
    /// Its number.
    pub number: u64,
    /// Its page.
    pub url: String,
    /// True if it is neither merged nor closed.
    pub open: bool,
    /// True if it was merged.
    pub merged: bool,
    /// The last head.
    pub head: String,
    /// Its title.
    pub title: String,
    /// Its text.
    pub body: String,
    /// Its id, by which the forge knows it.
    pub node: String,
}

/// Writes proposals. Errors are those of the forge.
#[async_trait]
pub trait Proposals: Send + Sync {
    /// Commits files to a branch, which is created or moves forward. It is never forced: commits of others stay.
    async fn commit_files(&self, commit: FilesCommit<'_>) -> Result<CommittedFiles, ForgeError>;

    /// Returns the pull requests of a branch of this repository, the newest first.
    async fn proposals_of(&self, branch: &str) -> Result<Vec<ProposedPullRequest>, ForgeError>;

    /// Opens a pull request. If another run has opened one for the branch, returns that one.
    async fn open_proposal(
        &self,
        branch: &str,
        base: &str,
        title: &str,
        body: &str,
    ) -> Result<ProposedPullRequest, ForgeError>;

    /// Gives a pull request another title and text.
    async fn edit_proposal(&self, number: u64, title: &str, body: &str) -> Result<(), ForgeError>;

    /// Asks the forge to merge a pull request as soon as its rules allow it. An error if the repository does not allow it, or
    /// if nothing stands in the way of a merge.
    async fn ask_for_merge(&self, pull: &ProposedPullRequest) -> Result<(), ForgeError>;

    /// Returns false if a pull request that the token opens starts no workflow.
    async fn starts_workflows(&self) -> Result<bool, ForgeError>;
}
