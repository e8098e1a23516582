//! The sticky comment: found by marker and author among all comments, edited in place, never overwritten by an
//! older run.

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

use crate::{
    error::{ForgeError, Result},
    publishing::{Comment, CommentAccess, Publishing, only_own},
};
use konverge_base::{
    error::chain,
    model::comment_marker::{CommentMarker, MarkerKind},
};

/// The sizes in bytes that are tried in order as long as the forge refuses a text as too long. GitHub documents
/// 65,536 characters; real servers may accept more or less.
pub const BUDGETS: [usize; 4] = [60_000, 40_000, 20_000, 8_000];

/// The time before the creation of our comment in which another run may have created one that our first list did
/// not contain. A run retries a request for two minutes.
const LOOK_BACK: SignedDuration = SignedDuration::from_mins(10);

/// The result of writing a comment. `written` is the time of the last change, by the forge's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upsert {
    /// The comment was created.
    Created {
        /// Address of the comment.
        url: String,
        /// The time of the last change of the comment.
        written: Option<Timestamp>,
    },
    /// The comment was edited in place.
    Updated {
        /// Address of the comment.
        url: String,
        /// The time of the last change of the comment.
        written: Option<Timestamp>,
    },
    /// The comment already had this content.
    Unchanged {
        /// Address of the comment.
        url: String,
        /// The time of the last change of the comment.
        written: Option<Timestamp>,
    },
    /// A newer run has written it, so it was left unchanged.
    NewerRunWrote {
        /// Address of the comment.
        url: String,
    },
}

impl Upsert {
    fn updated(comment: Comment) -> Self {
        Self::Updated {
            url: comment.url,
            written: comment.written,
        }
    }
}

/// A comment whose text was shortened to the forge's limit, if necessary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FittedComment {
    /// The text that was accepted.
    pub text: String,
    /// The result of writing the comment.
    pub result: Upsert,
}

/// A comment that Konverge wrote with the preview of a pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviewComment {
    /// The head of the pull request that the preview is for.
    pub head: String,
    /// Text of the comment.
    pub body: String,
}

/// The comments that Konverge wrote for one marker, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnComments {
    /// Comments of the same kind and scope as the marker.
    pub current: Vec<Comment>,
    /// Comments that the marker makes obsolete.
    pub obsolete: Vec<Comment>,
}

/// Keeps one comment up to date at any forge. All errors come from the forge.
#[async_trait]
pub trait StickyComments: Publishing {
    /// Writes the comment of `marker` on a pull request or issue, and deletes comments that the marker makes
    /// obsolete. `body` must start with the line of the marker.
    ///
    /// Requests: one for each page of comments, one for our login if a comment has such a marker, and one write.
    /// After a creation the comments are listed again.
    ///
    /// # Errors
    /// [`ForgeError::TooLong`] if the text must become shorter; other errors of the forge.
    async fn upsert_comment(&self, pr: u64, marker: &CommentMarker, body: &str) -> Result<Upsert> {
        // An earlier preview with another number of shards left comments that no later run would replace.
        let OwnComments { current, obsolete } = self.own_comments(pr, marker, None).await?;
        for comment in obsolete {
            self.delete_comment(comment.id).await?;
        }
        let Some(first) = current.first() else {
            return self.create_sticky(pr, marker, body).await;
        };
        let url = first.url.clone();
        if written_by_newer(&current, marker) {
            return Ok(Upsert::NewerRunWrote { url });
        }
        // A run that ended early may have left a second comment. The older one stays, as in a race between two runs.
        for double in &current[1..] {
            self.delete_comment(double.id).await?;
        }
        // A forge may remove the line break at the end.
        if first.body.trim_end() == body.trim_end() {
            let written = first.written;
            return Ok(Upsert::Unchanged { url, written });
        }
        match self.write_comment(first.id, body).await {
            Ok(edited) => Ok(Upsert::updated(edited)),
            // Somebody deleted the comment after the listing.
            Err(ForgeError::NotFound { .. }) => self.create_sticky(pr, marker, body).await,
            Err(error) => Err(error),
        }
    }

    /// Creates the comment of `marker` without leaving two: another run may have created one after our list and
    /// before our creation. Then the older comment stays. It takes our content, unless a newer run has written it.
    async fn create_sticky(&self, pr: u64, marker: &CommentMarker, body: &str) -> Result<Upsert> {
        // The forge cannot create a comment only if it is absent. So each run creates its comment first and then lists
        // again: both runs see both comments, and both keep the older one.
        let created = self.create_comment(pr, marker, body).await?;
        let kept = Upsert::Created {
            url: created.url,
            written: created.written,
        };
        // Our first list already contained all older comments, so only the newest are listed again.
        let since = created.written.and_then(|at| at.checked_sub(LOOK_BACK).ok());
        let ours = match self.own_comments(pr, marker, since).await {
            Ok(own) => own.current,
            Err(error) => {
                // The comment exists, which matters most. The next run deletes a possible second comment.
                tracing::warn!(error = %chain(&error), "not checked whether another run has created the comment as well");
                return Ok(kept);
            }
        };
        let Some(older) = ours.first().filter(|first| first.id < created.id) else {
            return Ok(kept);
        };
        let result = if written_by_newer(&ours, marker) {
            Upsert::NewerRunWrote {
                url: older.url.clone(),
            }
        } else {
            match self.write_comment(older.id, body).await {
                Ok(edited) => Upsert::updated(edited),
                // Somebody deleted the older comment after the listing, so our new one stays.
                Err(ForgeError::NotFound { .. }) => return Ok(kept),
                Err(error) => return Err(error),
            }
        };
        // Our new comment is deleted last, so that the pull request has a comment with this content at any time.
        self.delete_comment(created.id).await?;
        Ok(result)
    }

