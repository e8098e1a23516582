//! Pull requests and branches, and the commits between two commits. The last head of a merged pull request selects
//! its review record.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use konverge_base::model::CommitId;
use konverge_forge::{Changes, Contribution, DefaultBranch, ForgeKind, PullRequest, Result, if_found};
use konverge_rest::{CommitNames, ListedCommit, ListedPullRequest, TokenPermission, encoded};
use serde::Deserialize;

use crate::{client::Client, pages::Page};

const READ: TokenPermission = TokenPermission("read:repository");

/// The maximum number of commits. If there are more, the contributors are unknown.
const MOST_COMMITS: usize = 1_000;

#[derive(Deserialize)]
struct Reference {
    #[serde(rename = "ref")]
    name: String,
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    sha: String,
}

#[async_trait]
impl Changes for Client {
    async fn pull_request(&self, number: u64) -> Result<PullRequest> {
        self.one_pull_request(&self.path(&format!("/pulls/{number}")))
            .await
    }

    async fn pull_requests_of_commit(&self, sha: &CommitId) -> Result<Vec<PullRequest>> {
        // Gitea knows only one pull request of a commit: the one whose merge created it.
        let path = self.path(&format!("/commits/{sha}/pull"));
        let pull = if_found(self.one_pull_request(&path).await)?;
        Ok(pull.into_iter().collect())
    }

    async fn open_pull_requests_from(&self, owner: &str, branch: &str) -> Result<Vec<PullRequest>> {
        // Gitea has no filter for the head, so all open pull requests are listed.
        let path = self.path("/pulls?state=open");
        let raw: Vec<ListedPullRequest> = self.list(&path, READ).await?;
        let is_from = |raw: &ListedPullRequest| {
            let of = raw.head.owner();
            raw.head.label.as_deref() == Some(branch) && of.is_some_and(|of| of.eq_ignore_ascii_case(owner))
        };
        raw.into_iter()
            .filter(is_from)
            .map(|raw| raw.into_pull_request(&self.rest, &path))
            .collect()
    }

