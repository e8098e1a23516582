//! Pull requests and branches. The last head of a merged pull request selects its review record. Permissions are
//! read from the tip of the default branch, so GitHub is asked for that branch; the refs in an event are not
//! trusted.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    client::{Client, PAGE},
    contributions::{MOST_PAGES, NAMES},
};
use konverge_base::model::CommitId;
use konverge_forge::{Changes, Contribution, DefaultBranch, PullRequest, Result};
use konverge_rest::{ListedCommit, ListedPullRequest, TokenPermission, encoded};

const READ: TokenPermission = TokenPermission("pull-requests: read");
const CONTENTS: TokenPermission = TokenPermission("contents: read");

#[derive(Deserialize)]
struct Commit {
    sha: String,
}

#[async_trait]
impl Changes for Client {
    async fn pull_request(&self, number: u64) -> Result<PullRequest> {
        let path = self.path(&format!("/pulls/{number}"));
        let raw: ListedPullRequest = self.rest.get(&path, READ).await?;
        raw.into_pull_request(&self.rest, &path)
    }

    async fn pull_requests_of_commit(&self, sha: &CommitId) -> Result<Vec<PullRequest>> {
        self.pull_requests(&self.path(&format!("/commits/{sha}/pulls?per_page={PAGE}")))
            .await
    }

    async fn open_pull_requests_from(&self, owner: &str, branch: &str) -> Result<Vec<PullRequest>> {
        let head = encoded(&format!("{owner}:{branch}"));
        self.pull_requests(&self.path(&format!("/pulls?state=open&head={head}&per_page={PAGE}")))
            .await
    }

    async fn recent_pull_requests(&self, numbers: &BTreeSet<u64>, pages: usize) -> Result<Vec<PullRequest>> {
        // A pull request that is updated between two requests may be on both pages.
        let mut found = BTreeMap::new();
        for page in 1..=pages {
            let path = self.path(&format!(
                "/pulls?state=all&sort=updated&direction=desc&per_page={PAGE}&page={page}"
            ));
            let raw: Vec<ListedPullRequest> = self.rest.get(&path, READ).await?;
            let last = raw.len() < PAGE;
            for raw in raw.into_iter().filter(|raw| numbers.contains(&raw.number)) {
                let pull = raw.into_pull_request(&self.rest, &path)?;
                found.insert(pull.number, pull);
            }
            if last || found.len() == numbers.len() {
                break;
            }
        }
        Ok(found.into_values().collect())
    }

    async fn default_branch(&self) -> Result<DefaultBranch> {
        #[derive(Deserialize)]
        struct Repository {
            default_branch: String,
        }
        let Repository { default_branch } = self
            .rest
            .get(&self.path(""), TokenPermission("metadata: read"))
            .await?;
        self.branch(&default_branch).await
    }

    async fn branch(&self, name: &str) -> Result<DefaultBranch> {
        #[derive(Deserialize)]
        struct Branch {
            commit: Commit,
            protected: bool,
        }
        let path = self.path(&format!("/branches/{}", encoded(name)));
        let branch: Branch = self.rest.get(&path, CONTENTS).await?;
        Ok(DefaultBranch {
            name: name.to_owned(),
            tip: self.rest.commit_id(&path, &branch.commit.sha)?,
            protected: branch.protected,
        })
    }

    async fn commits_after(&self, commit: &CommitId, tip: &CommitId) -> Result<Option<BTreeSet<CommitId>>> {
        #[derive(Deserialize)]
        struct Comparison {
            status: String,
            commits: Vec<Commit>,
        }
        let mut after = BTreeSet::new();
        for page in 1.. {
            let path = self.path(&format!("/compare/{commit}...{tip}?per_page={PAGE}&page={page}"));
            let comparison: Comparison = self.rest.get(&path, CONTENTS).await?;
            // `behind` and `diverged` mean that the tip does not contain the commit.
            if !matches!(comparison.status.as_str(), "ahead" | "identical") {
                return Ok(None);
            }
            for commit in &comparison.commits {
                after.insert(self.rest.commit_id(&path, &commit.sha)?);
            }
            if comparison.commits.len() < PAGE {
                break;
            }
        }
        Ok(Some(after))
    }

    async fn contributions_between(&self, base: &CommitId, head: &CommitId) -> Result<Vec<Contribution>> {
        #[derive(Deserialize)]
        struct Comparison {
            commits: Vec<ListedCommit>,
        }
        let path = |page| self.path(&format!("/compare/{base}...{head}?per_page={PAGE}&page={page}"));
        self.contributions(path, |Comparison { commits }| commits).await
    }

    async fn contributions_to_folder(&self, head: &CommitId, folder: &str) -> Result<Vec<Contribution>> {
        let path = |page| {
            self.path(&format!(
                "/commits?sha={head}&path={}&per_page={PAGE}&page={page}",
                encoded(folder)
            ))
        };
        self.contributions(path, |commits| commits).await
    }

