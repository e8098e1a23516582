//! The sticky comment: found on all pages by marker and author, edited in place, never overwritten by an
//! older run.

use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::json;

use super::{
    client::{Client, PAGE, TokenPermission, User},
    error::GithubError,
};
use konverge_base::model::comment_marker::{CommentMarker, MarkerKind};

const READ: TokenPermission = TokenPermission("pull-requests: read");
const NEED: TokenPermission = TokenPermission("pull-requests: write");

/// The sizes to try in order while GitHub says that a text is too long. The documented limit is 65,536
/// characters; actual servers may accept more or less.
pub const BUDGETS: [usize; 4] = [60_000, 40_000, 20_000, 8_000];

/// How long before our comment was there another run may have created one without our seeing it. A run retries a
/// request for two minutes.
const LOOK_BACK: SignedDuration = SignedDuration::from_mins(10);

/// The result for a comment. `written` is GitHub's time of its last change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upsert {
    /// It was created.
    Created {
        /// Address of the comment.
        url: String,
        /// When it was last changed.
        written: Option<Timestamp>,
    },
    /// It was edited in place.
    Updated {
        /// Address of the comment.
        url: String,
        /// When it was last changed.
        written: Option<Timestamp>,
    },
    /// It already had this content.
    Unchanged {
        /// Address of the comment.
        url: String,
        /// When it was last changed.
        written: Option<Timestamp>,
    },
    /// A newer run has written it, so it was left unchanged.
    NewerRunWrote {
        /// Address of the comment.
        url: String,
    },
}

#[derive(Debug, Clone, Deserialize)]
struct Comment {
    id: u64,
    #[serde(default)]
    body: Option<String>,
    user: Option<User>,
    #[serde(default)]
    html_url: String,
    #[serde(default)]
    updated_at: Option<Timestamp>,
}

/// A comment of ours with the preview of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviewComment {
    /// The head that it shows.
    pub head: String,
    /// Text of the comment.
    pub body: String,
}

impl Comment {
    fn marker(&self) -> Option<CommentMarker> {
        CommentMarker::parse(self.body.as_deref()?)
    }

    fn updated(self) -> Upsert {
        Upsert::Updated {
            url: self.html_url,
            written: self.updated_at,
        }
    }
}

impl Client {
    /// Writes the comment of `marker` on a pull request or issue, and deletes those that the marker makes
    /// obsolete. `body` must start with the marker's line. Requests: one per 100 comments, one where a
    /// comment has such a marker, and one write; the comments are listed again after one was created.
    ///
    /// # Errors
    /// [`GithubError::TooLong`] if the text must be fitted to a smaller size; other errors of GitHub.
    pub async fn upsert_comment(
        &self,
        pr: u64,
        marker: &CommentMarker,
        body: &str,
    ) -> Result<Upsert, GithubError> {
        let (ours, void) = self.our_comments(pr, marker).await?;
        for comment in void {
            self.delete_comment(comment.id).await?;
        }
        let Some(first) = ours.first() else {
            return self.create_comment(pr, marker, body).await;
        };
        let url = first.html_url.clone();
        if written_by_newer(&ours, marker) {
            return Ok(Upsert::NewerRunWrote { url });
        }
        // A run that ended early may have left a second one; the older stays.
        for double in &ours[1..] {
            self.delete_comment(double.id).await?;
        }
        if first.body.as_deref() == Some(body) {
            let written = first.updated_at;
            return Ok(Upsert::Unchanged { url, written });
        }
        match self.edit(first.id, body).await {
            Ok(edited) => Ok(edited.updated()),
            // It was deleted after the listing.
            Err(GithubError::NotFound { .. }) => self.create_comment(pr, marker, body).await,
            Err(error) => Err(error),
        }
    }

    async fn create_comment(
        &self,
        pr: u64,
        marker: &CommentMarker,
        body: &str,
    ) -> Result<Upsert, GithubError> {
        let path = self.path(&format!("/issues/{pr}/comments"));
        let this_run = |comment: &Comment| comment.marker().as_ref() == Some(marker);
        let created: Comment = self
            .create(&path, &json!({"body": body}), NEED, || async {
                Ok(self.our_comments(pr, marker).await?.0.into_iter().find(this_run))
            })
            .await?;
        self.merge_into_older(pr, marker, body, created).await
    }

    /// Gives up a created comment if another run created one after we had looked for it and before ours was
    /// there: the older comment stays. It takes our content unless a newer run has written it.
    async fn merge_into_older(
        &self,
        pr: u64,
        marker: &CommentMarker,
        body: &str,
        created: Comment,
    ) -> Result<Upsert, GithubError> {
        let kept = Upsert::Created {
            url: created.html_url,
            written: created.updated_at,
        };
        // What was there before our first look is not looked through again.
        let since = created.updated_at.and_then(|at| at.checked_sub(LOOK_BACK).ok());
        if let Some(user) = created.user {
            let _ = self.identity.0.set(user.login);
        }
        let ours = match self.our_comments_since(pr, marker, since).await {
            Ok((ours, _)) => ours,
            Err(error) => {
                // What had to be written is written; the next run removes a second comment.
                tracing::warn!(%error, "not checked whether another run has created the comment as well");
                return Ok(kept);
            }
        };
        let Some(older) = ours.first().filter(|first| first.id < created.id) else {
            return Ok(kept);
        };
        let result = if written_by_newer(&ours, marker) {
            Upsert::NewerRunWrote {
                url: older.html_url.clone(),
            }
        } else {
            match self.edit(older.id, body).await {
                Ok(edited) => edited.updated(),
                // It was deleted after the listing.
                Err(GithubError::NotFound { .. }) => return Ok(kept),
                Err(error) => return Err(error),
            }
        };
        self.delete_comment(created.id).await?;
        Ok(result)
    }

