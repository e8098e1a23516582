//! Comments, statuses and issues.

use async_trait::async_trait;
use http::Method;
use jiff::Timestamp;
use konverge_base::model::{CommitId, comment_marker::CommentMarker};
use konverge_forge::{
    Comment, CommentAccess, CommitStatus, ForgeError, ForgeKind, Issue, KeptIssues as _, Publishing, Result,
    StatusState, StickyComments as _, if_found, one_line,
};
use konverge_rest::{ListedComment, ListedIssue, TokenPermission, User, encoded};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{client::Client, title::without_references};

const COMMENTS_READ: TokenPermission = TokenPermission("read:issue");
const ISSUES: TokenPermission = TokenPermission("write:issue");
const STATUSES_READ: TokenPermission = TokenPermission("read:repository");
const STATUSES: TokenPermission = TokenPermission("write:repository");

/// The author of texts that the token of a job writes.
pub(super) const ACTIONS: &str = "gitea-actions";

/// The color of labels that Konverge creates: light grey.
const COLOR: &str = "#ededed";

#[derive(Deserialize)]
struct StatusBody {
    context: String,
    /// The state of the status, which GitHub calls `state`.
    status: String,
    description: Option<String>,
    target_url: Option<String>,
}

impl From<StatusBody> for CommitStatus {
    fn from(raw: StatusBody) -> Self {
        Self {
            context: raw.context,
            state: match raw.status.as_str() {
                "pending" => StatusState::Pending,
                "success" => StatusState::Success,
                // Gitea treats a warning as a failure.
                "failure" | "warning" => StatusState::Failure,
                // Gitea treats `skipped` as a success. Konverge never sets this state, so here it is no success.
                _ => StatusState::Error,
            },
            description: raw.description.filter(|text| !text.is_empty()),
            target_url: raw.target_url.filter(|url| !url.is_empty()),
        }
    }
}

