//! How long the stages of a run take.

use std::time::{Duration, Instant};

/// Measures one stage after the other.
pub(super) struct Timings {
    since: Instant,
    stages: Vec<(&'static str, Duration)>,
}

impl Timings {
    /// The first stage begins.
    pub fn start() -> Self {
        Self {
            since: Instant::now(),
            stages: Vec::new(),
        }
    }

    /// A stage ends, the next begins.
    pub fn ends(&mut self, stage: &'static str) {
        let now = Instant::now();
        self.stages.push((stage, now - self.since));
        self.since = now;
    }

    /// The stages that have ended.
    pub fn stages(&self) -> Vec<(&'static str, Duration)> {
        self.stages.clone()
    }
}
