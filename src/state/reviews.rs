//! Review records beside the states: what a preview leaves, and what an apply may rest on.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    StateError, StateStore, Versioned,
    document_format::{CreateResult, put},
};
use crate::{
    model::{CommitId, Shard, review::ReviewRecord},
    store::Key,
};

/// Where a review record stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ReviewKey {
    /// The pull request.
    pub pull_request: u64,
    /// The head that was previewed.
    pub head: CommitId,
    /// The run's number, by which later runs are told from earlier ones.
    pub run: u64,
    /// The run's attempt.
    pub attempt: u32,
    /// Which share of it, where the preview was dealt out over jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Shard>,
}

impl ReviewKey {
    fn place(&self) -> Key {
        pull_request(self.pull_request)
            .child(self.head.as_str())
            .child(&self.name())
    }

    /// `<run>-<attempt>`, and for a share `-<number>of<all>` behind it: all jobs of a run have its number and attempt.
    fn name(&self) -> String {
        let share = self.share.map_or_else(String::new, |share| {
            format!("-{}", share.to_string().replace('/', "of"))
        });
        format!("{}-{}{share}", self.run, self.attempt)
    }

    fn parse(key: &Key) -> Option<Self> {
        let mut parts = key.as_str().strip_prefix("reviews/")?.split('/');
        let pull_request = parts.next()?.parse().ok()?;
        let head = parts.next()?.parse().ok()?;
        let mut parts = parts.next()?.splitn(3, '-');
        Some(Self {
            pull_request,
            head,
            run: parts.next()?.parse().ok()?,
            attempt: parts.next()?.parse().ok()?,
            share: match parts.next() {
                Some(share) => Some(share.replacen("of", "/", 1).parse().ok()?),
                None => None,
            },
        })
    }
}

fn pull_request(number: u64) -> Key {
    Key::from_components(&["reviews", &number.to_string()])
}

/// The review records of a repository.
pub struct ReviewStore<'a> {
    pub(super) states: &'a StateStore,
}

impl ReviewStore<'_> {
    /// Saves a record. Whether it is new: the same run, attempt and share saved one before otherwise, and that one
    /// stays.
    ///
    /// # Errors
    /// The store's.
    pub async fn save(
        &self,
        record: &ReviewRecord,
        run: u64,
        attempt: u32,
        share: Option<Shard>,
    ) -> Result<bool, StateError> {
        let key = ReviewKey {
            pull_request: record.pull_request,
            head: record.head.clone(),
            run,
            attempt,
            share,
        };
        let letter = self.states.letter("review", record)?;
        Ok(matches!(
            put(&*self.states.store, &key.place(), &letter).await?,
            CreateResult::Ours
        ))
    }

    /// Every record's place, by pull request, head, run and attempt.
    ///
    /// # Errors
    /// The store's.
    pub async fn list(&self) -> Result<Vec<ReviewKey>, StateError> {
        self.list_keys(&Key::from_components(&["reviews"])).await
    }

    /// The places of one pull request's records.
    ///
    /// # Errors
    /// The store's.
    pub async fn list_for_pull_request(&self, number: u64) -> Result<Vec<ReviewKey>, StateError> {
        self.list_keys(&pull_request(number)).await
    }

    /// The last preview of a pull request's head: what its last run recorded in that run's last attempt. Of a run that
    /// was dealt out the last attempt of each share, joined: whoever starts failed jobs again leaves the others be. A
    /// share that recorded nothing leaves its stacks out.
    ///
    /// # Errors
    /// The store's; a damaged or foreign record.
    pub async fn latest(&self, number: u64, head: &CommitId) -> Result<Option<ReviewRecord>, StateError> {
        let mut keys = self.list_for_pull_request(number).await?;
        keys.retain(|key| key.head == *head);
        let last = keys.iter().map(|key| key.run).max();
        // They are sorted by attempt, and a later one takes the place of an earlier one.
        let shares: BTreeMap<_, _> = keys
            .into_iter()
            .filter(|key| Some(key.run) == last)
            .map(|key| (key.share, key))
            .collect();
        let mut joined: Option<ReviewRecord> = None;
        for key in shares.into_values() {
            let Some(record) = self.load(&key).await? else {
                continue;
            };
            match &mut joined {
                Some(joined) => joined.stacks.extend(record.stacks),
                None => joined = Some(record),
            }
        }
        Ok(joined)
    }

    /// A record by its place.
    ///
    /// # Errors
    /// The store's; a damaged or foreign record, or one that stands where it does not belong.
    pub async fn load(&self, place: &ReviewKey) -> Result<Option<ReviewRecord>, StateError> {
        let key = place.place();
        let Some(bytes) = self.states.store.get(&key).await? else {
            return Ok(None);
        };
        let (_, record): (_, ReviewRecord) = self.states.envelopes.read("review", &key, &bytes)?;
        if record.pull_request != place.pull_request || record.head != place.head {
            return Err(StateError::Damaged {
                key: key.to_string(),
                why: format!(
                    "it is a review of pull request {} at {}",
                    record.pull_request, record.head
                ),
            });
        }
        Ok(Some(record))
    }

    /// Deletes a record: its pull request was closed unmerged, or applied to every stack in it.
    ///
    /// # Errors
    /// The store's.
    pub async fn forget(&self, place: &ReviewKey) -> Result<(), StateError> {
        Ok(self.states.store.delete(&place.place()).await?)
    }

    async fn list_keys(&self, folder: &Key) -> Result<Vec<ReviewKey>, StateError> {
        let keys = self.states.store.list(folder).await?;
        let mut places: Vec<_> = keys.iter().filter_map(ReviewKey::parse).collect();
        places.sort_unstable();
        Ok(places)
    }
}

impl Versioned {
    /// Of these merged pull requests those whose reviews were not used up on this stack yet.
    pub fn unapplied_pull_requests<'a>(&'a self, merged: &'a [u64]) -> impl Iterator<Item = u64> + 'a {
        merged
            .iter()
            .copied()
            .filter(|number| !self.applied_reviews.contains(number))
    }
}
