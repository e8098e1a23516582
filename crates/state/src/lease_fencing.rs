//! Takes the next epoch, and closes the documents that earlier holders could still write: their next renewal,
//! their next journal entry, and the next serial of the state.

use super::{
    Lease, LeaseOptions, StateError, StateStore, Versioned, WriteReason,
    document_format::CreateResult,
    journal::JournalDocument,
    keys::{self, RowKeys},
    lease::{LeaseDocument, LeaseGrant},
    state_document::{JournalPlace, StateDocument},
    state_store::Reading,
};
use crate::store::Key;
use konverge_base::model::{StackId, state::StackState};

/// The reason why the next epoch may be taken, which shows how certain it is that the old holder has stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeoverReason {
    /// The last holder released the lease, or there was none.
    Free,
    /// The holder did not renew again for a whole term after this renewal.
    Silent { renewal: u64 },
    /// The forge reports that the holder's run is over.
    Over,
    /// A person ended the lease, which its holder may not have noticed yet.
    Ended,
}

/// The last document in an epoch's sequence of renewals.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RowEnd {
    /// The sequence had already ended.
    Before,
    /// This run ended the epoch, after this renewal.
    After(Option<u64>),
}

impl StateStore {
    /// Tries to take the next epoch; `None` if another run was faster.
    pub(super) async fn take(
        &self,
        stack: &StackId,
        before: Reading,
        claim: TakeoverReason,
        options: &LeaseOptions,
    ) -> Result<Option<Lease>, StateError> {
        // Journals and states count as well: an epoch must not be used twice, even if its leases were deleted.
        let epoch = 1 + newest_epoch(&before);
        let since = self.clock.wall_clock();
        let started = self.clock.monotonic();
        let id = format!("{epoch}-{}", &uuid::Uuid::new_v4().simple().to_string()[..8]);
        let held = LeaseDocument::Held {
            id: id.clone(),
            term_ms: u64::try_from(options.term.as_millis()).unwrap_or(u64::MAX),
            since,
            serial: before.rows.serial(),
        };
        // If several runs want the next epoch, the store lets only one of them create its first document.
        let place = keys::lease(stack, epoch, 0);
        if let CreateResult::Theirs(_) = self.create("lease", &place, &held).await? {
            return Ok(None);
        }
        // A run that was suspended may create a number again that was used and deleted, so it checks that its
        // epoch is the newest.
        let rows = RowKeys::parse(&self.store.list(&keys::stack(stack)).await?);
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
        let (mut asked, mut renewals) = (started, 1);
        // A holder that released the lease can no longer write. In every other case, its sequences are closed
        // first.
        if claim != TakeoverReason::Free || !unchanged {
            if self.close_predecessors(stack, epoch, &reading, claim).await? {
                // A living holder notices within this time that it can no longer renew, and stops.
                tokio::select! {
                    () = self.clock.sleep(options.term * 2 / 3) => {}
                    // The new lease is not released: it expires by itself.
                    () = options.until_stopped() => return Err(StateError::Stopped(stack.clone())),
                }
                // The wait has used up two thirds of this lease's term as well, so the lease is renewed
                // before it is used.
                asked = self.clock.monotonic();
                let place = keys::lease(stack, epoch, renewals);
                if let CreateResult::Theirs(_) = self.create("lease", &place, &held).await? {
                    return Ok(None);
                }
                renewals += 1;
            }
            // Documents that earlier holders wrote before their sequences were closed are valid, and their
            // later writes collide. The takeover document takes the serial that a holder would write next. If
            // the holder was faster, the loop reads its state first.
            loop {
                reading = self.read_for_lease(stack, options).await?;
                serial = reading.rows.serial().unwrap_or(0) + 1;
                if self.fence(stack, epoch, serial, &reading, options).await? {
                    break;
                }
            }
        }
        let rows = std::mem::take(&mut reading.rows);
        let prior = reading.merge(stack).map(|prior| Versioned { serial, ..prior });
        let grant = LeaseGrant {
            stack: stack.clone(),
            document: held,
            id,
            epoch,
            serial,
            term: options.term,
            asked,
            renewals,
        };
        Ok(Some(Lease::hold(self.clone(), grant, prior, rows)))
    }

