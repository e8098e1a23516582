//! The review records. A preview writes them, and an apply compares its plan with them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{StateError, StateStore, document_format::CreateResult, state_store::in_flight};
use crate::store::Key;
use konverge_base::model::{
    CommitId, Shard,
    review::{RecordedComment, ReviewRecord, ReviewedStack},
};

/// The parts of a review record's key in the store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ReviewKey {
    /// Number of the pull request.
    pub pull_request: u64,
    /// The head commit that was previewed.
    pub head: CommitId,
    /// The number of the run; later runs have higher numbers.
    pub run: u64,
    /// Attempt of the workflow run.
    pub attempt: u32,
    /// The shard, if the preview was distributed over several jobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<Shard>,
}

impl ReviewKey {
    fn place(&self) -> Key {
        self.document("")
    }

    /// Returns the key of the record of the comment that showed this review, which is not a review record.
    fn comment(&self) -> Key {
        self.document(".comment")
    }

    /// Returns the key with this end. Its last part is `<run>-<attempt>`, plus `-<number>of<all>` for a shard, because
    /// all jobs of a run share its number and attempt.
    fn document(&self, end: &str) -> Key {
        let share = self.share.map_or_else(String::new, |share| {
            format!("-{}", share.to_string().replace('/', "of"))
        });
        let name = format!("{}-{}{share}{end}", self.run, self.attempt);
        let head = pull_request(self.pull_request).child(self.head.as_str());
        head.child(&name)
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

impl StateStore {
    /// Returns the review records of this repository.
    pub fn reviews(&self) -> ReviewStore<'_> {
        ReviewStore { states: self }
    }
}

impl ReviewStore<'_> {
    /// Saves a record. Returns true if it is new. Returns false if the same run, attempt and shard already
    /// saved another record, which stays.
    ///
    /// # Errors
    /// The store fails.
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
        let created = self.states.create("review", &key.place(), record).await?;
        Ok(matches!(created, CreateResult::Ours))
    }

    /// Records the comment that showed a review, once for each run, attempt and shard.
    ///
    /// # Errors
    /// The store fails.
    pub async fn save_comment(&self, key: &ReviewKey, comment: &RecordedComment) -> Result<(), StateError> {
        let place = key.comment();
        self.states.create("review-comment", &place, comment).await?;
        Ok(())
    }

    async fn load_comment(&self, place: &ReviewKey) -> Result<Option<RecordedComment>, StateError> {
        let key = place.comment();
        let Some(bytes) = self.states.store.get(&key).await? else {
            return Ok(None);
        };
        let read = self
            .states
            .envelopes
            .read_marked("review-comment", &key, &bytes)?;
        Ok(read.map(|(_, comment)| comment))
    }

    /// Returns the keys of all records, sorted by pull request, head, run and attempt.
    ///
    /// # Errors
    /// The store fails.
    pub async fn list(&self) -> Result<Vec<ReviewKey>, StateError> {
        self.list_keys(&Key::from_components(&["reviews"])).await
    }

    /// Returns the keys of one pull request's records.
    ///
    /// # Errors
    /// The store fails.
    pub async fn list_for_pull_request(&self, number: u64) -> Result<Vec<ReviewKey>, StateError> {
        self.list_keys(&pull_request(number)).await
    }

    /// Returns the last preview of a pull request's head: the record of the last attempt of the last run, or
    /// of the last attempt of each shard, because a re-run repeats only failed jobs. The records are not
    /// merged, because each was made under its own policy. The stacks of a shard without a record are
    /// missing, and a record without a mark of a known key is ignored.
    ///
    /// # Errors
    /// The store fails, or a record is damaged or of another repository.
    pub async fn latest(&self, number: u64, head: &CommitId) -> Result<Vec<ReviewRecord>, StateError> {
        let mut keys = self.list_for_pull_request(number).await?;
        keys.retain(|key| key.head == *head);
        let mut runs: BTreeMap<u64, BTreeMap<Option<Shard>, Vec<ReviewKey>>> = BTreeMap::new();
        for key in keys {
            let shares = runs.entry(key.run).or_default();
            shares.entry(key.share).or_default().push(key);
        }
        for shares in runs.into_values().rev() {
            let mut records = Vec::new();
            for attempts in shares.into_values() {
                records.extend(self.last_attempt(attempts).await?);
            }
            if !records.is_empty() {
                return Ok(records);
            }
        }
        Ok(Vec::new())
    }

    /// Returns the record of the last of these sorted attempts that has one.
    async fn last_attempt(&self, attempts: Vec<ReviewKey>) -> Result<Option<ReviewRecord>, StateError> {
        for key in attempts.into_iter().rev() {
            if let Some(record) = self.load(&key).await? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Returns the last preview of another head of a pull request, made by an earlier run, like
    /// [`ReviewStore::latest`].
    ///
    /// # Errors
    /// Errors of [`ReviewStore::latest`].
    pub async fn earlier(
        &self,
        number: u64,
        head: &CommitId,
        run: u64,
    ) -> Result<Vec<ReviewRecord>, StateError> {
        let keys = self.list_for_pull_request(number).await?.into_iter();
        let last = keys
            .filter(|key| key.head != *head && key.run < run)
            .max_by_key(|key| key.run);
        match last {
            Some(last) => self.latest(number, &last.head).await,
            None => Ok(Vec::new()),
        }
    }

    /// Returns the latest records of the other shards of a run. A shard must save its own record first: then
    /// of two concurrent shards at least one sees the other.
    ///
    /// # Errors
    /// Errors of [`ReviewStore::latest`].
    pub async fn other_shares(
        &self,
        number: u64,
        head: &CommitId,
        run: u64,
        share: Shard,
    ) -> Result<Vec<ReviewedStack>, StateError> {
        let keys = self.list_for_pull_request(number).await?.into_iter();
        let others = keys.filter(|key| key.head == *head && key.run == run);
        let others = others.filter(|key| key.share.is_some_and(|other| other != share));
        let mut shares: BTreeMap<Option<Shard>, Vec<ReviewKey>> = BTreeMap::new();
        for key in others {
            shares.entry(key.share).or_default().push(key);
        }
        let records = in_flight(shares.into_values().map(|attempts| self.last_attempt(attempts)));
        let records = records.await?.into_iter().flatten();
        Ok(records.flat_map(|record| record.stacks).collect())
    }

    /// Reads a record; `None` if it has no mark of a known key.
    ///
    /// # Errors
    /// The store fails, or the record is damaged, of another repository, or stored under a wrong key.
    pub async fn load(&self, place: &ReviewKey) -> Result<Option<ReviewRecord>, StateError> {
        let key = place.place();
        let Some(bytes) = self.states.get_or_copy(&key).await? else {
            return Ok(None);
        };
        let read = self.states.envelopes.read_marked("review", &key, &bytes)?;
        let Some((_, mut record)): Option<(_, ReviewRecord)> = read else {
            return Ok(None);
        };
        if record.pull_request != place.pull_request || record.head != place.head {
            let (number, head) = (record.pull_request, record.head);
            let why = format!("it is a review of pull request {number} at {head}");
            return Err(StateError::damaged(&key, why));
        }
        if !record.findings.is_empty() {
            record.comment = self.load_comment(place).await?;
        }
        Ok(Some(record))
    }

    /// Deletes the record of a pull request that was closed unmerged, or applied to all of its stacks.
    ///
    /// # Errors
    /// The store fails.
    pub async fn forget(&self, place: &ReviewKey) -> Result<(), StateError> {
        self.states.store.delete(&place.comment()).await?;
        Ok(self.states.store.delete(&place.place()).await?)
    }

    async fn list_keys(&self, folder: &Key) -> Result<Vec<ReviewKey>, StateError> {
        let keys = self.states.store.list(folder).await?;
        let mut places: Vec<_> = keys.iter().filter_map(ReviewKey::parse).collect();
        places.sort_unstable();
        Ok(places)
    }
}

#[cfg(test)]
#[path = "reviews_tests.rs"]
mod tests;
