//! The records of rollouts: `rollouts/<name>/<n>`. Each change is a new document, created if absent; the highest number
//! counts. If two runs continue from the same record, only one creates the next record, and the other reads again.

use std::collections::BTreeMap;

use jiff::Timestamp;
use konverge_base::{error::chain, model::rollout::RolloutRecord};

use super::{
    DocumentWriter, StateError, StateStore, document_format::CreateResult, keys, state_store::in_flight,
};
use crate::store::Key;

/// Number of records of a rollout that are kept.
const KEPT: u64 = 20;

/// A record with its number and writer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredRollout {
    /// The number of the record; 1 is the first record of a rollout with this name.
    pub number: u64,
    /// The stored record.
    pub record: RolloutRecord,
    /// The run that wrote the record.
    pub writer: DocumentWriter,
    /// The time of the write, by the writer's clock.
    pub written: Timestamp,
}

impl StateStore {
    /// Returns the newest record of each rollout, by name. One LIST, and one GET for each rollout.
    ///
    /// # Errors
    /// The store fails, or a document is damaged or of another repository. Stacks in a rollout must then not
    /// be applied.
    pub async fn rollouts(&self) -> Result<BTreeMap<String, StoredRollout>, StateError> {
        let listed = self.store.list(&folder()).await?;
        let mut rows: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for key in &listed {
            let mut parts = key.as_str().split('/').skip(1);
            let (name, number) = (parts.next(), parts.next().and_then(keys::parse_number));
            if let (Some(name), Some(number), None) = (name, number, parts.next()) {
                rows.entry(name.to_owned()).or_default().push(number);
            }
        }
        let records = in_flight(rows.into_iter().map(async |(name, mut numbers)| {
            numbers.sort_unstable();
            let stored = self.newest_rollout_record(&name, &numbers).await?;
            Ok(stored.map(|stored| (name, stored)))
        }));
        Ok(records.await?.into_iter().flatten().collect())
    }

    /// Returns the number of the newest record of a rollout; 0 if there is none. One LIST.
    ///
    /// # Errors
    /// The store fails.
    pub async fn rollout_number(&self, name: &str) -> Result<u64, StateError> {
        Ok(self.rollout_numbers(name).await?.last().copied().unwrap_or(0))
    }

    /// Returns the numbers of a rollout's records, sorted.
    async fn rollout_numbers(&self, name: &str) -> Result<Vec<u64>, StateError> {
        self.numbers(&folder().child(name)).await
    }

    /// Returns the newest record of a rollout.
    ///
    /// # Errors
    /// Errors of [`StateStore::rollouts`].
    pub async fn rollout(&self, name: &str) -> Result<Option<StoredRollout>, StateError> {
        self.newest_rollout_record(name, &self.rollout_numbers(name).await?)
            .await
    }

    /// Writes the record with this number, and deletes old records. Returns false if another run has already
    /// written this number.
    ///
    /// # Errors
    /// The store fails.
    pub async fn write_rollout(&self, number: u64, record: &RolloutRecord) -> Result<bool, StateError> {
        let key = place(&record.rollout, number);
        let CreateResult::Ours = self.create("rollout", &key, record).await? else {
            return Ok(false);
        };
        let numbers = self.rollout_numbers(&record.rollout).await?;
        let newest = numbers.last().copied().unwrap_or(number);
        let old = numbers.iter().filter(|old| **old + KEPT <= newest);
        for old in old {
            if let Err(error) = self.store.delete(&place(&record.rollout, *old)).await {
                tracing::debug!(error = %chain(&error), "an old record of a rollout could not be deleted");
            }
        }
        // If this run was suspended for long, other runs may have written a record with this number and later
        // records, and then deleted the one with this number. Then the record just written is outdated.
        Ok(number + KEPT > newest)
    }

    /// Returns the newest record with a mark of a known key.
    async fn newest_rollout_record(
        &self,
        name: &str,
        numbers: &[u64],
    ) -> Result<Option<StoredRollout>, StateError> {
        let row = folder().child(name);
        let read = self.newest_marked("rollout", &row, numbers).await?;
        Ok(read.map(|(header, record)| StoredRollout {
            number: numbers.last().copied().unwrap_or_default(),
            record,
            writer: header.writer,
            written: header.time,
        }))
    }
}

fn folder() -> Key {
    Key::from_components(&["rollouts"])
}

fn place(name: &str, number: u64) -> Key {
    folder().child(name).child(&keys::number(number))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use konverge_base::model::{Digest, rollout::ClockReading};

    use super::{super::fixture, *};
    use crate::store::{MemoryStore, Store};

    fn record(name: &str, wave: usize) -> RolloutRecord {
        let since = ClockReading {
            local: Timestamp::UNIX_EPOCH,
            server: None,
        };
        let commit = "a".repeat(40).parse().unwrap();
        let waves = vec![BTreeMap::new(), BTreeMap::new()];
        RolloutRecord {
            wave,
            ..RolloutRecord::at_start(name, commit, Digest::of_bytes(b"rules"), waves, since)
        }
    }

    #[tokio::test]
    async fn the_newest_record_of_each_rollout_counts_and_one_of_two_writers_wins() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let states = fixture::states(&store, &Arc::default());
        assert!(states.rollouts().await.unwrap().is_empty());
        assert_eq!(states.rollout("web").await.unwrap(), None);
        for number in 1..=11 {
            assert!(
                states
                    .write_rollout(number, &record("web", number as usize % 2))
                    .await
                    .unwrap()
            );
        }
        assert!(states.write_rollout(1, &record("web-2", 0)).await.unwrap());
        let (one, two) = (record("web", 0), record("web", 1));
        let (one, two) = tokio::join!(states.write_rollout(12, &one), states.write_rollout(12, &two));
        assert!(one.unwrap() != two.unwrap(), "one of two wins");
        let all = states.rollouts().await.unwrap();
        let numbers: Vec<_> = all
            .iter()
            .map(|(name, stored)| (name.as_str(), stored.number))
            .collect();
        assert_eq!(numbers, [("web", 12), ("web-2", 1)]);
        assert_eq!(states.rollout_number("web").await.unwrap(), 12);
        assert_eq!(states.rollout_number("we").await.unwrap(), 0);
        let place = super::place("web", 13);
        store
            .create(&place, bytes::Bytes::from_static(b"{}"))
            .await
            .unwrap();
        assert!(states.rollouts().await.is_err(), "a damaged record is not a pass");
    }

    #[tokio::test]
    async fn the_newest_records_are_kept_and_a_place_that_was_deleted_is_not_taken_again() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let states = fixture::states(&store, &Arc::default());
        assert!(states.write_rollout(1, &record("web-2", 0)).await.unwrap());
        for number in 1..=50 {
            assert!(states.write_rollout(number, &record("web", 0)).await.unwrap());
        }
        let numbers = states.rollout_numbers("web").await.unwrap();
        assert_eq!(numbers, (31..=50).collect::<Vec<_>>());
        // A run that read the record 7 long ago wants to go on from it.
        assert!(!states.write_rollout(8, &record("web", 1)).await.unwrap());
        assert_eq!(states.rollout_numbers("web").await.unwrap(), numbers);
        assert!(!states.write_rollout(31, &record("web", 1)).await.unwrap());
        let stored = states.rollout("web").await.unwrap().unwrap();
        assert_eq!((stored.number, stored.record.wave), (50, 0));
        assert_eq!(
            states.rollout_number("web-2").await.unwrap(),
            1,
            "another rollout"
        );
    }
}
