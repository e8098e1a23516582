//! Reads one stack from its documents. A document that cannot be read becomes a notice; the rest is still shown.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    pin::pin,
};

use futures::{StreamExt as _, stream};

use super::seen::{SeenRecords, note, writer};
use konverge_base::{
    error::{UserError, chain},
    model::{
        StackId,
        state::{RuntimeRecord, StackState},
    },
};
use konverge_portal::{
    HistoryDocument, HistoryRow, LeaseView, SeenStack, StackCondition, StackDetails, StackIndex,
    StateAtSerial, StateDifference,
};
use konverge_run::{StateBackend, state};
use konverge_secrets::mask_terraform;
use konverge_state::{Holder, StateError, Versioned};

/// The number of serials of one stack that are read concurrently, because each may be large.
const SERIALS_AT_ONCE: usize = 4;
const NO_LEASE: &str = "The lease cannot be read";

/// The part of the history to read. Each serial costs one GET.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryRange {
    /// Every stored serial, without differences.
    All,
    /// The given number of newest serials, each with its changes since the serial before.
    Newest(usize),
}

/// The documents of one stack.
pub struct StackRead {
    /// The details to show.
    pub details: StackDetails,
    /// The changes of each of the newest serials, the newest first.
    pub differences: Vec<StateDifference>,
    /// The number of older serials that were not read.
    pub older: usize,
}

/// Reads a stack; `None` if the index does not have it.
///
/// # Errors
/// The store does not answer.
pub async fn read_stack(
    backend: &StateBackend,
    index: &StackIndex,
    id: &StackId,
    range: HistoryRange,
    seen: &SeenRecords,
) -> Result<Option<StackRead>, UserError> {
    let Some(row) = index.overview.row(id) else {
        return Ok(None);
    };
    let mut reading = backend.states.inspect(id).await?;
    let mut view = StackDetails {
        version: 1,
        row: row.clone(),
        notices: seen.notices.clone(),
        state: None,
        pending: Vec::new(),
        seen: SeenStack::default(),
        forge: index.overview.forge.clone(),
        history: Vec::new(),
        lease: None,
    };
    let newest = reading.serials.first().copied();
    note_older_index(&mut view, index.serials.get(id).copied(), newest);
    let (mut written, mut applied) = (None, BTreeSet::new());
    match reading.documents {
        Ok(documents) => {
            written = documents.written;
            match documents.holder {
                Ok(holder) => view.lease = holder.map(lease),
                Err(error) => note(&mut view.notices, backend, NO_LEASE, &error),
            }
            match documents.newest {
                Ok(None) => {}
                // Data that only runtimes read is removed before the state is shown.
                Ok(Some(mut newest)) => {
                    view.pending = std::mem::take(&mut newest.pending);
                    applied = std::mem::take(&mut newest.applied_reviews);
                    view.state = Some(shown(backend, newest).state);
                }
                Err(error) => note_unreadable(&mut view, backend, &error),
            }
        }
        Err(error) => {
            note(&mut view.notices, backend, NO_LEASE, &error);
            note_unreadable(&mut view, backend, &error);
        }
    }
    view.seen = seen.stack(row, &applied);
    let kept = reading.serials.len();
    let (most, with_differences) = match range {
        HistoryRange::All => (kept, false),
        HistoryRange::Newest(most) => (most.min(kept), true),
    };
    reading.serials.truncate(most);
    // The newest document was read already, so it is not read again.
    let read_before = written.filter(|document| newest == Some(document.serial));
    let rest = reading
        .serials
        .split_off(usize::from(read_before.is_some()).min(most));
    let first = read_before
        .filter(|_| most > 0)
        .map(|document| Ok(shown(backend, document)));
    let first = stream::iter(reading.serials.into_iter().zip(first));
    let rest = stream::iter(rest)
        .map(|serial| async move { (serial, load(backend, id, serial).await) })
        .buffered(SERIALS_AT_ONCE);
    let mut read = pin!(first.chain(rest));
    let mut differences = Vec::new();
    let mut later: Option<Versioned> = None;
    while let Some((serial, document)) = read.next().await {
        let document = match document {
            Err(StateError::Store(error)) => return Err(error.into()),
            other => other,
        };
        view.history.push(history_row(backend, serial, &document));
        let Ok(document) = document else {
            later = None;
            continue;
        };
        if let Some(later) = later.take() {
            differences.push(StateDifference::between(
                StateAtSerial::new(document.serial, &document.state),
                StateAtSerial::new(later.serial, &later.state),
            ));
        }
        later = with_differences.then_some(document);
    }
    Ok(Some(StackRead {
        details: view,
        differences,
        older: kept - most,
    }))
}

