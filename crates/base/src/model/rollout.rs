//! The record of a rollout: which commit goes to which stacks in which waves, and how far it is.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{CommitId, Digest, RepoPath, StackId};

/// How far a rollout is. Each change is a document of its own; the newest one counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutRecord {
    /// The name of the rollout.
    pub rollout: String,
    /// The commit that every wave gets.
    pub commit: CommitId,
    /// The digest of the rollout and its gates as they were configured at the start.
    pub rules: Digest,
    /// The stacks of each wave that the commit changes.
    pub waves: Vec<BTreeMap<StackId, RolloutStack>>,
    /// The current wave, from 0.
    pub wave: usize,
    /// The phase of the current wave.
    pub phase: RolloutPhase,
    /// Somebody paused it: nothing continues until it is resumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// When the phase began.
    pub since: ClockReading,
    /// Why it is so, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The digests of the plans that somebody approved, of all stacks of a wave: no other plan of it is applied.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub approved: BTreeMap<StackId, Digest>,
    /// The digests with which somebody approved them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub approvals: BTreeSet<Digest>,
    /// The digests of the plans of the next wave while a gate asks for its approval. Each job writes those of its own
    /// environment, and an approval is for all of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub planned: BTreeMap<StackId, Digest>,
    /// The number of waves that have begun. It stays if the rollout goes back to an earlier wave.
    pub begun_waves: usize,
    /// The stacks of the current wave that a job saw ready after the bake. Other jobs may not see them: those of other
    /// environments.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ready: BTreeSet<StackId>,
    /// Since when jobs see stacks of the current wave unready after the bake. A job that sees one ready takes it out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unready_since: BTreeMap<StackId, ClockReading>,
    /// Contents of stacks with which a rollout failed or was aborted: they are not applied until a newer content of one of
    /// these stacks comes, or somebody resumes.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub held: BTreeSet<HeldContent>,
    /// The last word of each gate of the current wave, by the name of the gate.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measured: BTreeMap<String, String>,
}

/// The content of a stack with which a rollout failed or was aborted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HeldContent {
    /// The stack.
    pub stack: StackId,
    /// The digest of its inputs; `None`: its removal.
    pub input: Option<Digest>,
    /// The commit of the rollout that failed. The contents that one commit brought are released together.
    pub commit: CommitId,
}

/// A stack of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStack {
    /// Its folder.
    pub folder: RepoPath,
    /// The digest of its inputs at the commit; `None`: the commit removes the stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Digest>,
    /// The serial of its state before the rollout, to which a rollback goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
}

/// The phase of the current wave of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RolloutPhase {
    /// Its stacks are applied.
    Applying,
    /// Its stacks are applied, and must stay ready for some time.
    Baking,
    /// Its gates are asked.
    Gate,
    /// It failed, and its stacks get what they had before.
    RollingBack,
    /// It failed. Its commit is held until a newer one changes its stacks, or somebody resumes the rollout.
    Stopped,
    /// Every wave has ended.
    Done,
    /// Somebody ended the rollout before its last wave. Its commit is held as that of a failed one.
    Aborted,
}

impl RolloutPhase {
    /// Returns true if nothing follows: the next change starts a new rollout.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Aborted)
    }
}

impl std::fmt::Display for RolloutPhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Applying => "applying",
            Self::Baking => "baking",
            Self::Gate => "waits for its gates",
            Self::RollingBack => "rolling back",
            Self::Stopped => "stopped",
            Self::Done => "done",
            Self::Aborted => "aborted",
        })
    }
}

/// The readings of two clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// The clock of the machine.
    pub local: Timestamp,
    /// The clock of GitHub, if it answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Timestamp>,
}

impl RolloutRecord {
    /// The first record of a rollout: its first wave is being applied.
    pub fn at_start(
        rollout: &str,
        commit: CommitId,
        rules: Digest,
        waves: Vec<BTreeMap<StackId, RolloutStack>>,
        since: ClockReading,
    ) -> Self {
        Self {
            rollout: rollout.to_owned(),
            commit,
            rules,
            waves,
            wave: 0,
            phase: RolloutPhase::Applying,
            paused: false,
            since,
            why: String::new(),
            approved: BTreeMap::new(),
            approvals: BTreeSet::new(),
            planned: BTreeMap::new(),
            begun_waves: 1,
            ready: BTreeSet::new(),
            unready_since: BTreeMap::new(),
            held: BTreeSet::new(),
            measured: BTreeMap::new(),
        }
    }

    /// The stacks of the current wave.
    pub fn current(&self) -> impl Iterator<Item = &StackId> {
        self.waves.get(self.wave).into_iter().flat_map(BTreeMap::keys)
    }

    /// The approved plans of the current wave. It is empty if nobody has to approve them.
    pub fn approved_now(&self) -> BTreeMap<StackId, Digest> {
        let approved = |id| Some((StackId::clone(id), *self.approved.get(id)?));
        self.current().filter_map(approved).collect()
    }

    /// The approved plans of the other waves.
    pub fn other_approvals(&self) -> BTreeMap<StackId, Digest> {
        let own = self.waves.get(self.wave);
        let is_own = |id: &StackId| own.is_some_and(|own| own.contains_key(id));
        let others = self.approved.iter().filter(|(id, _)| !is_own(id));
        others.map(|(id, plan)| (id.clone(), *plan)).collect()
    }

    /// The stacks of the waves that have begun.
    pub fn begun_stacks(&self) -> impl Iterator<Item = (&StackId, &RolloutStack)> {
        self.waves.iter().take(self.begun_waves).flatten()
    }

    /// The stacks that get what they had before if the rollout fails now: those of the current wave, and of the later
    /// ones that have begun.
    pub fn failing(&self) -> impl Iterator<Item = (&StackId, &RolloutStack)> {
        let begun = self.waves.iter().take(self.begun_waves);
        begun.skip(self.wave).flatten()
    }

    /// Returns true if another record is of the same time in the same phase: what a run saw of the one counts for the other.
    pub fn is_in_phase_of(&self, other: &Self) -> bool {
        (&self.commit, self.wave, self.phase, self.since)
            == (&other.commit, other.wave, other.phase, other.since)
    }

    /// The stacks of all waves, with the number of the wave from 0.
    pub fn stacks(&self) -> impl Iterator<Item = (usize, &StackId, &RolloutStack)> {
        let waves = self.waves.iter().enumerate();
        waves.flat_map(|(wave, stacks)| stacks.iter().map(move |(id, stack)| (wave, id, stack)))
    }

    /// The contents that it brings.
    pub fn contents(&self) -> impl Iterator<Item = HeldContent> {
        self.stacks().map(|(_, id, stack)| HeldContent {
            stack: id.clone(),
            input: stack.input,
            commit: self.commit.clone(),
        })
    }

    /// Returns the held contents without those that this rollout brings itself: they are no failure any more.
    pub fn held_without_own(&self) -> BTreeSet<HeldContent> {
        let own: BTreeMap<_, _> = self.stacks().map(|(_, id, stack)| (id, stack.input)).collect();
        let is_own = |held: &&HeldContent| own.get(&held.stack) == Some(&held.input);
        self.held.iter().filter(|held| !is_own(held)).cloned().collect()
    }

    /// `wave 2 of 3`.
    pub fn wave_title(&self) -> String {
        format!("wave {} of {}", self.wave + 1, self.waves.len())
    }
}
