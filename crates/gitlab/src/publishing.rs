//! Notes, commit statuses and issues.

use async_trait::async_trait;
use http::Method;
use jiff::Timestamp;
use konverge_base::model::{CommitId, comment_marker::CommentMarker};
use konverge_forge::{
    Comment, CommentAccess, CommitStatus, ForgeError, ForgeKind, Issue, KeptIssues as _, Publishing, Result,
    StatusState, StickyComments as _, if_found, one_line,
};
use konverge_rest::{TokenPermission, encoded};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    client::{Client, User},
    note_target::NoteTarget,
    notes::NoteBody,
    quick_actions::disarmed,
};

const REPORTER: TokenPermission = TokenPermission("the scope `api` and the role Reporter");
const STATUSES: TokenPermission =
    TokenPermission("the scope `api`, the role Developer, and at a protected branch the right to push");

#[derive(Deserialize)]
struct StatusBody {
    id: u64,
    name: String,
    status: String,
    author: Option<User>,
    description: Option<String>,
    target_url: Option<String>,
}

impl From<StatusBody> for CommitStatus {
    fn from(raw: StatusBody) -> Self {
        Self {
            context: raw.name,
            state: match raw.status.as_str() {
                "success" => StatusState::Success,
                "failed" => StatusState::Failure,
                // Konverge never sets these two states, and neither of them is a success or a failure.
                "canceled" | "skipped" => StatusState::Error,
                _ => StatusState::Pending,
            },
            description: raw.description.filter(|text| !text.is_empty()),
            target_url: raw.target_url.filter(|url| !url.is_empty()),
        }
    }
}

#[derive(Deserialize)]
struct IssueBody {
    iid: u64,
    #[serde(default)]
    web_url: String,
    state: String,
    #[serde(default)]
    created_at: String,
    description: Option<String>,
    author: Option<User>,
    #[serde(default)]
    labels: Vec<String>,
}

#[async_trait]
impl Publishing for Client {
    async fn own_login(&self) -> Result<String> {
        Ok(self.account().await?.username.clone())
    }

