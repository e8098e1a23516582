//! Getting the lease: waiting for its holder, taking over from a dead one, and closing what that one left open.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    DocumentWriter, Lease, StateError, StateStore, document_format::Header, keys,
    lease_fencing::TakeoverReason, state_store::Reading,
};
use crate::model::{RepoPath, StackId};

/// How a lease is asked for.
#[derive(Clone)]
pub struct LeaseOptions {
    /// Who has not renewed for this long may be taken over. Renewed every third of it.
    pub term: Duration,
    /// How long to wait for another holder at most.
    pub wait: Duration,
    /// Where the stack lies, for a stack that has no state yet.
    pub folder: RepoPath,
    /// Told while waiting, and asked whether the holder's run is over.
    pub watch: Option<Arc<dyn LeaseWatch>>,
    /// Go on from the newest document that can be read, if the newest of all cannot (`state push --over-damaged`).
    pub over_damaged: bool,
    /// Start anew although documents that were written are gone (`state push`, `state import`, `state forget`).
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

/// What to do about a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitVerdict {
    /// Wait on.
    KeepWaiting,
    /// Its run is over (GitHub says so): take over at once.
    HolderIsOver,
    /// Stop waiting.
    GiveUp,
}

/// Sees who is waited for: a progress line, and GitHub's answer whether that run is over.
#[async_trait]
pub trait LeaseWatch: Send + Sync {
    /// Called at every look at the lease.
    async fn waiting(&self, holder: &Holder, waited: Duration) -> WaitVerdict;

    /// Returns when whoever waits is asked to stop.
    async fn stopped(&self) {
        std::future::pending().await
    }
}

/// Who holds a lease, as a watcher sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Holder {
    /// The lease's id, which `konverge state unlock` wants.
    pub id: String,
    /// Its number: the fencing token.
    pub epoch: u64,
    /// Who.
    pub writer: DocumentWriter,
    /// Since when, by the holder's clock.
    pub since: Timestamp,
    /// The holder's term.
    pub term: Duration,
    /// How long this watcher has seen no renewal, by its own clock.
    pub quiet: Duration,
}

impl Holder {
    /// What a watcher knows of whether it lives, and when it no longer counts.
    pub fn life(&self) -> String {
        format!(
            "no renewal seen for the {} s that were watched, taken over after {} s without one",
            self.quiet.as_secs(),
            self.term.as_secs()
        )
    }

    /// How to end its lease by hand.
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
    /// Taken, or renewed.
    Held {
        id: String,
        term_ms: u64,
        since: Timestamp,
    },
    /// Given back without a state document of its own.
    Released,
    /// Ended by the holder of a later epoch.
    TakenOver { by: u64 },
    /// Ended by a person.
    Unlocked { reason: String },
}

/// How the newest lease stands.
enum LeaseStanding {
    /// Nobody holds it, and its last holder ended it itself.
    Free,
    /// Nobody holds it, but its last holder may not know: it has to be fenced.
    Ended,
    /// Somebody does.
    Held(Holder),
}

/// What a waiting run remembers of what it saw.
struct Watch {
    started: Duration,
    seen: Option<(u64, u64)>,
    since: Duration,
}

impl StateStore {
    /// Gets the lease of a stack: waits for its holder, and takes over one whose term passed without a renewal as this
    /// process saw it, by its own monotonic clock alone.
    ///
    /// # Errors
    /// [`StateError::Held`] if the holder did not let go in time; the store's; a damaged state.
    pub async fn acquire(&self, stack: &StackId, options: LeaseOptions) -> Result<Lease, StateError> {
        let now = self.clock.monotonic();
        let mut watch = Watch {
            started: now,
            seen: None,
            since: now,
        };
        loop {
            // What an answer shows was so when it was asked for, however late it comes.
            let asked = self.clock.monotonic();
            let mut reading = self.read_for_lease(stack, &options).await?;
            if !options.over_vanished {
                reading = self.require_document(stack, reading).await?;
            }
            let standing = match self.read_standing(stack, &reading, asked, &mut watch).await {
                // The document that ended the lease is gone; the index says that it was there.
                Ok(LeaseStanding::Held(holder))
                    if options.over_vanished && self.is_ended(stack, &reading, holder.epoch).await? =>
                {
                    LeaseStanding::Free
                }
                // Whose it was cannot be read; that its holder has stopped is waited for like after an unlock.
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

    /// Ends a lease by a person's word. `id` must be that of the lease as it stands.
    ///
    /// # Errors
    /// [`StateError::Missing`] if that lease does not stand (any more); the store's.
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

    /// Who holds the lease of a stack now, if anybody.
    ///
    /// # Errors
    /// The store's; a damaged document.
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

    /// Whether the index says that a lease was ended by a state document which is gone.
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
            // Cleaned up behind the listing: the next look shows what came after it.
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
        // Asked to stop, the observer gives up at the next look.
        tokio::select! {
            () = self.clock.sleep(pause) => {}
            () = options.until_stopped() => {}
        }
        Ok(None)
    }
}
