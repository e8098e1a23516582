//! The journal of an apply: records each step under the lease, and updates the state in memory from these records.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;

use crate::rescue_file::Unstored;
use konverge_base::{
    error::UserError,
    model::state::{JournalEntry, StackState},
};
use konverge_engine::{Journal, runtime::RecordFailure};
use konverge_state::{Lease, StateError, store::StoreError};

/// The state during the apply, and the lease whose journal records the changes.
pub(super) struct ApplyJournal<'a> {
    lease: &'a Lease,
    followed: Mutex<FollowedState>,
    unstored: Mutex<Unstored>,
}

/// The state of an apply. The results of resources are merged all at once at the end: merging each one alone would take
/// quadratic time.
struct FollowedState {
    state: StackState,
    ended: Vec<JournalEntry>,
}

impl FollowedState {
    fn follow(&mut self, entry: &JournalEntry) {
        match entry {
            JournalEntry::Done { .. } | JournalEntry::Gone { .. } => self.ended.push(entry.clone()),
            other => self.state.apply_entry(other),
        }
    }
}

impl<'a> ApplyJournal<'a> {
    /// Creates the journal of an apply under a lease. `state` is the state before the apply.
    pub(super) fn new(lease: &'a Lease, state: StackState, unstored: Unstored) -> Self {
        Self {
            lease,
            followed: Mutex::new(FollowedState {
                state,
                ended: Vec::new(),
            }),
            unstored: Mutex::new(unstored),
        }
    }

    /// Returns the state so far, from which the stack can be planned again.
    pub(super) async fn state(&self) -> StackState {
        let mut followed = self.followed.lock().await;
        let ended = std::mem::take(&mut followed.ended);
        followed.state.apply_entries(&ended);
        followed.state.clone()
    }

    /// Returns the state after the apply, and the runtime data that the store did not accept.
    pub(super) fn into_parts(self) -> (StackState, Unstored) {
        let FollowedState { mut state, ended } = self.followed.into_inner();
        state.apply_entries(&ended);
        (state, self.unstored.into_inner())
    }
}

/// The time after which runtime data that the store has not accepted is also written to the rescue file.
const LATE: Duration = Duration::from_secs(1);

/// Converts an error of the state into an error for the runtime. The runtime may retry if only the store failed, but
/// not after the lease is lost.
fn unrecorded(error: StateError) -> RecordFailure {
    RecordFailure {
        may_retry: matches!(
            error,
            StateError::Store(StoreError::Unavailable { .. } | StoreError::Denied { .. })
        ),
        error: Box::new(error.into()),
    }
}

#[async_trait]
impl Journal for ApplyJournal<'_> {
    async fn intend(&self, entries: Vec<JournalEntry>) -> Result<(), UserError> {
        let mut followed = self.followed.lock().await;
        entries.iter().for_each(|entry| followed.follow(entry));
        drop(followed);
        let stored = self.lease.journal_now(entries).await;
        stored.map_err(|error| {
            UserError::from(error).context("could not record the next changes, so they were not started")
        })
    }

    async fn record(&self, entry: JournalEntry) -> Result<(), RecordFailure> {
        self.followed.lock().await.follow(&entry);
        let JournalEntry::Runtime { key, value } = &entry else {
            let stored = self.lease.journal(vec![entry]).await;
            return stored.map_err(|error| {
                UserError::from(error)
                    .context("could not record the results so far, only that the changes were started")
                    .hint("the next run checks the changes that were started, and continues")
                    .into()
            });
        };
        // Terraform's state may be the only record of what Terraform made. If the store is slow or fails, it also goes
        // to the rescue file, so that a kill does not lose it.
        let key = key.clone();
        self.unstored.lock().await.begin_store(&key, value);
        let mut storing = std::pin::pin!(self.lease.journal(vec![entry]));
        let result = match tokio::time::timeout(LATE, &mut storing).await {
            Ok(result) => result,
            Err(_) => {
                self.unstored.lock().await.write_file();
                storing.await
            }
        };
        let mut unstored = self.unstored.lock().await;
        match &result {
            Ok(()) => unstored.end_store(&key),
            Err(_) => unstored.write_file(),
        }
        result.map_err(unrecorded)
    }

    async fn check_lease(&self) -> Result<(), UserError> {
        Ok(self.lease.check()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failure_of_the_store_may_be_retried() {
        let (url, key, why) = ("s3://b".to_owned(), "k".to_owned(), "no answer".into());
        let store = unrecorded(StateError::Store(StoreError::Unavailable { url, key, why }));
        assert!(store.may_retry);
        let lost = unrecorded(StateError::Lost {
            stack: "app/dev".parse().expect("an id"),
            why: "another run took it".to_owned(),
        });
        assert!(!lost.may_retry);
    }
}
