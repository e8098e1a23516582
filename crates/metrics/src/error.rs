//! The reasons why a query gives no measurement.

use konverge_base::error::{ErrorKind, SharedError, UserError};

/// The error of a query. Its text never contains the address or the token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each field is")]
pub enum MetricsError {
    /// Queries to this address are not allowed.
    #[error("the address of Prometheus cannot be used: {why}")]
    Address { why: String },
    /// The token is empty, or contains characters that are invalid in an HTTP header.
    #[error("the token for Prometheus is empty, or has a character that an HTTP header cannot have")]
    Token,
    /// The HTTP client cannot be created.
    #[error("cannot build an HTTP client")]
    Client {
        #[source]
        why: SharedError,
    },
    /// The expression is empty, or the time range is zero.
    #[error("the expression is empty, or the time over which it is averaged is zero")]
    Expression,
    /// The server did not respond.
    #[error("Prometheus cannot be reached: {why}")]
    Unreachable { why: String },
    /// The complete response did not arrive in time.
    #[error("no complete answer from Prometheus within {seconds} s")]
    Slow { seconds: u64 },
    /// The response is larger than the limit.
    #[error("the answer of Prometheus is larger than {limit} bytes")]
    TooLarge { limit: usize },
    /// The token is missing, wrong, or has no permission for queries.
    #[error("Prometheus answered {status}: the request is not authorized")]
    Unauthorized { status: u16 },
    /// The server sent a redirect. It is never followed, because it could send the token to another host.
    #[error("Prometheus answered {status}, a redirect, which is not followed")]
    Redirect { status: u16 },
    /// Prometheus could not evaluate the expression.
    #[error("Prometheus answered {status} ({kind}): {says}")]
    Refused {
        status: u16,
        /// Prometheus' type of the error, such as `bad_data`.
        kind: String,
        /// The message of Prometheus, in one line.
        says: String,
    },
    /// A status that Prometheus' API does not use.
    #[error("the address of Prometheus answered {status}")]
    Status { status: u16 },
    /// The status is positive, but the body is not a response of the API.
    #[error("the answer is not one of Prometheus' API: {why}")]
    Invalid { why: String },
    /// The response has a warning and may be incomplete, so the number is not used.
    #[error("Prometheus warns: {says}")]
    Warned {
        /// The warning of Prometheus, in one line.
        says: String,
    },
    /// The expression has a type that is never a single number.
    #[error("the expression evaluates to a {kind}, not to a number")]
    NotANumber { kind: &'static str },
}

impl MetricsError {
    /// Returns an instruction for the user.
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Address { .. } => Some(
                "use an address such as `https://prometheus.example.com`, without a user, password or query; http:// is allowed only for this machine",
            ),
            Self::Token | Self::Unauthorized { .. } => {
                Some("set the variable of the token from a secret in the job's `env:`")
            }
            Self::Redirect { .. } | Self::Invalid { .. } | Self::Status { .. } => {
                Some("use the address below which Prometheus serves `/api/v1/query`")
            }
            Self::Expression => Some("write an expression of PromQL, and a time such as `10m`"),
            Self::TooLarge { .. } => Some("aggregate the expression to one number, such as by `sum(…)`"),
            Self::NotANumber { kind: "matrix" } => {
                Some("use a function over the range, such as `rate(…[5m])`")
            }
            Self::NotANumber { .. } => Some("use an expression that evaluates to one number"),
            Self::Refused { .. } => Some("try the expression in Prometheus' own page"),
            Self::Slow { .. } | Self::Unreachable { .. } | Self::Client { .. } | Self::Warned { .. } => None,
        }
    }
}

impl From<MetricsError> for UserError {
    fn from(error: MetricsError) -> Self {
        let hint = error.hint();
        let failure = Self::from_error(ErrorKind::Config, error);
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}
