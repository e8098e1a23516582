//! A held lease: renewing it, writing the journal, committing, releasing.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use super::{
    IndexEntry, StateError, StateStore, Versioned, WriteReason,
    document_format::{CreateResult, put},
    journal::{JournalDocument, OpenIntents},
    keys::{self, RowKeys},
    state_document::{JournalPlace, StateDocument, remember_reviews},
};
use konverge_base::{
    error::chain,
    model::{
        StackId,
        apply_record::ApplyRecord,
        state::{JournalEntry, StackState},
        week_activity::{self, EndedApply, WeekActivity},
    },
};

/// Up to this many results are written together, or earlier with an intent. An apply of N resources writes at
/// most 4 + N/20 objects, and the first apply of a stack one more, which records in the index that there is a
/// state.
const RESULTS_TOGETHER: usize = 100;

/// The moment at which entries of the journal are stored.
#[derive(Clone, Copy, PartialEq)]
enum Flush {
    /// Before the call returns.
    Now,
    /// At once if one tells of something new; results wait for others.
    WithOthers,
}
/// The rows of epochs older than this are deleted completely, including the ends of epochs that were taken
/// over.
const EPOCHS_KEPT: u64 = 100;

/// A held lease. Dropping it without [`Lease::commit`] or [`Lease::release`] leaves it to expire, as a kill
/// does.
pub struct Lease {
    inner: Arc<Inner>,
    renewals: JoinHandle<()>,
    prior: Option<Versioned>,
    rows: RowKeys,
}

/// The parts of a state document beside the state.
#[derive(Default)]
struct StateExtras {
    note: Option<String>,
    receipt: Option<ApplyRecord>,
}

struct Inner {
    states: StateStore,
    grant: LeaseGrant,
    standing: Mutex<LeaseRenewal>,
    journal: tokio::sync::Mutex<LeaseJournal>,
    /// Held while a renewal is written.
    renewing: tokio::sync::Mutex<()>,
}

struct LeaseRenewal {
    /// When the last renewal that the store confirmed was requested, by our clock.
    confirmed: Duration,
    /// The next place in the row of renewals.
    next: u64,
    /// The error of the last renewal.
    trouble: Option<String>,
    /// Why the lease is lost.
    lost: Option<String>,
    /// True after the release.
    ended: bool,
}

#[derive(Default)]
struct LeaseJournal {
    next: u64,
    waiting: Vec<JournalEntry>,
    open: OpenIntents,
    intents: usize,
    announced: bool,
}

impl Lease {
    pub(super) fn hold(
        states: StateStore,
        grant: LeaseGrant,
        prior: Option<Versioned>,
        rows: RowKeys,
    ) -> Self {
        let inner = Arc::new(Inner {
            states,
            standing: Mutex::new(LeaseRenewal {
                confirmed: grant.asked,
                next: grant.renewals,
                trouble: None,
                lost: None,
                ended: false,
            }),
            grant,
            journal: tokio::sync::Mutex::default(),
            renewing: tokio::sync::Mutex::default(),
        });
        let renewing = Arc::clone(&inner);
        Self {
            renewals: tokio::spawn(async move { renewing.keep_renewing().await }),
            inner,
            prior,
            rows,
        }
    }

    /// The state when the lease was taken, including the journal of a dead run.
    pub fn prior(&self) -> Option<&Versioned> {
        self.prior.as_ref()
    }

    /// The fencing token.
    pub fn epoch(&self) -> u64 {
        self.inner.grant.epoch
    }

    /// The id for `konverge state unlock`.
    pub fn id(&self) -> &str {
        &self.inner.grant.id
    }

    /// Checks without a request whether the lease is still ours. Call it before every write to the
    /// infrastructure.
    ///
    /// # Errors
    /// [`StateError::Lost`].
    pub fn check(&self) -> Result<(), StateError> {
        self.inner.check()
    }

