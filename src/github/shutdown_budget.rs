//! The last words of a run that was asked to stop: GitHub's runner ends a job 7.5 seconds after it asked, and what the
//! run did is to stand on GitHub by then.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What all calls together may take, from the first one after the request to stop.
const ALL: Duration = Duration::from_secs(4);

/// What one call may take, so that one without an answer does not use up the time of the others.
const EACH: Duration = Duration::from_millis(1_500);

/// Whether the run is asked to stop, and how much time is left then. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct ShutdownBudget {
    asked: CancellationToken,
    end: Arc<OnceLock<Instant>>,
}

impl ShutdownBudget {
    /// Of a run that this token asks to stop.
    pub fn new(asked: CancellationToken) -> Self {
        Self {
            asked,
            end: Arc::default(),
        }
    }

    /// Returns when the call that waits for it has no time left: never, unless the run is asked to stop.
    pub async fn wait_until_spent(&self) {
        self.asked.cancelled().await;
        let now = Instant::now();
        let end = *self.end.get_or_init(|| now + ALL);
        tokio::time::sleep_until(end.min(now + EACH)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_run_that_is_not_asked_to_stop_has_all_the_time() {
        let waited = tokio::time::timeout(
            Duration::from_millis(50),
            ShutdownBudget::default().wait_until_spent(),
        )
        .await;
        assert!(waited.is_err());
    }

    #[tokio::test]
    async fn a_call_has_its_time_unless_all_of_it_is_used_up() {
        let parting = ShutdownBudget::new(CancellationToken::new());
        parting.asked.cancel();
        let started = Instant::now();
        parting.clone().wait_until_spent().await;
        assert!(started.elapsed() >= EACH && started.elapsed() < ALL);

        let late = ShutdownBudget::new(parting.asked.clone());
        assert!(late.end.set(started).is_ok());
        let started = Instant::now();
        late.wait_until_spent().await;
        assert!(started.elapsed() < EACH);
    }
}
