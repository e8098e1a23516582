//! The start of a rollout: whether a change starts one, and with which stacks.

use std::collections::BTreeMap;

use konverge_base::model::{
    CommitId, StackId,
    rollout::{ClockReading, HeldContent, RolloutPhase, RolloutRecord, RolloutStack},
};

use super::rules::RolloutRules;

/// A stack of a rollout that a commit changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedStack {
    /// Its wave, from 0.
    pub wave: usize,
    /// Its record.
    pub stack: RolloutStack,
}

/// Returns true if a change is held: a rollout failed with the same contents, and no person resumed it.
pub fn is_held(prior: Option<&RolloutRecord>, changed: &BTreeMap<StackId, ChangedStack>) -> bool {
    let Some(prior) = prior else { return false };
    changed.iter().all(|(id, changed)| {
        prior.held.contains(&HeldContent {
            stack: id.clone(),
            input: changed.stack.input,
        })
    })
}

/// The record of a new rollout; `None` if there is nothing to do, if an earlier one has not ended, or if its commit is held.
///
/// `wave_of` says to which wave a stack of the earlier rollout belongs now. What that rollout has begun and not ended
/// belongs to the new one too: nothing goes to a later wave that has not baked in an earlier one.
pub fn begin(
    name: &str,
    commit: &CommitId,
    rules: &RolloutRules,
    changed: &BTreeMap<StackId, ChangedStack>,
    prior: Option<&RolloutRecord>,
    wave_of: impl Fn(&StackId, &RolloutStack) -> Option<usize>,
    now: ClockReading,
) -> Option<RolloutRecord> {
    // One that stopped without a failure waits for a person.
    let has_failed = |prior: &RolloutRecord| prior.phase == RolloutPhase::Stopped && !prior.held.is_empty();
    let may_start = prior.is_none_or(|prior| prior.phase.is_over() || has_failed(prior));
    if changed.is_empty() || !may_start || is_held(prior, changed) {
        return None;
    }
    let mut waves = vec![BTreeMap::new(); rules.waves.len()];
    for (id, changed) in changed {
        waves
            .get_mut(changed.wave)?
            .insert(id.clone(), changed.stack.clone());
    }
    let unfinished = prior.filter(|prior| prior.phase != RolloutPhase::Done);
    for (id, stack) in unfinished.into_iter().flat_map(RolloutRecord::begun_stacks) {
        let to = wave_of(id, stack).and_then(|wave| waves.get_mut(wave));
        if let Some(to) = to.filter(|_| !changed.contains_key(id)) {
            to.insert(id.clone(), stack.clone());
        }
    }
    Some(RolloutRecord {
        held: prior.map(|prior| prior.held.clone()).unwrap_or_default(),
        ..RolloutRecord::at_start(name, commit.clone(), rules.digest, waves, now)
    })
}

#[cfg(test)]
#[path = "begin_tests.rs"]
mod tests;
