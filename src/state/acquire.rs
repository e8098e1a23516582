//! Getting the lease: waiting for its holder, taking over from a dead one, and closing what that one left open.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    Lease, Reason, StateError, States, Versioned, Writer,
    document::{JournalPlace, StateDocument},
    envelope::{Header, Put, put},
    journal::JournalDocument,
    rows::{self, Rows},
    states::Reading,
};
use crate::model::{RepoPath, StackId, state::StackState};

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
    /// Go on from the newest document that can be read, if the newest of all can not (`state push --over-damaged`).
    pub over_damaged: bool,
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self {
            term: Duration::from_secs(60),
            wait: Duration::from_secs(600),
            folder: RepoPath::root(),
            watch: None,
            over_damaged: false,
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
}

/// Who holds a lease, as a watcher sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Holder {
    /// The lease's id, which `konverge state unlock` wants.
    pub id: String,
    /// Its number: the fencing token.
    pub epoch: u64,
    /// Who.
    pub writer: Writer,
    /// Since when, by the holder's clock.
    pub since: Timestamp,
    /// The holder's term.
    pub term: Duration,
    /// How long this watcher has seen no renewal, by its own clock.
    pub quiet: Duration,
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

/// A lease that was just taken.
pub(super) struct Grant {
    pub stack: StackId,
    pub document: LeaseDocument,
    pub id: String,
    pub epoch: u64,
    /// The newest serial, our own fence included.
    pub serial: u64,
    pub term: Duration,
    /// When it was asked for, by our clock.
    pub asked: Duration,
}

/// How the newest lease stands.
enum Standing {
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
    over: bool,
}

