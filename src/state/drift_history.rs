//! When each stack was looked at for drift: a row of whole documents, of which the highest counts. It only says whose
//! turn it is and since when something differs: deleted, the next look begins anew.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    StateError, StateStore,
    document_format::{CreateResult, put},
    keys,
};
use crate::{
    model::{Digest, StackId},
    store::Key,
};

/// Documents kept: a reader that listed before the newest was written still finds the one before.
const KEPT: usize = 3;
/// Two runs that write at once try again this often.
const TRIES: u32 = 5;

/// What is remembered of the looks for drift.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftHistory {
    /// By stack.
    pub stacks: BTreeMap<StackId, DriftCheck>,
    /// The end of the last run in which no look failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good: Option<Timestamp>,
}

/// The last look at one stack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriftCheck {
    /// When, by that machine's clock; also of a look that failed, so that it takes nobody else's turn.
    pub at: Timestamp,
    /// What was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<KnownDrift>,
}

/// A difference, and since when it is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownDrift {
    /// Over what differs.
    pub digest: Digest,
    /// When a difference was first seen, in an unbroken row of looks.
    pub since: Timestamp,
}

impl DriftHistory {
    /// Takes in what another run wrote meanwhile: of two looks the later counts.
    fn join(&mut self, other: Self) {
        self.good = self.good.max(other.good);
        for (stack, look) in other.stacks {
            match self.stacks.get(&stack) {
                Some(ours) if ours.at >= look.at => {}
                _ => {
                    self.stacks.insert(stack, look);
                }
            }
        }
    }
}

impl StateStore {
    /// What is remembered of the looks for drift; nothing if there was none. One LIST and one GET.
    ///
    /// # Errors
    /// The store's; a damaged or foreign document.
    pub async fn looks(&self) -> Result<DriftHistory, StateError> {
        Ok(self.newest_looks().await?.1)
    }

    /// Remembers looks. Of those that another run remembered meanwhile the later ones stay; stacks that are not to be
    /// kept are left out.
    ///
    /// # Errors
    /// The store's.
    pub async fn remember_looks(
        &self,
        mut looks: DriftHistory,
        keep: impl Fn(&StackId) -> bool,
    ) -> Result<(), StateError> {
        for _ in 0..TRIES {
            let (numbers, newest) = self.newest_looks().await?;
            looks.join(newest);
            looks.stacks.retain(|stack, _| keep(stack));
            let next = numbers.last().map_or(1, |newest| newest + 1);
            let letter = self.letter("looks", &looks)?;
            if let CreateResult::Ours = put(&*self.store, &place(next), &letter).await? {
                let old = numbers.iter().rev().skip(KEPT - 1);
                for number in old {
                    if let Err(error) = self.store.delete(&place(*number)).await {
                        tracing::debug!(%error, "an old document of looks was left behind");
                    }
                }
                return Ok(());
            }
        }
        Err(StateError::Missing(format!(
            "others wrote down their looks for drift at the same time, {TRIES} times"
        )))
    }

    async fn newest_looks(&self) -> Result<(Vec<u64>, DriftHistory), StateError> {
        let listed = self.store.list(&folder()).await?;
        let mut numbers: Vec<u64> = listed.iter().filter_map(|key| key.last().parse().ok()).collect();
        numbers.sort_unstable();
        for number in numbers.iter().rev() {
            let key = place(*number);
            if let Some(bytes) = self.store.get(&key).await? {
                let (_, looks) = self.envelopes.read("looks", &key, &bytes)?;
                return Ok((numbers, looks));
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
