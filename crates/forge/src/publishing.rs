//! Publishing: comments, statuses and issues. Each method is a single write;
//! [`StickyComments`](crate::StickyComments) and [`KeptIssues`](crate::KeptIssues) use them to keep exactly one
//! comment or issue.

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use konverge_base::model::{CommitId, comment_marker::CommentMarker};

/// A comment on a pull request or an issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// The id; a newer comment has a larger id.
    pub id: u64,
    /// The text of the comment.
    pub body: String,
    /// The login of the author; `None` for a deleted account.
    pub author: Option<String>,
    /// The URL of the comment.
    pub url: String,
    /// The time of the last change, by the forge's clock.
    pub written: Option<Timestamp>,
}

impl Comment {
    /// Returns the marker in the first line of the comment. Anybody can write a marker, so it is no proof of the
    /// author.
    pub fn marker(&self) -> Option<CommentMarker> {
        CommentMarker::parse(&self.body)
    }
}

/// The purpose of listing comments. The error of a refused request names the permission for this purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommentAccess {
    /// The comments are only read.
    Read,
    /// A comment will be written next.
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
    /// The result is negative, such as a failed check.
    Failure,
    /// There is no result, because of an error.
    Error,
}

/// A status to set on a commit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CommitStatus {
    /// The name of the status.
    pub context: String,
    /// The state that the forge shows.
    pub state: StatusState,
    /// One line of text, which is shown beside the state.
    pub description: Option<String>,
    /// The URL of the details.
    pub target_url: Option<String>,
}

/// An issue with a marker of Konverge. Anybody can write one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issue {
    /// Number of the issue.
    pub number: u64,
    /// The login of the author.
    pub author: String,
    /// The URL of the issue.
    pub url: String,
    /// True if the issue is not closed.
    pub open: bool,
    /// The time of creation, in RFC 3339.
    pub created_at: String,
    /// The marker, with the stack and the digest of the content.
    pub marker: CommentMarker,
}

/// Writes comments, statuses and issues. All errors come from the forge.
#[async_trait]
pub trait Publishing: Send + Sync {
    /// Returns the login of the token's owner, which is the author of all writes. Requested once and then cached.
    async fn own_login(&self) -> Result<String>;

    /// Returns the login of the tokens that the forge gives to its jobs; `None` if jobs have no such login.
    fn job_login(&self) -> Option<&'static str>;

    /// Returns the same interface for issues: `number` then means an issue. Some forges number pull requests and
    /// issues separately.
    fn on_issues(&self) -> Box<dyn Publishing + '_>;

    /// Returns the comments on a pull request or issue; with `since`, only comments written at or after that time.
    async fn comments(
        &self,
        number: u64,
        since: Option<Timestamp>,
        access: CommentAccess,
    ) -> Result<Vec<Comment>>;

    /// Creates a comment. `body` starts with the line of the marker. If it is unknown whether the request was
    /// executed, the client first looks for a comment by our login with exactly this marker, and only then tries again.
    async fn create_comment(&self, number: u64, marker: &CommentMarker, body: &str) -> Result<Comment>;

    /// Replaces the text of a comment and returns the comment.
    async fn write_comment(&self, id: u64, body: &str) -> Result<Comment>;

    /// Deletes a comment. Also succeeds if the comment does not exist any more: an earlier attempt whose response
    /// was lost may have deleted it.
    async fn delete_comment(&self, id: u64) -> Result<()>;

    /// Returns the statuses of a commit, the newest first; one context may occur several times.
    async fn statuses(&self, sha: &CommitId) -> Result<Vec<CommitStatus>>;

    /// Returns the newest statuses, as many as the forge returns in one response.
    async fn newest_statuses(&self, sha: &CommitId) -> Result<Vec<CommitStatus>>;

    /// Sets a status. Truncates the description to the forge's limit.
    async fn set_status(
        &self,
        sha: &CommitId,
        context: &str,
        state: StatusState,
        description: &str,
        url: Option<&str>,
    ) -> Result<()>;

    /// Returns all issues with this label and a marker, by any author, open or closed.
    async fn marked_issues(&self, label: &str) -> Result<Vec<Issue>>;

    /// Opens an issue. If it is unknown whether the request was executed, the client first looks for an issue by our
    /// login with exactly this marker, and only then tries again.
    async fn open_issue(&self, label: &str, marker: &CommentMarker, title: &str, body: &str) -> Result<()>;

    /// Replaces the title and the text of an issue, and reopens it if it is closed. Returns false if the issue does
    /// not exist any more.
    async fn write_issue(&self, number: u64, title: &str, body: &str) -> Result<bool>;

    /// Closes an issue. Also succeeds if the issue does not exist any more.
    async fn end_issue(&self, number: u64) -> Result<()>;
}

/// A text at the forge that has an author. Anybody can copy a marker of Konverge into a text, so only the author
/// proves that Konverge wrote it.
pub(crate) trait Authored {
    /// Returns the login of the author, if there is one.
    fn author(&self) -> Option<&str>;

    /// Returns true if the user with this login wrote the text.
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

/// Keeps only the texts that our login wrote. Requests the login only if there is a text to check.
pub(crate) async fn only_own<P, T>(publishing: &P, mut texts: Vec<T>) -> Result<Vec<T>>
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

/// Keeps only the texts that our login, or the token of a job, wrote.
pub(crate) async fn only_own_and_of_jobs<P, T>(publishing: &P, mut texts: Vec<T>) -> Result<Vec<T>>
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
