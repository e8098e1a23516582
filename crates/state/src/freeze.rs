//! The freeze: one switch that stops all applies. Each change of it is a document; the highest number is
//! current.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    DocumentWriter, StateError, StateStore,
    document_format::{CreateResult, Header},
    keys,
};
use crate::store::Key;

/// The maximum number of attempts of a write, for the case that several runs write at the same time.
const TRIES: u32 = 5;

/// A freeze of all applies. One `konverge unfreeze` ends it, even if it was set several times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApplyFreeze {
    /// The reasons, that of the first freeze first. There is at least one.
    pub reasons: Vec<FreezeReason>,
}

/// The reason of one freeze, with its time and author.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FreezeReason {
    /// The text that the author gave.
    pub reason: String,
    /// The time of the freeze, by the author's clock.
    pub since: Timestamp,
    /// The person or run that froze the applies.
    pub writer: DocumentWriter,
}

/// The body of a freeze document.
#[derive(Serialize, Deserialize)]
struct FreezeSwitch {
    frozen: bool,
    reason: String,
    /// The reasons of earlier freezes that have not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<FreezeReason>,
}

impl StateStore {
    /// Returns the current freeze; `None` if applies may run. One LIST, and one GET if there ever was a
    /// freeze.
    ///
    /// # Errors
    /// The store fails, or the document is damaged or of another repository. Callers must then not apply.
    pub async fn freeze(&self) -> Result<Option<ApplyFreeze>, StateError> {
        let numbers = self.numbers(&folder()).await?;
        let read = self.newest_marked("freeze", &folder(), &numbers).await?;
        Ok(read.and_then(|(header, switch): (Header, FreezeSwitch)| {
            let newest = FreezeReason {
                reason: switch.reason,
                since: header.time,
                writer: header.writer,
            };
            let reasons = switch.earlier.into_iter().chain([newest]).collect();
            switch.frozen.then_some(ApplyFreeze { reasons })
        }))
    }

    /// Stops all applies. The reasons of earlier freezes are kept with this one, and all documents are kept
    /// as a history.
    ///
    /// # Errors
    /// The store fails.
    pub async fn begin_freeze(&self, reason: &str) -> Result<(), StateError> {
        self.write_freeze(true, reason).await
    }

    /// Allows all applies again.
    ///
    /// # Errors
    /// The store fails.
    pub async fn end_freeze(&self, reason: &str) -> Result<(), StateError> {
        self.write_freeze(false, reason).await
    }

    async fn write_freeze(&self, frozen: bool, reason: &str) -> Result<(), StateError> {
        for _ in 0..TRIES {
            // The number is listed before the freeze is read: if another run writes in between, the create
            // below fails, and the loop starts again.
            let newest = self.numbers(&folder()).await?.last().copied();
            let earlier = if frozen {
                self.readable_freeze().await?
            } else {
                None
            };
            let switch = FreezeSwitch {
                frozen,
                reason: reason.to_owned(),
                earlier: earlier.map(|freeze| freeze.reasons).unwrap_or_default(),
            };
            let next = newest.map_or(1, |newest| newest + 1);
            if let CreateResult::Ours = self.create("freeze", &place(next), &switch).await? {
                return Ok(());
            }
        }
        Err(StateError::Missing(format!(
            "the freeze changed during each of {TRIES} attempts to write it"
        )))
    }

    /// Returns the current freeze; `None` also for an unreadable document, which is then replaced.
    async fn readable_freeze(&self) -> Result<Option<ApplyFreeze>, StateError> {
        match self.freeze().await {
            Err(StateError::Damaged { .. }) => Ok(None),
            read => read,
        }
    }
}

fn folder() -> Key {
    Key::from_components(&["freeze"])
}

fn place(number: u64) -> Key {
    folder().child(&keys::number(number))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{super::fixture, *};
    use crate::store::{MemoryStore, Store};

    #[tokio::test]
    async fn the_newest_change_counts_and_every_one_is_kept() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let states = fixture::states(&store, &Arc::default());
        assert_eq!(states.freeze().await.unwrap(), None);
        states.begin_freeze("the database is being moved").await.unwrap();
        let freeze = states.freeze().await.unwrap().unwrap();
        let reasons = |freeze: ApplyFreeze| -> Vec<String> {
            freeze.reasons.into_iter().map(|one| one.reason).collect()
        };
        assert_eq!(reasons(freeze), ["the database is being moved"]);
        states.end_freeze("moved").await.unwrap();
        assert_eq!(states.freeze().await.unwrap(), None);
        states.begin_freeze("once more").await.unwrap();
        assert_eq!(reasons(states.freeze().await.unwrap().unwrap()), ["once more"]);
        assert_eq!(store.list(&folder()).await.unwrap().len(), 3);
    }

    #[tokio::test]
    async fn two_who_freeze_at_once_both_do_and_a_damaged_document_is_an_error() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let states = fixture::states(&store, &Arc::default());
        let (one, two) = tokio::join!(states.begin_freeze("a"), states.begin_freeze("b"));
        one.unwrap();
        two.unwrap();
        let mut both = states.freeze().await.unwrap().unwrap().reasons;
        both.sort_by(|one, two| one.reason.cmp(&two.reason));
        assert_eq!((both[0].reason.as_str(), both[1].reason.as_str()), ("a", "b"));
        assert_eq!(store.list(&folder()).await.unwrap().len(), 2);
        store
            .create(&place(3), bytes::Bytes::from_static(b"{}"))
            .await
            .unwrap();
        assert!(states.freeze().await.is_err());
    }
}
