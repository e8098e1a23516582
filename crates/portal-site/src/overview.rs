//! Reads the overview of all stacks: one LIST and one GET if the index is up to date, and one LIST for the freeze.

use std::collections::BTreeMap;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;

use super::{
    head::{Head, HeadFacts},
    seen::{note, search_names, writer},
};
use konverge_base::{
    error::{UserError, chain},
    model::{Digest, StackId, apply_result::StackResult, week_activity::Week},
};
use konverge_forge::RepositoryPages;
use konverge_portal::{
    AppliedState, DriftView, FreezeView, HeadFact, LookView, Overview, OverviewRow, SearchIndex, StackFacts,
    StackIndex, StoppedView, Trends, WeekDrift,
};
use konverge_report::plural;
use konverge_run::StateBackend;
use konverge_state::{
    ApplyFreeze, DriftCheck, DriftHistory, IndexEntry, IndexedStates, Proven, StackSummary, StateError,
};

/// The number of states that are read concurrently.
const AT_ONCE: usize = 32;

/// The sources of the portal's pages.
#[derive(Clone, Copy)]
pub struct StackSources<'a> {
    /// The recorded states.
    pub backend: &'a StateBackend,
    /// The revision to compare with; `None` if pending changes are unknown.
    pub head: Option<&'a Head>,
    /// The repository at its forge, for links.
    pub forge: Option<&'a RepositoryPages>,
}

/// A summary of a stack, or the reason why it cannot be read.
type SummaryRead = Result<Option<StackSummary>, String>;

/// Reads the overview. A stack whose state cannot be read gets a row with the error.
///
/// # Errors
/// Errors of the store; the index belongs to another repository; the revision cannot be compared.
pub async fn read_overview(sources: StackSources<'_>) -> Result<StackIndex, UserError> {
    let states = &sources.backend.states;
    let (known, freeze) = futures::join!(states.read_all(), states.freeze());
    let known = known?;
    let head = match sources.head {
        Some(head) => Some(head.compare(sources.backend, &known).await?),
        None => None,
    };
    let mut notices = Vec::new();
    if known.is_rebuilt() && !known.entries.is_empty() {
        notices.push("The index was missing or damaged, so every state was read. `konverge state doctor --repair` rebuilds it.".to_owned());
    }
    let freeze = match freeze {
        Ok(freeze) => freeze,
        Err(error) => {
            let why = sources.backend.secrets.mask(&chain(&error));
            notices.push(format!(
                "It is unknown whether applies are frozen, so every apply stops: {why}"
            ));
            None
        }
    };
    let drift = drift(&known, sources.backend, &mut notices).await;
    let summaries = summaries(&known, sources.backend, &mut notices).await?;
    let mut index = StackIndex {
        overview: Overview {
            version: 1,
            repository: states.repository().as_str().to_owned(),
            head: head.as_ref().map(|head| head.commit.clone()),
            forge: sources.forge.cloned(),
            freeze: freeze.and_then(shown_freeze),
            notices,
            stacks: Vec::new(),
        },
        search: SearchIndex::default(),
        fingerprints: BTreeMap::new(),
        serials: BTreeMap::new(),
        activity: BTreeMap::new(),
    };
    for (id, summary) in summaries {
        let Some(entry) = known.entries.get(&id) else {
            continue;
        };
        let head = head.as_ref();
        let row = row(&id, entry, &summary, &known, drift.get(&id), head);
        // A stack with a new identity is shown only once: under the new identity, as soon as that is recorded.
        let is_moved = entry.retired && head.is_some_and(|head| head.renamed.contains_key(&id));
        if is_moved {
            continue;
        }
        if let Ok(Some(summary)) = summary {
            // Applies before the destruction of the stack count in the trends as well.
            index.activity.insert(id.clone(), summary.activity.clone());
            if !entry.retired {
                index.search.add(&id, search_names(summary));
            }
        }
        index
            .fingerprints
            .insert(id.clone(), fingerprint(&row, Some(entry)));
        index.serials.insert(id, entry.serial);
        index.overview.stacks.push(row);
    }
    for row in new_stacks(&known, head.as_ref()) {
        index.fingerprints.insert(row.id.clone(), fingerprint(&row, None));
        index.overview.stacks.push(row);
    }
    index.overview.sort();
    Ok(index)
}

