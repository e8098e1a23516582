//! A held lease: renewing it, writing the journal, committing, and releasing it.

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

/// Results of resources are written to the journal in groups of this size, or earlier together with an
/// intent. An apply of N resources writes at most 4 + N/20 objects. The first apply of a stack writes one
/// more, which records in the index that the stack has a state.
const RESULTS_TOGETHER: usize = 100;

/// The time at which journal entries are stored.
#[derive(Clone, Copy, PartialEq)]
enum Flush {
    /// The entries are stored before the call returns.
    Now,
    /// The entries are stored before the call returns if one of them is not a result. Results alone wait for more
    /// entries.
    WithOthers,
}
/// Renewals and journals of epochs older than this are deleted completely, even the last document of an epoch
/// that was taken over.
const EPOCHS_KEPT: u64 = 100;

/// A held lease. If it is dropped without [`Lease::commit`] or [`Lease::release`], it expires, as after a
/// kill.
pub struct Lease {
    inner: Arc<Inner>,
    renewals: JoinHandle<()>,
    prior: Option<Versioned>,
    rows: RowKeys,
}

/// The parts of a state document besides the state.
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
    /// Locked while a renewal is written.
    renewing: tokio::sync::Mutex<()>,
}

struct LeaseRenewal {
    /// The time at which the last successful renewal was requested, by this process's clock.
    confirmed: Duration,
    /// The number of the next renewal.
    next: u64,
    /// The error of the last renewal, if it failed.
    trouble: Option<String>,
    /// The reason why the lease is lost.
    lost: Option<String>,
    /// True after the lease was released.
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

    /// Returns the state when the lease was taken, with the journal of a dead run merged in.
    pub fn prior(&self) -> Option<&Versioned> {
        self.prior.as_ref()
    }

    /// Returns the fencing token.
    pub fn epoch(&self) -> u64 {
        self.inner.grant.epoch
    }

    /// Returns the id for `konverge state unlock`.
    pub fn id(&self) -> &str {
        &self.inner.grant.id
    }

    /// Checks without a request that this run still holds the lease. Must be called before every write to the
    /// infrastructure.
    ///
    /// # Errors
    /// [`StateError::Lost`].
    pub fn check(&self) -> Result<(), StateError> {
        self.inner.check()
    }

    /// Records changes that are about to happen or have happened. When this returns, intents and runtime data
    /// are in the store. Results may be written later with others: if they are lost, the next run examines
    /// the intent without a result.
    ///
    /// # Errors
    /// [`StateError::Lost`], or the store fails. After an error nothing may be written to the
    /// infrastructure.
    pub async fn journal(&self, entries: Vec<JournalEntry>) -> Result<(), StateError> {
        self.inner.journal(entries, Flush::WithOthers).await
    }

    /// Records entries like [`Self::journal`], but always stores them before it returns.
    ///
    /// # Errors
    /// Errors of [`Self::journal`].
    pub async fn journal_now(&self, entries: Vec<JournalEntry>) -> Result<(), StateError> {
        self.inner.journal(entries, Flush::Now).await
    }

    /// Writes the next serial of the state and releases the lease, in one write.
    ///
    /// `reviews` are the pull requests whose reviews are now used. A resource whose intent has no result is
    /// kept in the state, and then the input digest is removed, even if the caller passes one.
    ///
    /// # Errors
    /// [`StateError::Lost`], or the store fails. The lease then stays until it expires.
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

    /// Commits like [`Lease::commit`], for a reason other than an apply.
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