    /// Closes every earlier epoch in the listing, so that the next write of its holder collides. The writer
    /// of the newest state document has closed those before its own epoch. Returns true if a holder may still
    /// be at work.
    async fn close_predecessors(
        &self,
        stack: &StackId,
        epoch: u64,
        reading: &Reading,
        claim: TakeoverReason,
    ) -> Result<bool, StateError> {
        let from = written_epoch(reading);
        let mut at_work = false;
        for old in reading.rows.leases.range(from..epoch).map(|(epoch, _)| *epoch) {
            let end = self
                .end_lease(stack, old, &LeaseDocument::TakenOver { by: epoch })
                .await?;
            at_work |= match (claim, end) {
                (TakeoverReason::Free, _) => false,
                // Another run has closed this epoch already. The holder could not renew since, and was silent
                // for a whole term, so it has stopped.
                (TakeoverReason::Silent { .. }, RowEnd::Before) => false,
                // The holder renewed once more after it was observed, or was not observed at all, so it may
                // still be at work.
                (TakeoverReason::Silent { renewal }, RowEnd::After(last)) => {
                    old + 1 != epoch || last != Some(renewal)
                }
                // Only the run of the previous epoch is known to be over. Runs of earlier epochs may still be
                // at work.
                (TakeoverReason::Over, _) => old + 1 != epoch,
                (TakeoverReason::Ended, _) => true,
            };
            let next = reading
                .rows
                .journals
                .get(&old)
                .and_then(|row| row.last())
                .map_or(0, |last| last + 1);
            // The holder may write an entry meanwhile. That entry takes the number, and is read after the
            // journal is closed.
            for entry in next.. {
                let key = keys::journal(stack, old, entry);
                let closed = JournalDocument::ClosedBy(epoch);
                match self.create("journal", &key, &closed).await? {
                    CreateResult::Ours => break,
                    CreateResult::Theirs(bytes) => {
                        if let (_, JournalDocument::ClosedBy(_)) =
                            self.envelopes.read("journal", &key, &bytes)?
                        {
                            break;
                        }
                    }
                }
            }
        }
        Ok(at_work)
    }

    /// Writes a last document after the renewals of an epoch, so that its holder cannot renew any more.
    pub(super) async fn end_lease(
        &self,
        stack: &StackId,
        epoch: u64,
        end: &LeaseDocument,
    ) -> Result<RowEnd, StateError> {
        let rows = RowKeys::parse(&self.store.list(&keys::stack(stack)).await?);
        let listed = rows.leases.get(&epoch).and_then(|row| row.last()).copied();
        if let Some(last) = listed {
            let key = keys::lease(stack, epoch, last);
            if let Some(bytes) = self.store.get(&key).await?
                && self.is_end(&key, &bytes)?
            {
                return Ok(RowEnd::Before);
            }
        }
        for renewal in listed.map_or(0, |last| last + 1).. {
            let key = keys::lease(stack, epoch, renewal);
            if let CreateResult::Theirs(bytes) = self.create("lease", &key, end).await? {
                if self.is_end(&key, &bytes)? {
                    return Ok(RowEnd::Before);
                }
                continue;
            }
            return Ok(RowEnd::After(renewal.checked_sub(1)));
        }
        unreachable!("a row has a free place")
    }

    /// Returns true if a document ends a sequence of renewals. A document that is unreadable or has no mark
    /// of a known key does not: the end is written after it.
    fn is_end(&self, key: &Key, bytes: &[u8]) -> Result<bool, StateError> {
        match self.envelopes.read("lease", key, bytes) {
            Ok((_, LeaseDocument::Held { .. }))
            | Err(StateError::Damaged { .. } | StateError::Unmarked { .. }) => Ok(false),
            Ok(_) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Creates the next serial of the state, with the dead holder's journal merged in. Returns true if this
    /// run created that serial.
    async fn fence(
        &self,
        stack: &StackId,
        epoch: u64,
        serial: u64,
        reading: &Reading,
        options: &LeaseOptions,
    ) -> Result<bool, StateError> {
        let merged = reading.clone().merge(stack);
        let document = StateDocument {
            serial,
            reason: WriteReason::Takeover,
            epoch,
            // The new holder keeps its lease: this document only stops the old holder.
            closes_lease: false,
            journal: JournalPlace { epoch, entry: 0 },
            retired: merged.as_ref().is_some_and(|versioned| versioned.retired),
            applied_reviews: merged
                .as_ref()
                .map(|versioned| versioned.applied_reviews.clone())
                .unwrap_or_default(),
            note: None,
            receipt: None,
            activity: merged
                .as_ref()
                .map(|versioned| versioned.activity.clone())
                .unwrap_or_default(),
            idle: merged.as_ref().map(Versioned::idle_serials).unwrap_or_default(),
            state: merged.map_or_else(
                || StackState::empty(stack.clone(), options.folder.clone()),
                |versioned| versioned.state,
            ),
        };
        let place = keys::state(stack, serial);
        let created = self.create("state", &place, &document).await?;
        Ok(matches!(created, CreateResult::Ours))
    }

    /// Reads the newest readable state document when newer ones are unreadable. Their serials are not used
    /// again.
    pub(super) async fn read_last_good(&self, stack: &StackId) -> Result<Reading, StateError> {
        let rows = RowKeys::parse(&self.store.list(&keys::stack(stack)).await?);
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
    listed.max(journaled).max(written_epoch(reading))
}

fn written_epoch(reading: &Reading) -> u64 {
    let document = reading.document.as_ref();
    document.map_or(0, |(_, document)| document.epoch)
}

impl Versioned {
    /// Returns true if a run died while it worked on this stack.
    pub fn was_interrupted(&self) -> bool {
        !self.pending.is_empty() || self.reason == WriteReason::Takeover
    }
}

#[cfg(test)]
#[path = "lease_fencing_tests.rs"]
mod tests;
