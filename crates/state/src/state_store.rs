//! Reads the states of one repository in a store. Writing needs a [`super::Lease`].

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use serde::{Serialize, Serializer, de::DeserializeOwned};

use super::{
    Clock, DocumentWriter, IndexEntry, IndexedStates, NamedKeyService, Proven, RepositoryId, Sealer,
    StateError, StoppedApply, SystemClock, Versioned, WriteReason,
    document_format::{self, CreateResult, Documents, Header, OutgoingDocument, SkippedDocuments},
    journal::{self, JournalDocument},
    keys::{self, RowKeys},
    state_document::{JournalPlace, StateDocument},
};
use crate::store::{Key, Store};
use konverge_base::{
    error::chain,
    model::{
        StackFolder, StackId,
        apply_record::ApplyRecord,
        state::{JournalEntry, StackState},
    },
};

/// The data that the key of a [`StateStore`] encrypts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealScope {
    /// Single values only, such as the data of a runtime.
    Values,
    /// Whole states and journals as well. Without a key, none is written.
    Documents,
}

/// The number of times that a listing is repeated after another run's clean-up made it outdated.
const STALE_LISTINGS: u32 = 5;
/// Maximum number of concurrent requests when many documents are read.
const IN_FLIGHT: usize = 32;
/// The default number of serials kept for each stack.
const DEFAULT_RETENTION: u64 = 50;

/// All states of a repository. Cheap to clone.
#[derive(Clone)]
pub struct StateStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) envelopes: Documents,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) retention: u64,
    pub(super) key_services: Vec<NamedKeyService>,
    pub(super) finished: Arc<std::sync::Mutex<Finished>>,
    /// The index when this run first read it.
    pub(super) index: Arc<tokio::sync::OnceCell<Proven<IndexedStates>>>,
    /// The same index, with open stacks looked up.
    pub(super) known: Arc<tokio::sync::OnceCell<Proven<IndexedStates>>>,
}

/// The index entries of this run that are not written yet.
#[derive(Default)]
pub(super) struct Finished {
    pub entries: BTreeMap<StackId, IndexEntry>,
    /// Applies that ended without a new state.
    pub stopped: BTreeMap<StackId, StoppedApply>,
    /// The number of intents in the journals behind `entries`.
    pub resources: usize,
    /// Stacks that were announced together, with the epoch that their lease was expected to have.
    pub announced: BTreeMap<StackId, u64>,
    /// The epoch of this run's newest lease of each stack.
    pub leased: BTreeMap<StackId, u64>,
    /// The number of deltas that this run wrote for single stacks.
    pub deltas: usize,
    /// True if the index was compacted in this run, so that it is short and complete.
    pub compacted: bool,
}

/// The documents of one stack: the newest state, its journal, and the listing of both.
#[derive(Clone)]
pub(super) struct Reading {
    pub rows: RowKeys,
    pub document: Option<(Header, StateDocument)>,
    pub entries: Vec<JournalEntry>,
    /// The header of the newest journal entry, which names the writer if there is no state document.
    pub journal_header: Option<Header>,
}

/// One entry of a stack's history.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryLine {
    /// The serial of the state.
    pub serial: u64,
    /// The document, or the reason why it cannot be read. In JSON: its fields, or `unreadable`.
    #[serde(flatten, serialize_with = "readable")]
    pub document: Result<HistoryEntry, String>,
}

fn readable<S: Serializer>(
    document: &Result<HistoryEntry, String>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Unreadable<'a> {
        unreadable: &'a str,
    }
    match document {
        Ok(entry) => entry.serialize(serializer),
        Err(unreadable) => Unreadable { unreadable }.serialize(serializer),
    }
}

/// The summary of one serial.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryEntry {
    /// The reason for the write.
    pub reason: WriteReason,
    /// The run that wrote the document.
    pub writer: DocumentWriter,
    /// The time of the write, by the writer's clock.
    pub time: Timestamp,
    /// The applied commit.
    pub commit: Option<String>,
    /// The number of resources.
    pub resources: usize,
    /// The note for the history.
    pub note: Option<String>,
    /// The apply that ended with the document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ApplyRecord>,
}

impl StateStore {
    /// Returns the id of the repository.
    pub fn repository(&self) -> &RepositoryId {
        &self.envelopes.repository
    }

