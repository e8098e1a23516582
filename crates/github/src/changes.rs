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
use konverge_forge::{Changes, Contribution, DefaultBranch, ForgeError, PullRequest};
use konverge_rest::{ListedCommit, RestClient, TokenPermission, User, encoded};

const READ: TokenPermission = TokenPermission("pull-requests: read");
const CONTENTS: TokenPermission = TokenPermission("contents: read");

/// A pull request, with the fields for changes and for proposals.
#[derive(Deserialize)]
pub(super) struct PullRequestBody {
    pub(super) number: u64,
    user: Option<User>,
    pub(super) head: RawRef,
    base: RawRef,
    merge_commit_sha: Option<String>,
    pub(super) merged_at: Option<String>,
    pub(super) state: String,
    #[serde(default)]
    pub(super) html_url: String,
    #[serde(default)]
    pub(super) title: String,
    pub(super) body: Option<String>,
    #[serde(default)]
    pub(super) node_id: String,
}

#[derive(Deserialize)]
pub(super) struct RawRef {
    #[serde(rename = "ref")]
    name: String,
    pub(super) sha: String,
    repo: Option<RawRepo>,
}

#[derive(Deserialize)]
struct RawRepo {
    full_name: String,
}

#[derive(Deserialize)]
struct Commit {
    sha: String,
}

#[async_trait]
impl Changes for Client {
    async fn pull_request(&self, number: u64) -> Result<PullRequest, ForgeError> {
        let path = self.path(&format!("/pulls/{number}"));
        let raw: PullRequestBody = self.rest.get(&path, READ).await?;
        pull_request(&self.rest, &path, raw)
    }

    async fn pull_requests_of_commit(&self, sha: &CommitId) -> Result<Vec<PullRequest>, ForgeError> {
        self.pull_requests(&self.path(&format!("/commits/{sha}/pulls?per_page={PAGE}")))
            .await
    }

    async fn open_pull_requests_from(
        &self,
        owner: &str,
        branch: &str,
    ) -> Result<Vec<PullRequest>, ForgeError> {
        let head = encoded(&format!("{owner}:{branch}"));
        self.pull_requests(&self.path(&format!("/pulls?state=open&head={head}&per_page={PAGE}")))
            .await
    }

    async fn recent_pull_requests(
        &self,
        numbers: &BTreeSet<u64>,
        pages: usize,
    ) -> Result<Vec<PullRequest>, ForgeError> {
        // A pull request that is updated between two requests may be on both pages.
        let mut found = BTreeMap::new();
        for page in 1..=pages {
            let path = self.path(&format!(
                "/pulls?state=all&sort=updated&direction=desc&per_page={PAGE}&page={page}"
            ));
            let raw: Vec<PullRequestBody> = self.rest.get(&path, READ).await?;
            let last = raw.len() < PAGE;
            for raw in raw.into_iter().filter(|raw| numbers.contains(&raw.number)) {
                let pull = pull_request(&self.rest, &path, raw)?;
                found.insert(pull.number, pull);
            }
            if last || found.len() == numbers.len() {
                break;
            }
        }
        Ok(found.into_values().collect())
    }

    async fn default_branch(&self) -> Result<DefaultBranch, ForgeError> {
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

    async fn branch(&self, name: &str) -> Result<DefaultBranch, ForgeError> {
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

    async fn commits_after(
        &self,
        commit: &CommitId,
        tip: &CommitId,
    ) -> Result<Option<BTreeSet<CommitId>>, ForgeError> {
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

    async fn contributions_between(
        &self,
        base: &CommitId,
        head: &CommitId,
    ) -> Result<Vec<Contribution>, ForgeError> {
        #[derive(Deserialize)]
        struct Comparison {
            commits: Vec<ListedCommit>,
        }
        let path = |page| self.path(&format!("/compare/{base}...{head}?per_page={PAGE}&page={page}"));
        self.contributions(path, |Comparison { commits }| commits).await
    }

    async fn contributions_to_folder(
        &self,
        head: &CommitId,
        folder: &str,
    ) -> Result<Vec<Contribution>, ForgeError> {
        let path = |page| {
            self.path(&format!(
                "/commits?sha={head}&path={}&per_page={PAGE}&page={page}",
                encoded(folder)
            ))
        };
        self.contributions(path, |commits| commits).await
    }

    async fn contributions_to_pull_request(&self, number: u64) -> Result<Vec<Contribution>, ForgeError> {
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
    ) -> Result<Vec<Contribution>, ForgeError> {
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
    async fn pull_requests(&self, path: &str) -> Result<Vec<PullRequest>, ForgeError> {
        let raw: Vec<PullRequestBody> = self.rest.list(path, READ).await?;
        raw.into_iter()
            .map(|raw| pull_request(&self.rest, path, raw))
            .collect()
    }
}

fn pull_request(rest: &RestClient, path: &str, raw: PullRequestBody) -> Result<PullRequest, ForgeError> {
    let base = raw.base.repo.map(|r| r.full_name);
    Ok(PullRequest {
        number: raw.number,
        author: raw.user.map_or_else(String::new, |u| u.login),
        head: rest.commit_id(path, &raw.head.sha)?,
        head_branch: raw.head.name,
        base_branch: raw.base.name,
        merge_commit: raw.merge_commit_sha.and_then(|sha| sha.parse().ok()),
        merged: raw.merged_at.is_some(),
        open: raw.state == "open",
        // If the repository of the head was deleted, it was a fork.
        from_fork: raw.head.repo.is_none_or(|r| Some(r.full_name) != base),
    })
}
