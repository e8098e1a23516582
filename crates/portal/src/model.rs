//! The data that the pages show. `konverge serve` returns the same data as JSON under `/api/v1`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde::Serialize;

use super::{SearchIndex, StackCondition};
use konverge_base::model::{
    CommitId, Digest, RepoPath, ResourceId, StackFolder, StackId,
    apply_record::ApplyRecord,
    apply_result::StackResult,
    review::ReviewUnit,
    stack_look::{HealthCounts, UnreadyObject},
    state::StackState,
    week_activity::WeekActivity,
};
use konverge_forge::RepositoryPages;

/// All stacks. The JSON has `"version":1`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// Version of this format.
    pub version: u32,
    /// The repository that the states belong to.
    pub repository: String,
    /// The commit that the stacks are compared with. `None` if there was no comparison; then pending changes are
    /// unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<CommitId>,
    /// The repository at its forge, for links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forge: Option<RepositoryPages>,
    /// The freeze that stops all applies, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeze: Option<FreezeView>,
    /// Notices about data that is missing, outdated or unreadable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// The stacks, the worst first.
    pub stacks: Vec<OverviewRow>,
}

impl Overview {
    /// Sorts the stacks: the worst first, stacks of the same condition by identity.
    pub fn sort(&mut self) {
        self.stacks
            .sort_by(|a, b| (a.worst(), &a.id).cmp(&(b.worst(), &b.id)));
    }

    /// Returns the row of a stack.
    pub fn row(&self, id: &StackId) -> Option<&OverviewRow> {
        self.stacks.iter().find(|row| row.id == *id)
    }

    /// Returns the number of stacks with a condition.
    pub fn count(&self, condition: StackCondition) -> usize {
        self.stacks
            .iter()
            .filter(|row| row.conditions.contains(&condition))
            .count()
    }

    /// Returns a copy with only the rows that match a filter.
    pub fn filtered(&self, condition: Option<StackCondition>, text: &str) -> Self {
        let words: Vec<_> = text
            .to_lowercase()
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        let mut overview = self.clone();
        overview.stacks.retain(|row| {
            condition.is_none_or(|condition| row.conditions.contains(&condition)) && row.has_words(&words)
        });
        overview
    }
}

/// A row of the overview: one stack.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OverviewRow {
    /// Folder of the stack.
    pub stack: StackFolder,
    /// Identity of the stack.
    pub id: StackId,
    /// The conditions of the stack, the worst first; at least one.
    pub conditions: Vec<StackCondition>,
    /// The last write to the state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<AppliedState>,
    /// The number of recorded resources.
    pub resources: usize,
    /// A later apply that ended before it wrote a state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<StoppedView>,
    /// The known drift.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftView>,
    /// The live objects at the last drift check.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub look: Option<LookView>,
    /// The reason why the state cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl OverviewRow {
    /// Returns the worst condition, by which the stack is sorted.
    pub fn worst(&self) -> StackCondition {
        self.conditions
            .first()
            .copied()
            .unwrap_or(StackCondition::Applied)
    }

    /// Returns true if the last drift check found no difference, and no object that is not ready.
    pub fn is_calm(&self) -> bool {
        let is_ready = |look: &LookView| look.health.is_none_or(|health| health.is_all_ready());
        self.drift.is_none() && self.look.as_ref().is_none_or(is_ready)
    }

    /// Returns a copy for static pages, which leaves out the time of a check without findings, so that the file
    /// changes only with its content.
    pub fn settled(&self) -> Self {
        let mut row = self.clone();
        if row.is_calm()
            && let Some(look) = &mut row.look
        {
            look.checked = Timestamp::UNIX_EPOCH;
        }
        row
    }

    /// Returns the text that the filter searches.
    pub fn filter_text(&self) -> String {
        let actor = self
            .applied
            .as_ref()
            .map_or("", |applied| applied.writer.actor.as_str());
        format!("{} {} {actor}", self.id, self.stack).to_lowercase()
    }

    fn has_words(&self, words: &[String]) -> bool {
        let text = self.filter_text();
        words.iter().all(|word| text.contains(word.as_str()))
    }
}

/// All stacks, read at one time.
#[derive(Debug, Clone)]
pub struct StackIndex {
    /// The overview of all stacks.
    pub overview: Overview,
    /// The searchable names of the resources of all stacks.
    pub search: SearchIndex,
    /// A digest of the content of each stack's page, which shows if the page must be written again.
    pub fingerprints: BTreeMap<StackId, Digest>,
    /// The serial of each stack's state.
    pub serials: BTreeMap<StackId, u64>,
    /// The applies to each stack in the last weeks.
    pub activity: BTreeMap<StackId, Vec<WeekActivity>>,
}

impl StackIndex {
    /// Returns a copy with only the stacks whose folders the person may see. Nothing reveals the others: no row, no
    /// name, no count.
    #[must_use]
    pub fn restricted(&self, may_see: impl Fn(&RepoPath) -> bool) -> Self {
        let rows = self.overview.stacks.iter();
        let stacks: Vec<_> = rows.filter(|row| may_see(row.stack.or_root())).cloned().collect();
        let ids: BTreeSet<_> = stacks.iter().map(|row| row.id.clone()).collect();
        let seen = |id: &StackId| ids.contains(id);
        // The notices of the store may name other stacks or reveal their number, so a general one replaces them.
        let notices = if self.overview.notices.is_empty() {
            Vec::new()
        } else {
            vec![
                "There are notices about the store. Only people who may see every stack can read them."
                    .to_owned(),
            ]
        };
        Self {
            overview: Overview {
                version: self.overview.version,
                repository: self.overview.repository.clone(),
                head: self.overview.head.clone(),
                forge: self.overview.forge.clone(),
                freeze: self.overview.freeze.clone(),
                notices,
                stacks,
            },
            search: self.search.restricted(seen),
            fingerprints: of_stacks(&self.fingerprints, seen),
            serials: of_stacks(&self.serials, seen),
            activity: of_stacks(&self.activity, seen),
        }
    }
}

