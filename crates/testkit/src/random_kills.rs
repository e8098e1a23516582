//! Random numbers from a seed, and kills at random moments.

use std::time::Duration;

/// A random number generator with a seed.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    /// Returns a future that completes after a random time, or never if `ever` is false.
    pub fn kill(&mut self, ever: bool) -> impl Future<Output = ()> + use<> {
        let after = if ever { self.roll(60) } else { 60 };
        async move {
            match after {
                0..40 => tokio::time::sleep(Duration::from_millis(after)).await,
                _ => std::future::pending().await,
            }
        }
    }
}
