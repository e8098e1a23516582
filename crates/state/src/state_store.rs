//! Reads the states of one repository from one store. Writing needs a [`super::Lease`].

use std::{collections::BTreeMap, sync::Arc};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::{
    Clock, DocumentWriter, IndexEntry, IndexedStates, NamedKeyService, Proven, RepositoryId, Sealer,
    StateError, StoppedApply, SystemClock, Versioned, WriteReason,
    document_format::{Documents, Header, OutgoingDocument, SkippedDocuments},
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

/// The documents and values that the key of a [`StateStore`] encrypts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SealScope {
    /// Single values, such as the data of a runtime.
    Values,
    /// Whole states and journals as well. None is written without a key.
    Documents,
}

/// How many times a listing is repeated that the clean-up of another run made outdated.
const STALE_LISTINGS: u32 = 5;
/// Concurrent requests when many documents are read.
pub(super) const IN_FLIGHT: usize = 32;
/// The default number of serials kept per stack.
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
    /// The index at the time when this run first read it.
    pub(super) index: Arc<tokio::sync::OnceCell<Proven<IndexedStates>>>,
    /// The index of that time with open stacks looked up.
    pub(super) known: Arc<tokio::sync::OnceCell<Proven<IndexedStates>>>,
}

/// The entries that this run recorded and the index does not contain yet.
#[derive(Default)]
pub(super) struct Finished {
    pub entries: BTreeMap<StackId, IndexEntry>,
    /// Applies that ended before they wrote a state.
    pub stopped: BTreeMap<StackId, StoppedApply>,
    /// The number of intents of those entries.
    pub resources: usize,
    /// Stacks that were announced together, with the expected epoch.
    pub announced: BTreeMap<StackId, u64>,
    /// The newest lease of each stack that this run had.
    pub leased: BTreeMap<StackId, u64>,
    /// The number of deltas written stack by stack.
    pub deltas: usize,
    /// True if the index was compacted: it is short and complete.
    pub compacted: bool,
}

/// The documents of one stack: the newest state, its journal, and the listing of both.
#[derive(Clone)]
pub(super) struct Reading {
    pub rows: RowKeys,
    pub document: Option<(Header, StateDocument)>,
    pub entries: Vec<JournalEntry>,
    /// The header of the journal, if no document names a writer.
    pub journal_header: Option<Header>,
}

/// One line of a stack's history.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HistoryLine {
    /// Number of the state.
    pub serial: u64,
    /// The document, or why it cannot be read. In JSON: its keys, or `unreadable`.
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
    /// Why it was written.
    pub reason: WriteReason,
    /// The run that wrote it.
    pub writer: DocumentWriter,
    /// When it was written, by the clock of that machine.
    pub time: Timestamp,
    /// The applied commit.
    pub commit: Option<String>,
    /// The number of resources.
    pub resources: usize,
    /// The note that was given with it.
    pub note: Option<String>,
    /// The apply that ended with this document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ApplyRecord>,
}

impl StateStore {
    /// The repository of the states.
    pub fn repository(&self) -> &RepositoryId {
        &self.envelopes.repository
    }

    /// The states of a repository in a store. Sends no request yet.
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

    /// Sets the key that decrypts documents, and what it encrypts.
    #[must_use]
    pub fn with_sealer(mut self, sealer: Option<Sealer>, scope: SealScope) -> Self {
        self.envelopes.sealer = sealer;
        self.envelopes.seal_documents = scope == SealScope::Documents;
        self
    }

    /// Sets whom documents name as their writer from here on.
    #[must_use]
    pub fn with_writer(mut self, writer: DocumentWriter) -> Self {
        self.envelopes.writer = writer;
        self
    }

    /// Also reads documents that no holder of a key marked, and states that are not encrypted.
    #[must_use]
    pub fn accepting_unmarked(mut self) -> Self {
        self.envelopes.accept_unmarked = true;
        self
    }

    /// Sets an observer that hears once of each document that is skipped because no holder of a key wrote it.
    #[must_use]
    pub fn telling_skipped(mut self, observer: Arc<dyn Fn(&str) + Send + Sync>) -> Self {
        self.envelopes.skipped = SkippedDocuments::with_observer(observer);
        self
    }

    /// Sets the number of serials kept per stack, at least 2. Runs that did nothing do not count.
    #[must_use]
    pub fn with_retention(mut self, serials: u64) -> Self {
        self.retention = serials.max(2);
        self
    }

    /// Sets other clocks than those of this machine.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The key for the data of runtimes, if there is one.
    pub fn sealer(&self) -> Option<&Sealer> {
        self.envelopes.sealer.as_ref()
    }

