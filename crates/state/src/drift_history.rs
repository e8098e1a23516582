//! The drift history: the last check of each stack. Each version is a whole document, and the highest number
//! is current. The history is used only to schedule checks and to remember since when drift is known; if it
//! is deleted, the next check starts a new one.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    DriftCheck, StateError, StateStore, document_format::CreateResult, index_entry::join_later, keys,
};
use crate::store::Key;
use konverge_base::{
    error::chain,
    model::{StackId, week_activity::Week},
};

/// Number of documents kept. A reader that listed before the newest one was written still finds an older one.
const KEPT: usize = 3;
/// The maximum number of attempts of a write, for the case that several runs write at the same time.
const TRIES: u32 = 5;
/// Maximum number of bytes of all stacks' differences in the history.
const LOOK_BYTES: usize = 2 << 20;

/// The history of drift checks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftHistory {
    /// The last check of each stack.
    pub stacks: BTreeMap<StackId, DriftCheck>,
    /// The end of the last run in which every check succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good: Option<Timestamp>,
    /// The drift in each of the last weeks, as of the last check in that week.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weeks: BTreeMap<Week, DriftWeek>,
}

/// The drift that was known at the last check in a week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftWeek {
    /// The number of stacks with drift.
    pub stacks: usize,
    /// Time for which the oldest drift was known, in seconds.
    pub oldest: u64,
}

impl DriftHistory {
    /// Merges the history that another run wrote in the meantime: of two checks of a stack the later one is
    /// kept.
    fn join(&mut self, other: Self) {
        self.good = self.good.max(other.good);
        for (week, known) in other.weeks {
            self.weeks.entry(week).or_insert(known);
        }
        join_later(&mut self.stacks, other.stacks, |check| check.at);
    }

    /// Records the drift of the current week, and drops old weeks.
    fn note_week(&mut self, now: Timestamp) {
        let week = Week::from_timestamp(now);
        let oldest_week = week.last_weeks().next();
        self.weeks
            .retain(|known, _| Some(*known) >= oldest_week && *known <= week);
        let since = self
            .stacks
            .values()
            .filter_map(|check| Some(check.drift.as_ref()?.since));
        let ages = since.map(|since| now.as_second().saturating_sub(since.as_second()));
        let ages: Vec<_> = ages.map(|age| u64::try_from(age).unwrap_or(0)).collect();
        let known = DriftWeek {
            stacks: ages.len(),
            oldest: ages.into_iter().max().unwrap_or(0),
        };
        self.weeks.insert(week, known);
    }

    /// Drops differences above [`LOOK_BYTES`]. They are only shown, and the drift issues contain them too.
    fn bound_looks(&mut self) {
        let mut bytes = 0;
        for look in self.stacks.values_mut().filter_map(|check| check.look.as_mut()) {
            let size = look.unit_bytes();
            if bytes + size > LOOK_BYTES {
                look.drop_units();
            } else {
                bytes += size;
            }
        }
    }
}

impl StateStore {
    /// Reads the drift history; empty if there is none. One LIST and one GET.
    ///
    /// # Errors
    /// The store fails, or the document is damaged or of another repository.
    pub async fn drift_history(&self) -> Result<DriftHistory, StateError> {
        Ok(self.newest_drift_history().await?.1)
    }

    /// Records checks. Later checks of other runs are kept; stacks for which `keep` is false are removed.
    ///
    /// # Errors
    /// The store fails.
    pub async fn save_drift_history(
        &self,
        mut history: DriftHistory,
        keep: impl Fn(&StackId) -> bool,
    ) -> Result<(), StateError> {
        for _ in 0..TRIES {
            let (numbers, newest) = self.newest_drift_history().await?;
            history.join(newest);
            history.stacks.retain(|stack, _| keep(stack));
            history.note_week(self.clock.wall_clock());
            history.bound_looks();
            let next = numbers.last().map_or(1, |newest| newest + 1);
            if let CreateResult::Ours = self.create("looks", &place(next), &history).await? {
                let old = numbers.iter().rev().skip(KEPT - 1);
                for number in old {
                    if let Err(error) = self.store.delete(&place(*number)).await {
                        tracing::debug!(error = %chain(&error), "an old drift history document could not be deleted");
                    }
                }
                return self.index_drift(history.stacks).await;
            }
        }
        Err(StateError::Missing(format!(
            "the drift history changed during each of {TRIES} attempts to write it"
        )))
    }

