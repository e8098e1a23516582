//! Errors of a forge and of its runner.

use std::time::Duration;

use konverge_base::{
    error::{ErrorKind, SharedError, UserError},
    retry::RetryDecision,
};

use crate::kind::{ForgeKind, TwoForges, Unsupported};

/// The result of a request to a forge, or of a look at the runner's environment.
pub type Result<T, E = ForgeError> = std::result::Result<T, E>;

/// An error of a forge's API or of the runner's environment. Secrets in the message are masked when the error is
/// created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum ForgeError {
    /// There was no response, or none in time. The request may have been executed.
    #[error("no answer from {forge} to {operation}")]
    Unreachable {
        forge: ForgeKind,
        operation: String,
        #[source]
        cause: SharedError,
    },
    /// An internal error of the forge. The request may have been executed.
    #[error("{forge} answered {status} to {operation}")]
    Server {
        forge: ForgeKind,
        operation: String,
        status: u16,
    },
    /// A rate limit. The request was not executed.
    #[error("{forge}'s rate limit is used up ({operation}); it asks to wait {} s", wait.as_secs())]
    Limited {
        forge: ForgeKind,
        operation: String,
        /// The time that the forge asks to wait.
        wait: Duration,
    },
    /// The token lacks a permission.
    #[error("the token may not {operation}: it needs `{permission}`")]
    Forbidden {
        forge: ForgeKind,
        operation: String,
        /// The missing permission: for GitHub a line of the workflow's `permissions:`, for Gitea and GitLab a scope
        /// of the token.
        permission: String,
    },
    /// The conversation of an issue or pull request is locked: only people with write access may take part.
    #[error("the conversation is locked ({operation})")]
    Locked { forge: ForgeKind, operation: String },
    /// The forge rejects the token: it is wrong or expired.
    #[error("{forge} refuses the token ({operation})")]
    Token { forge: ForgeKind, operation: String },
    /// The object does not exist, or the token may not see it.
    #[error("not found: {operation}")]
    NotFound {
        forge: ForgeKind,
        operation: String,
        /// The permission that is necessary to see the object.
        permission: String,
    },
    /// The text is longer than the forge allows.
    #[error("the text is too long for {forge} ({operation})")]
    TooLong { forge: ForgeKind, operation: String },
    /// The forge refused the request for another reason.
    #[error("{forge} refused {operation} with {status}: {message}")]
    Refused {
        forge: ForgeKind,
        operation: String,
        status: u16,
        /// The forge's message.
        message: String,
    },
    /// The response has an unexpected form.
    #[error("{forge}'s answer to {operation} cannot be read")]
    Malformed {
        forge: ForgeKind,
        operation: String,
        #[source]
        cause: SharedError,
    },
    /// The version of the server is too old for the request.
    #[error("{server} is too old for {operation}: it needs {forge} {needed}")]
    Outdated {
        forge: ForgeKind,
        operation: String,
        /// The name and version of the server, as it reports them.
        server: String,
        needed: String,
    },
    /// The runner's environment or the payload of the event lacks something.
    #[error("{message}")]
    Runner { message: String, hint: String },
    /// A part of the runner's environment exists but cannot be used.
    #[error("{message}")]
    Unusable {
        message: String,
        hint: String,
        #[source]
        cause: SharedError,
    },
    /// A decision needs a fact that this forge does not provide.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The environment has the variables of two forges, so it is unclear which forge runs the job.
    #[error(transparent)]
    Ambiguous(#[from] TwoForges),
}

impl ForgeError {
    /// Creates the error for a response of unexpected form.
    pub fn malformed(forge: ForgeKind, operation: impl Into<String>, cause: impl Into<SharedError>) -> Self {
        Self::Malformed {
            forge,
            operation: operation.into(),
            cause: cause.into(),
        }
    }

