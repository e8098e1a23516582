//! [`LeaseOptions`]: how a lease is asked for, and who watches the wait.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::lease_holder::Holder;
use konverge_base::model::StackFolder;

/// The options of an acquisition.
#[derive(Clone)]
pub struct LeaseOptions {
    /// A holder that has not renewed for this long may be taken over. Renewals are sent every third of it.
    pub term: Duration,
    /// The maximum time to wait for another holder.
    pub wait: Duration,
    /// The folder of the stack, for a stack that has no state yet.
    pub folder: StackFolder,
    /// Observes the wait, and is asked whether the holder's run is over.
    pub watch: Option<Arc<dyn LeaseWatch>>,
    /// Continue from the newest readable document if the newest one is damaged (`state push --over-damaged`).
    pub over_damaged: bool,
    /// Start a new state although written documents are gone (`state push`, `state import`, `state forget`).
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
    /// The holder's run is over, as GitHub says: take over at once.
    HolderIsOver,
    /// Stop waiting, with an error.
    GiveUp,
}

/// Observes the wait: shows a progress line, and asks GitHub whether the holder's run is over.
#[async_trait]
pub trait LeaseWatch: Send + Sync {
    /// Called each time the lease is read.
    async fn waiting(&self, holder: &Holder, waited: Duration) -> WaitVerdict;

    /// Returns when the waiting run is asked to stop.
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