    async fn newest_drift_history(&self) -> Result<(Vec<u64>, DriftHistory), StateError> {
        let numbers = self.numbers(&folder()).await?;
        for number in numbers.iter().rev() {
            let key = place(*number);
            if let Some(bytes) = self.store.get(&key).await?
                && let Some((_, history)) = self.envelopes.read_marked("looks", &key, &bytes)?
            {
                return Ok((numbers, history));
            }
        }
        Ok((numbers, DriftHistory::default()))
    }
}

fn folder() -> Key {
    Key::from_components(&["looks"])
}

fn place(number: u64) -> Key {
    folder().child(&keys::number(number))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{super::fixture, *};
    use crate::store::{MemoryStore, Store};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Checks of stacks, each with its time.
    fn checks(stacks: &[(&str, i64)], good: i64) -> DriftHistory {
        let check = |(stack, second): &(&str, i64)| {
            let check = DriftCheck {
                at: at(*second),
                drift: None,
                health: None,
                look: None,
            };
            (fixture::stack(stack), check)
        };
        DriftHistory {
            stacks: stacks.iter().map(check).collect(),
            good: Some(at(good)),
            weeks: BTreeMap::new(),
        }
    }

    /// The history without its weeks, which follow the clock of the test.
    async fn stored(states: &StateStore) -> DriftHistory {
        let history = states.drift_history().await.unwrap();
        assert_eq!(history.weeks.len(), 1);
        DriftHistory {
            weeks: BTreeMap::new(),
            ..history
        }
    }

    #[tokio::test]
    async fn of_two_checks_of_a_stack_the_later_counts_in_whatever_order_they_are_written() {
        for turned in [false, true] {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
            let states = fixture::states(&store, &Arc::default());
            let mut written = [
                checks(&[("a/dev", 10), ("b/dev", 10)], 10),
                checks(&[("a/dev", 5), ("b/dev", 20), ("c/dev", 1)], 5),
            ];
            if turned {
                written.reverse();
            }
            for history in written {
                states.save_drift_history(history, |_| true).await.unwrap();
            }
            let expected = checks(&[("a/dev", 10), ("b/dev", 20), ("c/dev", 1)], 10);
            assert_eq!(stored(&states).await, expected);
        }
    }

    #[tokio::test]
    async fn a_stack_that_is_gone_is_left_out() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let states = fixture::states(&store, &Arc::default());
        let both = checks(&[("a/dev", 1), ("b/dev", 1)], 1);
        states.save_drift_history(both, |_| true).await.unwrap();
        let gone = fixture::stack("a/dev");
        let none = DriftHistory::default();
        states
            .save_drift_history(none, |stack| *stack != gone)
            .await
            .unwrap();
        assert_eq!(stored(&states).await, checks(&[("b/dev", 1)], 1));
    }

    #[tokio::test]
    async fn old_documents_go_and_the_one_before_the_newest_stays() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let states = fixture::states(&store, &Arc::default());
        for second in 1..=12 {
            let history = checks(&[("a/dev", second)], second);
            states.save_drift_history(history, |_| true).await.unwrap();
        }
        assert_eq!(stored(&states).await, checks(&[("a/dev", 12)], 12));
        let kept = store.list(&folder()).await.unwrap();
        assert!((2..=KEPT).contains(&kept.len()), "{kept:?}");
        assert!(kept.contains(&place(11)), "{kept:?}");
    }
}
