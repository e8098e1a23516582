//! The reasons why a query gives no measurement.

use konverge_base::error::SharedError;

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
