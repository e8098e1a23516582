//! [`SharedCredentials`]: credentials that many users of one login share, so that a run requests them once.

use std::time::Duration;

use tokio::{sync::Mutex, time::Instant};

use super::CloudError;
use konverge_base::retry::{RetryDecision, RetryPolicy};

/// Credentials are reused only if more than this (or a quarter of their lifetime) is left, because an apply
/// may take long.
const LEFT: Duration = Duration::from_secs(15 * 60);
/// Time for which a refused login is not repeated.
const REFUSAL_KEPT: Duration = Duration::from_secs(60);

/// Credentials that are requested at their first use, and again before they expire.
pub(super) struct SharedCredentials<T>(Mutex<Option<Answer<T>>>);

/// The result of the last request.
struct Answer<T> {
    at: Instant,
    /// The credentials, with their lifetime at `at`.
    result: Result<(T, Duration), CloudError>,
}

impl<T: Clone> Answer<T> {
    /// Returns the result at this age, with the remaining lifetime; `None` if a new request is needed.
    fn at_age(&self, age: Duration) -> Option<Result<(T, Duration), CloudError>> {
        match &self.result {
            Ok((credentials, lifetime)) if age + LEFT.min(*lifetime / 4) < *lifetime => {
                Some(Ok((credentials.clone(), lifetime.saturating_sub(age))))
            }
            Err(refusal) if age < REFUSAL_KEPT => Some(Err(refusal.clone())),
            _ => None,
        }
    }
}

impl<T> Default for SharedCredentials<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> std::fmt::Debug for SharedCredentials<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedCredentials")
    }
}

/// Runs a login, and repeats it while the service is unavailable.
///
/// # Errors
/// The service does not respond, or refuses the login.
pub(super) async fn with_retries<T, F>(log_in: impl FnMut() -> F) -> Result<T, CloudError>
where
    F: Future<Output = Result<T, CloudError>>,
{
    let classify = |error: &CloudError| match error {
        CloudError::Unavailable { .. } => RetryDecision::Retry,
        _ => RetryDecision::GiveUp,
    };
    RetryPolicy::default().run(classify, log_in).await
}

impl<T: Clone> SharedCredentials<T> {
    /// Returns the credentials and their remaining lifetime. Concurrent callers wait for the same request.
    ///
    /// # Errors
    /// The errors of `ask`; a refusal is cached for a minute.
    pub(super) async fn get<F>(&self, ask: impl FnMut() -> F) -> Result<(T, Duration), CloudError>
    where
        F: Future<Output = Result<(T, Duration), CloudError>>,
    {
        let mut known = self.0.lock().await;
        if let Some(answer) = known.as_ref()
            && let Some(result) = answer.at_age(answer.at.elapsed())
        {
            return result;
        }
        let result = with_retries(ask).await;
        *known = Some(Answer {
            at: Instant::now(),
            result: result.clone(),
        });
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn users_at_once_ask_once() {
        let (shared, asked) = (SharedCredentials::default(), AtomicUsize::new(0));
        let get = || {
            shared.get(async || {
                let count = asked.fetch_add(1, Ordering::SeqCst) + 1;
                Ok((count, Duration::from_secs(3600)))
            })
        };
        let (first, second) = tokio::join!(get(), get());
        assert_eq!((first.unwrap().0, second.unwrap().0), (1, 1));
        assert_eq!(get().await.unwrap().0, 1);
    }

    #[test]
    fn credentials_are_asked_for_again_before_their_end() {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        let answer = Answer {
            at: Instant::now(),
            result: Ok(("key", minutes(60))),
        };
        let left = |age| answer.at_age(age).map(|result| result.unwrap().1);
        assert_eq!(left(minutes(44)), Some(minutes(16)));
        assert_eq!(
            left(minutes(45)),
            None,
            "an apply may take longer than what is left"
        );
        let short = Answer {
            result: Ok(("key", minutes(4))),
            ..answer
        };
        assert!(short.at_age(minutes(2)).is_some());
        assert!(short.at_age(minutes(3)).is_none());
    }

    #[tokio::test]
    async fn a_refusal_is_not_asked_for_a_hundred_times() {
        let (shared, asked) = (SharedCredentials::<u8>::default(), AtomicUsize::new(0));
        for _ in 0..100 {
            let refused = shared.get(async || {
                asked.fetch_add(1, Ordering::SeqCst);
                Err(CloudError::refused("keys", "no"))
            });
            refused.await.unwrap_err();
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        let known = shared.0.lock().await;
        assert!(known.as_ref().unwrap().at_age(REFUSAL_KEPT).is_none());
    }
}
