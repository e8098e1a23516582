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