    /// Opens the states of a repository in a store, without a request.
    pub fn open(store: Arc<dyn Store>, repository: RepositoryId, writer: DocumentWriter) -> Self {
        Self {
            store,
            envelopes: Documents {
                repository,
                writer,
                sealer: None,
                seal_documents: false,
                accept_unmarked: false,
                skipped: SkippedDocuments::default(),
            },
            clock: Arc::new(SystemClock::default()),
            retention: DEFAULT_RETENTION,
            key_services: Vec::new(),
            finished: Arc::default(),
            index: Arc::default(),
            known: Arc::default(),
        }
    }

    /// Sets the key for encrypted documents, and which data it encrypts.
    #[must_use]
    pub fn with_sealer(mut self, sealer: Option<Sealer>, scope: SealScope) -> Self {
        self.envelopes.sealer = sealer;
        self.envelopes.seal_documents = scope == SealScope::Documents;
        self
    }

    /// Sets the writer that documents name from now on.
    #[must_use]
    pub fn with_writer(mut self, writer: DocumentWriter) -> Self {
        self.envelopes.writer = writer;
        self
    }

    /// Also reads documents without a mark, and states that are not encrypted.
    #[must_use]
    pub fn accepting_unmarked(mut self) -> Self {
        self.envelopes.accept_unmarked = true;
        self
    }

    /// Sets an observer that is called once for each document that is skipped because it has no mark.
    #[must_use]
    pub fn telling_skipped(mut self, observer: Arc<dyn Fn(&str) + Send + Sync>) -> Self {
        self.envelopes.skipped = SkippedDocuments::with_observer(observer);
        self
    }

    /// Sets the number of serials kept for each stack, at least 2. Serials of runs without changes do not
    /// count.
    #[must_use]
    pub fn with_retention(mut self, serials: u64) -> Self {
        self.retention = serials.max(2);
        self
    }

    /// Replaces the clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Returns the key that encrypts the data of runtimes, if there is one.
    pub fn sealer(&self) -> Option<&Sealer> {
        self.envelopes.sealer.as_ref()
    }

    /// Returns the store of the documents.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Returns the store as a shared pointer.
    pub fn shared_store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// Reads the newest state of a stack with its journal merged in, so that it contains every object that
    /// may exist. One LIST and one GET, plus one GET for each journal entry that a run left behind. `None` if
    /// nothing was ever recorded.
    ///
    /// # Errors
    /// The store fails, or a document is damaged, of another repository, or newer than this version of
    /// Konverge.
    pub async fn load(&self, stack: &StackId) -> Result<Option<Versioned>, StateError> {
        let reading = self.read(stack).await?;
        Ok(self.require_document(stack, reading).await?.merge(stack))
    }

