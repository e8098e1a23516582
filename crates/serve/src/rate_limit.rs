//! [`RateLimit`]: limits how often somebody may do something. Each process counts separately.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The maximum number of counted names. When it is reached, names that are not limited any more are forgotten.
const NAMES: usize = 10_000;

/// A token bucket for each name.
pub(super) struct RateLimit {
    burst: u32,
    each: Duration,
    spent: Mutex<HashMap<String, Instant>>,
}

impl RateLimit {
    /// Creates a limit of `burst` requests at once, and after that one request for each period `each`.
    pub(super) fn new(burst: u32, each: Duration) -> Self {
        Self {
            burst,
            each,
            spent: Mutex::default(),
        }
    }

    /// Counts a request. Returns the time to wait if the limit is exceeded.
    pub(super) fn take(&self, name: &str, now: Instant) -> Result<(), Duration> {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        if spent.len() >= NAMES {
            spent.retain(|_, free| *free > now);
        }
        if spent.len() >= NAMES && !spent.contains_key(name) {
            return Err(self.each);
        }
        // The time at which the bucket of this name is full again.
        let free = spent.get(name).copied().unwrap_or(now).max(now) + self.each;
        let wait = free.saturating_duration_since(now + self.each * self.burst);
        if !wait.is_zero() {
            return Err(wait);
        }
        spent.insert(name.to_owned(), free);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_taken_and_comes_back_one_by_one_for_each_name() {
        let limit = RateLimit::new(3, Duration::from_secs(10));
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        for _ in 0..3 {
            assert_eq!(limit.take("ada", at(0)), Ok(()));
        }
        assert_eq!(limit.take("ada", at(0)), Err(Duration::from_secs(10)));
        assert_eq!(limit.take("ada", at(4)), Err(Duration::from_secs(6)));
        assert_eq!(limit.take("eve", at(4)), Ok(()));
        assert_eq!(limit.take("ada", at(10)), Ok(()));
        assert!(limit.take("ada", at(10)).is_err());
        for _ in 0..3 {
            assert_eq!(limit.take("ada", at(1000)), Ok(()));
        }
        assert!(limit.take("ada", at(1000)).is_err());
    }

    #[test]
    fn names_without_end_take_no_memory_without_end() {
        let limit = RateLimit::new(1, Duration::from_secs(10));
        let start = Instant::now();
        for name in 0..NAMES {
            assert_eq!(limit.take(&name.to_string(), start), Ok(()));
        }
        assert!(limit.take("one more", start).is_err());
        assert_eq!(limit.take("one more", start + Duration::from_secs(11)), Ok(()));
        assert_eq!(limit.spent.lock().unwrap().len(), 1);
    }
}
