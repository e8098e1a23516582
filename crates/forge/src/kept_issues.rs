//! Issues that Konverge keeps up to date: one for each drifted stack and one for each stopped stack. They are found
//! by label, author and marker in the list of issues, never with the search, whose index lags.

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::{
    error::Result,
    publishing::{Issue, Publishing, only_own, only_own_and_of_jobs},
};
use konverge_base::model::comment_marker::{CommentMarker, MarkerKind};

/// The result of updating an issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssueChange {
    /// A new issue was opened.
    Opened,
    /// The issue had been closed and was opened again.
    Reopened,
    /// The content of the issue changed.
    Updated,
    /// The issue already had this content.
    Unchanged,
    /// The issue was closed.
    Closed,
}

/// Keeps issues up to date at any forge. All errors come from the forge.
#[async_trait]
pub trait KeptIssues: Publishing {
    /// Returns all issues with this label that our login opened and that have a marker.
    async fn kept_issues(&self, label: &str) -> Result<Vec<Issue>> {
        only_own(self, self.marked_issues(label).await?).await
    }

    /// Returns true if we wrote an issue with this label and exactly this marker.
    async fn has_issue(&self, label: &str, marker: &CommentMarker) -> Result<bool> {
        let kept = self.kept_issues(label).await?;
        Ok(kept.iter().any(|issue| issue.marker == *marker))
    }

    /// Returns the oldest open issue of `marker`. Also finds issues that another job opened with its own token,
    /// because a step that uses another token comments on them.
    async fn job_issue(&self, label: &str, marker: &CommentMarker) -> Result<Option<Issue>> {
        let mut found = self.marked_issues(label).await?;
        found.retain(|issue| issue.open && issue.marker.same_place(marker));
        let found = only_own_and_of_jobs(self, found).await?;
        Ok(found.into_iter().min_by_key(|issue| issue.number))
    }

    /// Opens, reopens or updates the issue of `marker`. If there are several, it takes the oldest open one, or else
    /// the oldest closed one. An open issue with the same digest stays unchanged, and so does an issue that a newer
    /// run wrote. `known` is the result of [`KeptIssues::kept_issues`].
    async fn keep_issue(
        &self,
        known: &[Issue],
        label: &str,
        marker: &CommentMarker,
        title: &str,
        body: &str,
    ) -> Result<IssueChange> {
        let same_place = known.iter().filter(|issue| issue.marker.same_place(marker));
        let oldest = same_place.min_by_key(|issue| (!issue.open, issue.number));
        // The digest covers the content, so equal digests need no write.
        if let Some(issue) = oldest {
            let same = issue.open && issue.marker.digest == marker.digest;
            if same || issue.marker.is_newer_than(marker) {
                return Ok(IssueChange::Unchanged);
            }
            if self.write_issue(issue.number, title, body).await? {
                return Ok(if issue.open {
                    IssueChange::Updated
                } else {
                    IssueChange::Reopened
                });
            }
        }
        // There is no such issue, or somebody deleted it after the listing.
        self.open_issue(label, marker, title, body).await?;
        Ok(IssueChange::Opened)
    }

    /// Closes an open issue.
    async fn close_issue(&self, issue: &Issue) -> Result<IssueChange> {
        if !issue.open {
            return Ok(IssueChange::Unchanged);
        }
        self.end_issue(issue.number).await?;
        Ok(IssueChange::Closed)
    }
}

impl<P: Publishing + ?Sized> KeptIssues for P {}

/// Returns the duplicates among the open issues of a kind: all but the oldest of each scope. Two runs at the same
/// time may open two.
pub fn duplicates(known: &[Issue], kind: MarkerKind) -> Vec<&Issue> {
    let of_kind = |issue: &&Issue| issue.open && issue.marker.kind == kind;
    let mut open: Vec<_> = known.iter().filter(of_kind).collect();
    open.sort_by_key(|issue| issue.number);
    let mut scopes = BTreeSet::new();
    open.retain(|issue| !scopes.insert(&issue.marker.scope));
    open
}
