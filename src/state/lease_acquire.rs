//! Acquiring the lease: waiting for its holder, taking over from a dead holder, and closing what that holder
//! left open.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    DocumentWriter, Lease, StateError, StateStore, document_format::Header, keys,
    lease_fencing::TakeoverReason, state_store::Reading,
};
use crate::model::{RepoPath, StackId};

/// The options of an acquisition.
#[derive(Clone)]
pub struct LeaseOptions {
    /// A holder that has not renewed for this long may be taken over. Renewals are sent every third of it.
    pub term: Duration,
    /// The maximum time to wait for another holder.
    pub wait: Duration,
    /// The folder of the stack, for a stack that has no state yet.
    pub folder: RepoPath,
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
            folder: RepoPath::root(),
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

/// What to do about the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitVerdict {
    KeepWaiting,
    /// The holder's run is over, as GitHub says: take over at once.
    HolderIsOver,
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

/// The holder of a lease, as another run sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Holder {
    /// The id of the lease, for `konverge state unlock`.
    pub id: String,
    /// The number of the lease: the fencing token.
    pub epoch: u64,
    pub writer: DocumentWriter,
    /// When it was taken, by the holder's clock.
    pub since: Timestamp,
    /// The holder's term.
    pub term: Duration,
    /// How long this process has seen no renewal, by its own clock.
    pub quiet: Duration,
}

impl Holder {
    /// Describes whether the holder is alive, and when its lease expires.
    pub fn life(&self) -> String {
        format!(
            "no renewal seen for the {} s that were watched, taken over after {} s without one",
            self.quiet.as_secs(),
            self.term.as_secs()
        )
    }

    /// Describes how to end the lease by hand.
    pub fn way_out(&self, stack: &StackId) -> String {
        format!(
            "if that run is dead: `konverge state unlock {stack} --lease {} --reason TEXT`",
            self.id
        )
    }
}

/// The body of `stacks/<identity>/lease/<epoch>/<renewal>`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "status")]
pub(super) enum LeaseDocument {
    /// Taken or renewed.
    Held {
        id: String,
        term_ms: u64,
        since: Timestamp,
    },
    /// Released without a state document of its own.
    Released,
    /// Ended by the holder of a later epoch.
    TakenOver { by: u64 },
    /// Ended by a person.
    Unlocked { reason: String },
}

/// The condition of the newest lease.
enum LeaseStanding {
    /// Nobody holds it, and its last holder ended it itself.
    Free,
    /// Nobody holds it, but its last holder may not know: it must be fenced.
    Ended,
    Held(Holder),
}

/// What a waiting run has observed.
struct Watch {
    started: Duration,
    seen: Option<(u64, u64)>,
    since: Duration,
}

impl StateStore {
    /// Acquires the lease of a stack. Waits for its holder. Takes over from a holder whose term passed
    /// without a renewal, measured by this process's monotonic clock only.
    ///
    /// # Errors
    /// [`StateError::Held`] if the holder did not release it in time; errors of the store; a damaged state.
    pub async fn acquire(&self, stack: &StackId, options: LeaseOptions) -> Result<Lease, StateError> {
        let now = self.clock.monotonic();
        let mut watch = Watch {
            started: now,
            seen: None,
            since: now,
        };
        loop {
            // An answer describes the moment of its request, however late it arrives.
            let asked = self.clock.monotonic();
            let mut reading = self.read_for_lease(stack, &options).await?;
            if !options.over_vanished {
                reading = self.require_document(stack, reading).await?;
            }
            let standing = match self.read_standing(stack, &reading, asked, &mut watch).await {
                // The document that ended the lease is gone; the index says that it existed.
                Ok(LeaseStanding::Held(holder))
                    if options.over_vanished && self.is_ended(stack, &reading, holder.epoch).await? =>
                {
                    LeaseStanding::Free
                }
                // The holder cannot be read. As after an unlock, wait until it has stopped.
                Err(StateError::Damaged { .. } | StateError::Foreign { .. }) if options.over_damaged => {
                    LeaseStanding::Ended
                }
                standing => standing?,
            };
            let claim = match standing {
                LeaseStanding::Free => TakeoverReason::Free,
                LeaseStanding::Ended => TakeoverReason::Ended,
                LeaseStanding::Held(holder) => {
                    match self.wait_for(stack, &holder, &mut watch, &options).await? {
                        Some(claim) => claim,
                        None => continue,
                    }
                }
            };
            if let Some(lease) = self.take(stack, reading, claim, &options).await? {
                return Ok(lease);
            }
        }
    }

