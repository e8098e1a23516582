//! Pull requests, branches and commits at a forge, with the people whom the commits name.

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::error::{Result, if_found};
use konverge_base::model::CommitId;

/// A pull request, with the fields that Konverge needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    /// Number of the pull request.
    pub number: u64,
    /// The login of the author.
    pub author: String,
    /// The last head. It does not change when the branch moves after the merge.
    pub head: CommitId,
    /// The source branch.
    pub head_branch: String,
    /// The target branch.
    pub base_branch: String,
    /// The commit on the target branch, after the merge; `None` also if the forge does not report it.
    pub merge_commit: Option<CommitId>,
    /// True if the pull request was merged.
    pub merged: bool,
    /// True if the pull request is neither merged nor closed.
    pub open: bool,
    /// True if the head is in another repository.
    pub from_fork: bool,
}

/// The present default branch of the repository, or another branch that was looked up by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultBranch {
    /// The name without `refs/heads/`.
    pub name: String,
    /// The newest commit.
    pub tip: CommitId,
    /// True if the forge has a protection rule for the branch.
    pub protected: bool,
}

impl DefaultBranch {
    /// Returns true if a full ref such as `refs/heads/main` is this branch. A tag of the same name is another ref.
    pub fn is(&self, full_ref: &str) -> bool {
        full_ref.strip_prefix("refs/heads/") == Some(&self.name)
    }
}

/// A commit and the people whom it names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contribution {
    /// The commit that the person wrote or pushed.
    pub commit: CommitId,
    /// The parents; several parents mean a merge.
    pub parents: Vec<CommitId>,
    /// The logins of author, committer and co-authors. A person whose address the forge does not know is missing.
    pub people: BTreeSet<String>,
}

/// Reads pull requests, branches and commits. All errors come from the forge.
#[async_trait]
pub trait Changes: Send + Sync {
    /// Returns a pull request.
    async fn pull_request(&self, number: u64) -> Result<PullRequest>;

    /// Returns the pull requests that contain a commit, merged or not. Empty for a commit that was pushed directly
    /// to a branch, and for a commit that exists only in a fork.
    async fn pull_requests_of_commit(&self, sha: &CommitId) -> Result<Vec<PullRequest>>;

    /// Returns the open pull requests from a branch, in this repository or in `owner`'s fork.
    async fn open_pull_requests_from(&self, owner: &str, branch: &str) -> Result<Vec<PullRequest>>;

    /// Returns the pull requests with these numbers. Reads at most `pages` pages of 100 pull requests, the last
    /// updated first, and stops as soon as all are found.
    async fn recent_pull_requests(&self, numbers: &BTreeSet<u64>, pages: usize) -> Result<Vec<PullRequest>>;

    /// Returns the default branch. Each call sends a request. [`crate::ForgeError::NotFound`] can also mean that the
    /// token may not see the repository.
    async fn default_branch(&self) -> Result<DefaultBranch>;

    /// Returns a branch by its name; never a tag.
    async fn branch(&self, name: &str) -> Result<DefaultBranch>;

    /// Returns the newest commit of a branch; `None` if the branch does not exist.
    async fn branch_tip(&self, name: &str) -> Result<Option<CommitId>> {
        Ok(if_found(self.branch(name).await)?.map(|branch| branch.tip))
    }

    /// Returns the commits in `tip` that are not in `commit`; `None` if `tip` does not contain `commit`.
    async fn commits_after(&self, commit: &CommitId, tip: &CommitId) -> Result<Option<BTreeSet<CommitId>>>;

    /// Returns the commits in `head` that are not in `base`. Returns an error if the forge cannot list all of them,
    /// because then some authors would be unknown.
    async fn contributions_between(&self, base: &CommitId, head: &CommitId) -> Result<Vec<Contribution>>;

    /// Returns the commits up to `head` that changed a folder, the newest first. Returns an error if the forge
    /// cannot list all.
    async fn contributions_to_folder(&self, head: &CommitId, folder: &str) -> Result<Vec<Contribution>>;

    /// Returns the commits of a pull request. Returns an error if the forge cannot list all of them.
    async fn contributions_to_pull_request(&self, number: u64) -> Result<Vec<Contribution>>;
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
