//! [`SharedCredentials`]: credentials that many users of one login share, so that a run asks for them once.

use std::time::Duration;

use tokio::{sync::Mutex, time::Instant};

use super::CloudError;
use konverge_base::retry::{RetryDecision, RetryPolicy};

/// The most that must be left of credentials that are used again.
const LEFT: Duration = Duration::from_secs(15 * 60);
/// A login that was refused is not tried again for this long.
const REFUSAL_KEPT: Duration = Duration::from_secs(60);

/// Credentials that are asked for at their first use, and again before their end.
pub(super) struct SharedCredentials<T>(Mutex<Option<Answer<T>>>);

/// The last answer.
struct Answer<T> {
    at: Instant,
    /// With the lifetime at that time.
    result: Result<(T, Duration), CloudError>,
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

impl<T: Clone> SharedCredentials<T> {
    /// The credentials, and how long they are still valid. Those who come during a request wait for its answer.
    ///
    /// # Errors
    /// As `ask`; a refusal is kept for a minute.
    pub(super) async fn get<F>(&self, ask: impl FnMut() -> F) -> Result<(T, Duration), CloudError>
    where
        F: Future<Output = Result<(T, Duration), CloudError>>,
    {
        let mut known = self.0.lock().await;
        if let Some(answer) = known.as_ref() {
            let age = answer.at.elapsed();
            match &answer.result {
                Ok((credentials, lifetime)) if age + LEFT.min(*lifetime / 4) < *lifetime => {
                    return Ok((credentials.clone(), lifetime.saturating_sub(age)));
                }
                Err(refusal) if age < REFUSAL_KEPT => return Err(refusal.clone()),
                _ => {}
            }
        }
        let classify = |error: &CloudError| match error {
            CloudError::Unavailable { .. } => RetryDecision::Retry,
            _ => RetryDecision::GiveUp,
        };
        let result = RetryPolicy::default().run(classify, ask).await;
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

    #[tokio::test(start_paused = true)]
    async fn credentials_are_asked_for_once_and_again_before_their_end() {
        let (shared, asked) = (SharedCredentials::default(), AtomicUsize::new(0));
        let get = || {
            shared.get(async || {
                let count = asked.fetch_add(1, Ordering::SeqCst) + 1;
                Ok((count, Duration::from_secs(3600)))
            })
        };
        let (first, second) = tokio::join!(get(), get());
        assert_eq!((first.unwrap().0, second.unwrap().0), (1, 1));
        tokio::time::advance(Duration::from_secs(44 * 60)).await;
        let (count, left) = get().await.unwrap();
        assert_eq!((count, left.as_secs()), (1, 16 * 60));
        tokio::time::advance(Duration::from_secs(2 * 60)).await;
        assert_eq!(
            get().await.unwrap().0,
            2,
            "an apply may take longer than what is left"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_not_asked_for_a_hundred_times() {
        let (shared, asked) = (SharedCredentials::<u8>::default(), AtomicUsize::new(0));
        let get = || {
            shared.get(async || {
                asked.fetch_add(1, Ordering::SeqCst);
                Err(CloudError::refused("keys", "no"))
            })
        };
        for _ in 0..100 {
            get().await.unwrap_err();
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        tokio::time::advance(REFUSAL_KEPT).await;
        get().await.unwrap_err();
        assert_eq!(asked.load(Ordering::SeqCst), 2);
    }
}
