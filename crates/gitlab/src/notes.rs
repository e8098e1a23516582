//! Notes are comments on a merge request or an issue. The two are numbered separately, and a note can only be
//! addressed below its target.

use jiff::Timestamp;
use konverge_forge::{Comment, ForgeError, ForgeKind, Result};
use serde::Deserialize;

use crate::client::{Client, User};

#[derive(Deserialize)]
pub(super) struct NoteBody {
    pub(super) id: u64,
    #[serde(default)]
    pub(super) body: String,
    pub(super) author: Option<User>,
    /// True for notes that GitLab itself writes, for example after a push.
    #[serde(default)]
    pub(super) system: bool,
    pub(super) updated_at: Option<Timestamp>,
}

impl NoteBody {
    /// Converts the note. [`Client::placed`], which knows the target, fills in the URL.
    pub(super) fn into_comment(self) -> Comment {
        Comment {
            id: self.id,
            body: self.body,
            author: self.author.map(|author| author.username),
            url: String::new(),
            written: self.updated_at,
        }
    }
}

impl Client {
    /// Returns the path of the notes on a merge request or an issue.
    pub(super) fn notes_path(&self, number: u64) -> String {
        self.path(&format!("/{}/{number}/notes", self.notes_of.folder()))
    }

    /// Fills in the URL of a comment, and remembers its target.
    pub(super) fn placed(&self, number: u64, mut comment: Comment) -> Comment {
        let (target, id) = (self.notes_of, comment.id);
        let page = format!("/{}/{number}#note_{id}", target.folder());
        comment.url = self.page_url(&page);
        let mut notes = self.learned.notes.lock().expect("no panic while locked");
        notes.insert(id, (target, number));
        comment
    }

    /// Returns the number of a comment's target, and the path of the comment.
    ///
    /// # Errors
    /// This client has neither read nor written the comment before, so the target is unknown.
    pub(super) fn place_of(&self, id: u64) -> Result<(u64, String)> {
        let notes = self.learned.notes.lock().expect("no panic while locked");
        let (target, number) = *notes.get(&id).ok_or_else(|| ForgeError::NotFound {
            forge: ForgeKind::Gitlab,
            operation: format!("finding the target of note {id}, which was not listed before"),
            permission: "the scope `api`".to_owned(),
        })?;
        let path = format!("/{}/{number}/notes/{id}", target.folder());
        Ok((number, self.path(&path)))
    }
}