/// Returns the values of some stacks.
fn of_stacks<T: Clone>(
    all: &BTreeMap<StackId, T>,
    is_one: impl Fn(&StackId) -> bool,
) -> BTreeMap<StackId, T> {
    let some = all.iter().filter(|(id, _)| is_one(id));
    some.map(|(id, value)| (id.clone(), value.clone())).collect()
}

/// The run that wrote a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Writer {
    /// The URL of the run, or `user@host` outside CI.
    pub run: String,
    /// The person or bot that started the run.
    pub actor: String,
}

/// The last write to the state.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedState {
    /// The serial of the state.
    pub serial: u64,
    /// The time of the write, by the clock of the writing machine.
    pub written: Timestamp,
    /// The reason of the write.
    pub reason: String,
    /// The run that wrote the state.
    #[serde(flatten)]
    pub writer: Writer,
    /// The result of the apply, if an apply wrote the state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<StackResult>,
    /// The commit of the last successful apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// The commit of an apply that did not fully succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempted: Option<CommitId>,
}

/// An apply that ended before it wrote a state.
#[derive(Debug, Clone, Serialize)]
pub struct StoppedView {
    /// The time of the end, by the clock of the machine that ran it.
    pub at: Timestamp,
    /// The result of the apply.
    pub result: StackResult,
    /// The run of the apply.
    #[serde(flatten)]
    pub writer: Writer,
}

/// Known drift.
#[derive(Debug, Clone, Serialize)]
pub struct DriftView {
    /// The time when a difference was first detected. Later checks all found one too.
    pub since: Timestamp,
    /// The time of the last check.
    pub checked: Timestamp,
    /// The digest with which a person approves the restore.
    pub digest: Digest,
}

/// The live objects of a stack at the last drift check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LookView {
    /// The time of the check, by the clock of the machine that ran it.
    pub checked: Timestamp,
    /// The number of objects by health; `None` if no object has a health.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthCounts>,
}

/// The findings of drift checks and previews for one stack.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenStack {
    /// The difference between the live objects and the last apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift_difference: Option<SeenDifference>,
    /// The changes of pull requests that are not applied yet, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending_differences: Vec<SeenDifference>,
    /// The live objects that were not ready at the last drift check.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unready: Vec<UnreadyObject>,
}

/// A difference that a run found, masked, with links to more details.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenDifference {
    /// The run that found the difference.
    pub run: String,
    /// The issue about the difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issue: Option<u64>,
    /// The pull request that makes the difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<u64>,
    /// The head of that pull request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<CommitId>,
    /// The changes: from the live value to the value that an apply would write.
    pub units: Vec<ReviewUnit>,
    /// The number of further changes that are not listed.
    #[serde(skip_serializing_if = "konverge_base::model::json_parts::is_default")]
    pub more: usize,
}

/// The freeze of all applies.
#[derive(Debug, Clone, Serialize)]
pub struct FreezeView {
    /// The reason that the author of the freeze gave.
    pub reason: String,
    /// The time when the freeze was set.
    pub since: Timestamp,
    /// The run or person that set the freeze.
    #[serde(flatten)]
    pub writer: Writer,
}

/// The lease of a stack: its holder, and how to end it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseView {
    /// The id to pass to `konverge state unlock`.
    pub id: String,
    /// The run that holds the lease.
    #[serde(flatten)]
    pub writer: Writer,
    /// The time when the lease was taken, by the holder's clock.
    pub since: Timestamp,
    /// The time without a renewal after which another run may take the lease.
    #[serde(serialize_with = "seconds")]
    pub term_seconds: Duration,
}

fn seconds<S: serde::Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(time.as_secs())
}

/// One stack. The JSON has `"version":1`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StackDetails {
    /// Version of this format.
    pub version: u32,
    /// The row of the overview.
    #[serde(flatten)]
    pub row: OverviewRow,
    /// Notices about data that is missing, outdated or unreadable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// The recorded state, with secrets masked; `None` if nothing is recorded or it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StackState>,
    /// Resources whose outcome is unknown because a run was interrupted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<ResourceId>,
    /// The findings of drift checks and previews.
    #[serde(flatten)]
    pub seen: SeenStack,
    /// The repository at its forge, for links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forge: Option<RepositoryPages>,
    /// The kept serials, the newest first.
    pub history: Vec<HistoryRow>,
    /// The lease, if a run holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseView>,
}

/// A row of a stack's history, as in `konverge state history --output json`.
#[derive(Debug, Clone, Serialize)]
pub struct HistoryRow {
    /// The serial of the state.
    pub serial: u64,
    /// The summary of the document, or the reason why it cannot be read.
    #[serde(flatten)]
    pub document: HistoryDocument,
}

/// The summary of one serial.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum HistoryDocument {
    /// A document that was read.
    Read {
        /// The reason of the write.
        reason: String,
        /// The run that wrote the document.
        writer: Writer,
        /// The time of the write, by the clock of the machine that wrote the document.
        time: Timestamp,
        /// The applied commit.
        #[serde(skip_serializing_if = "Option::is_none")]
        commit: Option<CommitId>,
        /// The number of resources.
        resources: usize,
        /// The note of the person who started the write.
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        /// The record of the apply that wrote this document.
        #[serde(skip_serializing_if = "Option::is_none")]
        receipt: Option<Box<ApplyRecord>>,
    },
    /// A document that cannot be read.
    Unreadable {
        /// The reason why the document cannot be read.
        unreadable: String,
    },
}
