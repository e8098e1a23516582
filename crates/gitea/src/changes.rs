//! Pull requests and branches, and the commits between two commits. The last head of a merged pull request selects
//! its review record.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use konverge_base::model::CommitId;
use konverge_forge::{Changes, Contribution, DefaultBranch, ForgeError, ForgeKind, PullRequest, if_found};
use konverge_rest::{CommitNames, ListedCommit, RestClient, TokenPermission, User, encoded};
use serde::Deserialize;

use crate::{client::Client, pages::Page};

const READ: TokenPermission = TokenPermission("read:repository");

/// The maximum number of commits. If there are more, the contributors are unknown.
const MOST_COMMITS: usize = 1_000;

/// A pull request, with the fields for changes and for proposals.
#[derive(Deserialize)]
pub(super) struct PullRequestBody {
    pub(super) number: u64,
    user: Option<User>,
    pub(super) head: HeadBody,
    base: BaseBody,
    merge_commit_sha: Option<String>,
    pub(super) merged_at: Option<String>,
    pub(super) state: String,
    #[serde(default)]
    pub(super) html_url: String,
    #[serde(default)]
    pub(super) title: String,
    #[serde(default)]
    pub(super) body: String,
}

impl PullRequestBody {
    /// Returns true if the head is in the repository of the pull request. The two repositories are compared with each
    /// other, because the configured name may be outdated after a renaming.
    pub(super) fn is_home(&self) -> bool {
        self.head.repo.is_some() && self.head.repo == self.base.repo
    }
}

#[derive(Deserialize)]
pub(super) struct HeadBody {
    /// The name of the branch, even after its deletion. Empty if the head was pushed to `refs/for/main`.
    #[serde(default)]
    pub(super) label: String,
    #[serde(default)]
    pub(super) sha: String,
    repo: Option<RepositoryBody>,
}

#[derive(Deserialize)]
struct BaseBody {
    #[serde(rename = "ref")]
    name: String,
    repo: Option<RepositoryBody>,
}

#[derive(Deserialize, PartialEq)]
struct RepositoryBody {
    full_name: String,
}

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
    async fn pull_request(&self, number: u64) -> Result<PullRequest, ForgeError> {
        self.one_pull_request(&self.path(&format!("/pulls/{number}")))
            .await
    }

    async fn pull_requests_of_commit(&self, sha: &CommitId) -> Result<Vec<PullRequest>, ForgeError> {
        // Gitea knows only one pull request of a commit: the one whose merge created it.
        let path = self.path(&format!("/commits/{sha}/pull"));
        let pull = if_found(self.one_pull_request(&path).await)?;
        Ok(pull.into_iter().collect())
    }

    async fn open_pull_requests_from(
        &self,
        owner: &str,
        branch: &str,
    ) -> Result<Vec<PullRequest>, ForgeError> {
        // Gitea has no filter for the head, so all open pull requests are listed.
        let path = self.path("/pulls?state=open");
        let raw: Vec<PullRequestBody> = self.list(&path, READ).await?;
        let is_from = |raw: &PullRequestBody| {
            let repository = raw.head.repo.as_ref();
            let of = repository.and_then(|repository| repository.full_name.split('/').next());
            raw.head.label == branch && of.is_some_and(|of| of.eq_ignore_ascii_case(owner))
        };
        raw.into_iter()
            .filter(is_from)
            .map(|raw| convert(&self.rest, &path, raw))
            .collect()
    }

    async fn recent_pull_requests(
        &self,
        numbers: &BTreeSet<u64>,
        pages: usize,
    ) -> Result<Vec<PullRequest>, ForgeError> {
        let path = self.path("/pulls?state=all&sort=recentupdate");
        // The caller counts in pages of 100. A pull request that is updated between two requests may be on both
        // pages.
        let most = (pages * 100).div_ceil(self.page_size().await?);
        let (mut found, mut before) = (BTreeMap::new(), 0);
        for page in 1..=most {
            let Page { items, is_last } = self.page::<PullRequestBody>(&path, READ, page, before).await?;
            before += items.len();
            for mut raw in items.into_iter().filter(|raw| numbers.contains(&raw.number)) {
                // On Forgejo, `head.sha` of a merged pull request is the tip of the branch, which may have moved
                // after the merge. By its source, Gitea falls back to it if `refs/pull/N/head` is missing. So the head
                // that the server kept is read, as for a single pull request.
                if raw.merged_at.is_some() {
                    raw.head.sha = self.kept_head(raw.number).await?;
                }
                let pull = convert(&self.rest, &path, raw)?;
                found.insert(pull.number, pull);
            }
            if is_last || found.len() == numbers.len() {
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
        let Repository { default_branch } = self.rest.get(&self.path(""), READ).await?;
        self.branch(&default_branch).await
    }

    async fn branch(&self, name: &str) -> Result<DefaultBranch, ForgeError> {
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

    async fn commits_after(
        &self,
        commit: &CommitId,
        tip: &CommitId,
    ) -> Result<Option<BTreeSet<CommitId>>, ForgeError> {
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

    async fn contributions_between(
        &self,
        base: &CommitId,
        head: &CommitId,
    ) -> Result<Vec<Contribution>, ForgeError> {
        self.contributions(&self.commits_path(head, base)).await
    }

    async fn contributions_to_folder(
        &self,
        head: &CommitId,
        folder: &str,
    ) -> Result<Vec<Contribution>, ForgeError> {
        // For an unknown head, Gitea's commit list fails with a server error. A request for the commit itself fails
        // with a clear 404.
        let path = self.path(&format!("/git/commits/{head}?{LEAN}"));
        let _: serde_json::Value = self.rest.get(&path, READ).await?;
        let path = self.path(&format!("/commits?sha={head}&path={}&{LEAN}", encoded(folder)));
        // Gitea responds with 404 if no commit changed the folder.
        Ok(if_found(self.contributions(&path).await)?.unwrap_or_default())
    }

    async fn contributions_to_pull_request(&self, number: u64) -> Result<Vec<Contribution>, ForgeError> {
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

    async fn contributions(&self, path: &str) -> Result<Vec<Contribution>, ForgeError> {
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
    async fn one_pull_request(&self, path: &str) -> Result<PullRequest, ForgeError> {
        let mut raw: PullRequestBody = self.rest.get(path, READ).await?;
        raw.head.sha = self.kept_head(raw.number).await?;
        convert(&self.rest, path, raw)
    }

    /// Reads the head that Gitea keeps as a ref for each pull request. Its responses contain the tip of the branch
    /// instead, which may have moved after the merge.
    async fn kept_head(&self, number: u64) -> Result<String, ForgeError> {
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

fn convert(rest: &RestClient, path: &str, raw: PullRequestBody) -> Result<PullRequest, ForgeError> {
    let is_home = raw.is_home();
    Ok(PullRequest {
        number: raw.number,
        author: raw.user.map_or_else(String::new, |user| user.login),
        head: rest.commit_id(path, &raw.head.sha)?,
        // If the repository of the head was deleted, it was a fork. A head without a branch comes from a person
        // without write permission.
        from_fork: !is_home || raw.head.label.is_empty(),
        head_branch: raw.head.label,
        base_branch: raw.base.name,
        merge_commit: raw.merge_commit_sha.and_then(|sha| sha.parse().ok()),
        merged: raw.merged_at.is_some(),
        open: raw.state == "open",
    })
}

fn login_of_address(address: &str) -> Option<&str> {
    let (login, host) = address.split_once('@')?;
    host.starts_with("noreply.").then_some(login)
}