#[derive(Deserialize)]
struct Label {
    id: u64,
    name: String,
}

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
            format!("?since={}", since.strftime("%Y-%m-%dT%H:%M:%SZ"))
        });
        let need = match access {
            CommentAccess::Read => COMMENTS_READ,
            CommentAccess::Write => ISSUES,
        };
        // Gitea returns all comments in one response, without pages.
        let path = self.path(&format!("/issues/{number}/comments{since}"));
        let raw: Vec<ListedComment> = self.rest.get(&path, need).await?;
        Ok(raw.into_iter().map(Comment::from).collect())
    }

    async fn create_comment(&self, number: u64, marker: &CommentMarker, body: &str) -> Result<Comment> {
        let path = self.path(&format!("/issues/{number}/comments"));
        let find = || self.comment_of(number, marker);
        let convert = <Comment as From<ListedComment>>::from;
        let created: Comment = self
            .rest
            .create(&path, &json!({"body": body}), ISSUES, convert, find)
            .await?;
        // The author of the new comment is our login, which saves a later request for it.
        if let Some(author) = &created.author {
            // `set` fails if the login is already known.
            let _ = self.learned.login.set(author.clone());
        }
        Ok(created)
    }

    async fn write_comment(&self, id: u64, body: &str) -> Result<Comment> {
        let path = self.path(&format!("/issues/comments/{id}"));
        let written: ListedComment = self
            .rest
            .set(Method::PATCH, &path, &json!({"body": body}), ISSUES)
            .await?;
        Ok(written.into())
    }

    async fn delete_comment(&self, id: u64) -> Result<()> {
        let path = self.path(&format!("/issues/comments/{id}"));
        // If it is not found, an earlier attempt whose response was lost has deleted it.
        if_found(self.rest.repeatable(Method::DELETE, &path, None, ISSUES).await).map(drop)
    }

    async fn statuses(&self, sha: &CommitId) -> Result<Vec<CommitStatus>> {
        let raw: Vec<StatusBody> = self.list(&self.statuses_path(sha), STATUSES_READ).await?;
        Ok(raw.into_iter().map(CommitStatus::from).collect())
    }

    async fn newest_statuses(&self, sha: &CommitId) -> Result<Vec<CommitStatus>> {
        let page = self
            .page::<StatusBody>(&self.statuses_path(sha), STATUSES_READ, 1, 0)
            .await?;
        Ok(page.items.into_iter().map(CommitStatus::from).collect())
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
        // With an unknown label, Gitea ignores the filter and would list every issue.
        if self.label_id(label).await?.is_none() {
            return Ok(Vec::new());
        }
        let path = self.path(&format!(
            "/issues?type=issues&state=all&labels={}",
            encoded(label)
        ));
        let raw: Vec<ListedIssue> = self.list(&path, ISSUES).await?;
        let labelled = raw.into_iter().filter(|raw| raw.has_label(label));
        Ok(labelled.filter_map(ListedIssue::into_issue).collect())
    }

    async fn open_issue(&self, label: &str, marker: &CommentMarker, title: &str, body: &str) -> Result<()> {
        let label_id = self.label(label).await?;
        let issue = json!({"title": without_references(title), "body": body, "labels": [label_id]});
        let find = || async { Ok(self.has_issue(label, marker).await?.then_some(None)) };
        let made: Option<ListedIssue> = self
            .rest
            .create(&self.path("/issues"), &issue, ISSUES, Some::<ListedIssue>, find)
            .await?;
        match made {
            // If the token may not set labels, Gitea drops the label without an error. Then the issue could never
            // be found again.
            Some(made) if !made.has_label(label) => Err(ForgeError::Forbidden {
                forge: ForgeKind::Gitea,
                operation: format!("label issue #{}", made.number),
                permission: ISSUES.0.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    async fn write_issue(&self, number: u64, title: &str, body: &str) -> Result<bool> {
        let issue = json!({"title": without_references(title), "body": body, "state": "open"});
        self.edit_issue(number, &issue).await
    }

    async fn end_issue(&self, number: u64) -> Result<()> {
        self.edit_issue(number, &json!({"state": "closed"}))
            .await
            .map(|_| ())
    }
}

impl Client {
    /// Returns the login of the token's owner. Requested once and then cached.
    pub(super) async fn login(&self) -> Result<&str> {
        let asked = || async {
            let user: User = self.rest.get("/user", TokenPermission("read:user")).await?;
            if user.login.is_empty() {
                return Err(self.rest.malformed("GET /user", "it has no login"));
            }
            Ok(user.login)
        };
        let login = self.learned.login.get_or_try_init(asked).await?;
        Ok(login)
    }

    /// Returns the path of the statuses of a commit, the newest first. They are sorted by index, because their
    /// times have whole seconds only.
    fn statuses_path(&self, sha: &CommitId) -> String {
        self.path(&format!("/statuses/{sha}?sort=leastindex"))
    }

    /// Returns the id of a label. Creates the label if it does not exist.
    async fn label(&self, name: &str) -> Result<u64> {
        let path = self.path("/labels");
        let find = || self.label_id(name);
        if let Some(id) = find().await? {
            return Ok(id);
        }
        let label = json!({"name": name, "color": COLOR});
        self.rest
            .create(&path, &label, ISSUES, |made: Label| made.id, find)
            .await
    }

    /// Returns the id of a label; `None` if it does not exist. Known ids are cached.
    async fn label_id(&self, name: &str) -> Result<Option<u64>> {
        let known = || self.learned.labels.lock().expect("no panic while locked");
        if let Some(id) = known().get(name) {
            return Ok(Some(*id));
        }
        let labels: Vec<Label> = self.list(&self.path("/labels"), ISSUES).await?;
        let found = labels.into_iter().find(|label| label.name == name);
        let found = found.map(|label| label.id);
        if let Some(id) = found {
            known().insert(name.to_owned(), id);
        }
        Ok(found)
    }

    /// Sets fields of an issue. Returns false if the issue was deleted in the meantime.
    async fn edit_issue(&self, number: u64, fields: &Value) -> Result<bool> {
        let path = self.path(&format!("/issues/{number}"));
        let edited = self.rest.set::<Value>(Method::PATCH, &path, fields, ISSUES).await;
        Ok(if_found(edited)?.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_that_github_has_not_are_no_success() {
        let state = |status: &str| {
            let raw: StatusBody =
                serde_json::from_value(json!({"context": "x", "status": status, "description": ""})).unwrap();
            CommitStatus::from(raw).state
        };
        assert_eq!(state("success"), StatusState::Success);
        assert_eq!(state("warning"), StatusState::Failure);
        for other in ["skipped", "error", "something new"] {
            assert_eq!(state(other), StatusState::Error, "{other}");
        }
    }
}
