//! Logins at clouds for secret stores, repeated while the service that gives them is busy.

use super::SecretProblem;
use crate::CloudError;
use konverge_base::retry::{RetryDecision, RetryPolicy};

/// Runs a login until it has an answer.
///
/// # Errors
/// No answer, or a refusal.
pub(super) async fn with_retries<T, F>(log_in: impl FnMut() -> F) -> Result<T, SecretProblem>
where
    F: Future<Output = Result<T, CloudError>>,
{
    let classify = |error: &CloudError| match error {
        CloudError::Unavailable { .. } => RetryDecision::Retry,
        _ => RetryDecision::GiveUp,
    };
    Ok(RetryPolicy::default().run(classify, log_in).await?)
}
