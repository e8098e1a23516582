//! Publishing: comments, statuses and issues. These are single writes; what keeps one comment or one issue is above them, in
//! [`StickyComments`](crate::StickyComments) and [`KeptIssues`](crate::KeptIssues).

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::ForgeError;
use konverge_base::model::{CommitId, comment_marker::CommentMarker};

/// A comment on a pull request or an issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// Its id; a newer one has a larger one.
    pub id: u64,
    /// Its text.
    pub body: String,
    /// The login of its author; `None` for a deleted account.
    pub author: Option<String>,
    /// Its page.
    pub url: String,
    /// When it was last changed, by the forge's clock.
    pub written: Option<Timestamp>,
}

impl Comment {
    /// Returns the marker in its first line. Anybody can write one.
    pub fn marker(&self) -> Option<CommentMarker> {
        CommentMarker::parse(&self.body)
    }
}

/// The purpose of a list of comments. The error of a refused list names the permission for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommentAccess {
    /// They are read.
    Read,
    /// One of them is written next.
    Write,
}

/// The state of a status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatusState {
    /// In progress.
    Pending,
    /// Succeeded.
    Success,
    /// The result is negative.
    Failure,
    /// There is no result.
    Error,
}

/// A status that is set on a commit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CommitStatus {
    /// The name of the status.
    pub context: String,
    /// The state that the forge shows.
    pub state: StatusState,
    /// One line beside the state.
    #[serde(default)]
    pub description: Option<String>,
    /// The URL of the details.
    #[serde(default)]
    pub target_url: Option<String>,
}

/// An issue with a marker of ours. Anybody can write one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Number of the issue.
    pub number: u64,
    /// The login of its author.
    pub author: String,
    /// Its page.
    pub url: String,
    /// True if nobody has closed it.
    pub open: bool,
    /// When it was opened, as in RFC 3339.
    pub created_at: String,
    /// The marker: the stack, and the digest of the content.
    pub marker: CommentMarker,
}

/// Writes for people: comments, statuses and issues. Errors are those of the forge.
#[async_trait]
pub trait Publishing: Send + Sync {
    /// Returns the login that the token writes as. Asked once.
    async fn own_login(&self) -> Result<String, ForgeError>;

    /// Returns the login that the token of every job writes as, if jobs have one of their own.
    fn job_login(&self) -> Option<&'static str>;

    /// Returns the same interface for issues, where a number is that of an issue. A forge may number pull requests and issues
    /// apart.
    fn on_issues(&self) -> Box<dyn Publishing + '_>;

    /// Returns the comments on a pull request or issue, with `since` those that were written at or after it.
    async fn comments(
        &self,
        number: u64,
        since: Option<Timestamp>,
        access: CommentAccess,
    ) -> Result<Vec<Comment>, ForgeError>;

    /// Creates a comment. `body` starts with the marker's line. If it is unknown whether a request was executed, the forge's
    /// client looks for our comment with exactly this marker before it tries again.
    async fn create_comment(
        &self,
        number: u64,
        marker: &CommentMarker,
        body: &str,
    ) -> Result<Comment, ForgeError>;

    /// Replaces the text of a comment and returns the comment.
    async fn write_comment(&self, id: u64, body: &str) -> Result<Comment, ForgeError>;

    /// Deletes a comment. Succeeds if it is gone: an earlier attempt whose answer was lost has deleted it.
    async fn delete_comment(&self, id: u64) -> Result<(), ForgeError>;

    /// Returns the statuses of a commit, the newest first; one context may occur several times.
    async fn statuses(&self, sha: &CommitId) -> Result<Vec<CommitStatus>, ForgeError>;

    /// Returns the newest statuses, as many as one request returns.
    async fn newest_statuses(&self, sha: &CommitId) -> Result<Vec<CommitStatus>, ForgeError>;

    /// Sets a status; the description is truncated to the forge's limit.
    async fn set_status(
        &self,
        sha: &CommitId,
        context: &str,
        state: StatusState,
        description: &str,
        url: Option<&str>,
    ) -> Result<(), ForgeError>;

    /// Returns all issues with this label and a marker, of every author, open or closed.
    async fn marked_issues(&self, label: &str) -> Result<Vec<Issue>, ForgeError>;

    /// Opens an issue. If it is unknown whether a request was executed, the forge's client looks for our issue with exactly
    /// this marker before it tries again.
    async fn open_issue(
        &self,
        label: &str,
        marker: &CommentMarker,
        title: &str,
        body: &str,
    ) -> Result<(), ForgeError>;

    /// Writes the title and the text of an issue, and reopens a closed one. Returns false if it is gone.
    async fn write_issue(&self, number: u64, title: &str, body: &str) -> Result<bool, ForgeError>;

    /// Closes an issue. Succeeds if it is gone.
    async fn end_issue(&self, number: u64) -> Result<(), ForgeError>;
}

/// A text at the forge that has an author. Anybody can copy our marker into a text, so its author decides whether it is ours.
pub(crate) trait Authored {
    /// Returns the login of the author, if there is one.
    fn author(&self) -> Option<&str>;

    /// Returns true if this login wrote it.
    fn is_by(&self, login: &str) -> bool {
        self.author()
            .is_some_and(|author| author.eq_ignore_ascii_case(login))
    }
}

impl Authored for Comment {
    fn author(&self) -> Option<&str> {
        self.author.as_deref()
    }
}

impl Authored for Issue {
    fn author(&self) -> Option<&str> {
        Some(&self.author)
    }
}

/// Returns the texts that our login wrote. The login is asked for only if there is something to filter.
pub(crate) async fn only_own<P, T>(publishing: &P, mut texts: Vec<T>) -> Result<Vec<T>, ForgeError>
where
    P: Publishing + ?Sized,
    T: Authored + Send,
{
    if texts.is_empty() {
        return Ok(texts);
    }
    let us = publishing.own_login().await?;
    texts.retain(|text| text.is_by(&us));
    Ok(texts)
}

/// Returns the texts that our login or the token of a job wrote.
pub(crate) async fn only_own_and_of_jobs<P, T>(
    publishing: &P,
    mut texts: Vec<T>,
) -> Result<Vec<T>, ForgeError>
where
    P: Publishing + ?Sized,
    T: Authored + Send,
{
    let jobs = publishing.job_login();
    let by_job = |text: &T| jobs.is_some_and(|login| text.is_by(login));
    if texts.iter().all(by_job) {
        return Ok(texts);
    }
    let us = publishing.own_login().await?;
    texts.retain(|text| text.is_by(&us) || by_job(text));
    Ok(texts)
}