    /// Writes the same state as the next serial, encrypted to the current recipients.
    ///
    /// # Errors
    /// Errors of [`Lease::commit`], or runtime data cannot be decrypted.
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
        // An import keeps its reason: the first apply after it lists what it adopts.
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
        // The journal stays locked until the document is written: the document contains the number of the next journal
        // entry, so no entry may be written meanwhile.
        let journal = inner.journal.lock().await;
        // An intent without a result may have changed the infrastructure. Without a digest, the next run
        // applies the stack again.
        if journal.open.add_missing_to(&mut state) {
            state.input_digest = None;
        }
        inner.check()?;
        // Only an apply was announced, by its first journal entry. Without an announcement, a kill after the
        // write would leave the index at the earlier state.
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
        // The newest two states are kept, so that a run that lost its lease still collides with one of them
        // when it writes.
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
        // This create is both the commit and the release: it fails if another run has taken the lease over,
        // because that run has created the same serial.
        let place = keys::state(&inner.grant.stack, serial);
        let letter = inner.states.letter("state", &place, &document)?;
        match put(&*inner.states.store, &place, &letter).await? {
            CreateResult::Ours => {}
            // A run that takes the lease over creates this serial so that this write fails.
            CreateResult::Theirs(_) => return Err(inner.lose("another run wrote the state's next serial")),
        }
        inner.lock_renewal().ended = true;
        let writer = &inner.states.envelopes.writer;
        let summary = inner.states.summarize(&document, writer, letter.time);
        // The index is written at the end of the run, once for all stacks.
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
            // A repeated apply of the same commit says nothing about the time from merge to apply.
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

    /// Stops the renewals. A renewal that is being written is awaited: otherwise the store could write it
    /// after the release, or after the folder of a live test was deleted. The wait is at most the time
    /// between two renewals, in case the store does not respond.
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