/// Returns the difference of two serials; `None` if one of them does not exist, or no longer exists.
///
/// # Errors
/// A serial cannot be read.
pub async fn read_difference(
    backend: &StateBackend,
    id: &StackId,
    from: u64,
    to: u64,
) -> Result<Option<StateDifference>, UserError> {
    match futures::try_join!(load(backend, id, from), load(backend, id, to)) {
        Ok((old, new)) => Ok(Some(StateDifference::between(
            StateAtSerial::new(from, &old.state),
            StateAtSerial::new(to, &new.state),
        ))),
        Err(StateError::Missing(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn note_older_index(view: &mut StackDetails, indexed: Option<u64>, newest: Option<u64>) {
    let (Some(indexed), Some(newest)) = (indexed, newest) else {
        return;
    };
    if newest > indexed {
        view.notices.push(format!(
            "The index is older than the state: it knows serial {indexed}, and serial {newest} is stored. The overview and the search may be out of date; the next run or `konverge state doctor --repair` brings the index up to date."
        ));
    } else if newest < indexed {
        view.notices.push(format!(
            "The index knows serial {indexed}, and the newest that is stored is serial {newest}: documents are missing."
        ));
    }
}

/// Adds a notice to a stack whose state cannot be read.
fn note_unreadable(view: &mut StackDetails, backend: &StateBackend, error: &StateError) {
    note(&mut view.notices, backend, "The state cannot be read", error);
    if !view.row.conditions.contains(&StackCondition::Unreadable) {
        view.row.conditions.insert(0, StackCondition::Unreadable);
        view.row.conditions.sort_unstable();
    }
}

fn lease(holder: Holder) -> LeaseView {
    LeaseView {
        id: holder.id,
        writer: writer(holder.writer),
        since: holder.since,
        term_seconds: holder.term,
    }
}

/// Loads a serial in the form that pages may show.
async fn load(backend: &StateBackend, id: &StackId, serial: u64) -> Result<Versioned, StateError> {
    let found = backend.states.load_serial(id, serial).await?;
    Ok(shown(backend, found))
}

fn shown(backend: &StateBackend, mut found: Versioned) -> Versioned {
    state::mask_recorded(backend, &mut found.state);
    found.state = public(backend, found.state);
    found
}

/// Removes the data that only runtimes read: the Terraform state has values in clear text if no value is sensitive.
fn public(backend: &StateBackend, mut state: StackState) -> StackState {
    state.runtime = BTreeMap::new();
    state.begun = BTreeMap::new();
    for recorded in &mut state.resources {
        recorded.private = RuntimeRecord::default();
        recorded.object_hash = None;
        if let Cow::Owned(masked) = mask_terraform(&backend.secrets, "", &recorded.extensions) {
            recorded.extensions = masked;
        }
    }
    state
}

fn history_row(backend: &StateBackend, serial: u64, document: &Result<Versioned, StateError>) -> HistoryRow {
    let document = match document {
        Err(error) => HistoryDocument::Unreadable {
            unreadable: backend.secrets.mask(&chain(error)),
        },
        Ok(document) => HistoryDocument::Read {
            reason: document.reason.to_string(),
            writer: writer(document.writer.clone()),
            time: document.written,
            commit: document.state.commit.clone(),
            resources: document.state.resources.len(),
            note: document.note.as_deref().map(|note| backend.secrets.mask(note)),
            receipt: document.receipt.clone().map(Box::new),
        },
    };
    HistoryRow { serial, document }
}
