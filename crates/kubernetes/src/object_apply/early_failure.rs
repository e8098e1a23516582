//! Decides when a failure ends the wait for an object: at once, after it has lasted, or never.

use std::time::Duration;

use tokio::time::Instant;

use super::super::health::WaitPolicy;

/// Measures how long a failure lasts that waiting cannot fix.
pub(crate) struct EarlyFailure {
    allowed: Duration,
    blocked_since: Option<Instant>,
}

impl EarlyFailure {
    /// Creates the measurement for one object. A failure ends the wait once it has lasted for `allowed`.
    pub(super) fn new(allowed: Duration) -> Self {
        Self {
            allowed,
            blocked_since: None,
        }
    }

    /// Returns true if the current failure ends the wait.
    pub(super) fn is_due(&mut self, weight: WaitPolicy, now: Instant) -> bool {
        match weight {
            WaitPolicy::Final => true,
            WaitPolicy::Blocked => {
                let since = *self.blocked_since.get_or_insert(now);
                now.saturating_duration_since(since) >= self.allowed
            }
            // The measurement goes on, because such a state may be only the pause between two failing
            // retries.
            WaitPolicy::Transient | WaitPolicy::Advisory | WaitPolicy::Indirect | WaitPolicy::Waiting(_) => {
                false
            }
        }
    }

    /// Resets the measurement, because the object does not fail any more.
    pub(super) fn reset(&mut self) {
        self.blocked_since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waiting_does_not_remove_may_last_as_long_as_the_options_say() {
        let mut failure = EarlyFailure::new(Duration::from_secs(30));
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert!(!failure.is_due(WaitPolicy::Blocked, at(0)));
        assert!(!failure.is_due(WaitPolicy::Blocked, at(29)));
        // A back-off in between changes nothing.
        assert!(!failure.is_due(WaitPolicy::Transient, at(29)));
        assert!(failure.is_due(WaitPolicy::Blocked, at(30)));
        // It was well in between: the time starts again.
        failure.reset();
        assert!(!failure.is_due(WaitPolicy::Blocked, at(40)));
        assert!(!failure.is_due(WaitPolicy::Blocked, at(69)));
        assert!(failure.is_due(WaitPolicy::Blocked, at(70)));
    }

    #[test]
    fn a_final_failure_ends_the_wait_at_once_and_a_passing_one_never() {
        let mut failure = EarlyFailure::new(Duration::from_secs(30));
        let start = Instant::now();
        assert!(failure.is_due(WaitPolicy::Final, start));
        let late = start + Duration::from_secs(86_400);
        for weight in [WaitPolicy::Transient, WaitPolicy::Advisory, WaitPolicy::Indirect] {
            assert!(!failure.is_due(weight, start));
            assert!(!failure.is_due(weight, late));
        }
    }
}