impl States {
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
            over: false,
        };
        loop {
            let reading = self.read_for_lease(stack, &options).await?;
            let standing = self.standing(stack, &reading, &mut watch).await?;
            let clean = match standing {
                Standing::Free => true,
                Standing::Ended => false,
                Standing::Held(holder) => {
                    if !self.wait_for(stack, &holder, &mut watch, &options).await? {
                        continue;
                    }
                    false
                }
            };
            if let Some(lease) = self.take(stack, reading, clean, &options).await? {
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
            over: false,
        };
        Ok(match self.standing(stack, &reading, &mut watch).await? {
            Standing::Held(holder) => Some(holder),
            Standing::Free | Standing::Ended => None,
        })
    }

    async fn read_for_lease(&self, stack: &StackId, options: &LeaseOptions) -> Result<Reading, StateError> {
        match self.read(stack).await {
            Err(StateError::Damaged { .. } | StateError::Foreign { .. }) if options.over_damaged => {
                self.read_last_good(stack).await
            }
            other => other,
        }
    }

    async fn standing(
        &self,
        stack: &StackId,
        reading: &Reading,
        watch: &mut Watch,
    ) -> Result<Standing, StateError> {
        let Some((epoch, renewal)) = reading.rows.lease() else {
            return Ok(Standing::Free);
        };
        let document = reading.document.as_ref().map(|(_, document)| document);
        if document.is_some_and(|document| document.epoch >= epoch && document.closes_lease) {
            return Ok(Standing::Free);
        }
        let key = rows::lease(stack, epoch, renewal);
        let now = self.clock.monotonic();
        if watch.seen != Some((epoch, renewal)) {
            watch.seen = Some((epoch, renewal));
            watch.since = now;
        }
        let Some(bytes) = self.store.get(&key).await? else {
            // Cleaned up behind the listing: the next look shows what came after it.
            return Ok(Standing::Ended);
        };
        let (header, lease): (Header, LeaseDocument) = self.envelopes.read("lease", &key, &bytes)?;
        Ok(match lease {
            LeaseDocument::Released => Standing::Free,
            LeaseDocument::TakenOver { .. } | LeaseDocument::Unlocked { .. } => Standing::Ended,
            LeaseDocument::Held { id, term_ms, since } => Standing::Held(Holder {
                id,
                epoch,
                writer: header.writer,
                since,
                term: Duration::from_millis(term_ms),
                quiet: now.saturating_sub(watch.since),
            }),
        })
    }

    /// Waits a little; whether the holder may be taken over now.
    async fn wait_for(
        &self,
        stack: &StackId,
        holder: &Holder,
        watch: &mut Watch,
        options: &LeaseOptions,
    ) -> Result<bool, StateError> {
        let term = holder.term.max(options.term);
        if watch.over || holder.quiet >= term {
            return Ok(true);
        }
        let held = || StateError::Held {
            stack: stack.clone(),
            holder: Box::new(holder.clone()),
        };
        let waited = self.clock.monotonic().saturating_sub(watch.started);
        if let Some(observer) = &options.watch {
            match observer.waiting(holder, waited).await {
                WaitVerdict::KeepWaiting => {}
                WaitVerdict::HolderIsOver => {
                    watch.over = true;
                    return Ok(true);
                }
                WaitVerdict::GiveUp => return Err(held()),
            }
        }
        if waited >= options.wait {
            return Err(held());
        }
        let look_again = (term / 12).clamp(Duration::from_millis(100), Duration::from_secs(5));
        self.clock
            .sleep(
                look_again
                    .min(options.wait - waited)
                    .max(Duration::from_millis(1)),
            )
            .await;
        Ok(false)
    }

    /// Tries to take the next epoch; `None` if another was faster.
    async fn take(
        &self,
        stack: &StackId,
        before: Reading,
        clean: bool,
        options: &LeaseOptions,
    ) -> Result<Option<Lease>, StateError> {
        let epoch = 1 + newest_epoch(&before);
        let since = self.clock.wall();
        let started = self.clock.monotonic();
        let id = format!("{epoch}-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        let held = LeaseDocument::Held {
            id: id.clone(),
            term_ms: u64::try_from(options.term.as_millis()).unwrap_or(u64::MAX),
            since,
        };
        let letter = self.letter("lease", &held)?;
        if let Put::Theirs(_) = put(&*self.store, &rows::lease(stack, epoch, 0), &letter).await? {
            return Ok(None);
        }
        // An old number that was cleaned up can be made again by a run that slept: look whether ours is the newest.
        let rows = Rows::of(&self.store.list(&rows::stack(stack)).await?);
        let unchanged = rows.states == before.rows.states && rows.journals == before.rows.journals;
        let mut reading = if unchanged {
            Reading { rows, ..before }
        } else {
            self.read_for_lease(stack, options).await?
        };
        if newest_epoch(&reading) != epoch {
            return Ok(None);
        }
        let mut serial = reading.rows.serial().unwrap_or(0);
        if !clean || !unchanged {
            self.close_predecessors(stack, epoch, &reading).await?;
            // What they wrote until the rows were closed counts; from here on their writes collide.
            loop {
                reading = self.read_for_lease(stack, options).await?;
                serial = reading.rows.serial().unwrap_or(0) + 1;
                if self.fence(stack, epoch, serial, &reading, options).await? {
                    break;
                }
            }
        }
        let prior = reading.merged(stack).map(|prior| Versioned { serial, ..prior });
        let grant = Grant {
            stack: stack.clone(),
            document: held,
            id,
            epoch,
            serial,
            term: options.term,
            asked: started,
        };
        Ok(Some(Lease::hold(self.clone(), grant, prior, reading.rows)))
    }

    /// Ends the rows of every earlier epoch that is still listed, so that a holder that still believes in one collides.
    /// Epochs before that of the newest document were ended by whoever wrote it.
    async fn close_predecessors(
        &self,
        stack: &StackId,
        epoch: u64,
        reading: &Reading,
    ) -> Result<(), StateError> {
        let from = reading
            .document
            .as_ref()
            .map_or(0, |(_, document)| document.epoch);
        for old in reading.rows.leases.range(from..epoch).map(|(epoch, _)| *epoch) {
            self.end_lease(stack, old, &LeaseDocument::TakenOver { by: epoch })
                .await?;
            let next = reading
                .rows
                .journals
                .get(&old)
                .and_then(|row| row.last())
                .map_or(0, |last| last + 1);
            let letter = self.letter("journal", &JournalDocument::ClosedBy(epoch))?;
            for entry in next.. {
                let key = rows::journal(stack, old, entry);
                match put(&*self.store, &key, &letter).await? {
                    Put::Ours => break,
                    Put::Theirs(bytes) => {
                        if let (_, JournalDocument::ClosedBy(_)) =
                            self.envelopes.read("journal", &key, &bytes)?
                        {
                            break;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts an end to an epoch's row of renewals.
    async fn end_lease(&self, stack: &StackId, epoch: u64, end: &LeaseDocument) -> Result<(), StateError> {
        let rows = Rows::of(&self.store.list(&rows::stack(stack)).await?);
        let next = rows
            .leases
            .get(&epoch)
            .and_then(|row| row.last())
            .map_or(0, |last| last + 1);
        let letter = self.letter("lease", end)?;
        for renewal in next.. {
            let key = rows::lease(stack, epoch, renewal);
            match put(&*self.store, &key, &letter).await? {
                Put::Ours => break,
                Put::Theirs(bytes) => {
                    let (_, there): (_, LeaseDocument) = self.envelopes.read("lease", &key, &bytes)?;
                    if !matches!(there, LeaseDocument::Held { .. }) {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Creates the state's next serial, with the dead holder's journal merged in. Whether it was ours.
    async fn fence(
        &self,
        stack: &StackId,
        epoch: u64,
        serial: u64,
        reading: &Reading,
        options: &LeaseOptions,
    ) -> Result<bool, StateError> {
        let merged = reading.merged(stack);
        let document = StateDocument {
            serial,
            reason: Reason::Takeover,
            epoch,
            closes_lease: false,
            journal: JournalPlace { epoch, entry: 0 },
            retired: merged.as_ref().is_some_and(|versioned| versioned.retired),
            applied_reviews: merged
                .as_ref()
                .map(|versioned| versioned.applied_reviews.clone())
                .unwrap_or_default(),
            note: None,
            state: merged.map_or_else(
                || StackState::empty(stack.clone(), options.folder.clone()),
                |versioned| versioned.state,
            ),
        };
        let letter = self.letter("state", &document)?;
        Ok(matches!(
            put(&*self.store, &rows::state(stack, serial), &letter).await?,
            Put::Ours
        ))
    }

    /// Goes back from a newest document that can not be read to one that can. The serials above it stay taken.
    async fn read_last_good(&self, stack: &StackId) -> Result<Reading, StateError> {
        let rows = Rows::of(&self.store.list(&rows::stack(stack)).await?);
        let mut document = None;
        for serial in rows.states.iter().rev() {
            if let Ok(found @ Some(_)) = self.document(stack, *serial).await {
                document = found;
                break;
            }
        }
        Ok(Reading {
            rows,
            document,
            entries: Vec::new(),
            journal_header: None,
        })
    }
}

fn newest_epoch(reading: &Reading) -> u64 {
    let listed = reading.rows.lease().map_or(0, |(epoch, _)| epoch);
    let journaled = reading
        .rows
        .journals
        .last_key_value()
        .map_or(0, |(epoch, _)| *epoch);
    let written = reading
        .document
        .as_ref()
        .map_or(0, |(_, document)| document.epoch);
    listed.max(journaled).max(written)
}

impl Versioned {
    /// Whether a run died while it worked on this stack.
    pub fn was_interrupted(&self) -> bool {
        !self.pending.is_empty() || self.reason == Reason::Takeover
    }
}
