//! [`RolloutsDocument`]: how far rollouts are, what each waits for, and for whom.

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
    /// By name.
    pub rollouts: Vec<RolloutView>,
    /// Notices of what cannot be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// One rollout.
#[derive(Debug, Clone, Serialize)]
pub struct RolloutView {
    /// Its name.
    pub rollout: String,
    /// True if konverge.yaml has it.
    pub configured: bool,
    /// How far it is.
    #[serde(flatten)]
    pub progress: RolloutProgress,
}

/// How far a rollout is.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum RolloutProgress {
    /// It has not started: no change of its stacks was merged since it was configured.
    NeverBegun {
        /// `never-begun`.
        phase: &'static str,
    },
    /// A rollout with a record.
    Begun(Box<BegunRollout>),
}

impl RolloutProgress {
    /// The progress of a rollout without a record.
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
    /// True if somebody paused it.
    pub paused: bool,
    /// The commit that every wave gets.
    pub commit: CommitId,
    /// The current wave, from 1.
    pub wave: usize,
    /// The waves.
    pub waves: Vec<WaveView>,
    /// When the phase began.
    pub since: Timestamp,
    /// When the bake of the current wave ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Why it is so.
    pub why: String,
    /// True if it should have gone on long ago.
    pub overdue: bool,
    /// The last word of each gate of the current wave, by the name of the gate.
    pub gates: BTreeMap<String, String>,
    /// The gates that ask people now, with the digest to approve; `null`: a plan is missing.
    pub approve: BTreeMap<String, Option<Digest>>,
    /// Who may approve at those gates.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub approvers: BTreeMap<String, Vec<String>>,
    /// The stacks of the next wave that no job has planned yet, while a gate asks people.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub unplanned: BTreeSet<StackId>,
    /// The stacks whose change is held: it failed or was aborted.
    pub held: BTreeSet<StackId>,
    /// The number of the record.
    pub number: u64,
    /// Who wrote it.
    pub writer: Writer,
    /// The folders of the stacks, which decide who sees them.
    #[serde(skip)]
    pub folders: BTreeMap<StackId, RepoPath>,
}

/// One wave.
#[derive(Debug, Clone, Serialize)]
pub struct WaveView {
    /// Its number, from 1.
    pub wave: usize,
    /// How far it is.
    pub is: WaveStanding,
    /// The stacks that the commit changes.
    pub stacks: Vec<StackId>,
    /// How long its stacks must stay ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bake: Option<String>,
    /// The gates before the next wave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<String>,
}

/// How far a wave is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WaveStanding {
    /// It has ended.
    Done,
    /// The rollout ended with it.
    Last,
    /// It is the current one.
    Now,
    /// It has not begun.
    Later,
}

impl WaveStanding {
    /// The word of it.
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
    /// The document of records that cannot be read.
    pub fn unreadable(why: &str) -> Self {
        Self {
            version: 1,
            rollouts: Vec::new(),
            notices: vec![format!("How far the rollouts are is unknown: {why}")],
        }
    }

    /// The rollouts of the stacks whose folders somebody may see. Reasons, gates and approvals may speak of other stacks:
    /// they are shown to who sees every stack of the rollout.
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
    /// Returns the part that somebody may see; `None` if none of its stacks may be seen.
    fn restricted(&self, may_see: impl Fn(&RepoPath) -> bool) -> Option<Self> {
        let seen = |stack: &StackId| self.folders.get(stack).is_some_and(&may_see);
        let all: Vec<_> = self.waves.iter().flat_map(|wave| &wave.stacks).collect();
        // A held change may be of a stack that the rollout no longer has, whose folder nobody knows here.
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
