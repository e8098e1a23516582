//! The index: a short entry for each stack, so that pending stacks are found without reading their states.
//!
//! Entries only advance: of two entries of one stack, the one with the later lease wins, and within a lease
//! the end wins over the beginning. So deltas may be read twice and in any order, several runs may write
//! concurrently, and a compaction loses nothing.
//!
//! A stack is *open* from before its first write to the infrastructure until its state records the end. An
//! open stack is looked up in its state. The index is never the source of truth: if it is deleted, it is
//! rebuilt.
//!
//! An index document without a mark of a known key is reported and skipped, and no compaction includes it: an
//! older compaction and later deltas contain the same entries.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    DriftCheck, Proven, StateError, StateStore,
    document_format::CreateResult,
    index_entry::{IndexEntry, IndexedStates, StoppedApply},
    keys::{self, RowKeys},
    state_store::{Finished, in_flight},
};
use crate::store::Key;
use konverge_base::{
    error::chain,
    model::{StackId, state::JournalEntry},
};

/// Maximum number of deltas besides a compaction. With more, the next run that may write compacts them.
const DELTAS_KEPT: usize = 8;
/// The number of listed deltas, including merged ones, above which a run that has not read the index reads it at its
/// end, to compact it.
const DELTAS_LISTED: usize = 4 * DELTAS_KEPT;
/// An apply of fewer resources leaves its entry open, because looking the stack up costs less than another
/// write.
const WORTH_A_DELTA: usize = 20;
/// Number of compactions kept. A reader that listed before the newest one was written still finds an older
/// one.
const COMPACTIONS_KEPT: u64 = 3;
/// The number of times that a listing is repeated after a compaction made it outdated.
const STALE_LISTINGS: u32 = 5;

#[derive(Default, Serialize, Deserialize)]
struct Delta {
    entries: BTreeMap<StackId, IndexEntry>,
    /// The drift checks that the writer knew; `None` if it read none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    drift: Option<BTreeMap<StackId, DriftCheck>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    stopped: BTreeMap<StackId, StoppedApply>,
}

/// The result of reading a listed delta.
enum FoundDelta {
    Read(Delta),
    /// The delta has no mark of a known key.
    Unmarked,
    Damaged,
    /// A compaction has deleted the delta.
    Gone,
}

#[derive(Serialize, Deserialize)]
struct Compaction {
    entries: BTreeMap<StackId, IndexEntry>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    drift: Option<BTreeMap<StackId, DriftCheck>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    stopped: BTreeMap<StackId, StoppedApply>,
    /// The names of the merged deltas. Only the next compaction deletes them, so that a reader with an older
    /// listing still finds them.
    merged: BTreeSet<String>,
}

fn index_folder() -> Key {
    Key::from_components(&["index"])
}

fn compaction_key(number: u64) -> Key {
    index_folder().child("compaction").child(&keys::number(number))
}

fn delta_key(name: &str) -> Key {
    index_folder().child("delta").child(name)
}

fn join(entries: &mut BTreeMap<StackId, IndexEntry>, more: impl IntoIterator<Item = (StackId, IndexEntry)>) {
    for (stack, entry) in more {
        let Some(there) = entries.remove(&stack) else {
            entries.insert(stack, entry);
            continue;
        };
        let (older, mut newer) = if there.rank() >= entry.rank() {
            (entry, there)
        } else {
            (there, entry)
        };
        // An opening entry may lack the number of resources, so that of the older entry is kept.
        if newer.open && newer.resources == 0 {
            newer.resources = older.resources;
            newer.marks = older.marks;
            newer.places = older.places;
            newer.folder = older.folder;
            newer.guarded_as = older.guarded_as;
            newer.commit = older.commit;
            newer.summary = older.summary;
        }
        entries.insert(stack, newer);
    }
}

