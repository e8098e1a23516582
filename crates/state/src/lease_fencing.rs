//! Takes the next epoch, and closes what earlier holders left open: their row of renewals, their journal,
//! and, by the next serial of the state, the place where they would commit.

use super::{
    Lease, LeaseOptions, StateError, StateStore, Versioned, WriteReason,
    document_format::{CreateResult, put},
    journal::JournalDocument,
    keys::{self, RowKeys},
    lease::{LeaseDocument, LeaseGrant},
    state_document::{JournalPlace, StateDocument},
    state_store::Reading,
};
use crate::store::Key;
use konverge_base::model::{StackId, state::StackState};

/// Why the next epoch may be taken. It determines how certain it is that the old holder has stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum TakeoverReason {
    /// The last holder released it itself, or there was none.
    Free,
    /// The holder did not renew for its term after this renewal.
    Silent { renewal: u64 },
    /// The holder's run is over, as GitHub says.
    Over,
    /// A person ended it; its holder may not know yet.
    Ended,
}

/// How the renewals of an epoch ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RowEnd {
    /// The row already had an end.
    Before,
    /// We added it, after this renewal.
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
        let letter = self.letter("lease", &place, &held)?;
        if let CreateResult::Theirs(_) = put(&*self.store, &place, &letter).await? {
            return Ok(None);
        }
        // A run that was suspended can create an old, deleted number again: check that ours is the newest.
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
        // If the previous holder released the lease, it can no longer write. In every other case the old rows are
        // closed first.
        if claim != TakeoverReason::Free || !unchanged {
            if self.close_predecessors(stack, epoch, &reading, claim).await? {
                // A live holder stops by itself within this time, because it can no longer renew.
                tokio::select! {
                    () = self.clock.sleep(options.term * 2 / 3) => {}
                    // The lease that was just created expires by itself.
                    () = options.until_stopped() => return Err(StateError::Stopped(stack.clone())),
                }
                // The wait took two thirds of the term of this lease, too: it is renewed before it is used.
                asked = self.clock.monotonic();
                let place = keys::lease(stack, epoch, renewals);
                let letter = self.letter("lease", &place, &held)?;
                if let CreateResult::Theirs(_) = put(&*self.store, &place, &letter).await? {
                    return Ok(None);
                }
                renewals += 1;
            }
            // Documents that earlier holders wrote before their rows were closed count; later writes of those holders
            // collide. The fence takes the serial that a holder would write next. If the holder was faster, its serial
            // is read first.
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

    /// Ends the rows of every earlier epoch in the listing, so that a holder that still believes in one
    /// collides. Epochs before that of the newest document were ended by its writer. Returns true if a holder
    /// may still be at work.
    async fn close_predecessors(
        &self,
        stack: &StackId,
        epoch: u64,
        reading: &Reading,
        claim: TakeoverReason,
    ) -> Result<bool, StateError> {
        let from = reading
            .document
            .as_ref()
            .map_or(0, |(_, document)| document.epoch);
        let mut at_work = false;
        for old in reading.rows.leases.range(from..epoch).map(|(epoch, _)| *epoch) {
            let end = self
                .end_lease(stack, old, &LeaseDocument::TakenOver { by: epoch })
                .await?;
            at_work |= match (claim, end) {
                (TakeoverReason::Free, _) => false,
                // Another run closed the row before the holder was silent for a whole term.
                (TakeoverReason::Silent { .. }, RowEnd::Before) => false,
                // The holder renewed once more after it was watched, or nobody watched it: it may still be at work.
                (TakeoverReason::Silent { renewal }, RowEnd::After(last)) => {
                    old + 1 != epoch || last != Some(renewal)
                }
                // Only the run of the newest epoch is known to be over. Runs of earlier epochs may be at work.
                (TakeoverReason::Over, _) => old + 1 != epoch,
                (TakeoverReason::Ended, _) => true,
            };
            let next = reading
                .rows
                .journals
                .get(&old)
                .and_then(|row| row.last())
                .map_or(0, |last| last + 1);
            // An entry that the holder writes meanwhile takes a place, and is read after the rows are closed.
            for entry in next.. {
                let key = keys::journal(stack, old, entry);
                let letter = self.letter("journal", &key, &JournalDocument::ClosedBy(epoch))?;
                match put(&*self.store, &key, &letter).await? {
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

    /// Writes the last renewal entry of an epoch, so that its holder cannot renew any more.
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
            let letter = self.letter("lease", &key, end)?;
            if let CreateResult::Theirs(bytes) = put(&*self.store, &key, &letter).await? {
                if self.is_end(&key, &bytes)? {
                    return Ok(RowEnd::Before);
                }
                continue;
            }
            return Ok(RowEnd::After(renewal.checked_sub(1)));
        }
        unreachable!("a row has a free place")
    }

    /// Returns true if a place in a row of renewals is its end. A place that cannot be read, or that no holder of a key
    /// wrote, is not an end: the end is put after it.
    fn is_end(&self, key: &Key, bytes: &[u8]) -> Result<bool, StateError> {
        match self.envelopes.read("lease", key, bytes) {
            Ok((_, LeaseDocument::Held { .. }))
            | Err(StateError::Damaged { .. } | StateError::Unmarked { .. }) => Ok(false),
            Ok(_) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Creates the next serial of the state, with the dead holder's journal merged in. Returns true if the
    /// created document is ours.
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
        let letter = self.letter("state", &place, &document)?;
        Ok(matches!(
            put(&*self.store, &place, &letter).await?,
            CreateResult::Ours
        ))
    }

    /// Goes back from an unreadable newest document to the newest readable one. The serials above it stay
    /// taken.
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
    let written = reading
        .document
        .as_ref()
        .map_or(0, |(_, document)| document.epoch);
    listed.max(journaled).max(written)
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