    /// Returns an error if the newest state of a stack is gone, as its journal, its lease or the index shows.
    /// Somebody without a key cannot forge documents, but can delete them.
    pub(super) async fn require_document(
        &self,
        stack: &StackId,
        reading: Reading,
    ) -> Result<Reading, StateError> {
        let is_whole = |reading: &Reading| !reading.is_cut();
        // Without encryption, somebody who can delete a document can also write one, so a check of the index
        // would prove nothing.
        if is_whole(&reading) && reading.document.is_some() && !self.envelopes.seal_documents {
            return Ok(reading);
        }
        let written = self.written_entry(stack).await?.map(|entry| entry.serial);
        let is_there = |reading: &Reading| match (reading.rows.serial(), written) {
            _ if !is_whole(reading) => false,
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(newest), Some(serial)) => newest >= serial || !self.envelopes.seal_documents,
        };
        if is_there(&reading) {
            return Ok(reading);
        }
        // The state may have been written between the two reads, so it is read again.
        let reading = self.read(stack).await?;
        if is_there(&reading) {
            Ok(reading)
        } else {
            let newest = reading.rows.serial();
            Err(StateError::Vanished {
                stack: stack.clone(),
                serial: written.max(newest.map(|newest| newest + 1)).unwrap_or(1),
                newest,
            })
        }
    }

    /// Reads one serial as it was written, without a journal.
    ///
    /// # Errors
    /// Errors of [`StateStore::load`]; [`StateError::Missing`] if the serial does not exist or was deleted.
    pub async fn load_serial(&self, stack: &StackId, serial: u64) -> Result<Versioned, StateError> {
        match self.document(stack, serial).await? {
            Some((header, document)) => Ok(versioned(header, document)),
            None => Err(StateError::Missing(format!(
                "stack `{stack}` has no serial {serial}; `konverge state history {stack}` lists what is kept"
            ))),
        }
    }

    /// Lists the kept serials, the newest first. An unreadable document gives an entry with the reason.
    ///
    /// # Errors
    /// The store fails.
    pub async fn history(&self, stack: &StackId) -> Result<Vec<HistoryLine>, StateError> {
        let rows = RowKeys::parse(&self.store.list(&keys::stack(stack)).await?);
        let serials: Vec<u64> = rows.states.into_iter().rev().collect();
        in_flight(serials.into_iter().map(|serial| async move {
            let document = match self.document(stack, serial).await {
                Ok(Some((header, document))) => Ok(HistoryEntry {
                    reason: document.reason,
                    writer: header.writer,
                    time: header.time,
                    commit: document.state.commit.map(String::from),
                    resources: document.state.resources.len(),
                    note: document.note,
                    receipt: document.receipt,
                }),
                Ok(None) => Err("it was deleted meanwhile".to_owned()),
                Err(StateError::Store(error)) => return Err(StateError::Store(error)),
                Err(error) => Err(chain(&error)),
            };
            Ok(HistoryLine { serial, document })
        }))
        .await
    }

    /// Lists the stacks with a recorded state, by the index.
    ///
    /// # Errors
    /// Errors of [`StateStore::read_all`].
    pub async fn list(&self) -> Result<Vec<StackId>, StateError> {
        let known = self.read_all().await?.into_inner();
        Ok(known
            .entries
            .into_iter()
            .filter(|(_, entry)| entry.is_known())
            .map(|(stack, _)| stack)
            .collect())
    }

    /// Returns true if the index records that a state of the stack was written.
    ///
    /// # Errors
    /// The store fails.
    pub async fn was_written(&self, stack: &StackId) -> Result<bool, StateError> {
        Ok(self.written_entry(stack).await?.is_some())
    }

    /// Returns true if the store has or had a document of the stack, even if only a lease.
    ///
    /// # Errors
    /// The store fails.
    pub async fn has_documents(&self, stack: &StackId) -> Result<bool, StateError> {
        let documents = self.store.list(&keys::stack(stack)).await?;
        Ok(!documents.is_empty() || self.was_written(stack).await?)
    }

    /// Prepares a document for the key `place`, ready to be written.
    pub(super) fn letter<T: Serialize>(
        &self,
        kind: &str,
        place: &Key,
        body: &T,
    ) -> Result<OutgoingDocument, StateError> {
        self.envelopes.write(kind, place, self.clock.wall_clock(), body)
    }

    /// Creates a document under the key `place`, unless there is one.
    pub(super) async fn create<T: Serialize + Sync>(
        &self,
        kind: &str,
        place: &Key,
        body: &T,
    ) -> Result<CreateResult, StateError> {
        let letter = self.letter(kind, place, body)?;
        document_format::put(&*self.store, place, &letter).await
    }

    /// Reads a stack: the listing, the newest document, and the journal.
    pub(super) async fn read(&self, stack: &StackId) -> Result<Reading, StateError> {
        for _ in 0..STALE_LISTINGS {
            let rows = RowKeys::parse(&self.store.list(&keys::stack(stack)).await?);
            if let Some(reading) = self.read_rows(stack, rows).await? {
                return Ok(reading);
            }
        }
        Err(StateError::Missing(format!(
            "the documents of stack `{stack}` changed while they were read, {STALE_LISTINGS} times; try again"
        )))
    }

    /// Reads the newest document and the journal of a listing; `None` if the listing is outdated.
    pub(super) async fn read_rows(
        &self,
        stack: &StackId,
        rows: RowKeys,
    ) -> Result<Option<Reading>, StateError> {
        let document = match rows.serial() {
            None => None,
            Some(serial) => match self.document(stack, serial).await? {
                None => return Ok(None),
                found => found,
            },
        };
        // The document already contains the entries before this position.
        let from = document
            .as_ref()
            .map_or(JournalPlace::default(), |(_, document)| document.journal);
        let keys: Vec<Key> = rows
            .journals
            .range(from.epoch..)
            .flat_map(|(epoch, entries)| entries.iter().map(|entry| (*epoch, *entry)))
            .filter(|place| *place >= (from.epoch, from.entry))
            .map(|(epoch, entry)| keys::journal(stack, epoch, entry))
            .collect();
        let batches = in_flight(keys.into_iter().map(|key| async move {
            let bytes = self.store.get(&key).await?;
            Ok((key, bytes))
        }));
        let (mut entries, mut journal_header) = (Vec::new(), None);
        for (key, bytes) in batches.await? {
            // The entry was deleted because a later state contains it, so the listing is outdated.
            let Some(bytes) = bytes else { return Ok(None) };
            let (header, batch) = self.envelopes.read("journal", &key, &bytes)?;
            if let JournalDocument::Entries(batch) = batch {
                entries.extend(batch);
                journal_header = Some(header);
            }
        }
        Ok(Some(Reading {
            rows,
            document,
            entries,
            journal_header,
        }))
    }

    /// Returns the numbers of a row's documents, sorted.
    pub(super) async fn numbers(&self, row: &Key) -> Result<Vec<u64>, StateError> {
        Ok(keys::numbers(&self.store.list(row).await?))
    }

    /// Reads the newest document of a row that has a mark of a known key.
    pub(super) async fn newest_marked<T: DeserializeOwned>(
        &self,
        kind: &str,
        row: &Key,
        numbers: &[u64],
    ) -> Result<Option<(Header, T)>, StateError> {
        for number in numbers.iter().rev() {
            let key = row.child(&keys::number(*number));
            let bytes = self.get_listed(&key).await?;
            if let read @ Some(_) = self.envelopes.read_marked(kind, &key, &bytes)? {
                return Ok(read);
            }
        }
        Ok(None)
    }

    /// Returns a document that the store lists.
    pub(super) async fn get_listed(&self, key: &Key) -> Result<Bytes, StateError> {
        let bytes = self.store.get(key).await?;
        let gone = || StateError::Missing(format!("`{key}` is listed, but the store does not return it"));
        bytes.ok_or_else(gone)
    }

    pub(super) async fn document(
        &self,
        stack: &StackId,
        serial: u64,
    ) -> Result<Option<(Header, StateDocument)>, StateError> {
        let key = keys::state(stack, serial);
        let Some(bytes) = self.get_or_copy(&key).await? else {
            return Ok(None);
        };
        let (header, mut document): (_, StateDocument) = self.envelopes.read("state", &key, &bytes)?;
        // A document copied to another key would have a valid checksum, so its stack and serial are compared
        // with its key.
        if document.serial != serial || document.state.stack != *stack {
            let (serial, stack) = (document.serial, document.state.stack);
            let why = format!("its header says serial {serial} of `{stack}`");
            return Err(StateError::damaged(&key, why));
        }
        document.state = document.state.of_this_version();
        Ok(Some((header, document)))
    }
}