    /// Writes a comment of variable size. Calls `render` with a budget in bytes, and again with a smaller one as
    /// long as the forge refuses the text as too long.
    ///
    /// # Errors
    /// [`ForgeError::TooLong`] if no budget fits; other errors of the forge.
    fn upsert_packed(
        &self,
        pr: u64,
        marker: &CommentMarker,
        render: impl Fn(usize) -> String,
    ) -> impl Future<Output = Result<FittedComment>> {
        async move {
            let mut last = None;
            for budget in BUDGETS {
                let text = render(budget);
                match self.upsert_comment(pr, marker, &text).await {
                    Ok(result) => return Ok(FittedComment { text, result }),
                    Err(error @ ForgeError::TooLong { .. }) => last = Some(error),
                    Err(error) => return Err(error),
                }
            }
            Err(last.expect("the loop ran"))
        }
    }

    /// Replaces a part of our comment of `marker`. Returns false if the run of `marker` wrote no comment that
    /// contains `from`.
    async fn edit_comment(&self, pr: u64, marker: &CommentMarker, from: &str, to: &str) -> Result<bool> {
        let ours = self.own_comments(pr, marker, None).await?.current;
        let of_run = ours
            .iter()
            .find(|comment| comment.marker().is_some_and(|m| m.run == marker.run));
        let Some(comment) = of_run.filter(|comment| comment.body.contains(from)) else {
            return Ok(false);
        };
        self.write_comment(comment.id, &comment.body.replace(from, to))
            .await?;
        Ok(true)
    }

    /// Returns our comment with exactly this marker.
    async fn comment_of(&self, pr: u64, marker: &CommentMarker) -> Result<Option<Comment>> {
        let mut ours = self.own_comments(pr, marker, None).await?.current.into_iter();
        Ok(ours.find(|comment| comment.marker().as_ref() == Some(marker)))
    }

    /// Deletes our comment of `marker`, unless a newer run has written it, and the comments that the marker makes
    /// obsolete.
    async fn remove_comment(&self, pr: u64, marker: &CommentMarker) -> Result<()> {
        let mut own = self.own_comments(pr, marker, None).await?;
        own.current
            .retain(|comment| !comment.marker().is_some_and(|m| m.is_newer_than(marker)));
        for comment in own.current.iter().chain(&own.obsolete) {
            self.delete_comment(comment.id).await?;
        }
        Ok(())
    }

    /// Returns the comments of Konverge with the preview of a pull request, one for each shard.
    async fn preview_comments(&self, pr: u64) -> Result<Vec<PreviewComment>> {
        let head = |comment: &Comment| {
            let marker = comment.marker().filter(|m| m.kind == MarkerKind::Preview);
            marker.map(|marker| marker.head)
        };
        let mut all = self.comments(pr, None, CommentAccess::Read).await?;
        all.retain(|comment| head(comment).is_some());
        let ours = only_own(self, all).await?;
        let shown = ours.into_iter().filter_map(|comment| {
            Some(PreviewComment {
                head: head(&comment)?,
                body: comment.body,
            })
        });
        Ok(shown.collect())
    }

    /// Returns our comments of `marker`; with `since`, only those written at or after that time. Anybody can write
    /// a marker into a comment, so only comments of our login count.
    async fn own_comments(
        &self,
        pr: u64,
        marker: &CommentMarker,
        since: Option<Timestamp>,
    ) -> Result<OwnComments> {
        let voided = |comment: &Comment| comment.marker().is_some_and(|m| marker.voids(&m));
        let in_place = |comment: &Comment| comment.marker().is_some_and(|m| m.same_place(marker));
        let mut all = self.comments(pr, since, CommentAccess::Write).await?;
        all.retain(|comment| voided(comment) || in_place(comment));
        let mut ours = only_own(self, all).await?;
        ours.sort_by_key(|comment| comment.id);
        let (obsolete, current) = ours.into_iter().partition(voided);
        Ok(OwnComments { current, obsolete })
    }
}

impl<P: Publishing + ?Sized> StickyComments for P {}

/// Returns true if a newer run than the run of `marker` has written one of these comments.
fn written_by_newer(comments: &[Comment], marker: &CommentMarker) -> bool {
    let mut markers = comments.iter().filter_map(Comment::marker);
    markers.any(|other| other.is_newer_than(marker))
}
