//! One stack, read from its documents. What cannot be read is said, and the rest of the page stands.

use std::{borrow::Cow, collections::BTreeMap};

use futures::{StreamExt as _, stream};

use super::views::writer;
use crate::{StateBackend, state};
use konverge_base::{
    error::UserError,
    model::{
        StackId,
        state::{RuntimeRecord, StackState},
    },
    secrets::mask_terraform,
};
use konverge_portal::{
    HistoryDocument, HistoryRow, LeaseView, StackCondition, StackDetails, StackIndex, StateDifference,
};
use konverge_state::{Holder, StateError, Versioned};

/// The number of serials of one stack that are read concurrently. Each may be large.
const SERIALS_AT_ONCE: usize = 4;

/// Reads a stack. `None` if the index does not know it.
///
/// # Errors
/// The store does not answer.
pub async fn read_stack(
    backend: &StateBackend,
    index: &StackIndex,
    id: &StackId,
) -> Result<Option<StackDetails>, UserError> {
    let read = read_stack_with_differences(backend, index, id, 0).await?;
    Ok(read.map(|(view, _)| view))
}

/// Reads a stack, and what each of its newest serials changed.
///
/// # Errors
/// The store does not answer.
pub async fn read_stack_with_differences(
    backend: &StateBackend,
    index: &StackIndex,
    id: &StackId,
    differences: usize,
) -> Result<Option<(StackDetails, Vec<StateDifference>)>, UserError> {
    let Some(row) = index.overview.row(id) else {
        return Ok(None);
    };
    let serials = backend.states.serials(id).await?;
    let mut view = StackDetails {
        version: 1,
        row: row.clone(),
        notices: Vec::new(),
        state: None,
        pending: Vec::new(),
        history: Vec::with_capacity(serials.len()),
        lease: None,
    };
    note_older_index(
        &mut view,
        index.serials.get(id).copied(),
        serials.first().copied(),
    );
    match backend.states.holder(id).await {
        Ok(holder) => view.lease = holder.map(lease),
        Err(error) => note(&mut view, backend, "The lease cannot be read", &error),
    }
    match backend.states.load(id).await {
        Ok(None) => {}
        // The state is shown without what only runtimes read.
        Ok(Some(newest)) => {
            let mut newest = newest;
            state::mask_recorded(backend, &mut newest.state);
            view.pending = std::mem::take(&mut newest.pending);
            view.state = Some(public(backend, newest.state));
        }
        Err(error) => {
            note(&mut view, backend, "The state cannot be read", &error);
            if !view.row.conditions.contains(&StackCondition::Unreadable) {
                view.row.conditions.insert(0, StackCondition::Unreadable);
                view.row.conditions.sort_unstable();
            }
        }
    }
    let mut found = Vec::new();
    let mut later: Option<Versioned> = None;
    let mut read = stream::iter(serials)
        .map(|serial| async move { (serial, load(backend, id, serial).await) })
        .buffered(SERIALS_AT_ONCE);
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
        if let Some(later) = later.take().filter(|_| found.len() < differences) {
            found.push(StateDifference::between(
                (document.serial, &document.state),
                (later.serial, &later.state),
            ));
        }
        later = (found.len() < differences).then_some(document);
    }
    Ok(Some((view, found)))
}

/// The difference of two serials; `None` if one does not exist (any more).
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
            (from, &old.state),
            (to, &new.state),
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

fn note(view: &mut StackDetails, backend: &StateBackend, what: &str, error: &StateError) {
    let why = backend.secrets.mask(&error.to_string());
    view.notices.push(format!("{what}: {why}"));
}

fn lease(holder: Holder) -> LeaseView {
    LeaseView {
        id: holder.id,
        writer: writer(holder.writer),
        since: holder.since,
        term_seconds: holder.term,
    }
}

/// A serial as the pages may show it.
async fn load(backend: &StateBackend, id: &StackId, serial: u64) -> Result<Versioned, StateError> {
    let mut found = backend.states.load_serial(id, serial).await?;
    state::mask_recorded(backend, &mut found.state);
    found.state = public(backend, found.state);
    Ok(found)
}

/// A state without the data that only runtimes read: of Terraform's some is in clear where nothing is sensitive.
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
            unreadable: backend.secrets.mask(&error.to_string()),
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
