//! What a run waits for after it was asked to stop. A peer (a store, a cluster) that answers gets time to
//! finish running requests; a peer that does not answer gets none.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use tokio_util::sync::CancellationToken;

/// The maximum duration of a request without an answer, if no other request to the same peer was answered in
/// the meantime.
const SILENCE: Duration = Duration::from_millis(700);
/// The maximum duration of a request to a peer that answers.
const PATIENCE: Duration = Duration::from_secs(5);

/// The error of an abandoned request: the run was asked to stop, and the peer did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no answer came, and the run was asked to stop")]
pub struct Stopped;

/// The stop request, as the requests to one peer see it. Clones share what is known of the peer.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    asked: CancellationToken,
    peer: Arc<AtomicU8>,
}

/// What is known of the peer since the stop request; at first nothing, which is 0.
const ANSWERS: u8 = 1;
const SILENT: u8 = 2;

impl Interrupt {
    /// For one peer of a run that this token asks to stop.
    pub fn new(asked: CancellationToken) -> Self {
        Self {
            asked,
            peer: Arc::default(),
        }
    }

    /// Returns true if the run was asked to stop.
    pub fn is_asked(&self) -> bool {
        self.asked.is_cancelled()
    }

    /// Waits for a request, including its retries and their pauses. Before the stop request it waits without
    /// a limit.
    ///
    /// # Errors
    /// The run was asked to stop, and the peer does not answer.
    pub async fn unless_silent<T>(&self, request: impl Future<Output = T>) -> Result<T, Stopped> {
        tokio::select! {
            biased;
            answer = request => {
                if self.is_asked() {
                    self.peer.store(ANSWERS, Ordering::Relaxed);
                }
                Ok(answer)
            }
            () = self.silence() => {
                self.peer.store(SILENT, Ordering::Relaxed);
                Err(Stopped)
            }
        }
    }

    /// Pauses; ends early when the run is asked to stop.
    pub async fn pause(&self, time: Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.asked.cancelled() => {}
        }
    }

    async fn silence(&self) {
        self.asked.cancelled().await;
        if self.peer.load(Ordering::Relaxed) == SILENT {
            return;
        }
        tokio::time::sleep(SILENCE).await;
        if self.peer.load(Ordering::Relaxed) == ANSWERS {
            tokio::time::sleep(PATIENCE - SILENCE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    fn asked() -> Interrupt {
        let interrupt = Interrupt::default();
        interrupt.asked.cancel();
        interrupt
    }

    #[tokio::test]
    async fn a_run_that_is_not_asked_to_stop_waits() {
        let waiting = Interrupt::default();
        let never = waiting.unless_silent(pending::<()>());
        assert!(tokio::time::timeout(SILENCE * 2, never).await.is_err());
    }

    #[tokio::test]
    async fn a_silent_peer_is_given_up_once_for_all_requests() {
        let interrupt = asked();
        assert_eq!(interrupt.unless_silent(pending::<()>()).await, Err(Stopped));
        // The next request is not waited for at all.
        let next = interrupt.clone();
        let mut next = std::pin::pin!(next.unless_silent(pending::<()>()));
        assert_eq!(
            futures::poll!(next.as_mut()),
            std::task::Poll::Ready(Err(Stopped))
        );
    }

    #[tokio::test]
    async fn a_peer_that_answers_has_more_time() {
        let interrupt = asked();
        assert_eq!(interrupt.unless_silent(ready(1)).await, Ok(1));
        let slow = async {
            tokio::time::sleep(SILENCE * 2).await;
            2
        };
        assert_eq!(interrupt.unless_silent(slow).await, Ok(2));
    }
}
