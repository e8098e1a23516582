//! The start of a rollout: whether a change starts one, and with which stacks.

use std::collections::{BTreeMap, BTreeSet};

use konverge_base::model::{
    CommitId, Digest, StackId,
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

/// A change that may start a rollout.
#[derive(Debug, Clone, Copy)]
pub struct RolloutStart<'a> {
    /// The name of the rollout.
    pub name: &'a str,
    /// The commit.
    pub commit: &'a CommitId,
    /// The rules of today.
    pub rules: &'a RolloutRules,
    /// The stacks that the commit changes.
    pub changed: &'a BTreeMap<StackId, ChangedStack>,
    /// The newest record of the rollout.
    pub prior: Option<&'a RolloutRecord>,
    /// The clocks.
    pub now: ClockReading,
}

/// The stacks whose content is held: a rollout failed with it, and nothing has lifted that since. `now` are the contents that a
/// commit brings.
///
/// A newer content of any stack of that rollout lifts it for all of them: the stacks of a change belong together. A push to
/// other stacks does not.
pub fn held_stacks(
    prior: Option<&RolloutRecord>,
    now: &BTreeMap<StackId, Option<Digest>>,
) -> BTreeSet<StackId> {
    let Some(prior) = prior else {
        return BTreeSet::new();
    };
    let is_newer = |held: &&HeldContent| {
        now.get(&held.stack).is_some_and(|input| {
            !prior.held.contains(&HeldContent {
                input: *input,
                ..(*held).clone()
            })
        })
    };
    let lifted: BTreeSet<_> = prior
        .held
        .iter()
        .filter(is_newer)
        .map(|held| &held.commit)
        .collect();
    let held = prior.held.iter().filter(|held| !lifted.contains(&held.commit));
    let held = held.filter(|held| now.get(&held.stack) == Some(&held.input));
    held.map(|held| held.stack.clone()).collect()
}

/// The record of a new rollout; `None` if there is nothing to do, if an earlier one has not ended, or if everything is held.
///
/// `wave_of` says to which wave a stack of the earlier rollout belongs now. What that rollout has begun and not ended
/// belongs to the new one too: nothing goes to a later wave that has not baked in an earlier one.
pub fn begin(
    start: &RolloutStart<'_>,
    wave_of: impl Fn(&StackId, &RolloutStack) -> Option<usize>,
) -> Option<RolloutRecord> {
    let RolloutStart { changed, prior, .. } = *start;
    // One that stopped without a failure waits for a person.
    let has_failed = |prior: &RolloutRecord| {
        prior.phase == RolloutPhase::Stopped && prior.contents().all(|content| prior.held.contains(&content))
    };
    if !prior.is_none_or(|prior| prior.phase.is_over() || has_failed(prior)) {
        return None;
    }
    let contents = changed
        .iter()
        .map(|(id, changed)| (id.clone(), changed.stack.input));
    let held = held_stacks(prior, &contents.collect());
    let mut waves = vec![BTreeMap::new(); start.rules.waves.len()];
    for (id, changed) in changed {
        if !held.contains(id) {
            let wave = waves.get_mut(changed.wave)?;
            wave.insert(id.clone(), changed.stack.clone());
        }
    }
    if waves.iter().all(BTreeMap::is_empty) {
        return None;
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
        ..RolloutRecord::at_start(
            start.name,
            start.commit.clone(),
            start.rules.digest,
            waves,
            start.now,
        )
    })
}

#[cfg(test)]
#[path = "begin_tests.rs"]
mod tests;
