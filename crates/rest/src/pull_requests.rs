//! Pull requests and issues in the form of GitHub's API, which Gitea has too.

use konverge_base::model::comment_marker::CommentMarker;
use konverge_forge::{ForgeKind, Issue, ProposedPullRequest, PullRequest, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::{RestClient, User};

/// A pull request, with the fields for changes and for proposals.
#[derive(Deserialize)]
pub struct ListedPullRequest {
    /// Number of the pull request.
    pub number: u64,
    user: Option<User>,
    /// The source branch.
    pub head: PullRequestSide,
    base: PullRequestSide,
    merge_commit_sha: Option<String>,
    /// The time of the merge; `None` if it was not merged.
    pub merged_at: Option<String>,
    state: String,
    #[serde(default)]
    html_url: String,
    #[serde(default)]
    title: String,
    body: Option<String>,
    /// The id of GraphQL, which only GitHub has.
    node_id: Option<String>,
}

/// The source or the target branch of a pull request.
#[derive(Deserialize)]
pub struct PullRequestSide {
    #[serde(rename = "ref")]
    name: String,
    /// At Gitea the name of the branch, even after its deletion. Empty if the head was pushed to `refs/for/main`. At
    /// GitHub `null` for the branch of a deleted account.
    pub label: Option<String>,
    /// The commit.
    #[serde(default)]
    pub sha: String,
    repo: Option<RepositoryBody>,
}

#[derive(Deserialize, PartialEq)]
struct RepositoryBody {
    full_name: String,
}

impl PullRequestSide {
    /// Returns the owner of the repository; `None` if the repository was deleted.
    pub fn owner(&self) -> Option<&str> {
        self.repo.as_ref()?.full_name.split('/').next()
    }
}

impl ListedPullRequest {
    /// Returns true if the head is in the repository of the pull request. The two repositories are compared with each
    /// other, because the configured name may be outdated after a renaming.
    pub fn is_home(&self) -> bool {
        self.head.repo.is_some() && self.head.repo == self.base.repo
    }

    /// Converts the pull request, which the response to `GET path` contains.
    ///
    /// # Errors
    /// The head is no commit.
    pub fn into_pull_request(self, rest: &RestClient, path: &str) -> Result<PullRequest> {
        let is_home = self.is_home();
        let head_branch = match rest.api.kind() {
            ForgeKind::Gitea => self.head.label.unwrap_or_default(),
            ForgeKind::Github | ForgeKind::Gitlab => self.head.name,
        };
        Ok(PullRequest {
            number: self.number,
            author: self.user.map_or_else(String::new, |user| user.login),
            head: rest.commit_id(path, &self.head.sha)?,
            // If the repository of the head was deleted, it was a fork. A head without a branch comes from a person
            // without write permission.
            from_fork: !is_home || head_branch.is_empty(),
            head_branch,
            base_branch: self.base.name,
            merge_commit: self.merge_commit_sha.and_then(|sha| sha.parse().ok()),
            merged: self.merged_at.is_some(),
            open: self.state == "open",
        })
    }
}

impl From<ListedPullRequest> for ProposedPullRequest {
    fn from(raw: ListedPullRequest) -> Self {
        Self {
            node: raw.node_id.unwrap_or_else(|| raw.number.to_string()),
            number: raw.number,
            url: raw.html_url,
            open: raw.state == "open",
            merged: raw.merged_at.is_some(),
            head: raw.head.sha,
            title: raw.title,
            body: raw.body.unwrap_or_default(),
        }
    }
}

/// An issue. A pull request is an issue, too.
#[derive(Deserialize)]
pub struct ListedIssue {
    /// Number of the issue.
    pub number: u64,
    #[serde(default)]
    html_url: String,
    state: String,
    #[serde(default)]
    created_at: String,
    body: Option<String>,
    user: Option<User>,
    pull_request: Option<Value>,
    #[serde(default)]
    labels: Value,
}

impl ListedIssue {
    /// Returns true if the issue has a label.
    pub fn has_label(&self, label: &str) -> bool {
        let mut labels = self.labels.as_array().into_iter().flatten();
        labels.any(|one| one["name"] == label)
    }

    /// Converts the issue; `None` for a pull request, and if there is no marker or no author.
    pub fn into_issue(self) -> Option<Issue> {
        // The list of issues also contains pull requests.
        if self.pull_request.is_some() {
            return None;
        }
        Some(Issue {
            number: self.number,
            author: self.user?.login,
            url: self.html_url,
            open: self.state == "open",
            created_at: self.created_at,
            marker: CommentMarker::parse(self.body.as_deref()?)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::comment_marker::MarkerKind;
    use serde_json::json;

    /// Anybody may copy a marker into a pull request or an issue.
    #[test]
    fn an_issue_is_ours_to_judge_with_a_marker_and_an_author_alone() {
        let marker = CommentMarker::new(MarkerKind::Drift, "shop/prod");
        let body = json!({
            "number": 5, "state": "open", "created_at": "2026-11-20T10:00:00Z",
            "body": format!("{}\ndrift", marker.line()), "user": {"login": "konverge[bot]"}, "pull_request": null,
        });
        let read = |field: &str, value: Value| {
            let mut body = body.clone();
            body[field] = value;
            serde_json::from_value::<ListedIssue>(body).unwrap().into_issue()
        };
        let issue = read("number", json!(5)).unwrap();
        assert_eq!(
            (issue.marker, issue.author.as_str(), issue.open),
            (marker, "konverge[bot]", true)
        );
        assert!(!read("state", json!("closed")).unwrap().open);
        for (field, value) in [
            ("pull_request", json!({"url": "https://api.github.com/x"})),
            ("user", json!(null)),
            ("body", json!(null)),
            ("body", json!("no marker")),
        ] {
            assert!(read(field, value).is_none(), "{field}");
        }
    }
}
