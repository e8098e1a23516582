//! The record of a rollout: the commit, its stacks in waves, and the progress.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{CommitId, Digest, RepoPath, StackId};

/// The progress of a rollout. Each change is stored as a new document; the newest one counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutRecord {
    /// The name of the rollout.
    pub rollout: String,
    /// The commit that every wave gets.
    pub commit: CommitId,
    /// The digest of the configured rollout and its gates at the start.
    pub rules: Digest,
    /// The stacks that the commit changes, by wave.
    pub waves: Vec<BTreeMap<StackId, RolloutStack>>,
    /// The current wave, from 0.
    pub wave: usize,
    /// The phase of the current wave.
    pub phase: RolloutPhase,
    /// True if somebody paused the rollout: nothing continues until it is resumed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// The time at which the phase began.
    pub since: ClockReading,
    /// The reason for the phase, as text.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// The plan digests that somebody approved, for all stacks of a wave. No other plan of the wave is applied.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub approved: BTreeMap<StackId, Digest>,
    /// The digests that the approvals named.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub approvals: BTreeSet<Digest>,
    /// The plan digests of the next wave while a gate waits for its approval. Each job writes those of its own
    /// environment, and one approval covers all of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub planned: BTreeMap<StackId, Digest>,
    /// The number of waves that have begun. It does not decrease if the rollout goes back to an earlier wave.
    pub begun_waves: usize,
    /// The stacks of the current wave that a job saw ready after the bake time. Jobs see only the stacks of their own
    /// environment.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub ready: BTreeSet<StackId>,
    /// The time since which jobs see a stack of the current wave unready after the bake time. A stack that becomes
    /// ready is removed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unready_since: BTreeMap<StackId, ClockReading>,
    /// The stack contents with which a rollout failed or was aborted. They are not applied until one of these stacks
    /// gets a newer content, or somebody resumes the rollout.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub held: BTreeSet<HeldContent>,
    /// The last result of each gate of the current wave, by the name of the gate.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub measured: BTreeMap<String, String>,
}

/// The content of a stack with which a rollout failed or was aborted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HeldContent {
    /// The stack with the content that is held.
    pub stack: StackId,
    /// The input digest of the stack; `None` if the commit removes the stack.
    pub input: Option<Digest>,
    /// The commit of the failed rollout. All contents of one commit are released together.
    pub commit: CommitId,
}

/// A stack of a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStack {
    /// The folder of the stack.
    pub folder: RepoPath,
    /// The input digest of the stack at the commit; `None` if the commit removes the stack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Digest>,
    /// The serial of the stack's state before the rollout. A rollback restores this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
}

/// The phase of the current wave of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, derive_more::Display)]
#[serde(rename_all = "kebab-case")]
#[display(rename_all = "lowercase")]
pub enum RolloutPhase {
    /// The stacks of the wave are being applied.
    Applying,
    /// The stacks of the wave are applied, and must stay ready for the bake time.
    Baking,
    /// The gates of the wave are checked.
    #[display("waits for its gates")]
    Gate,
    /// The wave failed, and its stacks are rolled back.
    #[display("rolling back")]
    RollingBack,
    /// The wave failed. The commit is held until a newer commit changes its stacks, or somebody resumes the rollout.
    Stopped,
    /// Every wave has ended.
    Done,
    /// Somebody aborted the rollout before its last wave. The commit is held like that of a failed rollout.
    Aborted,
}

impl RolloutPhase {
    /// Returns true if the rollout has ended: the next change starts a new one.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Aborted)
    }
}

/// The readings of two clocks at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// The time of the local machine.
    pub local: Timestamp,
    /// The time of GitHub's clock, if GitHub responded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Timestamp>,
}

impl RolloutRecord {
    /// Creates the first record of a rollout, whose first wave is being applied.
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

    /// Returns the stacks of the current wave.
    pub fn current(&self) -> impl Iterator<Item = &StackId> {
        self.waves.get(self.wave).into_iter().flat_map(BTreeMap::keys)
    }

    /// Returns the approved plans of the current wave; empty if the wave needs no approval.
    pub fn approved_now(&self) -> BTreeMap<StackId, Digest> {
        let approved = |id| Some((StackId::clone(id), *self.approved.get(id)?));
        self.current().filter_map(approved).collect()
    }

    /// Returns the approved plans of the other waves.
    pub fn other_approvals(&self) -> BTreeMap<StackId, Digest> {
        let own = self.waves.get(self.wave);
        let is_own = |id: &StackId| own.is_some_and(|own| own.contains_key(id));
        let others = self.approved.iter().filter(|(id, _)| !is_own(id));
        others.map(|(id, plan)| (id.clone(), *plan)).collect()
    }

    /// Returns the stacks of the waves that have begun.
    pub fn begun_stacks(&self) -> impl Iterator<Item = (&StackId, &RolloutStack)> {
        self.waves.iter().take(self.begun_waves).flatten()
    }

    /// Returns the stacks that are rolled back if the rollout fails now: those of the current wave, and those of later
    /// waves that have begun.
    pub fn failing(&self) -> impl Iterator<Item = (&StackId, &RolloutStack)> {
        let begun = self.waves.iter().take(self.begun_waves);
        begun.skip(self.wave).flatten()
    }

    /// Returns true if another record describes the same period of the same phase, so that observations of one count
    /// for the other.
    pub fn is_in_phase_of(&self, other: &Self) -> bool {
        (&self.commit, self.wave, self.phase, self.since)
            == (&other.commit, other.wave, other.phase, other.since)
    }

    /// Returns the stacks of all waves, with the number of the wave from 0.
    pub fn stacks(&self) -> impl Iterator<Item = (usize, &StackId, &RolloutStack)> {
        let waves = self.waves.iter().enumerate();
        waves.flat_map(|(wave, stacks)| stacks.iter().map(move |(id, stack)| (wave, id, stack)))
    }

    /// Returns the stack contents of this rollout.
    pub fn contents(&self) -> impl Iterator<Item = HeldContent> {
        self.stacks().map(|(_, id, stack)| HeldContent {
            stack: id.clone(),
            input: stack.input,
            commit: self.commit.clone(),
        })
    }

    /// Returns the held contents, except those that this rollout itself applies.
    pub fn held_without_own(&self) -> BTreeSet<HeldContent> {
        let own: BTreeMap<_, _> = self.stacks().map(|(_, id, stack)| (id, stack.input)).collect();
        let is_own = |held: &&HeldContent| own.get(&held.stack) == Some(&held.input);
        self.held.iter().filter(|held| !is_own(held)).cloned().collect()
    }

    /// Returns the wave as text, such as `wave 2 of 3`.
    pub fn wave_title(&self) -> String {
        format!("wave {} of {}", self.wave + 1, self.waves.len())
    }
}