    /// Returns the forge that the error came from.
    pub fn forge(&self) -> Option<ForgeKind> {
        match self {
            Self::Unreachable { forge, .. }
            | Self::Server { forge, .. }
            | Self::Limited { forge, .. }
            | Self::Forbidden { forge, .. }
            | Self::Locked { forge, .. }
            | Self::Token { forge, .. }
            | Self::NotFound { forge, .. }
            | Self::TooLong { forge, .. }
            | Self::Refused { forge, .. }
            | Self::Malformed { forge, .. }
            | Self::Outdated { forge, .. } => Some(*forge),
            Self::Unsupported(unsupported) => Some(unsupported.forge),
            Self::Runner { .. } | Self::Unusable { .. } | Self::Ambiguous(_) => None,
        }
    }

    /// Returns true if the request may have been executed although no successful response arrived.
    pub fn is_uncertain(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Server { .. } | Self::Malformed { .. }
        )
    }

    /// Returns the retry decision for a request that may safely be sent twice.
    pub fn retry(&self) -> RetryDecision {
        match self {
            Self::Unreachable { .. } | Self::Server { .. } => RetryDecision::Retry,
            Self::Limited { wait, .. } => RetryDecision::RetryAfter(*wait),
            _ => RetryDecision::GiveUp,
        }
    }

    /// Returns the retry decision for a request that must not be executed twice.
    pub fn retry_once(&self) -> RetryDecision {
        match self {
            Self::Limited { wait, .. } => RetryDecision::RetryAfter(*wait),
            _ => RetryDecision::GiveUp,
        }
    }
}

