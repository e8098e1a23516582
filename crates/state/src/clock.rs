//! Time as one process sees it. Decisions use only the monotonic clock; the wall clock is for display.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::Instant;

/// Two clocks and a way to wait. Tests provide their own.
#[async_trait]
pub trait Clock: Send + Sync {
    /// Monotonic time since an arbitrary start.
    fn monotonic(&self) -> Duration;

    /// The time of day, which may be wrong by hours: recorded, never compared.
    fn wall_clock(&self) -> Timestamp;

    /// Waits, by the monotonic clock.
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
