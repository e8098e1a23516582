//! [`RolloutsDocument`]: the progress of rollouts, and what each waits for.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use super::Writer;
use konverge_base::model::{CommitId, Digest, RepoPath, StackId, rollout::RolloutPhase};

/// All rollouts. The JSON has `"version":1`.
#[derive(Debug, Clone, Serialize)]
pub struct RolloutsDocument {
    /// Version of this format.
    pub version: u32,
    /// The rollouts, sorted by name.
    pub rollouts: Vec<RolloutView>,
    /// Notices about records that cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// One rollout.
#[derive(Debug, Clone, Serialize)]
pub struct RolloutView {
    /// The name of the rollout.
    pub rollout: String,
    /// True if `konverge.yaml` still configures the rollout.
    pub configured: bool,
    /// The progress of the rollout.
    #[serde(flatten)]
    pub progress: RolloutProgress,
}

/// The progress of a rollout.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum RolloutProgress {
    /// No rollout has begun: no change to its stacks was merged since it was configured.
    NeverBegun {
        /// `never-begun`.
        phase: &'static str,
    },
    /// A rollout that has a record.
    Begun(Box<BegunRollout>),
}

impl RolloutProgress {
    /// Returns the progress of a rollout without a record.
    pub fn never_begun() -> Self {
        Self::NeverBegun { phase: "never-begun" }
    }
}

/// The newest record of a rollout.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BegunRollout {
    /// The phase of the current wave.
    pub phase: RolloutPhase,
    /// True if a person paused it.
    pub paused: bool,
    /// The commit that is rolled out.
    pub commit: CommitId,
    /// The current wave, from 1.
    pub wave: usize,
    /// The waves in their order.
    pub waves: Vec<WaveView>,
    /// The time when the phase began.
    pub since: Timestamp,
    /// The time when the bake of the current wave ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The reason of the phase.
    pub why: String,
    /// True if the rollout should have continued long ago.
    pub overdue: bool,
    /// The last reading of each gate of the current wave.
    pub gates: BTreeMap<String, String>,
    /// The gates that wait for an approval, with the digest to approve; `None` as long as a plan is missing.
    pub approve: BTreeMap<String, Option<Digest>>,
    /// The people who may approve at each of these gates.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub approvers: BTreeMap<String, Vec<String>>,
    /// The stacks of the next wave that no job has planned yet. Set only while a gate waits for an approval.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub unplanned: BTreeSet<StackId>,
    /// The stacks whose change is held because it failed or was aborted.
    pub held: BTreeSet<StackId>,
    /// The number of the record.
    pub number: u64,
    /// The run that wrote the record.
    pub writer: Writer,
    /// The folders of the stacks. Permissions to see a stack depend on its folder.
    #[serde(skip)]
    pub folders: BTreeMap<StackId, RepoPath>,
}

/// A wave of a rollout.
#[derive(Debug, Clone, Serialize)]
pub struct WaveView {
    /// The number of the wave, from 1.
    pub wave: usize,
    /// The progress of the wave.
    pub is: WaveStanding,
    /// The stacks of the wave that the commit changes.
    pub stacks: Vec<StackId>,
    /// The time for which the stacks must stay ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bake: Option<String>,
    /// The gates before the next wave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<String>,
}

/// The progress of a wave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WaveStanding {
    /// The wave has ended.
    Done,
    /// The rollout ended in this wave.
    Last,
    /// The rollout is in this wave.
    Now,
    /// The wave has not begun.
    Later,
}

impl WaveStanding {
    /// Returns the word that a page shows.
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Last => "last",
            Self::Now => "now",
            Self::Later => "later",
        }
    }
}

impl RolloutsDocument {
    /// Creates a document for records that cannot be read.
    pub fn unreadable(why: &str) -> Self {
        Self {
            version: 1,
            rollouts: Vec::new(),
            notices: vec![format!("The rollouts cannot be read: {why}")],
        }
    }

    /// Returns a copy with only the rollouts of which the person may see a stack. Reasons, gates and approvals may
    /// mention other stacks, so they are only shown to a person who may see every stack of the rollout.
    #[must_use]
    pub fn restricted(&self, may_see: impl Fn(&RepoPath) -> bool) -> Self {
        let rollouts = self
            .rollouts
            .iter()
            .filter_map(|rollout| match &rollout.progress {
                RolloutProgress::NeverBegun { .. } => None,
                RolloutProgress::Begun(begun) => Some(RolloutView {
                    progress: RolloutProgress::Begun(Box::new(begun.restricted(&may_see)?)),
                    ..rollout.clone()
                }),
            });
        Self {
            version: self.version,
            rollouts: rollouts.collect(),
            notices: Vec::new(),
        }
    }
}

impl BegunRollout {
    /// Returns the part that the person may see; `None` if the person may see none of its stacks.
    fn restricted(&self, may_see: impl Fn(&RepoPath) -> bool) -> Option<Self> {
        let seen = |stack: &StackId| self.folders.get(stack).is_some_and(&may_see);
        let all: Vec<_> = self.waves.iter().flat_map(|wave| &wave.stacks).collect();
        // A held change may belong to a stack that is no longer part of the rollout and whose folder is unknown, so
        // `held` counts too.
        if all.iter().copied().chain(&self.held).all(seen) {
            return (!all.is_empty()).then(|| self.clone());
        }
        if !all.iter().any(|stack| seen(stack)) {
            return None;
        }
        let waves = self.waves.iter().map(|wave| WaveView {
            stacks: wave.stacks.iter().filter(|stack| seen(stack)).cloned().collect(),
            gates: Vec::new(),
            ..wave.clone()
        });
        Some(Self {
            waves: waves.collect(),
            why: String::new(),
            gates: BTreeMap::new(),
            approve: BTreeMap::new(),
            approvers: BTreeMap::new(),
            unplanned: BTreeSet::new(),
            held: self.held.iter().filter(|stack| seen(stack)).cloned().collect(),
            ..self.clone()
        })
    }
}