impl StateStore {
    /// Returns the index, read once per run and shared by all callers. Entries only advance, so an older
    /// reading was correct at its time. Code that needs the current state of a stack reads the stack itself,
    /// under its lease.
    ///
    /// # Errors
    /// Errors of [`StateStore::read_all`].
    pub async fn known(&self) -> Result<&Proven<IndexedStates>, StateError> {
        let known = self.known.get_or_try_init(|| async {
            let index = self.index().await?.clone().into_inner();
            self.completed(index).await
        });
        known.await
    }

    /// Reads the current index without writing: one LIST, one compaction and the later deltas; two more
    /// requests for each stack that an apply left open.
    ///
    /// # Errors
    /// The store fails. A damaged index document is skipped, and the index is rebuilt from the states.
    pub async fn read_all(&self) -> Result<Proven<IndexedStates>, StateError> {
        let index = self.read_index().await?;
        self.completed(index).await
    }

    /// Returns the index as its documents have it, read once per run. Open stacks are not looked up.
    async fn index(&self) -> Result<&Proven<IndexedStates>, StateError> {
        let read = async || self.read_index().await.map(Proven::new);
        self.index.get_or_try_init(read).await
    }

    async fn completed(&self, mut index: IndexedStates) -> Result<Proven<IndexedStates>, StateError> {
        if !index.complete {
            return self.rebuild_index().await;
        }
        self.look_up_open(&mut index).await?;
        Ok(Proven::new(index))
    }

    /// Writes a compaction of the index that [`StateStore::read_all`] returned, if that saves requests later.
    /// For runs that may write, once at their start.
    ///
    /// # Errors
    /// The store fails.
    pub async fn maintain_index(&self, known: &IndexedStates) -> Result<(), StateError> {
        if known.rebuilt || known.unmerged.len() > DELTAS_KEPT {
            self.compact(known).await.map(|_| ())
        } else if !known.found.is_empty() {
            self.write_delta(known.compaction, known.found.clone()).await
        } else {
            Ok(())
        }
    }

    /// Announces in one write that this run will work on these stacks. Optional: other stacks are announced
    /// one by one, at their first journal entry.
    ///
    /// # Errors
    /// The store fails.
    pub async fn announce_run(&self, known: &IndexedStates, stacks: &[StackId]) -> Result<(), StateError> {
        let opened = |stack: &StackId| {
            let before = known.entries.get(stack);
            let (epoch, serial) = before.map_or((0, 0), |entry| (entry.epoch, entry.serial));
            // If an earlier run announced the stack but did not reach it, the lease with this epoch was never
            // taken, so the epoch is kept. A higher one would outrank the end of the apply.
            let epoch = epoch + u64::from(!known.is_open(stack));
            (stack.clone(), IndexEntry::open(epoch, serial, before))
        };
        let entries: BTreeMap<_, _> = stacks.iter().map(opened).collect();
        if entries.len() < 2 {
            return Ok(());
        }
        self.write_delta(known.compaction, entries.clone()).await?;
        let mut finished = self.finished();
        finished
            .announced
            .extend(entries.into_iter().map(|(stack, entry)| (stack, entry.epoch)));
        Ok(())
    }

    /// Records in the index that this run's applies have ended, in one write at the end of the run. Optional:
    /// other entries stay open, and their stacks are looked up.
    ///
    /// # Errors
    /// The store fails.
    pub async fn save_index(&self) -> Result<(), StateError> {
        let (delta, resources, deltas) = {
            let mut finished = self.finished();
            let delta = Delta {
                entries: std::mem::take(&mut finished.entries),
                drift: None,
                stopped: std::mem::take(&mut finished.stopped),
            };
            (
                delta,
                std::mem::take(&mut finished.resources),
                std::mem::take(&mut finished.deltas),
            )
        };
        let entries = &delta.entries;
        // The first state of a stack is always recorded: otherwise a loss of all its documents would not be
        // noticed.
        let has_first = entries.values().any(|entry| entry.serial <= 1);
        // With encrypted documents, the newest serial is recorded each time: somebody without a key can still
        // delete documents, and only the index reveals that.
        let is_small =
            entries.len() == 1 && (1..WORTH_A_DELTA).contains(&resources) && !self.envelopes.seal_documents;
        let is_settled = delta.stopped.is_empty()
            && (entries.is_empty() || self.settle_by_compaction(entries).await? || (is_small && !has_first));
        if is_settled {
            return Ok(());
        }
        self.write_index_delta(0, &delta).await?;
        // This run announced many stacks one by one, each with a delta. So it compacts the index itself.
        if deltas > DELTAS_KEPT {
            let known = self.read_all().await?;
            self.maintain_index(&known).await?;
        }
        Ok(())
    }

