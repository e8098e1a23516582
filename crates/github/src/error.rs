//! The errors of GitHub and of the runner.

use std::time::Duration;

use konverge_base::{
    error::{ErrorKind, UserError},
    retry::RetryDecision,
};

/// An error of the API or of the runner's environment. Messages are masked when they are created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum GithubError {
    /// No answer, or none in time. The request may have been executed.
    #[error("no answer from GitHub to {operation}: {cause}")]
    Unreachable { operation: String, cause: String },
    /// An internal error of GitHub. The request may have been executed.
    #[error("GitHub answered {status} to {operation}")]
    Server { operation: String, status: u16 },
    /// The primary or a secondary rate limit. The request was not executed.
    #[error("GitHub's rate limit is used up ({operation}); it asks to wait {} s", wait.as_secs())]
    Limited {
        operation: String,
        /// How long GitHub asks to wait.
        wait: Duration,
    },
    /// The token lacks a permission.
    #[error("the token may not {operation}: it needs `{permission}`")]
    Forbidden {
        operation: String,
        /// The line for `permissions:` in the workflow.
        permission: String,
    },
    /// The conversation of an issue or pull request is locked: only people with write access may take part.
    #[error("the conversation is locked ({operation})")]
    Locked { operation: String },
    /// The token itself is refused: wrong or expired.
    #[error("GitHub refuses the token ({operation})")]
    Token { operation: String },
    /// It does not exist or is not visible to the token.
    #[error("not found: {operation}")]
    NotFound {
        operation: String,
        /// The permission that is needed to see it.
        permission: String,
    },
    /// The text is longer than GitHub accepts.
    #[error("the text is too long for GitHub ({operation})")]
    TooLong { operation: String },
    /// Refused for another reason.
    #[error("GitHub refused {operation} with {status}: {message}")]
    Refused {
        operation: String,
        status: u16,
        /// GitHub's message.
        message: String,
    },
    /// The answer has an unexpected form.
    #[error("GitHub's answer to {operation} cannot be read: {cause}")]
    Malformed { operation: String, cause: String },
    /// The runner's environment or the payload of the event lacks something.
    #[error("{message}")]
    Runner { message: String, hint: String },
}

impl GithubError {
    /// Returns true if the request may have been executed although no successful answer came.
    pub fn is_uncertain(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Server { .. } | Self::Malformed { .. }
        )
    }

    /// The retry decision for a repeatable request.
    pub(super) fn verdict(&self) -> RetryDecision {
        match self {
            Self::Unreachable { .. } | Self::Server { .. } => RetryDecision::Retry,
            Self::Limited { wait, .. } => RetryDecision::RetryAfter(*wait),
            _ => RetryDecision::GiveUp,
        }
    }

    /// The retry decision for a request that must not be repeated.
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
                "GITHUB_TOKEN is valid only during its job, the token of an App for an hour: set `GITHUB_TOKEN: ${{ github.token }}` in the step's `env:`",
            ),
            GithubError::Limited { .. } => {
                failure.hint("nothing is lost: run the job again later, or use an App's token, whose limit is higher")
            }
            GithubError::Unreachable { .. } => {
                failure.hint("check GITHUB_API_URL, and HTTPS_PROXY if the runner is behind a proxy")
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