    /// Records what is about to happen or has happened. When it returns, intents and runtime data are in the
    /// store. Results may be written later with others, because an intent without a result is examined
    /// anyway.
    ///
    /// # Errors
    /// [`StateError::Lost`]; errors of the store. After an error nothing may be written to the
    /// infrastructure.
    pub async fn journal(&self, entries: Vec<JournalEntry>) -> Result<(), StateError> {
        self.inner.journal(entries, Flush::WithOthers).await
    }

    /// Writes entries to the journal as [`Self::journal`] does, and stores them before it returns, whatever they tell.
    ///
    /// # Errors
    /// Errors of [`Self::journal`].
    pub async fn journal_now(&self, entries: Vec<JournalEntry>) -> Result<(), StateError> {
        self.inner.journal(entries, Flush::Now).await
    }

    /// Records the outcome as the next serial of the state and releases the lease, in one write.
    ///
    /// `reviews` are the pull requests whose reviews are now used. A resource whose intent has no result is
    /// kept in the state, and the input digest is left out, whatever the caller passes.
    ///
    /// # Errors
    /// [`StateError::Lost`]; errors of the store. The lease then stays until it expires.
    pub async fn commit(&self, state: StackState, reviews: &[u64]) -> Result<u64, StateError> {
        self.write(WriteReason::Apply, state, reviews, StateExtras::default())
            .await
    }

    /// Commits like [`Lease::commit`], with the kind of apply, its record, and a note for the history.
    ///
    /// # Errors
    /// Errors of [`Lease::commit`].
    pub async fn conclude(
        &self,
        reason: WriteReason,
        state: StackState,
        reviews: &[u64],
        receipt: ApplyRecord,
        note: Option<String>,
    ) -> Result<u64, StateError> {
        let beside = StateExtras {
            receipt: Some(receipt),
            note,
        };
        self.write(reason, state, reviews, beside).await
    }

    /// Commits like [`Lease::commit`], for another reason than an apply.
    ///
    /// # Errors
    /// Errors of [`Lease::commit`].
    pub async fn record(
        &self,
        reason: WriteReason,
        state: StackState,
        note: Option<String>,
    ) -> Result<u64, StateError> {
        let beside = StateExtras { note, receipt: None };
        self.write(reason, state, &[], beside).await
    }

    /// Records the same state again, encrypted to the recipients of today.
    ///
    /// # Errors
    /// Errors of [`Lease::commit`]; runtime data that cannot be decrypted.
    pub(super) async fn record_resealed(&self) -> Result<u64, StateError> {
        let Some(prior) = &self.prior else { return Ok(0) };
        let mut state = prior.state.clone();
        if let Some(sealer) = self.inner.states.sealer() {
            let mut runtimes = state.runtime.values_mut();
            runtimes.try_for_each(|data| sealer.reseal_values(data))?;
        }
        let beside = StateExtras {
            receipt: prior.receipt.clone(),
            note: prior.note.clone(),
        };
        // An import stays an import: the first apply after it says what it adopts.
        let reason = match prior.reason {
            WriteReason::Import => WriteReason::Import,
            _ => WriteReason::Rekey,
        };
        self.write(reason, state, &[], beside).await
    }

