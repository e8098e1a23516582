//! Virtual time: waits end at once when nothing else is left to do, in an order that depends on nothing but the
//! program.

use async_trait::async_trait;
use futures::channel::oneshot;
use jiff::Timestamp;
use konverge_state::Clock;
use std::{
    collections::BTreeMap,
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

/// So many rounds of all tasks without a look at the clock mean that everybody waits.
const QUIET_ROUNDS: u32 = 12;
/// So many mean that nobody ever wakes up again.
const DEAD_ROUNDS: u32 = 100_000;

/// One virtual time for a whole simulation; to be used on a runtime of one thread.
#[derive(Default)]
pub struct Timeline(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    now: Duration,
    activity: u64,
    sleepers: BTreeMap<(Duration, u64), oneshot::Sender<()>>,
}

impl Timeline {
    /// Runs a future to its end in virtual time.
    pub async fn simulate<F: Future>(make: impl FnOnce(Arc<Self>) -> F) -> F::Output {
        let timeline = Arc::new(Self::default());
        let mut future = pin!(make(Arc::clone(&timeline)));
        let (mut quiet, mut seen) = (0, 0);
        loop {
            if let std::task::Poll::Ready(output) = futures::poll!(&mut future) {
                return output;
            }
            tokio::task::yield_now().await;
            let activity = timeline.inner().activity;
            quiet = if activity == seen { quiet + 1 } else { 0 };
            seen = activity;
            if quiet >= QUIET_ROUNDS && timeline.advance() {
                quiet = 0;
            }
            assert!(quiet < DEAD_ROUNDS, "everybody waits and nobody for a time");
        }
    }

    /// The virtual time.
    pub fn now(&self) -> Duration {
        self.inner().now
    }

    /// Says that something happened.
    pub fn stir(&self) {
        self.inner().activity += 1;
    }

    /// Waits until a moment.
    pub async fn until(&self, moment: Duration) {
        let woken = {
            let mut inner = self.inner();
            inner.activity += 1;
            if moment <= inner.now {
                return;
            }
            let (wake, woken) = oneshot::channel();
            let order = inner.activity;
            inner.sleepers.insert((moment, order), wake);
            woken
        };
        // The sender lives in the timeline until it is used.
        let _ = woken.await;
        self.stir();
    }

    fn advance(&self) -> bool {
        let mut inner = self.inner();
        while let Some(((moment, _), wake)) = inner.sleepers.pop_first() {
            // A sleeper that was dropped meanwhile (a killed run) moves no time.
            if wake.is_canceled() {
                continue;
            }
            inner.now = inner.now.max(moment);
            inner.activity += 1;
            return wake.send(()).is_ok();
        }
        false
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no panic while the lock is held")
    }
}

#[async_trait]
impl Clock for Timeline {
    fn monotonic(&self) -> Duration {
        self.now()
    }

    fn wall_clock(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + jiff::SignedDuration::try_from(self.now()).expect("a short time")
    }

    async fn sleep(&self, time: Duration) {
        self.until(self.now() + time).await;
    }
}
