//! The clocks of a process. Decisions use only the monotonic clock; the wall clock is only recorded and
//! shown.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::Instant;

/// Two clocks and a sleep function. Tests implement their own.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Returns the monotonic time since an arbitrary start.
    fn monotonic(&self) -> Duration;

    /// Returns the time of day. It may be wrong by hours, so it is recorded but never compared.
    fn wall_clock(&self) -> Timestamp;

    /// Sleeps for this time by the monotonic clock.
    async fn sleep(&self, time: Duration);
}

/// The clocks of this machine.
#[derive(Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

#[async_trait]
impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall_clock(&self) -> Timestamp {
        Timestamp::now()
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn the_clocks_of_this_machine_go_and_a_pause_is_kept() {
        let clock = SystemClock::default();
        assert!((0..1_000_000).any(|_| clock.monotonic() > Duration::ZERO));
        assert!(clock.wall_clock() > Timestamp::UNIX_EPOCH);
        let hour = Duration::from_secs(3600);
        assert!(clock.sleep(hour).now_or_never().is_none());
    }
}
