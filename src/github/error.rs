//! What can go wrong between us and GitHub.

use std::time::Duration;

use crate::{
    error::{ErrorKind, UserError},
    retry::RetryDecision,
};

/// An error of the API or of what the runner hands us. Messages are masked where they are made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GithubError {
    /// No answer, or none in time. The request may have been carried out.
    #[error("no answer from GitHub to {operation}: {cause}")]
    Unreachable {
        /// Method and path.
        operation: String,
        /// What the transport says.
        cause: String,
    },
    /// GitHub failed inside. The request may have been carried out.
    #[error("GitHub answered {status} to {operation}")]
    Server {
        /// Method and path.
        operation: String,
        /// The status.
        status: u16,
    },
    /// The primary or a secondary limit; the request was not carried out.
    #[error("GitHub's rate limit is used up ({operation}); it asks to wait {} s", wait.as_secs())]
    Limited {
        /// Method and path.
        operation: String,
        /// What it asks for.
        wait: Duration,
    },
    /// The token lacks a permission.
    #[error("the token may not {operation}: it needs `{permission}`")]
    Forbidden {
        /// Method and path.
        operation: String,
        /// The line of the workflow's `permissions:`.
        permission: String,
    },
    /// The conversation of an issue or pull request is locked: only people who may write take part in it.
    #[error("the conversation is locked ({operation})")]
    Locked {
        /// Method and path.
        operation: String,
    },
    /// The token itself is refused: wrong or expired.
    #[error("GitHub refuses the token ({operation})")]
    Token {
        /// Method and path.
        operation: String,
    },
    /// Not there, or not visible to the token.
    #[error("not found: {operation}")]
    NotFound {
        /// Method and path.
        operation: String,
        /// The permission that it takes to see it.
        permission: String,
    },
    /// The text is longer than GitHub takes.
    #[error("GitHub takes no text of this length ({operation})")]
    TooLong {
        /// Method and path.
        operation: String,
    },
    /// Refused for another reason.
    #[error("GitHub refused {operation} with {status}: {message}")]
    Refused {
        /// Method and path.
        operation: String,
        /// The status.
        status: u16,
        /// Its own words.
        message: String,
    },
    /// The answer is not what it should be.
    #[error("GitHub's answer to {operation} cannot be read: {cause}")]
    Malformed {
        /// Method and path.
        operation: String,
        /// What is wrong.
        cause: String,
    },
    /// The runner's environment or the event's payload lacks something.
    #[error("{message}")]
    Runner {
        /// What is missing.
        message: String,
        /// What to do.
        hint: String,
    },
}

impl GithubError {
    /// Whether the request may have been carried out although no good answer came.
    pub fn is_uncertain(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Server { .. } | Self::Malformed { .. }
        )
    }

    /// What a repeatable request does about it.
    pub(super) fn verdict(&self) -> RetryDecision {
        match self {
            Self::Unreachable { .. } | Self::Server { .. } => RetryDecision::Retry,
            Self::Limited { wait, .. } => RetryDecision::RetryAfter(*wait),
            _ => RetryDecision::GiveUp,
        }
    }

    /// What a request that must not be made twice does about it.
    pub(super) fn verdict_once(&self) -> RetryDecision {
        match self {
            Self::Limited { wait, .. } => RetryDecision::RetryAfter(*wait),
            _ => RetryDecision::GiveUp,
        }
    }
}

impl From<GithubError> for UserError {
    fn from(error: GithubError) -> Self {
        let failure = UserError::new(ErrorKind::Github, error.to_string());
        match error {
            GithubError::Forbidden { permission, .. } => {
                failure.hint(format!("add to the job: `permissions:` with `{permission}`"))
            }
            GithubError::Locked { .. } => failure.hint(
                "unlock the conversation on GitHub (\"Unlock conversation\" at the right) and run the job again; the job summary holds the same text",
            ),
            GithubError::NotFound { permission, .. } => failure.hint(format!(
                "GitHub also says so when the token may not see it: add `{permission}` to the job's `permissions:`"
            )),
            GithubError::Token { .. } => failure.hint(
                "GITHUB_TOKEN holds for its job only, an App's token for an hour: set `GITHUB_TOKEN: ${{ github.token }}` in the step's `env:`",
            ),
            GithubError::Limited { .. } => {
                failure.hint("nothing is lost: run the job again later, or use an App's token, whose limit is higher")
            }
            GithubError::Unreachable { .. } => {
                failure.hint("check GITHUB_API_URL, and HTTPS_PROXY if the runner stands behind a proxy")
            }
            GithubError::Runner { hint, .. } => failure.hint(hint),
            GithubError::Server { .. } | GithubError::Malformed { .. } => failure.hint(
                "nothing is lost: run the job again; https://www.githubstatus.com says whether GitHub has a fault",
            ),
            GithubError::Refused { .. } | GithubError::TooLong { .. } => failure.hint(
                "nothing is lost: what was done is recorded; fix what GitHub names, or report it if it is Konverge's, and run the job again",
            ),
        }
    }
}