    /// Records in the index that the stack is as it was applied, after an apply without changes. Without
    /// that, an announced stack would be pending in each run until it changes. [`StateStore::save_index`]
    /// writes the entry, together with those of other applies.
    ///
    /// # Errors
    /// The store fails. The index then stays unchanged, and the next run tries again.
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
        // The entry is open if an earlier run left a journal, or a lease that was not released.
        let found = inner.states.entry_of(stack).await?;
        if let Some(entry) = found.filter(|entry| !entry.open) {
            let epoch = inner.grant.epoch;
            let entry = IndexEntry { epoch, ..entry };
            inner.states.finished().entries.insert(stack.clone(), entry);
        }
        Ok(())
    }

    /// Releases the lease without a new state. The journal stays, and the next run merges it.
    ///
    /// # Errors
    /// The lease is lost, or the store fails. The lease then stays until it expires.
    pub async fn release(&self) -> Result<(), StateError> {
        self.stop_renewing().await;
        let inner = &*self.inner;
        if inner.lock_renewal().ended {
            return Ok(());
        }
        inner.check()?;
        // No state document follows, so results must be in the journal before the release.
        inner.flush(&mut *inner.journal.lock().await).await?;
        let mut renewal = inner.lock_renewal().next;
        // A renewal that was being written when the renewals stopped may be stored, so its number may be
        // taken.
        loop {
            let place = keys::lease(&inner.grant.stack, inner.grant.epoch, renewal);
            let released = inner.states.create("lease", &place, &LeaseDocument::Released);
            match released.await? {
                CreateResult::Ours => break,
                CreateResult::Theirs(bytes) if inner.is_our_renewal(renewal, &bytes) => renewal += 1,
                CreateResult::Theirs(_) => return Err(inner.lose("another run took over")),
            }
        }
        inner.lock_renewal().ended = true;
        Ok(())
    }

    /// Returns the serials to delete after a write: all `idle` ones, which runs without changes wrote, and
    /// others beyond the number that is kept.
    fn outdated_serials(&self, written: &StateDocument, idle: &[u64]) -> Vec<u64> {
        let does_count = |serial: &u64| !idle.contains(serial) && !written.idle.contains(serial);
        let others = self.rows.states.iter().copied().filter(does_count);
        let mut others: Vec<u64> = others.collect();
        // The new document is one of the kept ones, unless it made no change.
        let kept = self.inner.states.retention - u64::from(!written.made_no_change());
        others.truncate(
            others
                .len()
                .saturating_sub(usize::try_from(kept).unwrap_or(usize::MAX)),
        );
        idle.iter().copied().chain(others).collect()
    }

    /// Deletes documents that no reader needs any more. Errors are ignored: the next run deletes the rest.
    async fn clean_up(&self, serials: Vec<u64>, journaled: u64) {
        let inner = &*self.inner;
        let stack = &inner.grant.stack;
        let mut keys = Vec::new();
        keys.extend(serials.into_iter().map(|serial| keys::state(stack, serial)));
        keys.extend(
            (1..inner.lock_renewal().next).map(|renewal| keys::lease(stack, inner.grant.epoch, renewal)),
        );
        // The last entry is kept: if somebody deletes the state, this entry shows that there was one.
        let earlier = 0..journaled.saturating_sub(1);
        keys.extend(earlier.map(|entry| keys::journal(stack, inner.grant.epoch, entry)));
        // If an earlier epoch was taken over, its last document is kept, so that an old holder that still
        // writes collides with it. An epoch with a single renewal ended with its own state document, so all
        // of it is deleted.
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
            let released = standing.ended.then(|| "it was released".to_owned());
            if let Some(why) = standing.lost.clone().or(released) {
                let stack = self.grant.stack.clone();
                return Err(StateError::Lost { stack, why });
            }
            let quiet = self.states.clock.monotonic().saturating_sub(standing.confirmed);
            (quiet, standing.trouble.clone())
        };
        // The last third of the term is left for a write that is still in progress when another run may take
        // over.
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
                    // The lease counts as lost at two thirds of the term, which leaves time for a few
                    // attempts.
                    pause = self.grant.term / 12;
                }
            }
        }
    }

    async fn renew(&self) -> Result<(), StateError> {
        let _writing = self.renewing.lock().await;
        loop {
            // The term counts from the request, because another run may see the renewal before its response
            // arrives here.
            let asked = self.states.clock.monotonic();
            let place = self.lock_renewal().next;
            let key = keys::lease(&self.grant.stack, self.grant.epoch, place);
            match self.states.create("lease", &key, &self.grant.document).await? {
                CreateResult::Ours => {
                    let mut standing = self.lock_renewal();
                    standing.confirmed = asked;
                    standing.trouble = None;
                    standing.next = place + 1;
                    return Ok(());
                }
                // An earlier attempt of this run succeeded although its response was lost. It renewed the
                // lease at that time, not now, so another renewal follows.
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
        // Whoever had the journal lock before may have waited for the store until the lease expired.
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
            // Runtime data that was not stored yet is replaced by the newer entry.
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
        // The write may have taken so long that another run could take over.
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
            let write = self.states.create("journal", &key, &document);
            let landed = if journal.announced {
                write.await?
            } else {
                // The index records that a run works on the stack before anything is changed.
                let (landed, ()) = futures::try_join!(write, self.states.announce(stack, *epoch, *serial))?;
                journal.announced = true;
                landed
            };
            match landed {
                CreateResult::Ours => break,
                CreateResult::Theirs(bytes) => match self.states.envelopes.read("journal", &key, &bytes)? {
                    // Only this run writes entries to this epoch's journal, so the entry is from an earlier
                    // attempt whose response was lost.
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
    /// The newest serial, including the takeover document that this lease wrote.
    pub serial: u64,
    pub term: Duration,
    /// The time at which the lease was requested or renewed, by this process's clock.
    pub asked: Duration,
    /// The number of the next renewal.
    pub renewals: u64,
}

/// The body of `stacks/<identity>/lease/<epoch>/<renewal>`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "status")]
pub(super) enum LeaseDocument {
    /// The lease was taken or renewed.
    Held {
        id: String,
        term_ms: u64,
        since: Timestamp,
        /// The newest serial when the lease was taken. `None` for a lease of an earlier version.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        serial: Option<u64>,
    },
    /// The lease was released without a new state document.
    Released,
    /// The holder of a later epoch ended the lease.
    TakenOver { by: u64 },
    /// A person ended the lease.
    Unlocked { reason: String },
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
