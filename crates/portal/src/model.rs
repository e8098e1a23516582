//! What the pages show: plain data. Its JSON is what `konverge serve` answers under `/api/v1`.

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
    /// The repository of the states.
    pub repository: String,
    /// The commit that the stacks are compared with. `None`: nobody compared, so nothing is known to be pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<CommitId>,
    /// The repository at its forge, for links.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forge: Option<RepositoryPages>,
    /// The freeze that stops all applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub freeze: Option<FreezeView>,
    /// Notices for the reader: what is missing, older or unreadable.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// The worst first.
    pub stacks: Vec<OverviewRow>,
}

impl Overview {
    /// Returns the parts that are about the repository alone.
    fn without_stacks(&self) -> Self {
        Self {
            version: self.version,
            repository: self.repository.clone(),
            head: self.head.clone(),
            forge: self.forge.clone(),
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
    /// The live objects as the last drift check saw them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub look: Option<LookView>,
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

    /// Returns true if the last drift check saw nothing to tell: no difference, and no object that is not ready.
    pub fn is_calm(&self) -> bool {
        let is_ready = |look: &LookView| look.health.is_none_or(|health| health.is_all_ready());
        self.drift.is_none() && self.look.as_ref().is_none_or(is_ready)
    }

    /// The text that a page is made of, without the time of a check that saw nothing to tell: a static page stays the same
    /// until something changes.
    pub fn settled(&self) -> Self {
        let mut row = self.clone();
        if row.is_calm()
            && let Some(look) = &mut row.look
        {
            look.checked = Timestamp::UNIX_EPOCH;
        }
        row
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
    /// By stack what was applied in the last weeks.
    pub activity: BTreeMap<StackId, Vec<WeekActivity>>,
}

impl StackIndex {
    /// The stacks whose folders somebody may see, and nothing of the others: no row, no name, no count.
    #[must_use]
    pub fn restricted(&self, may_see: impl Fn(&RepoPath) -> bool) -> Self {
        let rows = self.overview.stacks.iter();
        let stacks: Vec<_> = rows.filter(|row| may_see(row.stack.or_root())).cloned().collect();
        let ids: BTreeSet<_> = stacks.iter().map(|row| row.id.clone()).collect();
        let seen = |id: &StackId| ids.contains(id);
        // A notice about the store may name stacks, or say how many there are.
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
            fingerprints: of_stacks(&self.fingerprints, seen),
            serials: of_stacks(&self.serials, seen),
            activity: of_stacks(&self.activity, seen),
        }
    }
}

/// The values of some of the stacks.
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

/// The live objects of a stack, as the last drift check saw them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LookView {
    /// When, by the clock of that machine.
    pub checked: Timestamp,
    /// The objects by their health; none where no object has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthCounts>,
}

/// The differences and objects of one stack, as drift checks and previews saw them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenStack {
    /// The difference from what was applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift_difference: Option<SeenDifference>,
    /// The changes of pull requests that are not applied here, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending_differences: Vec<SeenDifference>,
    /// The live objects that were not ready at the last drift check.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unready: Vec<UnreadyObject>,
}

/// A difference as a run saw it, masked, and where more of it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenDifference {
    /// The run.
    pub run: String,
    /// The issue that tells of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issue: Option<u64>,
    /// The pull request that it is of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pull_request: Option<u64>,
    /// The head of that pull request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<CommitId>,
    /// The changes: from what is there to what an apply would write.
    pub units: Vec<ReviewUnit>,
    /// The number of changes that are left out.
    #[serde(skip_serializing_if = "is_zero")]
    pub more: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(number: &usize) -> bool {
    *number == 0
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
    /// The row of the overview.
    #[serde(flatten)]
    pub row: OverviewRow,
    /// Notices for the reader.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// The recorded state, with secrets masked; `None` if nothing is recorded or it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<StackState>,
    /// Resources whose outcome is unknown because a run was interrupted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<ResourceId>,
    /// The differences and objects, as drift checks and previews saw them.
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