    /// Replaces the text of a comment and returns the comment.
    async fn edit(&self, id: u64, body: &str) -> Result<Comment, GithubError> {
        let path = self.path(&format!("/issues/comments/{id}"));
        self.set(Method::PATCH, &path, &json!({"body": body}), NEED).await
    }

    /// Replaces a text in our comment of `marker`; returns false if the run of `marker` has written none that
    /// contains it.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn edit_comment(
        &self,
        pr: u64,
        marker: &CommentMarker,
        from: &str,
        to: &str,
    ) -> Result<bool, GithubError> {
        let (ours, _) = self.our_comments(pr, marker).await?;
        let of_run = |comment: &&Comment| comment.marker().is_some_and(|m| m.run == marker.run);
        let Some(comment) = ours.iter().find(of_run) else {
            return Ok(false);
        };
        let body = comment.body.as_deref().unwrap_or_default();
        if !body.contains(from) {
            return Ok(false);
        }
        self.edit(comment.id, &body.replace(from, to)).await?;
        Ok(true)
    }

    /// The same for a text of variable size: `render` is called with a budget in bytes, and again with a
    /// smaller one while GitHub says that the text is too long.
    ///
    /// # Errors
    /// As [`Client::upsert_comment`].
    pub async fn upsert_packed(
        &self,
        pr: u64,
        marker: &CommentMarker,
        render: impl Fn(usize) -> String,
    ) -> Result<Upsert, GithubError> {
        let mut last = None;
        for budget in BUDGETS {
            match self.upsert_comment(pr, marker, &render(budget)).await {
                Err(error @ GithubError::TooLong { .. }) => last = Some(error),
                done => return done,
            }
        }
        Err(last.expect("the loop ran"))
    }

    /// Deletes our comment of `marker`, unless a newer run has written it, and those that the marker makes
    /// obsolete.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn remove_comment(&self, pr: u64, marker: &CommentMarker) -> Result<(), GithubError> {
        let (ours, void) = self.our_comments(pr, marker).await?;
        let newer = |comment: &Comment| comment.marker().is_some_and(|m| m.is_newer_than(marker));
        for comment in ours.iter().filter(|comment| !newer(comment)).chain(&void) {
            self.delete_comment(comment.id).await?;
        }
        Ok(())
    }

    async fn delete_comment(&self, id: u64) -> Result<(), GithubError> {
        let path = self.path(&format!("/issues/comments/{id}"));
        match self.repeatable(Method::DELETE, &path, None, NEED).await {
            // An earlier attempt whose answer was lost has done it.
            Ok(_) | Err(GithubError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Our comments with the preview of a pull request, one for each shard.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn preview_comments(&self, pr: u64) -> Result<Vec<PreviewComment>, GithubError> {
        let path = self.path(&format!("/issues/{pr}/comments?per_page={PAGE}"));
        let mut all: Vec<Comment> = self.list(&path, READ).await?;
        let marker = |comment: &Comment| comment.marker().filter(|m| m.kind == MarkerKind::Preview);
        all.retain(|comment| marker(comment).is_some());
        let ours = self.filter_own(all, |comment| comment.user.as_ref()).await?;
        let shown = ours.into_iter().filter_map(|comment| {
            Some(PreviewComment {
                head: marker(&comment)?.head,
                body: comment.body?,
            })
        });
        Ok(shown.collect())
    }

    /// Our comments of `marker`, and those that it makes obsolete. Anybody can write a marker into a comment,
    /// so only comments by our own login count.
    async fn our_comments(
        &self,
        pr: u64,
        marker: &CommentMarker,
    ) -> Result<(Vec<Comment>, Vec<Comment>), GithubError> {
        self.our_comments_since(pr, marker, None).await
    }

    /// As [`Client::our_comments`], of the comments that were written at or after a moment.
    async fn our_comments_since(
        &self,
        pr: u64,
        marker: &CommentMarker,
        since: Option<Timestamp>,
    ) -> Result<(Vec<Comment>, Vec<Comment>), GithubError> {
        let since = since.map_or(String::new(), |since| {
            format!("&since={}", since.strftime("%Y-%m-%dT%H:%M:%SZ"))
        });
        let path = self.path(&format!("/issues/{pr}/comments?per_page={PAGE}{since}"));
        let mut all: Vec<Comment> = self.list(&path, NEED).await?;
        let voided = |comment: &Comment| comment.marker().is_some_and(|m| marker.voids(&m));
        let in_place = |comment: &Comment| comment.marker().is_some_and(|m| m.same_place(marker));
        all.retain(|comment| voided(comment) || in_place(comment));
        let mut ours = self.filter_own(all, |comment| comment.user.as_ref()).await?;
        ours.sort_by_key(|comment| comment.id);
        let (void, ours) = ours.into_iter().partition(voided);
        Ok((ours, void))
    }
}

/// Returns true if a newer run than that of `marker` has written one of these comments.
fn written_by_newer(comments: &[Comment], marker: &CommentMarker) -> bool {
    let mut markers = comments.iter().filter_map(Comment::marker);
    markers.any(|other| other.is_newer_than(marker))
}
