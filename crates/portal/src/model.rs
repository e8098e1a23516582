//! What the pages show: plain data. Its JSON is what `konverge serve` answers under `/api/v1`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use serde::Serialize;

use super::{SearchIndex, StackCondition};
use konverge_base::model::{
    CommitId, Digest, RepoPath, ResourceId, StackFolder, StackId, apply_record::ApplyRecord,
    apply_result::StackResult, state::StackState,
};

/// All stacks. The JSON has `"version":1`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// Version of this format.
    pub version: u32,
    /// The repository of the states.
    pub repository: String,
    /// The commit that the stacks are compared with. `None`: nobody compared, so nothing is known to be pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<CommitId>,
    /// The freeze that stops all applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeze: Option<FreezeView>,
    /// What a reader must know: what is missing, older or unreadable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// The worst first.
    pub stacks: Vec<OverviewRow>,
}

impl Overview {
    /// What is said of the repository alone.
    fn without_stacks(&self) -> Self {
        Self {
            version: self.version,
            repository: self.repository.clone(),
            head: self.head.clone(),
            freeze: self.freeze.clone(),
            notices: Vec::new(),
            stacks: Vec::new(),
        }
    }

    /// Puts the worst stack first; stacks of one condition by identity.
    pub fn sort(&mut self) {
        self.stacks
            .sort_by(|a, b| (a.worst(), &a.id).cmp(&(b.worst(), &b.id)));
    }

    /// The row of a stack.
    pub fn row(&self, id: &StackId) -> Option<&OverviewRow> {
        self.stacks.iter().find(|row| row.id == *id)
    }

    /// The number of stacks with a condition.
    pub fn count(&self, condition: StackCondition) -> usize {
        self.stacks
            .iter()
            .filter(|row| row.conditions.contains(&condition))
            .count()
    }

    /// The rows that match a filter.
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

/// One stack of the overview.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OverviewRow {
    /// Folder of the stack.
    pub stack: StackFolder,
    /// Identity of the stack.
    pub id: StackId,
    /// How it stands, the worst first; at least one.
    pub conditions: Vec<StackCondition>,
    /// The last recorded write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<AppliedState>,
    /// The number of recorded resources.
    pub resources: usize,
    /// A later apply that wrote no state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<StoppedView>,
    /// The drift that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<DriftView>,
    /// Why the state cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl OverviewRow {
    /// The condition that decides its place.
    pub fn worst(&self) -> StackCondition {
        self.conditions
            .first()
            .copied()
            .unwrap_or(StackCondition::Applied)
    }

    /// The text that a filter looks into.
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

/// All stacks at one time.
#[derive(Debug, Clone)]
pub struct StackIndex {
    /// The overview.
    pub overview: Overview,
    /// The names of their resources.
    pub search: SearchIndex,
    /// By stack what its page is made of: the page is the same while this is.
    pub fingerprints: BTreeMap<StackId, Digest>,
    /// By stack the serial that the index knows.
    pub serials: BTreeMap<StackId, u64>,
}

impl StackIndex {
    /// The stacks whose folders somebody may see, and nothing of the others: no row, no name, no count.
    #[must_use]
    pub fn restricted(&self, may_see: impl Fn(&RepoPath) -> bool) -> Self {
        let rows = self.overview.stacks.iter();
        let stacks: Vec<_> = rows.filter(|row| may_see(row.stack.or_root())).cloned().collect();
        let ids: BTreeSet<_> = stacks.iter().map(|row| row.id.clone()).collect();
        let seen = |id: &StackId| ids.contains(id);
        // What concerns the store may name stacks, and how many there are.
        let notices = if self.overview.notices.is_empty() {
            Vec::new()
        } else {
            vec!["There are notices about the store. Who may see every stack sees them.".to_owned()]
        };
        Self {
            overview: Overview {
                notices,
                stacks,
                ..self.overview.without_stacks()
            },
            search: self.search.restricted(seen),
            fingerprints: (self.fingerprints.iter())
                .filter(|(id, _)| seen(id))
                .map(|(id, digest)| (id.clone(), *digest))
                .collect(),
            serials: (self.serials.iter())
                .filter(|(id, _)| seen(id))
                .map(|(id, serial)| (id.clone(), *serial))
                .collect(),
        }
    }
}

/// The run that wrote a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Writer {
    /// The URL of the run, or `user@host` outside CI.
    pub run: String,
    /// The person or bot that started the run.
    pub actor: String,
}