    async fn write(
        &self,
        reason: WriteReason,
        mut state: StackState,
        reviews: &[u64],
        beside: StateExtras,
    ) -> Result<u64, StateError> {
        let inner = &*self.inner;
        self.stop_renewing().await;
        // Held until the document is written: it names the next place of the journal, so no entry may land there
        // meanwhile.
        let journal = inner.journal.lock().await;
        // An intent without a result may have reached the infrastructure. Without a digest, the next run applies the
        // stack again.
        if journal.open.add_missing_to(&mut state) {
            state.input_digest = None;
        }
        inner.check()?;
        // An apply was announced by its first journal entry. Nothing announced the others, and a kill after the write
        // would leave the index at the state before.
        if !reason.is_apply() {
            inner
                .states
                .announce(&inner.grant.stack, inner.grant.epoch, inner.grant.serial)
                .await?;
        }
        let serial = inner.grant.serial + 1;
        let idle = self
            .prior
            .as_ref()
            .map(Versioned::idle_serials)
            .unwrap_or_default();
        // The newest two states stay: a run that lost its lease then collides with one of them when it writes.
        let (outdated, idle): (Vec<_>, Vec<_>) = idle.into_iter().partition(|old| old + 1 < serial);
        let mut applied_reviews = self
            .prior
            .as_ref()
            .map(|prior| prior.applied_reviews.clone())
            .unwrap_or_default();
        remember_reviews(&mut applied_reviews, reviews.iter().copied());
        let document = StateDocument {
            serial,
            reason,
            epoch: inner.grant.epoch,
            closes_lease: true,
            journal: JournalPlace {
                epoch: inner.grant.epoch,
                entry: journal.next,
            },
            retired: match reason {
                WriteReason::Rekey => self.prior.as_ref().is_some_and(|prior| prior.retired),
                reason => reason.retires_stack() && state.resources.is_empty(),
            },
            applied_reviews,
            note: beside.note,
            activity: self.activity(reason, beside.receipt.as_ref()),
            receipt: beside.receipt,
            idle,
            state,
        };
        let place = keys::state(&inner.grant.stack, serial);
        let letter = inner.states.letter("state", &place, &document)?;
        match put(&*inner.states.store, &place, &letter).await? {
            CreateResult::Ours => {}
            // A run that takes the lease over creates this serial to stop us.
            CreateResult::Theirs(_) => return Err(inner.lose("another run wrote the state's next serial")),
        }
        inner.lock_renewal().ended = true;
        let writer = &inner.states.envelopes.writer;
        let summary = inner.states.summarize(&document, writer, letter.time);
        // The index is written once for all stacks, at the end of the run.
        let entry = IndexEntry::from_document(&document, summary);
        {
            let mut finished = inner
                .states
                .finished
                .lock()
                .expect("no panic while the lock is held");
            finished.entries.insert(inner.grant.stack.clone(), entry);
            finished.resources += journal.intents;
        }
        let history = self.outdated_serials(&document, &outdated);
        self.clean_up(history, journal.next).await;
        Ok(serial)
    }

    /// Returns the activity of the last weeks, with the apply that ends now.
    fn activity(&self, reason: WriteReason, receipt: Option<&ApplyRecord>) -> Vec<WeekActivity> {
        let prior = self.prior.as_ref();
        let mut weeks = prior.map(|prior| prior.activity.clone()).unwrap_or_default();
        if let Some(receipt) = receipt.filter(|_| reason.is_apply()) {
            // An apply of the same commit again says nothing about the time since the merge.
            let had = prior.and_then(|prior| prior.state.commit.as_ref());
            let is_new = receipt.commit.is_some() && receipt.commit.as_ref() != had;
            let ended = EndedApply {
                at: self.inner.states.clock.wall_clock(),
                result: receipt.result,
                merged: receipt.merged.filter(|_| is_new),
            };
            week_activity::record(&mut weeks, ended);
        }
        weeks
    }

    /// Stops the renewals. One that is being written is waited for: a store may write it after it was given up, and so also
    /// after the folder of a live test was deleted. A store that does not answer is not waited for longer than renewals are
    /// apart.
    async fn stop_renewing(&self) {
        let inner = &*self.inner;
        let written = tokio::select! {
            biased;
            written = inner.renewing.lock() => Some(written),
            () = inner.states.clock.sleep(inner.grant.term / 3) => None,
        };
        self.renewals.abort();
        drop(written);
    }

