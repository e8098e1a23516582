//! Commit statuses: `konverge/preview` is the one to require; `konverge/apply` never blocks itself. A preview
//! with shards also has one status per shard.

use http::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    client::{Client, PAGE, TokenPermission},
    error::GithubError,
};
use konverge_base::model::{CommitId, Shard};

const NEED: TokenPermission = TokenPermission("statuses: write");
const READ: TokenPermission = TokenPermission("statuses: read");

/// GitHub refuses more characters (422).
const DESCRIPTION: usize = 140;

/// The status of an apply.
pub const APPLY: &str = "konverge/apply";

/// The name of the status of an apply, of one environment or of all stacks.
pub fn apply_of(environment: Option<&str>) -> String {
    match environment {
        Some(name) => format!("{APPLY} ({name})"),
        None => APPLY.to_owned(),
    }
}

/// The name of the status of a preview or of one shard; `konverge/preview` is the one to require. `into` is
/// the target branch if it is not the default branch. One commit may be the head for both, and a comparison
/// without a cluster says nothing about the other.
pub fn preview_of(share: Option<Shard>, into: Option<&str>) -> String {
    let share = share.map(|share| format!(" {share}")).unwrap_or_default();
    let into = into.map(|branch| format!(" into {branch}")).unwrap_or_default();
    format!("konverge/preview{share}{into}")
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
    /// The state that GitHub shows.
    pub state: StatusState,
    /// One line beside the state.
    #[serde(default)]
    pub description: Option<String>,
    /// The URL of the details.
    #[serde(default)]
    pub target_url: Option<String>,
}

impl Client {
    /// The statuses of a commit, the newest first; one context may occur several times.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn statuses(&self, sha: &CommitId) -> Result<Vec<CommitStatus>, GithubError> {
        self.list(&self.newest_path(sha), READ).await
    }

    /// The newest statuses, as many as one request returns.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn newest_statuses(&self, sha: &CommitId) -> Result<Vec<CommitStatus>, GithubError> {
        self.get(&self.newest_path(sha), READ).await
    }

    fn newest_path(&self, sha: &CommitId) -> String {
        self.path(&format!("/commits/{sha}/statuses?per_page={PAGE}"))
    }

    /// Sets a status; the description is truncated to GitHub's limit.
    ///
    /// # Errors
    /// Errors of GitHub.
    pub async fn set_status(
        &self,
        sha: &CommitId,
        context: &str,
        state: StatusState,
        description: &str,
        url: Option<&str>,
    ) -> Result<(), GithubError> {
        let mut body = json!({"state": state, "context": context, "description": shortened(description)});
        if let Some(url) = url {
            body["target_url"] = json!(url);
        }
        // The newest status of a context counts, so a repeated request has no further effect.
        let _: Value = self
            .set(Method::POST, &self.path(&format!("/statuses/{sha}")), &body, NEED)
            .await?;
        Ok(())
    }
}

/// At most [`DESCRIPTION`] UTF-16 units in one line.
pub(super) fn shortened(text: &str) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if line.encode_utf16().count() <= DESCRIPTION {
        return line;
    }
    let mut units = 0;
    let mut short: String = line
        .chars()
        .take_while(|c| {
            units += c.len_utf16();
            units < DESCRIPTION
        })
        .collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_fit() {
        assert_eq!(shortened("a\nb"), "a b");
        for text in ["x".repeat(200), "𝄞".repeat(200), "x".repeat(140)] {
            assert!(shortened(&text).encode_utf16().count() <= DESCRIPTION);
        }
        assert_eq!(shortened(&"x".repeat(140)), "x".repeat(140));
    }
}
