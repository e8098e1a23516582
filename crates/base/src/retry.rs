//! The retry policy for all external systems. The built-in retries of the clients are off.
//!
//! Only requests that may be repeated are retried: idempotent ones, or those whose effect was looked up first.

use std::{future::Future, time::Duration};

use http::{HeaderMap, header};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::spans;

/// The decision about the next attempt after an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    /// A retry cannot succeed.
    GiveUp,
    /// A retry may succeed.
    Retry,
    /// A retry is allowed after this time (the header `retry-after`).
    RetryAfter(Duration),
}

/// Returns the time that a server asks to wait (the header `retry-after`, in seconds).
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    seconds.trim().parse().ok().map(Duration::from_secs)
}

/// The number and timing of retries.
#[derive(Debug, Clone, Copy)]
pub struct RetryPolicy {
    /// The number of attempts, including the first.
    pub attempts: u32,
    /// The wait after the first attempt. It doubles after each further attempt, with jitter.
    pub first: Duration,
    /// The maximum of a single wait, unless the server asks for a longer one.
    pub longest: Duration,
    /// The maximum of all waits together. A longer `retry-after` ends the retries at once.
    pub total: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 5,
            first: Duration::from_millis(200),
            longest: Duration::from_secs(10),
            total: Duration::from_secs(60),
        }
    }
}

impl RetryPolicy {
    /// Runs `operation` until it succeeds, its error is final, or the policy is exhausted.
    ///
    /// # Errors
    /// The last error of `operation`.
    pub async fn run<T, E, F, Fut>(
        &self,
        classify: impl Fn(&E) -> RetryDecision,
        mut operation: F,
    ) -> Result<T, E>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        let start = Instant::now();
        let mut backoff = self.first;
        for attempt in 1.. {
            let error = match operation().await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let wait = match classify(&error) {
                RetryDecision::GiveUp => return Err(error),
                RetryDecision::Retry => jitter(backoff),
                RetryDecision::RetryAfter(asked) => asked,
            };
            // A wait that would exceed the total is not begun: the caller would only learn of the error later.
            if attempt >= self.attempts || start.elapsed().saturating_add(wait) > self.total {
                return Err(error);
            }
            tracing::debug!(attempt, ?wait, "retrying");
            tokio::time::sleep(wait)
                .instrument(spans::wait("another try"))
                .await;
            backoff = (backoff * 2).min(self.longest);
        }
        unreachable!("the loop ends by returning")
    }
}

/// Returns a random time between half of `wait` and `wait`, so that many clients do not retry at the same moment.
fn jitter(wait: Duration) -> Duration {
    let random = uuid::Uuid::new_v4().as_bytes()[0];
    wait / 2 + wait.mul_f64(f64::from(random) / 510.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_read_in_seconds_only() {
        for (said, wait) in [("7", Some(7)), (" 7 ", Some(7)), ("soon", None), ("-1", None)] {
            let headers = HeaderMap::from_iter([(header::RETRY_AFTER, said.parse().expect("a header"))]);
            assert_eq!(retry_after(&headers), wait.map(Duration::from_secs), "{said}");
        }
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
    use std::cell::Cell;

    fn quick() -> RetryPolicy {
        RetryPolicy {
            first: Duration::from_millis(1),
            ..RetryPolicy::default()
        }
    }

    #[tokio::test]
    async fn stops_at_the_limit_and_at_a_final_error() {
        let tries = Cell::new(0);
        let fail = || {
            tries.set(tries.get() + 1);
            async { Err::<(), _>("down") }
        };
        assert!(quick().run(|_| RetryDecision::Retry, fail).await.is_err());
        assert_eq!(tries.get(), 5);
        tries.set(0);
        assert!(quick().run(|_| RetryDecision::GiveUp, fail).await.is_err());
        assert_eq!(tries.get(), 1);
    }

    #[tokio::test]
    async fn a_wait_beyond_the_total_gives_up_at_once() {
        let result: Result<(), _> = quick()
            .run(
                |_| RetryDecision::RetryAfter(Duration::from_secs(3600)),
                || async { Err("later") },
            )
            .await;
        assert_eq!(result, Err("later"));
    }

    #[tokio::test]
    async fn success_after_failures() {
        let tries = Cell::new(0);
        let result = quick()
            .run(
                |_: &&str| RetryDecision::Retry,
                || {
                    tries.set(tries.get() + 1);
                    let n = tries.get();
                    async move { if n < 3 { Err("down") } else { Ok(n) } }
                },
            )
            .await;
        assert_eq!(result, Ok(3));
    }
}
