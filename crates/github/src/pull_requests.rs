//! Pull requests, their approvals and permissions: which were merged with which last head (this selects the
//! review record), who approved, and who may.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Deserialize;

use super::{
    client::{Client, PAGE, TokenPermission, User},
    error::GithubError,
};
use konverge_base::model::CommitId;

const READ: TokenPermission = TokenPermission("pull-requests: read");

/// The needed fields of a pull request.
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
    /// The commit on the target branch, once merged.
    pub merge_commit: Option<CommitId>,
    /// When it was merged, as in RFC 3339; `None` if it is not merged.
    pub merged_at: Option<String>,
    /// True if it is neither merged nor closed.
    pub open: bool,
    /// True if its head is in another repository.
    pub from_fork: bool,
}

impl PullRequest {
    /// True if it was merged.
    pub fn is_merged(&self) -> bool {
        self.merged_at.is_some()
    }
}

/// The latest approving review of one person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewApproval {
    /// The account that approved.
    pub reviewer: String,
    /// The reviewed head.
    pub commit: CommitId,
    /// When it was given, if GitHub says so.
    pub given: Option<Timestamp>,
    /// Its text.
    pub said: String,
    /// Its id in GraphQL.
    pub node: String,
}

/// Who approved a run in an environment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunApproval {
    /// The account that approved the run.
    pub reviewer: String,
    /// Its text.
    pub said: String,
}

/// A user's permission in the repository, from GitHub's permission API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// No access.
    None,
    /// May read.
    Read,
    /// May push.
    Write,
    /// May administer.
    Admin,
}

#[derive(Deserialize)]
struct PullRequestBody {
    number: u64,
    user: Option<User>,
    head: RawRef,
    base: RawRef,
    merge_commit_sha: Option<String>,
    merged_at: Option<String>,
    state: String,
}

#[derive(Deserialize)]
struct RawRef {
    #[serde(rename = "ref")]
    name: String,
    sha: String,
    repo: Option<RawRepo>,
}

#[derive(Deserialize)]
struct RawRepo {
    full_name: String,
}

