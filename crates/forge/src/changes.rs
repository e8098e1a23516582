//! Changes: pull requests, branches, and the commits between two of them with the people they name.

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::error::ForgeError;
use konverge_base::model::CommitId;

/// A pull request, with the fields that Konverge needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    /// Number of the pull request.
    pub number: u64,
    /// The author.
    pub author: String,
    /// The last head.
    pub head: CommitId,
    /// The source branch.
    pub head_branch: String,
    /// The target branch.
    pub base_branch: String,
    /// The commit on the target branch, once merged; `None` also if the forge does not say which.
    pub merge_commit: Option<CommitId>,
    /// True if it was merged.
    pub merged: bool,
    /// True if it is neither merged nor closed.
    pub open: bool,
    /// True if its head is in another repository.
    pub from_fork: bool,
}

/// The default branch as it is at the forge now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultBranch {
    /// The name without `refs/heads/`.
    pub name: String,
    /// The newest commit.
    pub tip: CommitId,
    /// True if a rule of the forge protects it.
    pub protected: bool,
}

impl DefaultBranch {
    /// Returns true if a full ref is this branch. A tag of the same name is another ref.
    pub fn is(&self, full_ref: &str) -> bool {
        full_ref.strip_prefix("refs/heads/") == Some(&self.name)
    }
}

/// A commit and the people it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contribution {
    /// The commit.
    pub commit: CommitId,
    /// The parents; several parents mean a merge.
    pub parents: Vec<CommitId>,
    /// The logins of its author, committer and co-authors, as far as the forge knows their addresses.
    pub people: BTreeSet<String>,
}

/// Reads pull requests, branches and commits. Errors are those of the forge.
#[async_trait]
pub trait Changes: Send + Sync {
    /// Returns a pull request.
    async fn pull_request(&self, number: u64) -> Result<PullRequest, ForgeError>;

    /// Returns the pull requests that contain a commit, merged or not. Empty for a commit that was pushed directly, and for
    /// one that is only in a fork.
    async fn pull_requests_of_commit(&self, sha: &CommitId) -> Result<Vec<PullRequest>, ForgeError>;

    /// Returns the open pull requests from a branch, in this repository or in `owner`'s fork.
    async fn open_pull_requests_from(
        &self,
        owner: &str,
        branch: &str,
    ) -> Result<Vec<PullRequest>, ForgeError>;

    /// Returns the pull requests with these numbers, searched in the first `pages` pages of 100, the last updated first.
    /// Stops at the page with the last of them.
    async fn recent_pull_requests(
        &self,
        numbers: &BTreeSet<u64>,
        pages: usize,
    ) -> Result<Vec<PullRequest>, ForgeError>;

    /// Returns the default branch. Every call sends a request. [`ForgeError::NotFound`] also means that the token may not
    /// see the repository.
    async fn default_branch(&self) -> Result<DefaultBranch, ForgeError>;

    /// Returns a branch by its name; never a tag.
    async fn branch(&self, name: &str) -> Result<DefaultBranch, ForgeError>;

    /// Returns the commits in `tip` that are not in `commit`; `None` if `tip` does not contain `commit`.
    async fn commits_after(
        &self,
        commit: &CommitId,
        tip: &CommitId,
    ) -> Result<Option<BTreeSet<CommitId>>, ForgeError>;

    /// Returns the commits in `head` that are not in `base`. Too many commits are an error, because then their authors are
    /// unknown.
    async fn contributions_between(
        &self,
        base: &CommitId,
        head: &CommitId,
    ) -> Result<Vec<Contribution>, ForgeError>;

    /// Returns the commits up to `head` that changed a folder, the newest first. Too many are an error.
    async fn contributions_to_folder(
        &self,
        head: &CommitId,
        folder: &str,
    ) -> Result<Vec<Contribution>, ForgeError>;

    /// Returns the commits of a pull request. More than the forge lists are an error.
    async fn contributions_to_pull_request(&self, number: u64) -> Result<Vec<Contribution>, ForgeError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_not_a_branch() {
        let branch = DefaultBranch {
            name: "main".to_owned(),
            tip: "a".repeat(40).parse().unwrap(),
            protected: true,
        };
        assert!(branch.is("refs/heads/main"));
        for other in [
            "main",
            "refs/tags/main",
            "refs/heads/refs/heads/main",
            "refs/heads/topic",
            "",
        ] {
            assert!(!branch.is(other), "{other}");
        }
    }
}
