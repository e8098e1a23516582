//! [`RateLimit`]: how often somebody may do something. Each process counts for itself.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// The number of names that are counted. With more, those that may go on are forgotten first.
const NAMES: usize = 10_000;

/// A number of requests for each name, which comes back one by one.
pub(super) struct RateLimit {
    burst: u32,
    each: Duration,
    spent: Mutex<HashMap<String, Instant>>,
}

impl RateLimit {
    /// At most `burst` at once, and then one for each `each`.
    pub(super) fn new(burst: u32, each: Duration) -> Self {
        Self {
            burst,
            each,
            spent: Mutex::default(),
        }
    }

    /// Counts a request. Returns the time to wait if it is one too many.
    pub(super) fn take(&self, name: &str, now: Instant) -> Result<(), Duration> {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        if spent.len() >= NAMES {
            spent.retain(|_, free| *free > now);
        }
        if spent.len() >= NAMES && !spent.contains_key(name) {
            return Err(self.each);
        }
        // The time when everything that was taken has come back.
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