impl Client {
    /// A pull request.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn pull_request(&self, number: u64) -> Result<PullRequest, GithubError> {
        let path = self.path(&format!("/pulls/{number}"));
        let raw: PullRequestBody = self.get(&path, READ).await?;
        pull_request(&path, raw)
    }

    /// The pull requests that contain a commit, merged or not. Empty for a commit that was pushed directly,
    /// and for one that is only in a fork.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn pull_requests_of_commit(&self, sha: &CommitId) -> Result<Vec<PullRequest>, GithubError> {
        let path = self.path(&format!("/commits/{sha}/pulls?per_page={PAGE}"));
        let raw: Vec<PullRequestBody> = self.list(&path, READ).await?;
        raw.into_iter().map(|raw| pull_request(&path, raw)).collect()
    }

    /// The open pull requests from a branch, in this repository or in `owner`'s fork.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn open_pull_requests_from(
        &self,
        owner: &str,
        branch: &str,
    ) -> Result<Vec<PullRequest>, GithubError> {
        let head = encoded(&format!("{owner}:{branch}"));
        let path = self.path(&format!("/pulls?state=open&head={head}&per_page={PAGE}"));
        let raw: Vec<PullRequestBody> = self.list(&path, READ).await?;
        raw.into_iter().map(|raw| pull_request(&path, raw)).collect()
    }

    /// The pull requests with these numbers, searched in the first `pages` pages of 100, the last updated
    /// first. Stops at the page with the last of them.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn recent_pull_requests(
        &self,
        numbers: &BTreeSet<u64>,
        pages: usize,
    ) -> Result<Vec<PullRequest>, GithubError> {
        // A pull request that is updated between two pages is on both.
        let mut found = BTreeMap::new();
        for page in 1..=pages {
            let path = self.path(&format!(
                "/pulls?state=all&sort=updated&direction=desc&per_page={PAGE}&page={page}"
            ));
            let raw: Vec<PullRequestBody> = self.get(&path, READ).await?;
            let last = raw.len() < PAGE;
            for raw in raw.into_iter().filter(|raw| numbers.contains(&raw.number)) {
                let pull = pull_request(&path, raw)?;
                found.insert(pull.number, pull);
            }
            if last || found.len() == numbers.len() {
                break;
            }
        }
        Ok(found.into_values().collect())
    }

    /// The current approvals of a pull request: each reviewer's latest review, without dismissed and
    /// withdrawn ones.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn approvals(&self, pr: u64) -> Result<Vec<ReviewApproval>, GithubError> {
        #[derive(Deserialize)]
        struct Review {
            user: Option<User>,
            state: String,
            commit_id: Option<String>,
            #[serde(default)]
            submitted_at: Option<Timestamp>,
            #[serde(default)]
            body: Option<String>,
            #[serde(default)]
            node_id: String,
        }
        let path = self.path(&format!("/pulls/{pr}/reviews?per_page={PAGE}"));
        let reviews: Vec<Review> = self.list(&path, READ).await?;
        let mut approvals: Vec<ReviewApproval> = Vec::new();
        for review in reviews {
            let Some(user) = review.user else { continue };
            // A comment does not withdraw an approval. GitHub returns the oldest first.
            if review.state == "COMMENTED" || review.state == "PENDING" {
                continue;
            }
            approvals.retain(|a| a.reviewer != user.login);
            let commit = review.commit_id.and_then(|sha| sha.parse().ok());
            if let ("APPROVED", Some(commit)) = (review.state.as_str(), commit) {
                approvals.push(ReviewApproval {
                    reviewer: user.login,
                    commit,
                    given: review.submitted_at,
                    said: review.body.unwrap_or_default(),
                    node: review.node_id,
                });
            }
        }
        Ok(approvals)
    }

    /// Who approved a run for this environment, each person once. Other jobs of the run may have other
    /// environments, and GitHub lists them all.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn run_approvals(&self, run: u64, environment: &str) -> Result<Vec<RunApproval>, GithubError> {
        #[derive(Deserialize)]
        struct Review {
            user: Option<User>,
            state: String,
            environments: Vec<Environment>,
            #[serde(default)]
            comment: Option<String>,
        }
        #[derive(Deserialize)]
        struct Environment {
            name: String,
        }
        let path = self.path(&format!("/actions/runs/{run}/approvals"));
        let reviews: Vec<Review> = self.get(&path, TokenPermission("actions: read")).await?;
        // GitHub's environment names are case-insensitive.
        let here = |of: &Environment| of.name.to_lowercase() == environment.to_lowercase();
        let approved = reviews
            .into_iter()
            .filter(|review| review.state == "approved" && review.environments.iter().any(here));
        let approvals = approved.filter_map(|review| {
            Some(RunApproval {
                reviewer: review.user?.login,
                said: review.comment.unwrap_or_default(),
            })
        });
        let mut approvals: Vec<_> = approvals.collect();
        approvals.sort();
        approvals.dedup_by(|a, b| a.reviewer == b.reviewer);
        Ok(approvals)
    }

    /// The permission of a user. It is never derived from `author_association`, where private members look
    /// like outsiders.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn permission(&self, user: &str) -> Result<Permission, GithubError> {
        #[derive(Deserialize)]
        struct PermissionAnswer {
            permission: String,
        }
        let path = self.path(&format!("/collaborators/{}/permission", encoded(user)));
        match self
            .get::<PermissionAnswer>(&path, TokenPermission("metadata: read"))
            .await
        {
            // GitHub reports `write` for maintain and `read` for triage.
            Ok(answer) => Ok(match answer.permission.as_str() {
                "admin" => Permission::Admin,
                "write" | "maintain" => Permission::Write,
                "read" | "triage" => Permission::Read,
                _ => Permission::None,
            }),
            Err(GithubError::NotFound { .. }) => Ok(Permission::None),
            Err(error) => Err(error),
        }
    }

    /// Returns true if a user is an active member of the team `org/slug`. GITHUB_TOKEN cannot query this: an
    /// App's token with `members: read` is needed.
    ///
    /// # Errors
    /// Errors of GitHub; the token does not see the team.
    pub async fn is_team_member(&self, org: &str, team: &str, user: &str) -> Result<bool, GithubError> {
        #[derive(Deserialize)]
        struct Membership {
            state: String,
        }
        let path = format!(
            "/orgs/{}/teams/{}/memberships/{}",
            encoded(org),
            encoded(team),
            encoded(user)
        );
        match self
            .get::<Membership>(&path, TokenPermission("members: read"))
            .await
        {
            Ok(membership) => Ok(membership.state == "active"),
            // A team that the token does not see has no members for it.
            Err(GithubError::NotFound { .. }) => {
                let path = format!(
                    "/orgs/{}/teams/{}/members?per_page=1",
                    encoded(org),
                    encoded(team)
                );
                let _: serde_json::Value = self.get(&path, TokenPermission("members: read")).await?;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

fn pull_request(path: &str, raw: PullRequestBody) -> Result<PullRequest, GithubError> {
    let head = raw
        .head
        .sha
        .parse()
        .map_err(|error: konverge_base::model::InvalidId| GithubError::Malformed {
            operation: format!("GET {path}"),
            cause: error.to_string(),
        })?;
    let base = raw.base.repo.map(|r| r.full_name);
    Ok(PullRequest {
        number: raw.number,
        author: raw.user.map_or_else(String::new, |u| u.login),
        head,
        head_branch: raw.head.name,
        base_branch: raw.base.name,
        merge_commit: raw.merge_commit_sha.and_then(|sha| sha.parse().ok()),
        merged_at: raw.merged_at,
        open: raw.state == "open",
        // A head whose repository is deleted was in a fork.
        from_fork: raw.head.repo.is_none_or(|r| Some(r.full_name) != base),
    })
}

/// Encodes one component of a path or a value of a query.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
