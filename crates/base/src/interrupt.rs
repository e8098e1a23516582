//! Timeouts after a stop request (Ctrl-C, or a cancelled job). A peer (a store, a cluster, GitHub, a receiver of
//! notifications) that responds gets time to finish running requests; a peer that does not respond gets little.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The timeouts for requests to a peer after a stop request.
#[derive(Debug, Clone, Copy)]
pub struct StopTimeouts {
    /// The timeout of a request if the peer's state is unknown: no request was answered or abandoned since the stop
    /// request.
    unknown: Duration,
    /// The timeout of a request to a peer that has answered since the stop request.
    answering: Duration,
    /// The timeout of a request to a peer whose last request was abandoned.
    silent: Duration,
    /// The timeout of all requests together, from the first one after the stop request.
    all: Option<Duration>,
}

impl StopTimeouts {
    /// The timeouts of stores and clusters. A run must store its results before it ends, so there is no limit for
    /// all requests together.
    pub const STORED: Self = Self {
        unknown: Duration::from_millis(700),
        answering: Duration::from_secs(5),
        silent: Duration::ZERO,
        all: None,
    };

    /// The timeouts of a forge. GitHub's runner kills a job 7.5 seconds after the stop request, and the results must be
    /// posted by then. One call without a response does not use up the time of the others.
    pub const FORGE: Self = Self {
        unknown: Duration::from_millis(1_500),
        answering: Duration::from_millis(1_500),
        silent: Duration::from_millis(1_500),
        all: Some(Duration::from_secs(4)),
    };

    /// The timeouts of a receiver of notifications.
    pub const RECEIVER: Self = Self {
        unknown: Duration::from_secs(1),
        answering: Duration::from_secs(1),
        silent: Duration::ZERO,
        all: Some(Duration::from_secs(1)),
    };
}

/// The error of an abandoned request: the run was asked to stop, and the peer did not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no answer came, and the run was asked to stop")]
pub struct Stopped;

/// The stop request as it applies to one peer. Clones share the state of the peer.
#[derive(Debug, Clone)]
pub struct Interrupt {
    asked: CancellationToken,
    timeouts: StopTimeouts,
    peer: Arc<AtomicU8>,
    end: Arc<OnceLock<Instant>>,
}

/// The states of a peer since the stop request. 0 means that the state is unknown.
const ANSWERS: u8 = 1;
const SILENT: u8 = 2;

impl Default for Interrupt {
    fn default() -> Self {
        Self::new(CancellationToken::new())
    }
}

impl Interrupt {
    /// Creates the stop request for a store or a cluster. The token is cancelled when the run must stop.
    pub fn new(asked: CancellationToken) -> Self {
        Self::with(asked, StopTimeouts::STORED)
    }

    /// Creates the stop request for a peer with these timeouts. The token is cancelled when the run must stop.
    pub fn with(asked: CancellationToken, timeouts: StopTimeouts) -> Self {
        Self {
            asked,
            timeouts,
            peer: Arc::default(),
            end: Arc::default(),
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
    /// The run was asked to stop, and the peer does not respond in time.
    pub async fn unless_silent<T>(&self, request: impl Future<Output = T>) -> Result<T, Stopped> {
        tokio::select! {
            // A response that arrives together with the timeout still counts.
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

    /// Waits for a time. The wait ends early when the run is asked to stop.
    pub async fn pause(&self, time: Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.asked.cancelled() => {}
        }
    }

    async fn silence(&self) {
        self.asked.cancelled().await;
        let start = Instant::now();
        // The timeout of all requests begins with the first request after the stop request.
        let end = self.timeouts.all.map(|all| *self.end.get_or_init(|| start + all));
        let until = async |time: Duration| {
            let until = end.map_or(start + time, |end| end.min(start + time));
            if until > Instant::now() {
                tokio::time::sleep_until(until).await;
            }
        };
        match self.peer.load(Ordering::Relaxed) {
            SILENT => until(self.timeouts.silent).await,
            ANSWERS => until(self.timeouts.answering).await,
            _ => {
                until(self.timeouts.unknown).await;
                // Another request may have been answered in the meantime, which shows that the peer responds.
                if self.peer.load(Ordering::Relaxed) == ANSWERS {
                    until(self.timeouts.answering).await;
                }
            }
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

    /// Short times, of which each can be told from the others.
    const SHORT: StopTimeouts = StopTimeouts {
        unknown: Duration::from_millis(20),
        answering: Duration::from_millis(20),
        silent: Duration::from_millis(20),
        all: Some(Duration::from_secs(1)),
    };

    async fn abandoned(interrupt: &Interrupt) -> Duration {
        let start = Instant::now();
        assert_eq!(
            interrupt.clone().unless_silent(pending::<()>()).await,
            Err(Stopped)
        );
        start.elapsed()
    }

    #[tokio::test]
    async fn a_run_that_is_not_asked_to_stop_waits() {
        let waiting = Interrupt::with(CancellationToken::new(), SHORT);
        let never = waiting.unless_silent(pending::<()>());
        assert!(tokio::time::timeout(SHORT.unknown * 4, never).await.is_err());
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
            tokio::time::sleep(StopTimeouts::STORED.unknown * 2).await;
            2
        };
        assert_eq!(interrupt.unless_silent(slow).await, Ok(2));
    }

    #[tokio::test]
    async fn each_call_has_its_time_until_all_of_it_is_used_up() {
        let interrupt = Interrupt::with(CancellationToken::new(), SHORT);
        interrupt.asked.cancel();
        // One call without an answer leaves time for the next ones.
        assert!(abandoned(&interrupt).await >= SHORT.unknown);
        assert!(abandoned(&interrupt).await >= SHORT.silent);
        // Calls without an answer use up all of it. Then no call waits, and an answer that is there is taken.
        let mut calls = 0;
        while futures::poll!(std::pin::pin!(interrupt.unless_silent(pending::<()>()))).is_pending() {
            abandoned(&interrupt).await;
            calls += 1;
            assert!(calls < 1000, "there is no end");
        }
        assert_eq!(interrupt.unless_silent(ready(1)).await, Ok(1));
    }

    #[test]
    fn a_job_ends_before_its_runner_kills_it() {
        let all = |timeouts: StopTimeouts| timeouts.all.unwrap_or(Duration::MAX);
        assert!(all(StopTimeouts::FORGE) + all(StopTimeouts::RECEIVER) < Duration::from_millis(7_500));
        assert!(
            StopTimeouts::FORGE.silent * 2 < all(StopTimeouts::FORGE),
            "two calls without an answer leave a third"
        );
        assert!(
            StopTimeouts::STORED.all.is_none(),
            "what was done is stored, whenever a run ends"
        );
    }
}
