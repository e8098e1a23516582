//! The time budget of a run that was asked to stop: GitHub's runner kills a job 7.5 seconds after the
//! request, and the results must be on GitHub by then.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The budget of all calls together, from the first one after the stop request.
const ALL: Duration = Duration::from_secs(4);

/// The budget of one call, so that one without an answer does not use up the time of the others.
const EACH: Duration = Duration::from_millis(1_500);

/// Whether the run was asked to stop, and how much time is left. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct ShutdownBudget {
    asked: CancellationToken,
    end: Arc<OnceLock<Instant>>,
}

impl ShutdownBudget {
    /// For a run that this token asks to stop.
    pub fn new(asked: CancellationToken) -> Self {
        Self {
            asked,
            end: Arc::default(),
        }
    }

    /// Returns when the waiting call has no time left; never, unless the run was asked to stop.
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
