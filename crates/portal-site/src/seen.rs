//! Results of drift checks and previews for the portal: the difference of a drift, objects that were not ready, and
//! changes that are not applied. They are only shown and have no influence on applies.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, TryStreamExt as _, stream};

use konverge_base::{
    error::chain,
    model::{
        CommitId, Digest, StackId,
        review::{ReviewRecord, ReviewedStack},
        stack_look::{StackLook, bounded},
    },
};
use konverge_portal::{OverviewRow, SearchNames, SeenDifference, SeenStack, StackCondition, Writer};
use konverge_run::StateBackend;
use konverge_state::{DocumentWriter, DriftHistory, StackSummary, StateError};

/// The number of newest pull requests whose previews are read.
const PULL_REQUESTS: usize = 30;
/// The number of previews that are read concurrently.
const AT_ONCE: usize = 8;
/// The number of previews that the page of a stack shows.
const SHOWN: usize = 5;

/// The records of drift checks and previews for some stacks.
#[derive(Default)]
pub struct SeenRecords {
    /// The drift history.
    pub(super) history: DriftHistory,
    /// The last preview of each pull request, the newest pull request first.
    previews: Vec<ReviewRecord>,
    /// One notice for each record that cannot be read.
    pub(super) notices: Vec<String>,
}

impl SeenRecords {
    /// Reads the records for all stacks of a site: one LIST and one GET for the drift history. If a stack has changes
    /// that are not applied, also one LIST and the last preview of each of the newest pull requests.
    pub(super) async fn of_site(backend: &StateBackend, rows: &[OverviewRow]) -> Self {
        Self::read(backend, true, rows.iter().any(is_pending)).await
    }

    /// Reads the records for one stack. Sends no request if there can be no record.
    pub async fn of_stack(backend: &StateBackend, row: &OverviewRow) -> Self {
        Self::read(backend, !row.is_calm(), is_pending(row)).await
    }

    async fn read(backend: &StateBackend, with_history: bool, with_previews: bool) -> Self {
        let mut seen = Self::default();
        if with_history {
            match backend.states.drift_history().await {
                Ok(history) => seen.history = history,
                Err(error) => note(
                    &mut seen.notices,
                    backend,
                    "The drift history cannot be read",
                    &error,
                ),
            }
        }
        if with_previews {
            match newest_previews(backend).await {
                Ok(previews) => seen.previews = previews,
                Err(error) => note(&mut seen.notices, backend, "The previews cannot be read", &error),
            }
        }
        seen
    }

    /// Returns the records of a stack for its page. Previews of the pull requests in `applied` are left out.
    pub(super) fn stack(&self, row: &OverviewRow, applied: &BTreeSet<u64>) -> SeenStack {
        let look = self.look(row);
        let previews = self.previews(row);
        let pending = previews.filter(|(record, _)| !applied.contains(&record.pull_request));
        SeenStack {
            drift_difference: look
                .filter(|look| row.drift.is_some() && (look.more > 0 || !look.units.is_empty()))
                .map(of_look),
            pending_differences: pending
                .take(SHOWN)
                .map(|(record, stack)| of_preview(record, stack))
                .collect(),
            unready: look.map(|look| look.unready.clone()).unwrap_or_default(),
        }
    }

    /// Returns the digest of all records of a stack. The page is rendered again only if it changes.
    pub(super) fn fingerprint(&self, row: &OverviewRow) -> Digest {
        let previews = self.previews(row);
        let previews: Vec<_> = previews
            .map(|(record, stack)| (record.pull_request, &record.head, &record.run, stack.digest))
            .collect();
        Digest::of_json(&serde_json::json!([self.look(row), previews, self.notices]))
    }

    fn look(&self, row: &OverviewRow) -> Option<&StackLook> {
        let check = self.history.stacks.get(&row.id)?;
        // If the index has another check than the history, the history may describe another difference.
        let is_of_row = row.look.as_ref().is_none_or(|look| look.checked == check.at);
        check.look.as_deref().filter(|_| is_of_row)
    }

    fn previews(&self, row: &OverviewRow) -> impl Iterator<Item = (&ReviewRecord, &ReviewedStack)> {
        let id: StackId = row.id.clone();
        let records = self.previews.iter().filter(|_| is_pending(row));
        records.flat_map(move |record| {
            let id = id.clone();
            let stacks = record.stacks.iter();
            let of_stack = stacks.filter(move |stack| stack.id == id && !stack.units.is_empty());
            of_stack.map(move |stack| (record, stack))
        })
    }
}

/// Returns true if the revision differs from the record of a stack.
fn is_pending(row: &OverviewRow) -> bool {
    let wanted = [
        StackCondition::Pending,
        StackCondition::NeverApplied,
        StackCondition::Removed,
    ];
    row.conditions.iter().any(|condition| wanted.contains(condition))
}

async fn newest_previews(backend: &StateBackend) -> Result<Vec<ReviewRecord>, StateError> {
    let reviews = backend.states.reviews();
    let mut heads: BTreeMap<u64, (u64, CommitId)> = BTreeMap::new();
    for key in reviews.list().await? {
        let last = heads
            .entry(key.pull_request)
            .or_insert_with(|| (key.run, key.head.clone()));
        if key.run > last.0 {
            *last = (key.run, key.head);
        }
    }
    let newest = heads.into_iter().rev().take(PULL_REQUESTS);
    let newest: Vec<_> = newest.map(|(number, (_, head))| (number, head)).collect();
    let reviews = &reviews;
    let read = stream::iter(newest)
        .map(async |(number, head)| reviews.latest(number, &head).await)
        .buffered(AT_ONCE);
    let read: Vec<_> = read.try_collect().await?;
    Ok(read.into_iter().flatten().collect())
}

fn of_look(look: &StackLook) -> SeenDifference {
    SeenDifference {
        run: look.run.clone(),
        issue: look.issue,
        pull_request: None,
        head: None,
        units: look.units.clone(),
        more: look.more,
    }
}

fn of_preview(record: &ReviewRecord, stack: &ReviewedStack) -> SeenDifference {
    let (units, more) = bounded(stack.units.clone());
    SeenDifference {
        run: record.run.clone(),
        issue: None,
        pull_request: Some(record.pull_request),
        head: Some(record.head.clone()),
        units,
        more,
    }
}

/// Adds a notice about what cannot be read.
pub(super) fn note(notices: &mut Vec<String>, backend: &StateBackend, what: &str, error: &StateError) {
    let why = backend.secrets.mask(&chain(error));
    notices.push(format!("{what}: {why}"));
}

pub(super) fn writer(writer: DocumentWriter) -> Writer {
    Writer {
        run: writer.run,
        actor: writer.actor,
    }
}

/// Returns the names by which the search finds a stack.
pub(super) fn search_names(summary: StackSummary) -> SearchNames {
    SearchNames {
        names: summary.names,
        images: summary.images,
        more: summary.more,
    }
}
