//! The issues that Konverge maintains: one per drifted stack, one per stopped stack. They are found by label,
//! author and marker in the list of issues, never by search, whose index lags.

use std::collections::BTreeSet;

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    client::{Client, PAGE, TokenPermission, User},
    error::GithubError,
    pull_requests::encoded,
};
use konverge_base::model::comment_marker::{CommentMarker, MarkerKind};

const NEED: TokenPermission = TokenPermission("issues: write");

/// An issue that we maintain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Number of the issue.
    pub number: u64,
    /// Its page.
    pub url: String,
    /// True if nobody has closed it.
    pub open: bool,
    /// When it was opened, as in RFC 3339.
    pub created_at: String,
    /// The marker: the stack, and the digest of the content.
    pub marker: CommentMarker,
}

/// The result for an issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssueChange {
    /// A new issue was opened.
    Opened,
    /// It was closed and is open again.
    Reopened,
    /// Its content changed.
    Updated,
    /// It already had this content.
    Unchanged,
    /// The issue was closed.
    Closed,
}

#[derive(Deserialize)]
struct IssueBody {
    number: u64,
    #[serde(default)]
    html_url: String,
    state: String,
    #[serde(default)]
    created_at: String,
    body: Option<String>,
    user: Option<User>,
    pull_request: Option<Value>,
}

impl Client {
    /// All issues with this label that we opened and that have our marker. One request per 100 issues.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn kept_issues(&self, label: &str) -> Result<Vec<Issue>, GithubError> {
        let kept = self.marked_issues(label).await?;
        let ours = self.filter_own(kept, |(author, _)| Some(author)).await?;
        Ok(ours.into_iter().map(|(_, issue)| issue).collect())
    }

    /// The open issue of `marker`; of several the oldest. The job's GITHUB_TOKEN may have opened it and not we: a step
    /// with the token of an App comments on it.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn job_issue(&self, label: &str, marker: &CommentMarker) -> Result<Option<Issue>, GithubError> {
        let mut found = self.marked_issues(label).await?;
        found.retain(|(_, issue)| issue.open && issue.marker.same_place(marker));
        let found = self.filter_jobs(found, |(author, _)| author).await?;
        let issues = found.into_iter().map(|(_, issue)| issue);
        Ok(issues.min_by_key(|issue| issue.number))
    }

    /// All issues with this label and a marker, of every author.
    async fn marked_issues(&self, label: &str) -> Result<Vec<(User, Issue)>, GithubError> {
        // GitHub wants `app/name` where a login reads `name[bot]`, and not every server does: authors are
        // compared here.
        let path = self.path(&format!(
            "/issues?labels={}&state=all&per_page={PAGE}",
            encoded(label)
        ));
        let raw: Vec<IssueBody> = self.list(&path, NEED).await?;
        Ok(raw.into_iter().filter_map(into_issue).collect())
    }

    /// Opens, reopens or updates the issue of `marker`; of several the oldest, of those that are open if any is.
    /// An open issue with the same digest and one that a newer run wrote stay unchanged. `known` is the list of
    /// [`Client::kept_issues`].
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn keep_issue(
        &self,
        known: &[Issue],
        label: &str,
        marker: &CommentMarker,
        title: &str,
        body: &str,
    ) -> Result<IssueChange, GithubError> {
        let same_place = known.iter().filter(|issue| issue.marker.same_place(marker));
        let Some(issue) = same_place.min_by_key(|issue| (!issue.open, issue.number)) else {
            return self.open_issue(label, marker, title, body).await;
        };
        let same = issue.open && issue.marker.digest == marker.digest;
        if same || issue.marker.is_newer_than(marker) {
            return Ok(IssueChange::Unchanged);
        }
        let path = self.path(&format!("/issues/{}", issue.number));
        let text = json!({"title": title, "body": body, "state": "open"});
        match self.set::<Value>(Method::PATCH, &path, &text, NEED).await {
            Ok(_) if issue.open => Ok(IssueChange::Updated),
            Ok(_) => Ok(IssueChange::Reopened),
            Err(error) if is_gone(&error) => self.open_issue(label, marker, title, body).await,
            Err(error) => Err(error),
        }
    }

    async fn open_issue(
        &self,
        label: &str,
        marker: &CommentMarker,
        title: &str,
        body: &str,
    ) -> Result<IssueChange, GithubError> {
        let issue = json!({"title": title, "body": body, "labels": [label]});
        let _: Value = self
            .create(&self.path("/issues"), &issue, NEED, || async {
                let kept = self.kept_issues(label).await?;
                let made = kept.iter().any(|issue| issue.marker == *marker);
                Ok(made.then_some(Value::Null))
            })
            .await?;
        Ok(IssueChange::Opened)
    }

    /// Closes an open issue.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn close_issue(&self, issue: &Issue) -> Result<IssueChange, GithubError> {
        if !issue.open {
            return Ok(IssueChange::Unchanged);
        }
        let path = self.path(&format!("/issues/{}", issue.number));
        let body = json!({"state": "closed", "state_reason": "completed"});
        match self.set::<Value>(Method::PATCH, &path, &body, NEED).await {
            Ok(_) => Ok(IssueChange::Closed),
            Err(error) if is_gone(&error) => Ok(IssueChange::Closed),
            Err(error) => Err(error),
        }
    }
}

/// The open issues of a kind that have an older open one of the same scope: two runs opened one at the same time.
pub fn duplicates(known: &[Issue], kind: MarkerKind) -> Vec<&Issue> {
    let of_kind = |issue: &&Issue| issue.open && issue.marker.kind == kind;
    let mut open: Vec<_> = known.iter().filter(of_kind).collect();
    open.sort_by_key(|issue| issue.number);
    let mut scopes = BTreeSet::new();
    open.retain(|issue| !scopes.insert(&issue.marker.scope));
    open
}

/// Returns true if an issue was deleted after the listing: GitHub answers 404 or 410.
fn is_gone(error: &GithubError) -> bool {
    matches!(
        error,
        GithubError::NotFound { .. } | GithubError::Refused { status: 410, .. }
    )
}

/// An issue with a marker, and its author.
fn into_issue(raw: IssueBody) -> Option<(User, Issue)> {
    // The list of issues contains pull requests too.
    if raw.pull_request.is_some() {
        return None;
    }
    let issue = Issue {
        number: raw.number,
        url: raw.html_url,
        open: raw.state == "open",
        created_at: raw.created_at,
        marker: CommentMarker::parse(raw.body.as_deref()?)?,
    };
    Some((raw.user?, issue))
}