    /// Ends a lease on a person's request. `id` must be the id of the current lease.
    ///
    /// # Errors
    /// [`StateError::Missing`] if that lease does not exist (any more); errors of the store.
    pub async fn unlock(&self, stack: &StackId, id: &str, reason: &str) -> Result<Holder, StateError> {
        let holder = self.holder(stack).await?;
        let other = |text: String| Err(StateError::Missing(text));
        match holder {
            None => other(format!("nobody holds the lease of stack `{stack}`")),
            Some(holder) if holder.id != id => other(format!(
                "the lease of stack `{stack}` is {}, not {}: it changed hands; look again who holds it",
                holder.id,
                id.escape_debug()
            )),
            Some(holder) => {
                let ended = LeaseDocument::Unlocked {
                    reason: reason.to_owned(),
                };
                self.end_lease(stack, holder.epoch, &ended).await?;
                Ok(holder)
            }
        }
    }

    /// The current holder of a stack's lease, if any.
    ///
    /// # Errors
    /// Errors of the store; a damaged document.
    pub async fn holder(&self, stack: &StackId) -> Result<Option<Holder>, StateError> {
        let reading = self.read(stack).await?;
        let mut watch = Watch {
            started: Duration::ZERO,
            seen: None,
            since: Duration::ZERO,
        };
        Ok(
            match self
                .read_standing(stack, &reading, Duration::ZERO, &mut watch)
                .await?
            {
                LeaseStanding::Held(holder) => Some(holder),
                LeaseStanding::Free | LeaseStanding::Ended => None,
            },
        )
    }

    /// Returns true if the index says that a lease was ended by a state document that is gone now.
    async fn is_ended(&self, stack: &StackId, reading: &Reading, epoch: u64) -> Result<bool, StateError> {
        let entry = self
            .written_entry(stack)
            .await?
            .filter(|_| reading.document.is_none());
        Ok(entry.is_some_and(|entry| !entry.open && entry.epoch >= epoch))
    }

    pub(super) async fn read_for_lease(
        &self,
        stack: &StackId,
        options: &LeaseOptions,
    ) -> Result<Reading, StateError> {
        match self.read(stack).await {
            Err(StateError::Damaged { .. } | StateError::Foreign { .. }) if options.over_damaged => {
                self.read_last_good(stack).await
            }
            other => other,
        }
    }

    async fn read_standing(
        &self,
        stack: &StackId,
        reading: &Reading,
        asked: Duration,
        watch: &mut Watch,
    ) -> Result<LeaseStanding, StateError> {
        let Some((epoch, renewal)) = reading.rows.lease() else {
            return Ok(LeaseStanding::Free);
        };
        let document = reading.document.as_ref().map(|(_, document)| document);
        if document.is_some_and(|document| document.epoch >= epoch && document.closes_lease) {
            return Ok(LeaseStanding::Free);
        }
        let key = keys::lease(stack, epoch, renewal);
        if watch.seen != Some((epoch, renewal)) {
            watch.seen = Some((epoch, renewal));
            watch.since = self.clock.monotonic();
        }
        let Some(bytes) = self.store.get(&key).await? else {
            // Deleted after the listing: the next read shows what came after it.
            return Ok(LeaseStanding::Ended);
        };
        let (header, lease): (Header, LeaseDocument) = self.envelopes.read("lease", &key, &bytes)?;
        Ok(match lease {
            LeaseDocument::Released => LeaseStanding::Free,
            LeaseDocument::TakenOver { .. } | LeaseDocument::Unlocked { .. } => LeaseStanding::Ended,
            LeaseDocument::Held { id, term_ms, since } => LeaseStanding::Held(Holder {
                id,
                epoch,
                writer: header.writer,
                since,
                term: Duration::from_millis(term_ms),
                quiet: asked.saturating_sub(watch.since),
            }),
        })
    }

    /// Waits a little, unless the holder may be taken over now.
    async fn wait_for(
        &self,
        stack: &StackId,
        holder: &Holder,
        watch: &mut Watch,
        options: &LeaseOptions,
    ) -> Result<Option<TakeoverReason>, StateError> {
        let term = holder.term.max(options.term);
        if holder.quiet >= term {
            let renewal = watch.seen.map_or(0, |(_, renewal)| renewal);
            return Ok(Some(TakeoverReason::Silent { renewal }));
        }
        let held = || StateError::Held {
            stack: stack.clone(),
            holder: Box::new(holder.clone()),
        };
        let waited = self.clock.monotonic().saturating_sub(watch.started);
        if let Some(observer) = &options.watch {
            match observer.waiting(holder, waited).await {
                WaitVerdict::KeepWaiting => {}
                WaitVerdict::HolderIsOver => return Ok(Some(TakeoverReason::Over)),
                WaitVerdict::GiveUp => return Err(held()),
            }
        }
        if waited >= options.wait {
            return Err(held());
        }
        let look_again = (term / 12).clamp(Duration::from_millis(100), Duration::from_secs(5));
        let pause = look_again
            .min(options.wait - waited)
            .max(Duration::from_millis(1));
        // When it is asked to stop, the watch gives up at the next read.
        tokio::select! {
            () = self.clock.sleep(pause) => {}
            () = options.until_stopped() => {}
        }
        Ok(None)
    }
}
