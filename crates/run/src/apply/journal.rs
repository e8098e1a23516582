//! The journal of an apply: records what happens under the lease, and updates the state from it.

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;

use crate::rescue_file::Unstored;
use konverge_base::{
    error::UserError,
    model::state::{JournalEntry, StackState},
};
use konverge_engine::{Journal, runtime::StoreUnavailable};
use konverge_state::{Lease, StateError, store::StoreError};

/// The state during the apply, and the journal of the lease.
pub(super) struct ApplyJournal<'a> {
    lease: &'a Lease,
    followed: Mutex<FollowedState>,
    unstored: Mutex<Unstored>,
}

/// The state of an apply. Results are merged at the end, all at once: one by one would take quadratic time.
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
    /// The journal of a lease, from the state before the apply.
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

    /// The state so far, to plan again from.
    pub(super) async fn state(&self) -> StackState {
        let mut followed = self.followed.lock().await;
        let ended = std::mem::take(&mut followed.ended);
        followed.state.apply_entries(&ended);
        followed.state.clone()
    }

    /// The state after the apply, and what the store did not accept.
    pub(super) fn into_parts(self) -> (StackState, Unstored) {
        let FollowedState { mut state, ended } = self.followed.into_inner();
        state.apply_entries(&ended);
        (state, self.unstored.into_inner())
    }
}

/// A runtime's data that the store has not accepted after this time is kept in a file in the meantime.
const LATE: Duration = Duration::from_secs(1);

/// The error for the runtime. It may try again if only the store failed, and not after the lease is lost.
fn unrecorded(error: StateError) -> UserError {
    let store_failed = matches!(
        error,
        StateError::Store(StoreError::Unavailable { .. } | StoreError::Denied { .. })
    );
    let failure = UserError::from(error);
    if store_failed {
        failure.caused_by(StoreUnavailable)
    } else {
        failure
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
            UserError::from(error).context("what was to be done next is not recorded, so it was not begun")
        })
    }

    async fn record(&self, entry: JournalEntry) -> Result<(), UserError> {
        self.followed.lock().await.follow(&entry);
        let JournalEntry::Runtime { key, value } = &entry else {
            let stored = self.lease.journal(vec![entry]).await;
            return stored.map_err(|error| {
                UserError::from(error)
                    .context("what was done is not recorded, only that it was begun")
                    .hint("the next run looks at what was begun, and continues from there")
            });
        };
        let key = key.clone();
        self.unstored.lock().await.begin_store(&key, value);
        let mut storing = std::pin::pin!(self.lease.journal(vec![entry]));
        let result = match tokio::time::timeout(LATE, &mut storing).await {
            Ok(result) => result,
            Err(_) => {
                self.unstored.lock().await.keep();
                storing.await
            }
        };
        let mut unstored = self.unstored.lock().await;
        match &result {
            Ok(()) => unstored.end_store(&key),
            Err(_) => unstored.keep(),
        }
        result.map_err(unrecorded)
    }

    async fn fence(&self) -> Result<(), UserError> {
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
        assert_eq!(store.room_error(), Some(&StoreUnavailable));
        let lost = unrecorded(StateError::Lost {
            stack: "app/dev".parse().expect("an id"),
            why: "another run took it".to_owned(),
        });
        assert_eq!(lost.room_error::<StoreUnavailable>(), None);
    }
}
