//! Proposals: Konverge commits a few files to its own branch, which is never force-pushed, and opens one pull
//! request for it.

use async_trait::async_trait;

use crate::error::Result;
use konverge_base::model::{CommitId, RepoPath};

/// Files to commit to a branch of Konverge.
#[derive(Debug, Clone, Copy)]
pub struct FilesCommit<'a> {
    /// The branch that gets the commit.
    pub branch: &'a str,
    /// The commit of the default branch whose files were edited.
    pub base: &'a CommitId,
    /// The new contents of plain files.
    pub files: &'a [(RepoPath, String)],
    /// The first line of the message.
    pub title: &'a str,
    /// The digest of the proposal, which each commit message on the branch contains.
    pub digest: &'a str,
}

impl FilesCommit<'_> {
    /// Returns the commit message for a commit with this tree.
    pub fn message(&self, tree: &str) -> String {
        format!("{}\n\n{}", self.title, self.trailers(tree))
    }

    /// Returns true if Konverge made a commit of the branch: its message contains its tree, so an amended commit
    /// does not match.
    pub fn is_own(&self, message: &str, tree: &str) -> bool {
        message.trim_end().ends_with(&self.trailers(tree))
    }

    /// Returns the message without the tree, for a forge that does not report the tree of a commit.
    pub fn plain_message(&self) -> String {
        format!("{}\n\n{}", self.title, self.trailer())
    }

    /// Returns true if a message is that of a proposal's commit. This is no proof of the author, because an amended
    /// commit may keep the message.
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
    /// The changes are in this new commit, now the tip of the branch.
    Committed(CommitId),
    /// The tip of the branch already has the changes.
    Present(CommitId),
    /// Somebody else created or changed the branch. Their commits stay.
    Conflict,
}

/// A pull request from a branch of this repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedPullRequest {
    /// The number of the pull request.
    pub number: u64,
    /// The URL of the pull request.
    pub url: String,
    /// True if the pull request is neither merged nor closed.
    pub open: bool,
    /// True if the pull request was merged.
    pub merged: bool,
    /// The last head of the pull request.
    pub head: String,
    /// The title of the pull request.
    pub title: String,
    /// The text of the pull request.
    pub body: String,
    /// The forge's own id of the pull request.
    pub node: String,
}

/// Writes proposals. All errors come from the forge.
#[async_trait]
pub trait Proposals: Send + Sync {
    /// Commits files to a branch, and creates the branch if necessary. Never force-pushes, so commits of others
    /// stay.
    async fn commit_files(&self, commit: FilesCommit<'_>) -> Result<CommittedFiles>;

    /// Returns the pull requests from a branch of this repository, the newest first.
    async fn proposals_of(&self, branch: &str) -> Result<Vec<ProposedPullRequest>>;

    /// Returns the open pull request from a branch of Konverge.
    async fn open_proposal_of(&self, branch: &str) -> Result<Option<ProposedPullRequest>> {
        let all = self.proposals_of(branch).await?;
        Ok(all.into_iter().find(|pull| pull.open))
    }

    /// Opens a pull request. If another run already opened one for the branch, returns that pull request.
    async fn open_proposal(
        &self,
        branch: &str,
        base: &str,
        title: &str,
        body: &str,
    ) -> Result<ProposedPullRequest>;

    /// Replaces the title and the text of a pull request.
    async fn edit_proposal(&self, number: u64, title: &str, body: &str) -> Result<()>;

    /// Asks the forge to merge a pull request as soon as its rules allow it (auto-merge). Returns an error if the
    /// repository does not allow this, or if the pull request could be merged at once.
    async fn ask_for_merge(&self, pull: &ProposedPullRequest) -> Result<()>;

    /// Returns false if a pull request that this token opens would start no workflow.
    async fn starts_workflows(&self) -> Result<bool>;
}
