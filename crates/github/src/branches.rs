//! The default branch of the repository. Permissions are read from its tip, so GitHub is asked for both,
//! whatever the refs in an event are called.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::{
    client::{Client, PAGE, TokenPermission},
    error::GithubError,
    pull_requests::encoded,
};
use konverge_base::model::CommitId;

const CONTENTS: TokenPermission = TokenPermission("contents: read");

/// The default branch as it is on GitHub now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DefaultBranch {
    /// The name without `refs/heads/`.
    pub name: String,
    /// The newest commit.
    pub tip: CommitId,
    /// True if a ruleset or a branch protection rule protects it.
    pub protected: bool,
}

impl DefaultBranch {
    /// Returns true if a full ref is this branch. A tag of the same name is another ref.
    pub fn is(&self, full_ref: &str) -> bool {
        full_ref.strip_prefix("refs/heads/") == Some(&self.name)
    }
}

impl Client {
    /// The default branch. Every call sends a request.
    ///
    /// # Errors
    /// Errors of GitHub. [`GithubError::NotFound`] also means that the token may not see the repository.
    pub async fn default_branch(&self) -> Result<DefaultBranch, GithubError> {
        #[derive(Deserialize)]
        struct Repository {
            default_branch: String,
        }
        let Repository { default_branch } = self
            .get(&self.path(""), TokenPermission("metadata: read"))
            .await?;
        self.branch(&default_branch).await
    }

    /// A branch by its name; never a tag.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn branch(&self, name: &str) -> Result<DefaultBranch, GithubError> {
        #[derive(Deserialize)]
        struct Branch {
            commit: Commit,
            protected: bool,
        }
        #[derive(Deserialize)]
        struct Commit {
            sha: String,
        }
        let path = self.path(&format!("/branches/{}", encoded(name)));
        let branch: Branch = self.get(&path, CONTENTS).await?;
        let tip = branch.commit.sha.parse();
        Ok(DefaultBranch {
            name: name.to_owned(),
            tip: tip.map_err(|error: konverge_base::model::InvalidId| GithubError::Malformed {
                operation: format!("GET {path}"),
                cause: error.to_string(),
            })?,
            protected: branch.protected,
        })
    }

    /// The commits in `tip` that are not in `commit`; `None` if `tip` does not contain `commit`.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn commits_after(
        &self,
        commit: &CommitId,
        tip: &CommitId,
    ) -> Result<Option<BTreeSet<CommitId>>, GithubError> {
        #[derive(Deserialize)]
        struct Comparison {
            status: String,
            commits: Vec<Commit>,
        }
        #[derive(Deserialize)]
        struct Commit {
            sha: String,
        }
        let mut after = BTreeSet::new();
        for page in 1.. {
            let path = self.path(&format!("/compare/{commit}...{tip}?per_page={PAGE}&page={page}"));
            let comparison: Comparison = self.get(&path, CONTENTS).await?;
            if !matches!(comparison.status.as_str(), "ahead" | "identical") {
                return Ok(None);
            }
            let last = comparison.commits.len() < PAGE;
            let ids = comparison.commits.iter().map(|commit| commit.sha.parse());
            after.extend(ids.collect::<Result<Vec<_>, _>>().map_err(
                |error: konverge_base::model::InvalidId| GithubError::Malformed {
                    operation: format!("GET {path}"),
                    cause: error.to_string(),
                },
            )?);
            if last {
                break;
            }
        }
        Ok(Some(after))
    }
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