    /// Says in the index that the stack is as it is recorded, after an apply that found nothing to change or to record.
    /// Without it, a stack that was announced would be pending at each run until something of it changes. Written with the
    /// ends of the other applies, by [`StateStore::save_index`].
    ///
    /// # Errors
    /// Errors of the store. The index stays as it is, and the next run tries again.
    pub async fn mark_unchanged(&self) -> Result<(), StateError> {
        let inner = &*self.inner;
        let stack = &inner.grant.stack;
        let index = inner.states.index.get();
        let mut entries = index.iter().filter_map(|index| index.entries.get(stack));
        let is_open =
            entries.any(|entry| entry.open) || inner.states.finished().announced.contains_key(stack);
        let journal = inner.journal.lock().await;
        if !is_open || journal.next > 0 || !journal.waiting.is_empty() {
            return Ok(());
        }
        // The entry is open if an earlier run left a journal, or a lease that it did not end.
        let found = inner.states.entry_of(stack).await?;
        if let Some(entry) = found.filter(|entry| !entry.open) {
            let epoch = inner.grant.epoch;
            let entry = IndexEntry { epoch, ..entry };
            inner.states.finished().entries.insert(stack.clone(), entry);
        }
        Ok(())
    }

    /// Releases the lease without a new state. The journal stays for the next run.
    ///
    /// # Errors
    /// Errors of the store. The lease then stays until it expires.
    pub async fn release(&self) -> Result<(), StateError> {
        self.stop_renewing().await;
        let inner = &*self.inner;
        if inner.lock_renewal().ended {
            return Ok(());
        }
        inner.check()?;
        // No state follows, so the next run knows the results from the journal alone.
        inner.flush(&mut *inner.journal.lock().await).await?;
        let mut renewal = inner.lock_renewal().next;
        // A renewal in progress at the stop may have been stored.
        loop {
            let place = keys::lease(&inner.grant.stack, inner.grant.epoch, renewal);
            let letter = inner.states.letter("lease", &place, &LeaseDocument::Released)?;
            match put(&*inner.states.store, &place, &letter).await? {
                CreateResult::Ours => break,
                CreateResult::Theirs(bytes) if inner.is_our_renewal(renewal, &bytes) => renewal += 1,
                CreateResult::Theirs(_) => return Err(inner.lose("another run took over")),
            }
        }
        inner.lock_renewal().ended = true;
        Ok(())
    }

    /// The serials to delete once a document is written: `idle` ones, of runs that did nothing, and of the others those
    /// beyond the number that is kept.
    fn outdated_serials(&self, written: &StateDocument, idle: &[u64]) -> Vec<u64> {
        let does_count = |serial: &u64| !idle.contains(serial) && !written.idle.contains(serial);
        let others = self.rows.states.iter().copied().filter(does_count);
        let mut others: Vec<u64> = others.collect();
        // The document that was just written counts as one of those that are kept, unless it made no change.
        let kept = self.inner.states.retention - u64::from(!written.made_no_change());
        others.truncate(
            others
                .len()
                .saturating_sub(usize::try_from(kept).unwrap_or(usize::MAX)),
        );
        idle.iter().copied().chain(others).collect()
    }

