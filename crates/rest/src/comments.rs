//! Comments and accounts in the form of GitHub's API, which Gitea has too.

use jiff::Timestamp;
use konverge_forge::Comment;
use serde::Deserialize;

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct User {
    /// The login of the account.
    pub login: String,
}

/// A comment on a pull request or issue.
#[derive(Deserialize)]
pub struct ListedComment {
    id: u64,
    body: Option<String>,
    user: Option<User>,
    #[serde(default)]
    html_url: String,
    updated_at: Option<Timestamp>,
}

impl From<ListedComment> for Comment {
    fn from(raw: ListedComment) -> Self {
        Self {
            id: raw.id,
            body: raw.body.unwrap_or_default(),
            author: raw.user.map(|user| user.login),
            url: raw.html_url,
            written: raw.updated_at,
        }
    }
}