    /// The store that holds the documents.
    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// The store as a shared pointer.
    pub fn shared_store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// The newest state of a stack with its journal merged in: it contains everything that may exist. One
    /// LIST and one GET, plus one GET for each journal entry that a run left behind. `None` if nothing was
    /// ever recorded.
    ///
    /// # Errors
    /// Errors of the store; a document that is damaged, of another repository, or newer than this version of
    /// Konverge.
    pub async fn load(&self, stack: &StackId) -> Result<Option<Versioned>, StateError> {
        let reading = self.read(stack).await?;
        Ok(self.require_document(stack, reading).await?.merge(stack))
    }

    /// Returns an error for a stack whose newest state is gone. The journal or the lease of the run that wrote it
    /// tells, or the index. Whoever holds no key can only take documents away.
    pub(super) async fn require_document(
        &self,
        stack: &StackId,
        reading: Reading,
    ) -> Result<Reading, StateError> {
        let is_whole = |reading: &Reading| !reading.is_cut();
        // Without encryption, whoever can delete a document can also write one, so the index is not asked.
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
        // The state may have been written between the two reads.
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

    /// One serial as it was written, without any journal.
    ///
    /// # Errors
    /// Errors of [`StateStore::load`]; [`StateError::Missing`] if the serial does not exist (any more).
    pub async fn load_serial(&self, stack: &StackId, serial: u64) -> Result<Versioned, StateError> {
        match self.document(stack, serial).await? {
            Some((header, document)) => Ok(versioned(header, document)),
            None => Err(StateError::Missing(format!(
                "stack `{stack}` has no serial {serial}; `konverge state history {stack}` lists what is kept"
            ))),
        }
    }

    /// The kept serials, the newest first. An unreadable document gives a line that says so.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn history(&self, stack: &StackId) -> Result<Vec<HistoryLine>, StateError> {
        let rows = RowKeys::parse(&self.store.list(&keys::stack(stack)).await?);
        let serials: Vec<u64> = rows.states.into_iter().rev().collect();
        stream::iter(serials.into_iter().map(|serial| async move {
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
        .buffered(IN_FLIGHT)
        .try_collect()
        .await
    }

    /// The stacks with a recorded state, by the index.
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

    /// Returns true if the index says that a state of the stack was written.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn was_written(&self, stack: &StackId) -> Result<bool, StateError> {
        Ok(self.written_entry(stack).await?.is_some())
    }

    /// Returns true if the store has a document of the stack, a lease included, or once had a state.
    ///
    /// # Errors
    /// Errors of the store.
    pub async fn has_documents(&self, stack: &StackId) -> Result<bool, StateError> {
        let documents = self.store.list(&keys::stack(stack)).await?;
        Ok(!documents.is_empty() || self.was_written(stack).await?)
    }

    /// Prepares a document of a kind for a place, ready to be written.
    pub(super) fn letter<T: Serialize>(
        &self,
        kind: &str,
        place: &Key,
        body: &T,
    ) -> Result<OutgoingDocument, StateError> {
        self.envelopes.write(kind, place, self.clock.wall_clock(), body)
    }

    /// Reads a stack: listing, newest document, journal.
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

    /// Reads the documents of a listing; `None` if the listing is outdated.
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
        // Entries before this place are in the document already.
        let from = document
            .as_ref()
            .map_or(JournalPlace::default(), |(_, document)| document.journal);
        let keys: Vec<Key> = rows
            .journals
            .range(from.epoch..)
            .flat_map(|(epoch, entries)| {
                entries.iter().map(|entry| JournalPlace {
                    epoch: *epoch,
                    entry: *entry,
                })
            })
            .filter(|place| *place >= from)
            .map(|place| keys::journal(stack, place.epoch, place.entry))
            .collect();
        let batches: Vec<_> = stream::iter(keys)
            .map(|key| async move {
                let bytes = self.store.get(&key).await?;
                Ok::<_, StateError>((key, bytes))
            })
            .buffered(IN_FLIGHT)
            .try_collect()
            .await?;
        let (mut entries, mut journal_header) = (Vec::new(), None);
        for (key, bytes) in batches {
            // A later state contains this entry, so its writer deleted it: the listing is too old.
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
        // A copy at another key has a valid checksum, so the document itself must say where it belongs.
        if document.serial != serial || document.state.stack != *stack {
            return Err(StateError::Damaged {
                key: key.to_string(),
                why: format!(
                    "its header says serial {} of `{}`",
                    document.serial, document.state.stack
                )
                .into(),
            });
        }
        document.state = document.state.of_this_version();
        Ok(Some((header, document)))
    }
}

impl Reading {
    /// Returns true if a later run than the one of the document wrote a state, which is gone.
    fn is_cut(&self) -> bool {
        let place = self.document.as_ref().map(|(_, document)| document.journal);
        let place = place.unwrap_or_default();
        self.rows.is_cut_since(place.epoch, place.entry)
    }

    /// Document and journal as one state.
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
        // A stack with newer entries is in use again.
        versioned.retired &= self.entries.is_empty();
        Some(versioned)
    }
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