    async fn recent_pull_requests(&self, numbers: &BTreeSet<u64>, pages: usize) -> Result<Vec<PullRequest>> {
        let path = self.path("/pulls?state=all&sort=recentupdate");
        // The caller counts in pages of 100. A pull request that is updated between two requests may be on both
        // pages.
        let most = (pages * 100).div_ceil(self.page_size().await?);
        let (mut found, mut before) = (BTreeMap::new(), 0);
        for page in 1..=most {
            let Page { items, is_last } = self.page::<ListedPullRequest>(&path, READ, page, before).await?;
            before += items.len();
            for mut raw in items.into_iter().filter(|raw| numbers.contains(&raw.number)) {
                // On Forgejo, `head.sha` of a merged pull request is the tip of the branch, which may have moved
                // after the merge. By its source, Gitea falls back to it if `refs/pull/N/head` is missing. So the head
                // that the server kept is read, as for a single pull request.
                if raw.merged_at.is_some() {
                    raw.head.sha = self.kept_head(raw.number).await?;
                }
                let pull = raw.into_pull_request(&self.rest, &path)?;
                found.insert(pull.number, pull);
            }
            if is_last || found.len() == numbers.len() {
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
        let Repository { default_branch } = self.rest.get(&self.path(""), READ).await?;
        self.branch(&default_branch).await
    }

    async fn branch(&self, name: &str) -> Result<DefaultBranch> {
        #[derive(Deserialize)]
        struct Branch {
            commit: Commit,
            protected: bool,
        }
        #[derive(Deserialize)]
        struct Commit {
            id: String,
        }
        let path = self.path(&format!("/branches/{}", encoded(name)));
        let branch: Branch = self.rest.get(&path, READ).await?;
        Ok(DefaultBranch {
            name: name.to_owned(),
            tip: self.rest.commit_id(&path, &branch.commit.id)?,
            protected: branch.protected,
        })
    }

    async fn commits_after(&self, commit: &CommitId, tip: &CommitId) -> Result<Option<BTreeSet<CommitId>>> {
        #[derive(Deserialize)]
        struct Sha {
            sha: String,
        }
        // Gitea's comparison does not say whether one commit contains the other. So the missing commits are listed
        // in both directions.
        let path = |of: &CommitId, without: &CommitId| self.commits_path(of, without);
        let missing = self.page::<Sha>(&path(commit, tip), READ, 1, 0).await?;
        if !missing.items.is_empty() {
            return Ok(None);
        }
        let path = path(tip, commit);
        let after: Vec<Sha> = self.list(&path, READ).await?;
        after
            .iter()
            .map(|after| self.rest.commit_id(&path, &after.sha))
            .collect::<Result<_, _>>()
            .map(Some)
    }

    async fn contributions_between(&self, base: &CommitId, head: &CommitId) -> Result<Vec<Contribution>> {
        self.contributions(&self.commits_path(head, base)).await
    }

    async fn contributions_to_folder(&self, head: &CommitId, folder: &str) -> Result<Vec<Contribution>> {
        // For an unknown head, Gitea's commit list fails with a server error. A request for the commit itself fails
        // with a clear 404.
        let path = self.path(&format!("/git/commits/{head}?{LEAN}"));
        let _: serde_json::Value = self.rest.get(&path, READ).await?;
        let path = self.path(&format!("/commits?sha={head}&path={}&{LEAN}", encoded(folder)));
        // Gitea responds with 404 if no commit changed the folder.
        Ok(if_found(self.contributions(&path).await)?.unwrap_or_default())
    }

    async fn contributions_to_pull_request(&self, number: u64) -> Result<Vec<Contribution>> {
        self.contributions(&self.path(&format!("/pulls/{number}/commits?{LEAN}")))
            .await
    }
}

/// The names of people in commits at Gitea. The committer of a merge is the person who clicked the button. A private
/// address is `LOGIN@noreply.HOST`.
const NAMES: CommitNames = CommitNames {
    forge: ForgeKind::Gitea,
    itself: None,
    private_address: login_of_address,
};

/// Query parameters that leave out parts of a commit which Gitea would have to compute.
const LEAN: &str = "stat=false&files=false&verification=false";

impl Client {
    /// Returns the path of the list of commits that are in `of` and not in `without`.
    fn commits_path(&self, of: &CommitId, without: &CommitId) -> String {
        self.path(&format!("/commits?sha={of}&not={without}&{LEAN}"))
    }

    async fn contributions(&self, path: &str) -> Result<Vec<Contribution>> {
        let (mut all, mut is_last) = (Vec::new(), false);
        for page in 1.. {
            if is_last || all.len() > MOST_COMMITS {
                break;
            }
            let next = self.page::<ListedCommit>(path, READ, page, all.len()).await?;
            is_last = next.is_last;
            all.extend(next.items);
        }
        if all.len() > MOST_COMMITS {
            return Err(NAMES.too_many(path));
        }
        NAMES.read(path, all)
    }

    /// Reads one pull request.
    async fn one_pull_request(&self, path: &str) -> Result<PullRequest> {
        let mut raw: ListedPullRequest = self.rest.get(path, READ).await?;
        raw.head.sha = self.kept_head(raw.number).await?;
        raw.into_pull_request(&self.rest, path)
    }

    /// Reads the head that Gitea keeps as a ref for each pull request. Its responses contain the tip of the branch
    /// instead, which may have moved after the merge.
    async fn kept_head(&self, number: u64) -> Result<String> {
        let name = format!("refs/pull/{number}/head");
        let of_head = self.path(&format!("/git/{name}"));
        // The pull request exists, so a missing ref is an error. It must not look like a missing pull request.
        let references: Option<Vec<Reference>> = if_found(self.rest.get(&of_head, READ).await)?;
        let mut references = references.into_iter().flatten();
        let head = references.find(|reference| reference.name == name);
        let missing = || {
            self.rest
                .malformed(format!("GET {of_head}"), format!("it has no {name}"))
        };
        Ok(head.ok_or_else(missing)?.object.sha)
    }
}

fn login_of_address(address: &str) -> Option<&str> {
    let (login, host) = address.split_once('@')?;
    host.starts_with("noreply.").then_some(login)
}
