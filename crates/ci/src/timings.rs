//! Measures how long the stages of a run take.

use std::time::{Duration, Instant};

/// Measures consecutive stages.
pub(super) struct Timings {
    since: Instant,
    stages: Vec<(&'static str, Duration)>,
}

impl Timings {
    /// Starts the first stage.
    pub(crate) fn start() -> Self {
        Self {
            since: Instant::now(),
            stages: Vec::new(),
        }
    }

    /// Ends a stage and starts the next.
    pub(crate) fn end_stage(&mut self, stage: &'static str) {
        let now = Instant::now();
        self.stages.push((stage, now - self.since));
        self.since = now;
    }

    /// The finished stages.
    pub(crate) fn stages(&self) -> Vec<(&'static str, Duration)> {
        self.stages.clone()
    }
}