/// Returns `None` in place of the error that an object does not exist.
///
/// # Errors
/// Any other error.
pub fn if_found<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(ForgeError::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl From<ForgeError> for UserError {
    fn from(error: ForgeError) -> Self {
        let failure = UserError::from_error(ErrorKind::Github, error.clone());
        let hint = match error.forge() {
            Some(ForgeKind::Gitea) => gitea_hint(&error),
            Some(ForgeKind::Gitlab) => gitlab_hint(&error),
            Some(ForgeKind::Github) | None => None,
        };
        if let Some(hint) = hint {
            return failure.hint(hint);
        }
        match error {
            ForgeError::Forbidden { permission, .. } => {
                failure.hint(format!("add to the job: `permissions:` with `{permission}`"))
            }
            ForgeError::Locked { .. } => failure.hint(
                "unlock the conversation on GitHub (\"Unlock conversation\" at the right) and run the job again; the job summary holds the same text",
            ),
            ForgeError::NotFound { permission, .. } => failure.hint(format!(
                "GitHub answers \"not found\" also if the token lacks a permission: add `{permission}` to the job's `permissions:`"
            )),
            ForgeError::Token { .. } => failure.hint(
                "GITHUB_TOKEN is valid only during its job, the token of an App for an hour: set `GITHUB_TOKEN: ${{ github.token }}` in the step's `env:`",
            ),
            ForgeError::Limited { .. } => {
                failure.hint("nothing is lost: run the job again later, or use an App's token, whose limit is higher")
            }
            ForgeError::Unreachable { .. } => {
                failure.hint("check GITHUB_API_URL, and HTTPS_PROXY if the runner is behind a proxy")
            }
            ForgeError::Runner { hint, .. } | ForgeError::Unusable { hint, .. } => failure.hint(hint),
            ForgeError::Server { .. } | ForgeError::Malformed { .. } => failure.hint(
                "nothing is lost: run the job again; https://www.githubstatus.com says whether GitHub has a fault",
            ),
            ForgeError::Refused { .. } | ForgeError::TooLong { .. } => failure.hint(
                "nothing is lost: what was done is recorded. Correct what the message of the forge says, or report it if it is a bug in Konverge; then run the job again",
            ),
            ForgeError::Outdated { forge, needed, .. } => {
                failure.hint(format!("update {forge} to {needed} or later; docs/reference/forges.md lists what needs which version"))
            }
            ForgeError::Unsupported(_) => {
                failure.hint("docs/reference/forges.md lists the features of each forge")
            }
            ForgeError::Ambiguous(TwoForges { second, .. }) => failure.hint(format!(
                "unset the variable of the forge that does not run this job: `env -u {} konverge …`",
                second.variable
            )),
        }
    }
}

/// Returns the hint for Gitea where it differs from GitHub's.
fn gitea_hint(error: &ForgeError) -> Option<String> {
    const LOST: &str = "nothing is lost: run the job again";
    Some(match error {
        ForgeError::Outdated { server, needed, .. } if server.starts_with("Forgejo") => {
            format!("use Gitea {needed} or later, or do without: the section \"Forgejo\" of docs/reference/forges.md lists what needs it")
        }
        ForgeError::Forbidden { permission, .. } => {
            format!("give the step a token in `GITEA_TOKEN` with {permission}; the guide \"Run on Gitea\" lists the permissions")
        }
        ForgeError::NotFound { permission, .. } => {
            format!("check that the token has {permission}, and that the repository was not renamed or moved: Gitea answers \"not found\" in both cases")
        }
        ForgeError::Locked { .. } => {
            "unlock the conversation (\"Unlock conversation\" at the right) and run the job again".to_owned()
        }
        ForgeError::Token { .. } => {
            "set `GITEA_TOKEN` in the step's `env:` to the token of a bot: the token of a job is valid only during the job".to_owned()
        }
        ForgeError::Limited { .. } => format!("{LOST} later: Gitea itself has no rate limit, so a proxy before it has one"),
        ForgeError::Unreachable { .. } => {
            "check GITHUB_API_URL, which is Gitea's ROOT_URL with api/v1, and SSL_CERT_FILE if its certificate is from your own certificate authority".to_owned()
        }
        ForgeError::Server { .. } => format!("{LOST}; the log of Gitea says what failed"),
        ForgeError::Malformed { .. } => {
            format!("{LOST}; check that GITHUB_API_URL is Gitea's API, and that no login page stands before it")
        }
        ForgeError::Refused { .. } | ForgeError::TooLong { .. } => {
            format!("{LOST} after you have corrected what the message of Gitea says: what was done is recorded")
        }
        _ => return None,
    })
}

/// Returns the hint for GitLab where it differs from GitHub's.
fn gitlab_hint(error: &ForgeError) -> Option<String> {
    const LOST: &str = "nothing is lost: run the job again";
    Some(match error {
        ForgeError::Forbidden { permission, .. } => {
            format!("give the job a token in `KONVERGE_GITLAB_TOKEN` or `GITLAB_TOKEN` with {permission}; the guide \"Run on GitLab\" lists the permissions")
        }
        ForgeError::NotFound { permission, .. } => {
            format!("check that the token has {permission}, and that the project was not renamed or moved: GitLab answers \"not found\" in both cases")
        }
        ForgeError::Token { .. } => {
            "create a new token (Settings, Access tokens), and set the CI/CD variable to it: the token in `KONVERGE_GITLAB_TOKEN` or else `GITLAB_TOKEN` is wrong or has expired".to_owned()
        }
        ForgeError::Limited { .. } => format!("{LOST} later: GitLab limits the requests of a user"),
        ForgeError::Unreachable { .. } => {
            "check CI_API_V4_URL, and SSL_CERT_FILE if its certificate is from your own certificate authority".to_owned()
        }
        ForgeError::Server { .. } => format!("{LOST}; the log of GitLab says what failed"),
        ForgeError::Malformed { .. } => {
            format!("{LOST}; check that CI_API_V4_URL is GitLab's API, and that no login page stands before it")
        }
        ForgeError::Refused { .. } | ForgeError::TooLong { .. } => {
            format!("{LOST} after you have corrected what the message of GitLab says: what was done is recorded")
        }
        _ => return None,
    })
}

impl From<Unsupported> for UserError {
    fn from(unsupported: Unsupported) -> Self {
        ForgeError::from(unsupported).into()
    }
}
