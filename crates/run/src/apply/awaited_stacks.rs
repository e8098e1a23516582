//! Stacks that delete a Namespace or a CRD with objects of other stacks: they are planned again after those stacks.

use std::collections::{BTreeMap, BTreeSet};

use super::{consent::Decisions, outcome::has_succeeded, rounds};
use crate::Target;
use konverge_base::model::{StackId, apply_result::StackOutcome};

/// The stacks that wait for other stacks of the same run, with the outcome of their first attempt. Each waits only
/// once.
#[derive(Default)]
pub(super) struct AwaitedStacks(BTreeMap<StackId, FirstAttempt>);

struct FirstAttempt {
    waits_for: BTreeSet<StackId>,
    outcome: StackOutcome,
    decisions: Decisions,
}

impl AwaitedStacks {
    /// Returns true if a stack should be planned again after other stacks of this run that have not ended yet. A stack
    /// waits only once.
    pub(super) fn is_due(
        &self,
        outcome: &StackOutcome,
        decisions: &Decisions,
        targets: &[Target],
        ended: &BTreeSet<StackId>,
    ) -> bool {
        let is_to_come =
            |first: &StackId| !ended.contains(first) && targets.iter().any(|target| target.id == *first);
        !has_succeeded(outcome.result)
            && !self.0.contains_key(&outcome.id)
            && decisions.waits_for.iter().any(is_to_come)
    }

    /// Adds a stack that waits.
    pub(super) fn add(&mut self, outcome: StackOutcome, decisions: Decisions) {
        let attempt = FirstAttempt {
            waits_for: decisions.waits_for.clone(),
            outcome,
            decisions,
        };
        self.0.insert(attempt.outcome.id.clone(), attempt);
    }

    /// Returns true while a stack that the given stack waits for has not ended.
    pub(super) fn holds(&self, stack: &StackId, ended: &BTreeSet<StackId>) -> bool {
        let attempt = self.0.get(stack);
        attempt.is_some_and(|attempt| !attempt.waits_for.is_subset(ended))
    }

    /// Ends all waits, because no stack runs any more: the remaining ones wait for each other, or for stacks of another
    /// run.
    pub(super) fn give_up(&mut self) {
        let attempts = self.0.values_mut();
        attempts.for_each(|attempt| attempt.waits_for.clear());
    }

    /// Combines the outcome of a stack with that of its first attempt, if there was one.
    pub(super) fn complete(
        &self,
        mut outcome: StackOutcome,
        mut decisions: Decisions,
    ) -> (StackOutcome, Decisions) {
        if let Some(first) = self.0.get(&outcome.id) {
            if !first.outcome.resources.is_empty() {
                outcome = rounds::join(first.outcome.clone(), outcome);
            }
            decisions.extend(first.decisions.clone());
        }
        (outcome, decisions)
    }
}