/// Returns the drift from the index, or from the drift history if an earlier version wrote the index.
async fn drift(
    known: &Proven<IndexedStates>,
    backend: &StateBackend,
    notices: &mut Vec<String>,
) -> BTreeMap<StackId, DriftCheck> {
    if let Some(drift) = &known.drift {
        return drift.clone();
    }
    match backend.states.drift_history().await {
        Ok(history) => history.stacks,
        Err(error) => {
            note(notices, backend, "The drift history cannot be read", &error);
            BTreeMap::new()
        }
    }
}

/// Returns the summary of each stack from the index. If the index has no summary, the state is read.
async fn summaries(
    known: &Proven<IndexedStates>,
    backend: &StateBackend,
    notices: &mut Vec<String>,
) -> Result<Vec<(StackId, SummaryRead)>, UserError> {
    let (mut summaries, mut without) = (Vec::new(), Vec::new());
    for (id, entry) in &known.entries {
        let has_state = entry.serial > 0;
        match backend.states.summary(id, entry) {
            None if has_state && !entry.retired => without.push(id.clone()),
            summary if has_state || entry.is_known() => summaries.push((id.clone(), Ok(summary))),
            _ => {}
        }
    }
    let read: Vec<_> = stream::iter(without)
        .map(|id| async move {
            let read = backend.states.read_stack_summary(&id).await;
            (id, read)
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let mut older = 0;
    for (id, read) in read {
        let summary = match read {
            Err(StateError::Store(error)) => return Err(error.into()),
            Err(error) => Err(backend.secrets.mask(&chain(&error))),
            Ok(summary) => {
                older += 1;
                Ok(summary)
            }
        };
        summaries.push((id, summary));
    }
    if older > 0 && !known.is_rebuilt() {
        notices.push(format!(
            "The index has no row of {}, so their states were read. An earlier version wrote the index, or it is encrypted to other keys. `konverge state doctor --repair` rebuilds it.",
            plural(older, "stack")
        ));
    }
    summaries.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(summaries)
}

/// Returns the recorded data about the applies of a stack. `written` is the time of the last write to its state, with
/// the result of that apply.
pub fn recorded_facts(
    known: &IndexedStates,
    id: &StackId,
    written: Option<(jiff::Timestamp, Option<StackResult>)>,
) -> StackFacts {
    let entry = known.entries.get(id);
    let stopped = known.stopped.get(id);
    StackFacts {
        recorded: entry.is_some(),
        open: known.is_open(id),
        retired: entry.is_some_and(|entry| entry.retired),
        settled: entry.is_some_and(|entry| entry.input_digest.is_some()),
        written,
        stopped: stopped.map(|stopped| (stopped.at, stopped.result)),
        ..StackFacts::default()
    }
}

fn row(
    id: &StackId,
    entry: &IndexEntry,
    summary: &SummaryRead,
    known: &Proven<IndexedStates>,
    drift: Option<&DriftCheck>,
    head: Option<&HeadFacts>,
) -> OverviewRow {
    let read = summary.as_ref().ok().and_then(Option::as_ref);
    let stopped = known.stopped.get(id);
    let facts = StackFacts {
        unreadable: summary.is_err(),
        drift_checked: drift.filter(|check| check.drift.is_some()).map(|check| check.at),
        head: head.map_or(HeadFact::Unknown, |head| head.fact(id)),
        ..recorded_facts(known, id, read.map(|summary| (summary.written, summary.result)))
    };
    let is_later = |at| read.is_none_or(|summary| at > summary.written);
    let found = drift.and_then(|check| Some((check.at, check.drift.as_ref()?)));
    OverviewRow {
        stack: entry.folder.clone(),
        id: id.clone(),
        conditions: facts.conditions(),
        applied: read.map(|summary| AppliedState {
            serial: summary.serial,
            written: summary.written,
            reason: summary.reason.to_string(),
            writer: writer(summary.writer.clone()),
            result: summary.result,
            commit: entry.commit.clone(),
            attempted: summary.attempted.clone(),
        }),
        resources: entry.resources,
        stopped: stopped
            .filter(|stopped| is_later(stopped.at))
            .map(|stopped| StoppedView {
                at: stopped.at,
                result: stopped.result,
                writer: writer(stopped.writer.clone()),
            }),
        drift: found.map(|(checked, drift)| DriftView {
            since: drift.since,
            checked,
            digest: drift.digest,
        }),
        look: drift.map(|check| LookView {
            checked: check.at,
            health: check.health,
        }),
        error: summary.as_ref().err().cloned(),
    }
}

/// Returns a row for each stack of the revision that has no record.
fn new_stacks(known: &Proven<IndexedStates>, head: Option<&HeadFacts>) -> Vec<OverviewRow> {
    let Some(head) = head else { return Vec::new() };
    let is_recorded = |id: &StackId| {
        let is_known = |id: &StackId| {
            known
                .entries
                .get(id)
                .is_some_and(|entry| entry.serial > 0 || entry.is_known())
        };
        is_known(id) || head.renamed.values().any(|now| now == id)
    };
    let new = head.stacks.iter().filter(|(id, _)| !is_recorded(id));
    new.map(|(id, folder)| {
        let stopped = known.stopped.get(id);
        let facts = StackFacts {
            recorded: false,
            open: false,
            head: HeadFact::Changed,
            ..recorded_facts(known, id, None)
        };
        OverviewRow {
            stack: folder.clone().into(),
            id: id.clone(),
            conditions: facts.conditions(),
            applied: None,
            resources: 0,
            stopped: stopped.map(|stopped| StoppedView {
                at: stopped.at,
                result: stopped.result,
                writer: writer(stopped.writer.clone()),
            }),
            drift: None,
            look: None,
            error: None,
        }
    })
    .collect()
}

/// Returns the digest of all data that the page of a stack shows.
fn fingerprint(row: &OverviewRow, entry: Option<&IndexEntry>) -> Digest {
    let entry = entry.map(|entry| (entry.epoch, entry.serial, entry.open));
    let text = serde_json::json!([row.settled(), entry, env!("CARGO_PKG_VERSION")]);
    Digest::of_bytes(text.to_string().as_bytes())
}

/// Returns the freeze with the writer who began it, and the reasons of all who froze applies since.
fn shown_freeze(freeze: ApplyFreeze) -> Option<FreezeView> {
    let reasons: Vec<_> = freeze.reasons.iter().map(|one| one.reason.as_str()).collect();
    let reason = reasons.join("; ");
    let first = freeze.reasons.into_iter().next()?;
    Some(FreezeView {
        reason,
        since: first.since,
        writer: writer(first.writer),
    })
}

/// Returns the trends over the stacks of an index. `history` has the drift of all stacks, so it is `None` for a reader
/// who may not see all of them; drift is then left out.
pub fn trends(index: &StackIndex, history: Option<&DriftHistory>) -> Trends {
    let weeks = history.iter().flat_map(|history| &history.weeks);
    let drift = weeks.map(|(week, known)| {
        let known = WeekDrift {
            stacks: known.stacks,
            oldest: known.oldest,
        };
        (*week, known)
    });
    Trends::new(
        Week::from_timestamp(Timestamp::now()),
        index.activity.values().flatten(),
        &drift.collect(),
    )
}
