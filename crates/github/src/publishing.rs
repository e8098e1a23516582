//! Comments, statuses and issues.

use async_trait::async_trait;
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    client::{Client, PAGE},
    login::ACTIONS,
};
use konverge_base::model::{CommitId, comment_marker::CommentMarker};
use konverge_forge::{
    Comment, CommentAccess, CommitStatus, ForgeError, Issue, KeptIssues as _, Publishing, Result,
    StatusState, StickyComments as _, if_found, one_line,
};
use konverge_rest::{ListedComment, ListedIssue, TokenPermission, encoded};

const COMMENTS_READ: TokenPermission = TokenPermission("pull-requests: read");
const COMMENTS: TokenPermission = TokenPermission("pull-requests: write");
const STATUSES_READ: TokenPermission = TokenPermission("statuses: read");
const STATUSES: TokenPermission = TokenPermission("statuses: write");
const ISSUES: TokenPermission = TokenPermission("issues: write");

#[async_trait]
impl Publishing for Client {
    async fn own_login(&self) -> Result<String> {
        self.login().await.map(str::to_owned)
    }

    fn job_login(&self) -> Option<&'static str> {
        Some(ACTIONS)
    }

    fn on_issues(&self) -> Box<dyn Publishing + '_> {
        // Pull requests and issues share one sequence of numbers, so the same client serves both.
        Box::new(self.clone())
    }

    async fn comments(
        &self,
        number: u64,
        since: Option<Timestamp>,
        access: CommentAccess,
    ) -> Result<Vec<Comment>> {
        let since = since.map_or(String::new(), |since| {
            format!("&since={}", since.strftime("%Y-%m-%dT%H:%M:%SZ"))
        });
        let path = self.path(&format!("/issues/{number}/comments?per_page={PAGE}{since}"));
        let need = match access {
            CommentAccess::Read => COMMENTS_READ,
            CommentAccess::Write => COMMENTS,
        };
        let raw: Vec<ListedComment> = self.rest.list(&path, need).await?;
        Ok(raw.into_iter().map(Comment::from).collect())
    }

    async fn create_comment(&self, number: u64, marker: &CommentMarker, body: &str) -> Result<Comment> {
        let path = self.path(&format!("/issues/{number}/comments"));
        let find = || self.comment_of(number, marker);
        let convert = <Comment as From<ListedComment>>::from;
        let created: Comment = self
            .rest
            .create(&path, &json!({"body": body}), COMMENTS, convert, find)
            .await?;
        // The author of the new comment is our login, which saves a later request for it. `set` fails if the login
        // is already known.
        if let Some(author) = &created.author {
            let _ = self.login.set(author.clone());
        }
        Ok(created)
    }

    async fn write_comment(&self, id: u64, body: &str) -> Result<Comment> {
        let path = self.path(&format!("/issues/comments/{id}"));
        let written: ListedComment = self
            .rest
            .set(Method::PATCH, &path, &json!({"body": body}), COMMENTS)
            .await?;
        Ok(written.into())
    }

    async fn delete_comment(&self, id: u64) -> Result<()> {
        let path = self.path(&format!("/issues/comments/{id}"));
        // If it is not found, an earlier attempt whose response was lost has deleted it.
        if_found(self.rest.repeatable(Method::DELETE, &path, None, COMMENTS).await).map(drop)
    }

    async fn statuses(&self, sha: &CommitId) -> Result<Vec<CommitStatus>> {
        self.rest.list(&self.statuses_path(sha), STATUSES_READ).await
    }

    async fn newest_statuses(&self, sha: &CommitId) -> Result<Vec<CommitStatus>> {
        self.rest.get(&self.statuses_path(sha), STATUSES_READ).await
    }

    async fn set_status(
        &self,
        sha: &CommitId,
        context: &str,
        state: StatusState,
        description: &str,
        url: Option<&str>,
    ) -> Result<()> {
        let mut body = json!({"state": state, "context": context, "description": one_line(description)});
        if let Some(url) = url {
            body["target_url"] = json!(url);
        }
        // Only the newest status of a context counts, so a repeated request has no further effect.
        let path = self.path(&format!("/statuses/{sha}"));
        let _: Value = self.rest.set(Method::POST, &path, &body, STATUSES).await?;
        Ok(())
    }

    async fn marked_issues(&self, label: &str) -> Result<Vec<Issue>> {
        // Authors are compared by the caller: GitHub's filter needs `app/name` for a login `name[bot]`, and not
        // every server supports that.
        let path = self.path(&format!(
            "/issues?labels={}&state=all&per_page={PAGE}",
            encoded(label)
        ));
        let raw: Vec<ListedIssue> = self.rest.list(&path, ISSUES).await?;
        Ok(raw.into_iter().filter_map(ListedIssue::into_issue).collect())
    }

    async fn open_issue(&self, label: &str, marker: &CommentMarker, title: &str, body: &str) -> Result<()> {
        let issue = json!({"title": title, "body": body, "labels": [label]});
        let find = || async { Ok(self.has_issue(label, marker).await?.then_some(())) };
        self.rest
            .create(&self.path("/issues"), &issue, ISSUES, |_: Value| (), find)
            .await
    }

    async fn write_issue(&self, number: u64, title: &str, body: &str) -> Result<bool> {
        self.edit_issue(number, &json!({"title": title, "body": body, "state": "open"}))
            .await
    }

    async fn end_issue(&self, number: u64) -> Result<()> {
        let closed = json!({"state": "closed", "state_reason": "completed"});
        self.edit_issue(number, &closed).await.map(|_| ())
    }
}

impl Client {
    fn statuses_path(&self, sha: &CommitId) -> String {
        self.path(&format!("/commits/{sha}/statuses?per_page={PAGE}"))
    }

    /// Sets fields of an issue. Returns false if the issue was deleted in the meantime: GitHub responds with 404 or
    /// 410.
    async fn edit_issue(&self, number: u64, fields: &Value) -> Result<bool> {
        let path = self.path(&format!("/issues/{number}"));
        match self.rest.set::<Value>(Method::PATCH, &path, fields, ISSUES).await {
            Ok(_) => Ok(true),
            Err(ForgeError::NotFound { .. } | ForgeError::Refused { status: 410, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
