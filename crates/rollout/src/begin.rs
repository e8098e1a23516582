//! The start of a rollout: decides if a commit starts one, and with which stacks.

use std::collections::{BTreeMap, BTreeSet};

use konverge_base::model::{
    CommitId, Digest, StackId,
    rollout::{ClockReading, HeldContent, RolloutPhase, RolloutRecord, RolloutStack},
};

use super::rules::RolloutRules;

/// A stack that a commit changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedStack {
    /// The wave of the stack, from 0.
    pub wave: usize,
    /// The record of the stack for the rollout.
    pub stack: RolloutStack,
}

/// A change that may start a rollout.
#[derive(Debug, Clone, Copy)]
pub struct RolloutStart<'a> {
    /// The name of the rollout.
    pub name: &'a str,
    /// The commit that the rollout carries.
    pub commit: &'a CommitId,
    /// The rules as they are configured now.
    pub rules: &'a RolloutRules,
    /// The stacks that the commit changes.
    pub changed: &'a BTreeMap<StackId, ChangedStack>,
    /// The newest record of the rollout.
    pub prior: Option<&'a RolloutRecord>,
    /// The current time.
    pub now: ClockReading,
}

/// Returns the stacks whose content is held: an earlier rollout failed with this content, so it is not applied
/// again. `now` has the contents that the new commit brings.
///
/// A new content of any stack of the failed rollout releases all stacks of that rollout, because they were changed
/// together. A push that changes only other stacks releases nothing.
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

/// Returns the record of a new rollout; `None` if no stack changes, if an earlier rollout has not ended, or if all
/// contents are held.
///
/// `wave_of` returns the present wave of a stack of the earlier rollout. Stacks that the earlier rollout began and
/// did not finish join the new one: no content reaches a later wave before it has baked in an earlier wave.
pub fn begin(
    start: &RolloutStart<'_>,
    wave_of: impl Fn(&StackId, &RolloutStack) -> Option<usize>,
) -> Option<RolloutRecord> {
    let RolloutStart { changed, prior, .. } = *start;
    // A rollout that stopped without a failure waits for a person, so no new one replaces it.
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
