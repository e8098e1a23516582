//! [`LeaseOptions`]: the options of taking a lease, with an observer of the wait.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::lease_holder::Holder;
use konverge_base::model::StackFolder;

/// The options of taking a lease.
#[derive(Clone)]
pub struct LeaseOptions {
    /// A holder that has not renewed for this long may be taken over. The lease is renewed every third of
    /// this time.
    pub term: Duration,
    /// The maximum time to wait for another holder.
    pub wait: Duration,
    /// The folder of the stack, for a stack that has no state yet.
    pub folder: StackFolder,
    /// Observes the wait, and finds out if the holder's run is over.
    pub watch: Option<Arc<dyn LeaseWatch>>,
    /// Continues from the newest readable document if the newest one is damaged (`state push
    /// --over-damaged`).
    pub over_damaged: bool,
    /// Starts a new state although written documents are gone (`state push`, `state import`, `state forget`).
    pub over_vanished: bool,
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self {
            term: Duration::from_secs(60),
            wait: Duration::from_secs(600),
            folder: StackFolder::none(),
            watch: None,
            over_damaged: false,
            over_vanished: false,
        }
    }
}

impl LeaseOptions {
    pub(super) async fn until_stopped(&self) {
        match &self.watch {
            Some(watch) => watch.stopped().await,
            None => std::future::pending().await,
        }
    }
}

/// The decision of a [`LeaseWatch`] about the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitVerdict {
    /// Wait for the holder.
    KeepWaiting,
    /// Take over at once, because the forge reports that the holder's run is over.
    HolderIsOver,
    /// Stop waiting, with an error.
    GiveUp,
}

/// Observes the wait: shows progress, and asks the forge if the holder's run is over.
#[async_trait]
pub trait LeaseWatch: Send + Sync {
    /// Decides about the wait. Called each time the lease was read.
    async fn waiting(&self, holder: &Holder, waited: Duration) -> WaitVerdict;

    /// Completes when the waiting run is asked to stop.
    async fn stopped(&self) {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    /// Observes, and is asked to stop or not.
    struct Observer {
        stops: bool,
    }

    #[async_trait]
    impl LeaseWatch for Observer {
        async fn waiting(&self, _: &Holder, _: Duration) -> WaitVerdict {
            WaitVerdict::KeepWaiting
        }

        async fn stopped(&self) {
            if !self.stops {
                std::future::pending().await
            }
        }
    }

    /// Observes, and is never asked to stop.
    struct Patient;

    #[async_trait]
    impl LeaseWatch for Patient {
        async fn waiting(&self, _: &Holder, _: Duration) -> WaitVerdict {
            WaitVerdict::KeepWaiting
        }
    }

    #[test]
    fn a_wait_is_stopped_only_if_its_watch_says_so() {
        let is_stopped = |watch: Option<Arc<dyn LeaseWatch>>| {
            let options = LeaseOptions {
                watch,
                ..LeaseOptions::default()
            };
            options.until_stopped().now_or_never().is_some()
        };
        assert!(!is_stopped(None));
        assert!(!is_stopped(Some(Arc::new(Patient))));
        assert!(!is_stopped(Some(Arc::new(Observer { stops: false }))));
        assert!(is_stopped(Some(Arc::new(Observer { stops: true }))));
    }
}
