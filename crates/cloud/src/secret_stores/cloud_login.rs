//! Logins of secret stores at a cloud, repeated while the cloud is busy.

use super::SecretProblem;
use crate::CloudError;
use konverge_base::retry::{RetryDecision, RetryPolicy};

/// Runs a login, and repeats it while the service is unavailable.
///
/// # Errors
/// The service does not respond, or refuses the login.
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
