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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{id, stack};
    use konverge_base::{
        error::{ErrorKind, UserError},
        model::apply_result::StackResult,
    };

    fn outcome(name: &str, result: StackResult) -> StackOutcome {
        let error = UserError::new(ErrorKind::Policy, "it holds objects of other stacks");
        StackOutcome::not_changed(&id(name), &stack(name).folder, result, &error)
    }

    fn waits_for(names: &[&str]) -> Decisions {
        Decisions {
            waits_for: names.iter().map(|name| id(name)).collect(),
            ..Decisions::default()
        }
    }

    fn targets(names: &[&str]) -> Vec<Target> {
        names.iter().map(|name| Target::new(&stack(name), None)).collect()
    }

    #[test]
    fn a_stack_is_planned_again_after_a_stack_of_this_run_that_is_still_to_come() {
        let awaited = AwaitedStacks::default();
        let targets = targets(&["base/prod", "shop/prod"]);
        let stopped = outcome("base/prod", StackResult::Stopped);
        let is_due = |outcome: &StackOutcome, names: &[&str], ended: &[&str]| {
            let ended = ended.iter().map(|name| id(name)).collect();
            awaited.is_due(outcome, &waits_for(names), &targets, &ended)
        };
        assert!(is_due(&stopped, &["shop/prod"], &[]));
        assert!(is_due(&stopped, &["other/prod", "shop/prod"], &[]));
        assert!(!is_due(&stopped, &["shop/prod"], &["shop/prod"]), "it has ended");
        assert!(!is_due(&stopped, &["other/prod"], &[]), "no target of this run");
        assert!(!is_due(&stopped, &[], &[]));
        let applied = outcome("base/prod", StackResult::Applied);
        assert!(!is_due(&applied, &["shop/prod"], &[]));
    }

    #[test]
    fn a_stack_waits_once_and_until_all_that_it_waits_for_have_ended() {
        let mut awaited = AwaitedStacks::default();
        let stopped = outcome("base/prod", StackResult::Stopped);
        let decisions = waits_for(&["shop/prod", "pay/prod"]);
        awaited.add(stopped.clone(), decisions.clone());
        let base = id("base/prod");
        let holds = |awaited: &AwaitedStacks, ended: &[&str]| {
            awaited.holds(&base, &ended.iter().map(|name| id(name)).collect())
        };
        assert!(holds(&awaited, &[]) && holds(&awaited, &["shop/prod"]));
        assert!(!holds(&awaited, &["shop/prod", "pay/prod"]));
        assert!(!awaited.holds(&id("shop/prod"), &BTreeSet::new()));
        let all = targets(&["base/prod", "shop/prod"]);
        assert!(
            !awaited.is_due(&stopped, &decisions, &all, &BTreeSet::new()),
            "only once"
        );
        awaited.give_up();
        assert!(!holds(&awaited, &[]), "two that wait for each other end");
    }

    #[test]
    fn the_decisions_of_the_first_attempt_count_for_the_outcome() {
        let mut awaited = AwaitedStacks::default();
        awaited.add(
            outcome("base/prod", StackResult::Stopped),
            waits_for(&["shop/prod"]),
        );
        let denied = Decisions {
            denied: [id("base/prod")].into(),
            ..Decisions::default()
        };
        let second = outcome("base/prod", StackResult::Failed);
        let (ended, decisions) = awaited.complete(second.clone(), denied.clone());
        assert_eq!(ended, second, "nothing was changed in the first attempt");
        assert_eq!(
            (decisions.denied, decisions.waits_for),
            (denied.denied, [id("shop/prod")].into())
        );
        let other = outcome("shop/prod", StackResult::Failed);
        let (_, alone) = awaited.complete(other, Decisions::default());
        assert_eq!(alone, Decisions::default());
    }
}