/// The last write that the state records.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedState {
    /// The serial of the state.
    pub serial: u64,
    /// The time of the write, by the clock of the writing machine.
    pub written: Timestamp,
    /// The reason of the write.
    pub reason: String,
    /// The run.
    #[serde(flatten)]
    pub writer: Writer,
    /// How the apply ended, if an apply wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<StackResult>,
    /// The commit of the last successful apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit: Option<CommitId>,
    /// The commit of an apply that did not succeed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempted: Option<CommitId>,
}

/// An apply that ended before it wrote a state.
#[derive(Debug, Clone, Serialize)]
pub struct StoppedView {
    /// When, by the clock of that machine.
    pub at: Timestamp,
    /// How it ended.
    pub result: StackResult,
    /// The run.
    #[serde(flatten)]
    pub writer: Writer,
}

/// Drift, and since when it is known.
#[derive(Debug, Clone, Serialize)]
pub struct DriftView {
    /// When a difference was first detected, in an unbroken sequence of checks.
    pub since: Timestamp,
    /// The last check.
    pub checked: Timestamp,
    /// The digest that restores it.
    pub digest: Digest,
}

/// The freeze of all applies.
#[derive(Debug, Clone, Serialize)]
pub struct FreezeView {
    /// The reason that its author gave.
    pub reason: String,
    /// When it was set.
    pub since: Timestamp,
    /// Who set it.
    #[serde(flatten)]
    pub writer: Writer,
}

/// Who holds the lease of a stack, and the way out.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseView {
    /// The id for `konverge state unlock`.
    pub id: String,
    /// The run that holds it.
    #[serde(flatten)]
    pub writer: Writer,
    /// When it was taken, by the holder's clock.
    pub since: Timestamp,
    /// After this time without a renewal it is taken over.
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
    /// What the overview says of it.
    #[serde(flatten)]
    pub row: OverviewRow,
    /// What a reader must know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// The recorded state, with secrets masked; `None` if nothing is recorded or it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StackState>,
    /// Resources whose outcome is unknown because a run was interrupted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<ResourceId>,
    /// The kept serials, the newest first.
    pub history: Vec<HistoryRow>,
    /// The lease, if a run holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseView>,
}

/// One line of a stack's history, as in `konverge state history --output json`.
#[derive(Debug, Clone, Serialize)]
pub struct HistoryRow {
    /// Number of the state.
    pub serial: u64,
    /// The document, or why it cannot be read.
    #[serde(flatten)]
    pub document: HistoryDocument,
}

/// The summary of one serial.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum HistoryDocument {
    /// A document that was read.
    Read {
        /// Why it was written.
        reason: String,
        /// The run that wrote it.
        writer: Writer,
        /// When it was written, by the clock of that machine.
        time: Timestamp,
        /// The applied commit.
        #[serde(skip_serializing_if = "Option::is_none")]
        commit: Option<CommitId>,
        /// The number of resources.
        resources: usize,
        /// The note that was given with it.
        #[serde(skip_serializing_if = "Option::is_none")]
        note: Option<String>,
        /// The apply that ended with this document.
        #[serde(skip_serializing_if = "Option::is_none")]
        receipt: Option<Box<ApplyRecord>>,
    },
    /// A document that cannot be read.
    Unreadable {
        /// Why.
        unreadable: String,
    },
}