impl Reading {
    /// Returns true if a run after that of the document wrote a state that is gone.
    fn is_cut(&self) -> bool {
        let place = self.document.as_ref().map(|(_, document)| document.journal);
        let place = place.unwrap_or_default();
        self.rows.is_cut_since(place.epoch, place.entry)
    }

    /// Merges document and journal into one state.
    pub(crate) fn merge(self, stack: &StackId) -> Option<Versioned> {
        let mut versioned = match (self.document, self.journal_header) {
            (Some((header, document)), _) => versioned(header, document),
            (None, Some(header)) => Versioned {
                serial: 0,
                epoch: 0,
                reason: WriteReason::Apply,
                writer: header.writer,
                written: header.time,
                note: None,
                receipt: None,
                pending: Vec::new(),
                retired: false,
                applied_reviews: std::collections::BTreeSet::new(),
                activity: Vec::new(),
                idle: Vec::new(),
                state: StackState::empty(stack.clone(), StackFolder::none()),
            },
            (None, None) => return None,
        };
        let open = journal::merge_journal(&mut versioned.state, &self.entries);
        versioned.pending = open.ids();
        // A retired stack with newer journal entries is in use again.
        versioned.retired &= self.entries.is_empty();
        Some(versioned)
    }
}

/// Awaits at most [`IN_FLIGHT`] requests at once. The answers keep the order.
pub(super) async fn in_flight<T>(
    requests: impl IntoIterator<Item = impl Future<Output = Result<T, StateError>>>,
) -> Result<Vec<T>, StateError> {
    let answers = stream::iter(requests).buffered(IN_FLIGHT);
    answers.try_collect().await
}

pub(super) fn versioned(header: Header, document: StateDocument) -> Versioned {
    Versioned {
        serial: document.serial,
        epoch: document.epoch,
        reason: document.reason,
        writer: header.writer,
        written: header.time,
        note: document.note,
        receipt: document.receipt,
        pending: Vec::new(),
        retired: document.retired,
        applied_reviews: document.applied_reviews,
        activity: document.activity,
        idle: document.idle,
        state: document.state,
    }
}

#[cfg(test)]
#[path = "state_store_tests.rs"]
mod tests;