    fn job_login(&self) -> Option<&'static str> {
        // The token of a job cannot write notes, so it has no login here.
        None
    }

    fn on_issues(&self) -> Box<dyn Publishing + '_> {
        let mut client = self.clone();
        client.notes_of = NoteTarget::Issue;
        Box::new(client)
    }

    async fn comments(
        &self,
        number: u64,
        since: Option<Timestamp>,
        _: CommentAccess,
    ) -> Result<Vec<Comment>> {
        let path = format!("{}?order_by=created_at&sort=asc", self.notes_path(number));
        let notes: Vec<NoteBody> = self.list(&path, REPORTER).await?;
        // GitLab has no filter for the time, so the notes are filtered here.
        let is_meant = |note: &NoteBody| {
            let is_new = since.is_none_or(|since| note.updated_at.is_none_or(|at| at >= since));
            !note.system && is_new
        };
        let comments = notes.into_iter().filter(is_meant).map(NoteBody::into_comment);
        Ok(comments.map(|comment| self.placed(number, comment)).collect())
    }

    async fn create_comment(&self, number: u64, marker: &CommentMarker, body: &str) -> Result<Comment> {
        let find = || self.comment_of(number, marker);
        let note = json!({"body": disarmed(body)});
        let path = self.notes_path(number);
        let made = self
            .rest
            .create(&path, &note, REPORTER, NoteBody::into_comment, find)
            .await?;
        Ok(self.placed(number, made))
    }

    async fn write_comment(&self, id: u64, body: &str) -> Result<Comment> {
        let (number, path) = self.place_of(id)?;
        let note = json!({"body": disarmed(body)});
        let written: NoteBody = self.rest.set(Method::PUT, &path, &note, REPORTER).await?;
        Ok(self.placed(number, written.into_comment()))
    }

    async fn delete_comment(&self, id: u64) -> Result<()> {
        let (_, path) = self.place_of(id)?;
        // If it is not found, an earlier attempt whose response was lost has deleted it.
        if_found(self.rest.repeatable(Method::DELETE, &path, None, REPORTER).await).map(drop)
    }

    async fn statuses(&self, sha: &CommitId) -> Result<Vec<CommitStatus>> {
        let raw = self.list(&self.statuses_path(sha), REPORTER).await?;
        self.own_statuses(raw).await
    }

    async fn newest_statuses(&self, sha: &CommitId) -> Result<Vec<CommitStatus>> {
        let page = self.page(&self.statuses_path(sha), REPORTER, 1).await?;
        self.own_statuses(page.items).await
    }

    async fn set_status(
        &self,
        sha: &CommitId,
        context: &str,
        state: StatusState,
        description: &str,
        url: Option<&str>,
    ) -> Result<()> {
        let word = match state {
            StatusState::Pending => "pending",
            StatusState::Success => "success",
            StatusState::Failure | StatusState::Error => "failed",
        };
        let mut body = json!({"state": word, "name": context, "description": one_line(description)});
        if let Some(url) = url {
            body["target_url"] = json!(url);
        }
        // Without a pipeline id GitLab would add the status to the newest pipeline of the commit. That may be
        // another pipeline, which would then never end.
        if let Some(own) = self.job.as_ref().filter(|own| own.commit == *sha) {
            body["pipeline_id"] = json!(own.pipeline);
        }
        let path = self.path(&format!("/statuses/{sha}"));
        match self.rest.set::<Value>(Method::POST, &path, &body, STATUSES).await {
            Ok(_) => Ok(()),
            // The status already has this state: from an earlier run, or from an attempt whose response was lost.
            Err(ForgeError::Refused {
                status: 400, message, ..
            }) if message.contains("Cannot transition status")
                && message.contains(&format!("from :{word}")) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn marked_issues(&self, label: &str) -> Result<Vec<Issue>> {
        let path = self.path(&format!(
            "/issues?scope=all&state=all&order_by=created_at&sort=asc&labels={}",
            encoded(label)
        ));
        let raw: Vec<IssueBody> = self.list(&path, REPORTER).await?;
        let labelled = raw
            .into_iter()
            .filter(|raw| raw.labels.iter().any(|one| one == label));
        Ok(labelled.filter_map(into_issue).collect())
    }

    async fn open_issue(&self, label: &str, marker: &CommentMarker, title: &str, body: &str) -> Result<()> {
        let issue = json!({"title": title, "description": disarmed(body), "labels": label});
        let find = || async { Ok(self.has_issue(label, marker).await?.then_some(None)) };
        let made: Option<IssueBody> = self
            .rest
            .create(&self.path("/issues"), &issue, REPORTER, Some::<IssueBody>, find)
            .await?;
        match made {
            // If the token may not set labels, GitLab drops the label without an error. Then the issue could never
            // be found again.
            Some(made) if made.labels.iter().all(|one| one != label) => Err(ForgeError::Forbidden {
                forge: ForgeKind::Gitlab,
                operation: format!("label issue #{}", made.iid),
                permission: REPORTER.0.to_owned(),
            }),
            _ => Ok(()),
        }
    }

    async fn write_issue(&self, number: u64, title: &str, body: &str) -> Result<bool> {
        let fields = json!({"title": title, "description": disarmed(body), "state_event": "reopen"});
        self.edit_issue(number, &fields).await
    }

    async fn end_issue(&self, number: u64) -> Result<()> {
        self.edit_issue(number, &json!({"state_event": "close"}))
            .await
            .map(|_| ())
    }
}

impl Client {
    /// Returns the path of all statuses of a commit, including those that a newer one of the same name has
    /// replaced.
    fn statuses_path(&self, sha: &CommitId) -> String {
        self.path(&format!(
            "/repository/commits/{sha}/statuses?all=true&order_by=id&sort=desc"
        ))
    }

    /// Keeps only the statuses that the token's account has set, the newest first. GitLab also lists the jobs of
    /// every pipeline, and a merge request can choose their names.
    async fn own_statuses(&self, raw: Vec<StatusBody>) -> Result<Vec<CommitStatus>> {
        if raw.is_empty() {
            return Ok(Vec::new());
        }
        let us = &self.account().await?.username;
        let mut ours = raw;
        ours.retain(|status| {
            let author = status.author.as_ref();
            author.is_some_and(|author| author.username == *us)
        });
        ours.sort_by_key(|status| std::cmp::Reverse(status.id));
        Ok(ours.into_iter().map(CommitStatus::from).collect())
    }

    /// Sets fields of an issue. Returns false if the issue was deleted in the meantime.
    async fn edit_issue(&self, number: u64, fields: &Value) -> Result<bool> {
        let path = self.path(&format!("/issues/{number}"));
        let edited = self.rest.set::<Value>(Method::PUT, &path, fields, REPORTER).await;
        Ok(if_found(edited)?.is_some())
    }
}

/// Converts an issue; `None` if it has no marker or no author.
fn into_issue(raw: IssueBody) -> Option<Issue> {
    Some(Issue {
        number: raw.iid,
        author: raw.author?.username,
        url: raw.web_url,
        open: raw.state == "opened",
        created_at: raw.created_at,
        marker: CommentMarker::parse(&raw.description.unwrap_or_default())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_that_github_has_not_are_no_success() {
        let state = |status: &str| {
            let raw = json!({"id": 1, "name": "x", "status": status});
            let raw: StatusBody = serde_json::from_value(raw).unwrap();
            CommitStatus::from(raw).state
        };
        assert_eq!(state("success"), StatusState::Success);
        assert_eq!(state("failed"), StatusState::Failure);
        for other in ["skipped", "canceled"] {
            assert_eq!(state(other), StatusState::Error, "{other}");
        }
        for other in ["pending", "running", "manual", "something new"] {
            assert_eq!(state(other), StatusState::Pending, "{other}");
        }
    }
}