    /// Writes a compaction instead of a delta if one is due, so that the index stays short even if every run ends with
    /// this call. Returns true if the compaction was written.
    async fn settle_by_compaction(
        &self,
        entries: &BTreeMap<StackId, IndexEntry>,
    ) -> Result<bool, StateError> {
        if self.finished().compacted {
            return Ok(false);
        }
        if !self.index.initialized() {
            let (_, deltas) = names(&self.store.list(&index_folder()).await?);
            if deltas.len() <= DELTAS_LISTED {
                return Ok(false);
            }
        }
        let index = self.index().await?;
        if index.complete && index.unmerged.len() <= DELTAS_KEPT {
            return Ok(false);
        }
        let known = self.completed(index.clone().into_inner()).await?;
        let mut known = known.into_inner();
        join(&mut known.entries, entries.clone());
        self.compact(&known).await
    }

    /// Writes a compaction if an index document is not marked for the current recipients.
    pub(super) async fn mark_index(&self) -> Result<bool, StateError> {
        let known = self.read_all().await?;
        let deltas = known.unmerged.iter().map(|name| delta_key(name));
        for key in deltas.chain([compaction_key(known.compaction)]) {
            if let Some(bytes) = self.store.get(&key).await?
                && !self.envelopes.is_current(&key, &bytes).unwrap_or(false)
            {
                return self.compact(&known).await;
            }
        }
        Ok(false)
    }

    /// Lists the stacks that have documents, by their keys only.
    ///
    /// # Errors
    /// The store fails.
    pub async fn stacks(&self) -> Result<Vec<StackId>, StateError> {
        Ok(self.keys_by_stack().await?.into_keys().collect())
    }

    async fn keys_by_stack(&self) -> Result<BTreeMap<StackId, Vec<Key>>, StateError> {
        let mut by_stack: BTreeMap<StackId, Vec<Key>> = BTreeMap::new();
        for key in self.store.list(&keys::stacks()).await? {
            if let Some(stack) = keys::stack_of(&key) {
                by_stack.entry(stack).or_default().push(key);
            }
        }
        Ok(by_stack)
    }

    /// Rebuilds the index from all states, without using its content.
    ///
    /// # Errors
    /// The store fails.
    pub async fn rebuild_index(&self) -> Result<Proven<IndexedStates>, StateError> {
        let rows = self.keys_by_stack().await?.into_iter();
        let entries = in_flight(rows.map(|(stack, keys)| async move {
            let entry = self.entry_from_rows(&stack, RowKeys::parse(&keys)).await?;
            Ok((stack, entry))
        }))
        .await?;
        let (compactions, deltas) = names(&self.store.list(&index_folder()).await?);
        let mut known = IndexedStates {
            compaction: compactions.last().copied().unwrap_or(0),
            complete: true,
            rebuilt: true,
            unmerged: deltas,
            ..IndexedStates::default()
        };
        join(
            &mut known.entries,
            entries
                .into_iter()
                .filter_map(|(stack, entry)| Some((stack, entry?))),
        );
        // The drift history is only for schedules and display, so an error does not stop the rebuild.
        match self.drift_history().await {
            Ok(history) => known.drift = Some(for_index(history.stacks)),
            Err(error) => {
                tracing::warn!(error = %chain(&error), "the index is rebuilt without the drift history")
            }
        }
        // An announcement of work that has not reached its stack yet is only in the deltas. For finished
        // work, the documents of the stack decide. A stack that is older than its delta was restored from a
        // backup, or its apply ended after the listing, so it is read again.
        let mut with_documents: BTreeSet<_> = known.entries.keys().cloned().collect();
        let mut behind = BTreeSet::new();
        for (name, delta) in self.deltas(&known.unmerged).await? {
            match delta {
                FoundDelta::Read(delta) => {
                    let (open, ended): (Vec<_>, Vec<_>) =
                        delta.entries.into_iter().partition(|(_, entry)| entry.open);
                    join(&mut known.entries, open);
                    let is_behind = |(stack, entry): &(StackId, IndexEntry)| {
                        let there = known.entries.get(stack);
                        there.is_none_or(|there| there.rank() < entry.rank())
                    };
                    behind.extend(ended.into_iter().filter(is_behind).map(|(stack, _)| stack));
                    known.join_events(delta.drift, delta.stopped);
                }
                FoundDelta::Unmarked => {
                    known.unmerged.remove(&name);
                }
                FoundDelta::Damaged | FoundDelta::Gone => {}
            }
        }
        let found = self.entries_now(behind).await?.into_iter();
        let found: Vec<_> = found.filter_map(|(stack, entry)| Some((stack, entry?))).collect();
        with_documents.extend(found.iter().map(|(stack, _)| stack.clone()));
        join(&mut known.entries, found);
        let announced = known
            .entries
            .iter()
            .filter(|(stack, entry)| entry.is_announcement() && !with_documents.contains(*stack));
        known.untouched = announced.map(|(stack, _)| stack.clone()).collect();
        Ok(Proven::new(known))
    }