    async fn contributions_to_pull_request(&self, number: u64) -> Result<Vec<Contribution>> {
        // GitHub lists at most this many commits of a pull request.
        const LISTED: usize = 250;
        let path = self.path(&format!("/pulls/{number}/commits?per_page={PAGE}"));
        let commits: Vec<ListedCommit> = self.rest.list(&path, READ).await?;
        if commits.len() >= LISTED {
            return Err(NAMES.too_many(&path));
        }
        NAMES.read(&path, commits)
    }
}

impl Client {
    /// Reads the commits of numbered pages. `commits` takes them out of a response.
    async fn contributions<T: DeserializeOwned>(
        &self,
        path: impl Fn(usize) -> String,
        commits: fn(T) -> Vec<ListedCommit>,
    ) -> Result<Vec<Contribution>> {
        let mut all = Vec::new();
        for page in 1..=MOST_PAGES {
            let path = path(page);
            let commits = commits(self.rest.get(&path, CONTENTS).await?);
            let last = commits.len() < PAGE;
            all.extend(commits);
            if last {
                return NAMES.read(&path, all);
            }
        }
        Err(NAMES.too_many(&path(1)))
    }

    /// Reads the pull requests of all pages.
    async fn pull_requests(&self, path: &str) -> Result<Vec<PullRequest>> {
        let raw: Vec<ListedPullRequest> = self.rest.list(path, READ).await?;
        raw.into_iter()
            .map(|raw| raw.into_pull_request(&self.rest, path))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(change: impl FnOnce(&mut Value)) -> Result<PullRequest> {
        let mut body = json!({
            "number": 12, "user": {"login": "ada"}, "state": "open", "merged_at": null, "merge_commit_sha": null,
            "head": {"ref": "topic", "sha": "a".repeat(40), "repo": {"full_name": "acme/konfig"}},
            "base": {"ref": "main", "sha": "b".repeat(40), "repo": {"full_name": "acme/konfig"}},
        });
        change(&mut body);
        let login = crate::Login::Token("ghs_token");
        let secrets = konverge_secrets::Secrets::new(konverge_secrets::HashKey::derive("k"));
        let client = Client::new("https://api.github.com", "acme/konfig", login, secrets).unwrap();
        let raw: ListedPullRequest = serde_json::from_value(body).unwrap();
        raw.into_pull_request(&client.rest, "/pulls/12")
    }

    /// What comes from a fork is trusted with nothing, so that what is not said for certain is a fork.
    #[tokio::test]
    async fn a_head_that_is_not_known_to_be_of_this_repository_is_a_fork() {
        let from_fork = |change: fn(&mut Value)| read(change).unwrap().from_fork;
        assert!(!from_fork(|_| {}));
        assert!(from_fork(
            |pull| pull["head"]["repo"]["full_name"] = json!("mallory/konfig")
        ));
        assert!(from_fork(
            |pull| pull["head"]["repo"]["full_name"] = json!("acme/konfig2")
        ));
        assert!(
            from_fork(|pull| pull["head"]["repo"] = json!(null)),
            "it was deleted"
        );
        assert!(from_fork(|pull| pull["base"]["repo"] = json!(null)));
        let of_deleted_account = read(|pull| {
            pull["user"] = json!(null);
            pull["head"]["user"] = json!(null);
            pull["head"]["label"] = json!(null);
            pull["head"]["repo"] = json!(null);
        });
        let of_deleted_account = of_deleted_account.unwrap();
        assert_eq!(
            (
                of_deleted_account.from_fork,
                of_deleted_account.head_branch.as_str()
            ),
            (true, "topic")
        );
        assert!(from_fork(|pull| {
            pull["base"]["repo"] = json!(null);
            pull["head"]["repo"] = json!(null);
        }));
    }

    #[tokio::test]
    async fn only_what_was_merged_is_merged() {
        let closed = read(|pull| pull["state"] = json!("closed")).unwrap();
        assert!(!closed.merged && !closed.open);
        // GitHub gives an open pull request the commit of a trial merge.
        let trial = read(|pull| pull["merge_commit_sha"] = json!("c".repeat(40))).unwrap();
        assert!(!trial.merged && trial.open && trial.merge_commit.is_some());
        let merged = read(|pull| {
            pull["state"] = json!("closed");
            pull["merged_at"] = json!("2026-11-20T10:00:00Z");
            pull["merge_commit_sha"] = json!("not a commit");
        });
        let merged = merged.unwrap();
        assert!(merged.merged && merged.merge_commit.is_none());
    }

    #[tokio::test]
    async fn a_head_that_is_no_commit_is_an_error_and_a_deleted_account_has_no_name() {
        for sha in ["", "main", "../../x"] {
            let error = read(|pull| pull["head"]["sha"] = json!(sha)).unwrap_err();
            assert!(
                matches!(error, konverge_forge::ForgeError::Malformed { .. }),
                "{sha}: {error}"
            );
        }
        assert_eq!(read(|pull| pull["user"] = json!(null)).unwrap().author, "");
    }
}