    /// Deletes what no reader needs any more. Best effort: the next run deletes what remains.
    async fn clean_up(&self, serials: Vec<u64>, journaled: u64) {
        let inner = &*self.inner;
        let stack = &inner.grant.stack;
        let mut keys = Vec::new();
        keys.extend(serials.into_iter().map(|serial| keys::state(stack, serial)));
        keys.extend(
            (1..inner.lock_renewal().next).map(|renewal| keys::lease(stack, inner.grant.epoch, renewal)),
        );
        // The last entry stays beside the state: if the state is deleted, the entry shows that there was one.
        let earlier = 0..journaled.saturating_sub(1);
        keys.extend(earlier.map(|entry| keys::journal(stack, inner.grant.epoch, entry)));
        // In an earlier epoch, the last place stays if a takeover ended the row there: an old holder that still writes
        // collides with it. A row with one place was ended by its own state document, so it goes.
        let ancient = inner.grant.epoch.saturating_sub(EPOCHS_KEPT);
        for (epoch, row) in self.rows.leases.range(..inner.grant.epoch) {
            let last = row.last().copied().unwrap_or(0);
            let doomed = row.iter().filter(|n| *epoch < ancient || last == 0 || **n < last);
            keys.extend(doomed.map(|n| keys::lease(stack, *epoch, *n)));
        }
        for (epoch, row) in self.rows.journals.range(..inner.grant.epoch) {
            let last = row.last().copied().unwrap_or(0);
            let was_taken_over = self.rows.leases.get(epoch).and_then(|row| row.last()) != Some(&0);
            keys.extend(
                row.iter()
                    .filter(|n| *epoch < ancient || **n < last || !was_taken_over)
                    .map(|n| keys::journal(stack, *epoch, *n)),
            );
        }
        let deletes: Vec<_> = keys.iter().map(|key| inner.states.store.delete(key)).collect();
        for result in futures::future::join_all(deletes).await {
            if let Err(error) = result {
                tracing::debug!(error = %chain(&error), "failed to delete an outdated document");
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewals.abort();
    }
}

impl Inner {
    fn lock_renewal(&self) -> std::sync::MutexGuard<'_, LeaseRenewal> {
        self.standing.lock().expect("no panic while the lock is held")
    }

    fn lose(&self, why: &str) -> StateError {
        let mut standing = self.lock_renewal();
        let why = standing.lost.get_or_insert_with(|| why.to_owned()).clone();
        StateError::Lost {
            stack: self.grant.stack.clone(),
            why,
        }
    }

    fn check(&self) -> Result<(), StateError> {
        let (quiet, trouble) = {
            let standing = self.lock_renewal();
            if let Some(why) = &standing.lost {
                return Err(StateError::Lost {
                    stack: self.grant.stack.clone(),
                    why: why.clone(),
                });
            }
            if standing.ended {
                return Err(StateError::Lost {
                    stack: self.grant.stack.clone(),
                    why: "it was released".to_owned(),
                });
            }
            let quiet = self.states.clock.monotonic().saturating_sub(standing.confirmed);
            (quiet, standing.trouble.clone())
        };
        // A third of the term is reserved for a write that is in progress when another run may take over.
        if quiet >= self.grant.term * 2 / 3 {
            let why = trouble.map(|why| format!(": {why}")).unwrap_or_default();
            return Err(self.lose(&format!("it could not be renewed for {} s{why}", quiet.as_secs())));
        }
        Ok(())
    }

    async fn keep_renewing(&self) {
        let third = self.grant.term / 3;
        let mut pause = third;
        loop {
            self.states.clock.sleep(pause).await;
            match self.renew().await {
                Ok(()) => pause = third,
                Err(StateError::Lost { .. }) => return,
                Err(error) => {
                    tracing::warn!(stack = %self.grant.stack, error = %chain(&error), "the lease could not be renewed yet");
                    self.lock_renewal().trouble = Some(chain(&error));
                    // There is time for a few attempts before the lease counts as lost, at two thirds of the term.
                    pause = self.grant.term / 12;
                }
            }
        }
    }

    async fn renew(&self) -> Result<(), StateError> {
        let _writing = self.renewing.lock().await;
        loop {
            // The term counts from the request, because another run may see the renewal before its answer arrives here.
            let asked = self.states.clock.monotonic();
            let place = self.lock_renewal().next;
            let key = keys::lease(&self.grant.stack, self.grant.epoch, place);
            let letter = self.states.letter("lease", &key, &self.grant.document)?;
            match put(&*self.states.store, &key, &letter).await? {
                CreateResult::Ours => {
                    let mut standing = self.lock_renewal();
                    standing.confirmed = asked;
                    standing.trouble = None;
                    standing.next = place + 1;
                    return Ok(());
                }
                // An earlier attempt whose answer was lost: it renewed then, not now.
                CreateResult::Theirs(bytes) if self.is_our_renewal(place, &bytes) => {
                    self.lock_renewal().next = place + 1
                }
                CreateResult::Theirs(_) => return Err(self.lose("another run took over")),
            }
        }
    }

    fn is_our_renewal(&self, place: u64, bytes: &[u8]) -> bool {
        let key = keys::lease(&self.grant.stack, self.grant.epoch, place);
        let there = self.states.envelopes.read::<LeaseDocument>("lease", &key, bytes);
        matches!(there, Ok((_, document)) if document == self.grant.document)
    }

    async fn journal(&self, entries: Vec<JournalEntry>, flush: Flush) -> Result<(), StateError> {
        let mut journal = self.journal.lock().await;
        // The previous owner of the journal lock may have spent the term on a store that does not answer.
        self.check()?;
        let mut urgent = flush == Flush::Now;
        for entry in entries {
            urgent |= matches!(
                entry,
                JournalEntry::Intent { .. }
                    | JournalEntry::Begun { .. }
                    | JournalEntry::Runtime { .. }
                    | JournalEntry::Names { .. }
                    | JournalEntry::Release { .. }
            );
            journal.intents += usize::from(matches!(entry, JournalEntry::Intent { .. }));
            journal.open.follow(&entry);
            // Runtime data that could not be stored before is outdated now.
            if let JournalEntry::Runtime { key, .. } = &entry {
                let overtaken = |waiting: &JournalEntry| matches!(waiting, JournalEntry::Runtime { key: other, .. } if other == key);
                journal.waiting.retain(|waiting| !overtaken(waiting));
            }
            journal.waiting.push(entry);
        }
        if urgent || journal.waiting.len() >= RESULTS_TOGETHER {
            let flushed = self.flush(&mut journal).await;
            if let Err(StateError::Store(error)) = &flushed {
                self.lock_renewal().trouble = Some(chain(error));
            }
            flushed?;
        }
        // The write may have taken so long that another run may have taken over.
        self.check()
    }

    async fn flush(&self, journal: &mut LeaseJournal) -> Result<(), StateError> {
        if journal.waiting.is_empty() {
            return Ok(());
        }
        let document = JournalDocument::Entries(journal.waiting.clone());
        let LeaseGrant {
            stack, epoch, serial, ..
        } = &self.grant;
        loop {
            let key = keys::journal(stack, *epoch, journal.next);
            let letter = self.states.letter("journal", &key, &document)?;
            let write = put(&*self.states.store, &key, &letter);
            let landed = if journal.announced {
                write.await?
            } else {
                // The index says that a run works on the stack before anything is changed.
                let (landed, ()) = futures::try_join!(write, self.states.announce(stack, *epoch, *serial))?;
                journal.announced = true;
                landed
            };
            match landed {
                CreateResult::Ours => break,
                CreateResult::Theirs(bytes) => match self.states.envelopes.read("journal", &key, &bytes)? {
                    // Only this run writes entries into its row, so the entry is from an earlier attempt whose answer
                    // was lost.
                    (_, JournalDocument::Entries(_)) => journal.next += 1,
                    (_, JournalDocument::ClosedBy(_)) => {
                        return Err(self.lose("another run closed the journal"));
                    }
                },
            }
        }
        journal.waiting.clear();
        journal.next += 1;
        Ok(())
    }
}

/// A lease that was just taken.
pub(super) struct LeaseGrant {
    pub stack: StackId,
    pub document: LeaseDocument,
    pub id: String,
    pub epoch: u64,
    /// The newest serial, including our own fence.
    pub serial: u64,
    pub term: Duration,
    /// When it was requested or renewed, by our clock.
    pub asked: Duration,
    /// The next place in its row.
    pub renewals: u64,
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
        /// The newest serial when it was taken. A lease of an earlier version has none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        serial: Option<u64>,
    },
    /// The lease was released without a state document of its own.
    Released,
    /// Ended by the holder of a later epoch.
    TakenOver { by: u64 },
    /// Ended by a person.
    Unlocked { reason: String },
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