    /// Returns the index entry of a stack if a state of it was written and it is not retired.
    pub(super) async fn written_entry(&self, stack: &StackId) -> Result<Option<&IndexEntry>, StateError> {
        let entry = self.index().await?.entries.get(stack);
        Ok(entry.filter(|entry| entry.serial > 0 && !entry.retired))
    }

    pub(super) fn finished(&self) -> std::sync::MutexGuard<'_, Finished> {
        self.finished.lock().expect("no panic while the lock is held")
    }

    /// Records in the index that a run works on a stack under this lease.
    pub(super) async fn announce(&self, stack: &StackId, epoch: u64, serial: u64) -> Result<(), StateError> {
        {
            let mut finished = self.finished();
            if finished.announced.get(stack) == Some(&epoch) {
                return Ok(());
            }
            finished.deltas += 1;
        }
        let entry = IndexEntry::open(epoch, serial, None);
        self.write_delta(0, BTreeMap::from([(stack.clone(), entry)]))
            .await
    }

    /// Reads the documents of the index: one LIST, the newest compaction and the deltas that are not in it. A
    /// damaged document is skipped. Without a readable compaction the result is not complete.
    async fn read_index(&self) -> Result<IndexedStates, StateError> {
        let mut index = IndexedStates::default();
        for _ in 0..STALE_LISTINGS {
            let (compactions, deltas) = names(&self.store.list(&index_folder()).await?);
            index = IndexedStates {
                compaction: compactions.last().copied().unwrap_or(0),
                ..IndexedStates::default()
            };
            // A document that was listed and is gone was deleted after a later compaction, so the listing is
            // outdated.
            let mut is_outdated = false;
            for number in compactions.iter().rev() {
                let key = compaction_key(*number);
                let Some(bytes) = self.store.get(&key).await? else {
                    is_outdated = true;
                    break;
                };
                let read = self.envelopes.read_marked::<Compaction>("index", &key, &bytes);
                match undamaged(read)? {
                    Some(Some((_, compaction))) => {
                        index.complete = true;
                        index.entries = compaction.entries;
                        index.join_events(compaction.drift, compaction.stopped);
                        index.merged = compaction.merged;
                        break;
                    }
                    // This compaction has no mark of a known key. The one before it and the later deltas
                    // contain the same entries.
                    Some(None) => {}
                    None => break,
                }
            }
            (index.merged, index.unmerged) = deltas.into_iter().partition(|name| index.merged.contains(name));
            for (name, delta) in self.deltas(&index.unmerged).await? {
                match delta {
                    FoundDelta::Read(delta) => {
                        join(&mut index.entries, delta.entries);
                        index.join_events(delta.drift, delta.stopped);
                    }
                    FoundDelta::Unmarked => {
                        index.unmerged.remove(&name);
                    }
                    FoundDelta::Damaged => index.complete = false,
                    FoundDelta::Gone => is_outdated = true,
                }
            }
            if !is_outdated {
                return Ok(index);
            }
        }
        index.complete = false;
        Ok(index)
    }

    /// Reads deltas by name.
    async fn deltas(&self, names: &BTreeSet<String>) -> Result<Vec<(String, FoundDelta)>, StateError> {
        let names: Vec<_> = names.iter().cloned().collect();
        in_flight(names.into_iter().map(|name| async move {
            let key = delta_key(&name);
            let Some(bytes) = self.store.get(&key).await? else {
                return Ok((name, FoundDelta::Gone));
            };
            let read = undamaged(self.envelopes.read_marked("index", &key, &bytes))?;
            let found = match read {
                Some(Some((_, delta))) => FoundDelta::Read(delta),
                Some(None) => FoundDelta::Unmarked,
                None => FoundDelta::Damaged,
            };
            Ok((name, found))
        }))
        .await
    }

    async fn look_up_open(&self, known: &mut IndexedStates) -> Result<(), StateError> {
        let open: Vec<_> = known
            .entries
            .iter()
            .filter(|(_, entry)| entry.open)
            .map(|(stack, _)| stack.clone())
            .collect();
        for (stack, found) in self.entries_now(open).await? {
            let Some(there) = known.entries.get(&stack) else {
                continue;
            };
            match found {
                // The entry stays in the index: the run that announced the stack may be about to reach it.
                None if there.is_announcement() => {
                    known.untouched.insert(stack);
                }
                // The lease that left the entry open, or a later one, has ended.
                Some(entry) if !entry.open && there.epoch <= entry.epoch => {
                    known.entries.insert(stack.clone(), entry.clone());
                    known.found.insert(stack, entry);
                }
                // The document was written after the announcement, but under an earlier lease than
                // expected, because other runs had announced the stack and not reached it. The index keeps
                // the entry open, and the stack is looked up each time.
                Some(entry) if !entry.open && there.serial < entry.serial => {
                    known.entries.insert(stack, entry);
                }
                None | Some(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the current entries of stacks from their documents; `None` for a stack that has none.
    async fn entries_now(
        &self,
        stacks: impl IntoIterator<Item = StackId>,
    ) -> Result<Vec<(StackId, Option<IndexEntry>)>, StateError> {
        in_flight(stacks.into_iter().map(|stack| async move {
            let entry = self.entry_of(&stack).await?;
            Ok((stack, entry))
        }))
        .await
    }

    /// Returns the current entry of a stack from its documents.
    pub(super) async fn entry_of(&self, stack: &StackId) -> Result<Option<IndexEntry>, StateError> {
        let rows = RowKeys::parse(&self.store.list(&keys::stack(stack)).await?);
        self.entry_from_rows(stack, rows).await
    }

    /// Builds the entry of a stack from its documents; `None` if they contain no change. The entry is open if
    /// a journal follows the state, or if the state cannot be read.
    async fn entry_from_rows(
        &self,
        stack: &StackId,
        rows: RowKeys,
    ) -> Result<Option<IndexEntry>, StateError> {
        let newest_lease = rows.lease().map_or(0, |(epoch, _)| epoch);
        let serial = rows.serial();
        let reading = match self.read_rows(stack, rows).await {
            Ok(Some(reading)) => reading,
            Ok(None)
            | Err(StateError::Damaged { .. } | StateError::Foreign { .. } | StateError::Future { .. }) => {
                return Ok(Some(IndexEntry::open(newest_lease, serial.unwrap_or(0), None)));
            }
            Err(error) => return Err(error),
        };
        let Some((header, document)) = &reading.document else {
            // Names and folder are written to the journal before any change, even if the plan is refused
            // then, so they do not count as a change.
            let journaled = reading
                .entries
                .iter()
                .any(|entry| !matches!(entry, JournalEntry::Names { .. } | JournalEntry::Folder { .. }));
            return Ok(journaled.then(|| IndexEntry::open(newest_lease, 0, None)));
        };
        let summary = self.summarize(document, &header.writer, header.time);
        let mut entry = IndexEntry::from_document(document, summary);
        if !reading.entries.is_empty() {
            entry = IndexEntry::open(newest_lease.max(entry.epoch), entry.serial, Some(&entry));
        }
        Ok(Some(entry))
    }

    /// Writes the drift checks of a run to the index.
    pub(super) async fn index_drift(&self, drift: BTreeMap<StackId, DriftCheck>) -> Result<(), StateError> {
        let delta = Delta {
            drift: Some(for_index(drift)),
            ..Delta::default()
        };
        self.write_index_delta(0, &delta).await
    }

    async fn write_delta(
        &self,
        compaction: u64,
        entries: BTreeMap<StackId, IndexEntry>,
    ) -> Result<(), StateError> {
        let delta = Delta {
            entries,
            ..Delta::default()
        };
        self.write_index_delta(compaction, &delta).await
    }

    async fn write_index_delta(&self, compaction: u64, delta: &Delta) -> Result<(), StateError> {
        let key = delta_key(&format!(
            "{}-{}",
            keys::number(compaction),
            Uuid::new_v4().simple()
        ));
        self.create("index", &key, delta).await.map(drop)
    }

    /// Writes the next compaction, and deletes the deltas that the previous one had merged. If another run
    /// was faster, nothing is lost: the deltas still exist. Returns true if it was written.
    async fn compact(&self, known: &IndexedStates) -> Result<bool, StateError> {
        let compaction = Compaction {
            entries: known.entries.clone(),
            drift: known.drift.clone(),
            stopped: known.stopped.clone(),
            merged: known.unmerged.union(&known.merged).cloned().collect(),
        };
        let number = known.compaction + 1;
        let key = compaction_key(number);
        if let CreateResult::Theirs(_) = self.create("index", &key, &compaction).await? {
            return Ok(false);
        }
        let deltas = known.merged.iter().map(|name| delta_key(name));
        let old = number.checked_sub(COMPACTIONS_KEPT).map(compaction_key);
        let keys: Vec<_> = deltas.chain(old).collect();
        let deletes: Vec<_> = keys.iter().map(|key| self.store.delete(key)).collect();
        for result in futures::future::join_all(deletes).await {
            if let Err(error) = result {
                tracing::debug!(error = %chain(&error), "the index kept an old document");
            }
        }
        self.finished().compacted = true;
        Ok(true)
    }
}

/// Returns the checks without the parts that only the drift history contains.
fn for_index(drift: BTreeMap<StackId, DriftCheck>) -> BTreeMap<StackId, DriftCheck> {
    let drift = drift.into_iter();
    drift.map(|(stack, check)| (stack, check.for_index())).collect()
}

/// Converts the error of a damaged document to `None`, because the index is then rebuilt from the states.
fn undamaged<T>(read: Result<T, StateError>) -> Result<Option<T>, StateError> {
    match read {
        Ok(document) => Ok(Some(document)),
        Err(StateError::Damaged { key, why }) => {
            tracing::warn!(
                key,
                why = chain(&*why),
                "a damaged document of the index is skipped"
            );
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Returns the numbers of the compactions and the names of the deltas in a listing.
fn names(listed: &[Key]) -> (Vec<u64>, BTreeSet<String>) {
    let (mut compactions, mut deltas) = (Vec::new(), BTreeSet::new());
    for key in listed {
        if let Some(number) = key.as_str().strip_prefix("index/compaction/") {
            compactions.extend(keys::parse_number(number));
        } else if let Some(name) = key.as_str().strip_prefix("index/delta/") {
            deltas.insert(name.to_owned());
        }
    }
    compactions.sort_unstable();
    (compactions, deltas)
}

#[cfg(test)]
#[path = "index_tests.rs"]
mod tests;
