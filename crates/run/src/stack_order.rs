//! The order of stacks, from `after` in `konverge.yaml` and `reads` in `stack.yaml`. Destroyed stacks have the reverse
//! order. If a stack fails, its dependents are not applied; a cycle is an error that names its stacks.

use std::collections::{BTreeMap, BTreeSet};

use crate::Target;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::StackId,
};
use konverge_config::Config;

/// The order of the targets of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StackOrder {
    before: BTreeMap<StackId, BTreeSet<StackId>>,
}

impl StackOrder {
    /// Computes the order of stacks from the rules of a configuration. Removed stacks are included.
    ///
    /// # Errors
    /// The rules form a cycle.
    pub fn build(config: &Config, targets: &[Target]) -> Result<Self, UserError> {
        let mut before = BTreeMap::new();
        let rules = config.rules();
        let declared = declared_reads(targets);
        for stack in targets {
            let comes_after = rules.for_place(&stack.id, stack.folder()).comes_after();
            let reads = declared.get(&stack.id);
            let is_read = |id: &StackId| reads.is_some_and(|reads| reads.contains(id));
            let matching = |other: &&Target| {
                other.id != stack.id && (comes_after(&other.id, other.folder()) || is_read(&other.id))
            };
            let first: BTreeSet<_> = targets
                .iter()
                .filter(matching)
                .map(|other| other.id.clone())
                .collect();
            before.insert(stack.id.clone(), first);
        }
        let order = Self { before };
        match order.cycle() {
            None => Ok(order),
            Some(cycle) => Err(UserError::new(
                ErrorKind::Config,
                format!(
                    "the `after` rules of konverge.yaml and the `reads` of stacks form a cycle: {}",
                    cycle.iter().map(StackId::as_str).collect::<Vec<_>>().join(" → ")
                ),
            )
            .hint("remove one of these rules, or make its pattern narrower")),
        }
    }

    /// Builds the order for a run that applies these stacks: those that it destroys wait for their dependents, in
    /// reverse order.
    ///
    /// # Errors
    /// See [`StackOrder::build`].
    pub fn for_apply(config: &Config, targets: &[Target]) -> Result<Self, UserError> {
        let leaving = targets.iter().filter(|target| target.head.is_none());
        let leaving = leaving.map(|target| target.id.clone()).collect();
        Ok(Self::build(config, targets)?.taking_down(&leaving))
    }

    /// Returns the order for a run that destroys the stacks in `leaving`: these wait for their dependents, and no other
    /// stack waits for them.
    #[must_use]
    fn taking_down(&self, leaving: &BTreeSet<StackId>) -> Self {
        let mut before: BTreeMap<StackId, BTreeSet<StackId>> = BTreeMap::new();
        for (stack, first) in &self.before {
            before.entry(stack.clone()).or_default();
            for first in first {
                let (waits, for_it) = match (leaving.contains(first), leaving.contains(stack)) {
                    (true, _) => (first, stack),
                    (false, false) => (stack, first),
                    (false, true) => continue,
                };
                before.entry(waits.clone()).or_default().insert(for_it.clone());
            }
        }
        Self { before }
    }

    /// Returns all stacks.
    pub fn stacks(&self) -> impl Iterator<Item = &StackId> {
        self.before.keys()
    }

    /// Returns the stacks that a stack waits for.
    pub fn before(&self, stack: &StackId) -> impl Iterator<Item = &StackId> {
        self.before.get(stack).into_iter().flatten()
    }

    /// Returns the wave of each stack: 0 waits for no stack, n+1 waits for a stack of wave n.
    pub fn waves(&self) -> BTreeMap<StackId, usize> {
        let mut waves = BTreeMap::new();
        for stack in self.before.keys() {
            self.wave(stack, &mut waves);
        }
        waves
    }

    fn wave(&self, stack: &StackId, known: &mut BTreeMap<StackId, usize>) -> usize {
        if let Some(wave) = known.get(stack) {
            return *wave;
        }
        let wave = self
            .before(stack)
            .map(|first| self.wave(first, known) + 1)
            .max()
            .unwrap_or(0);
        known.insert(stack.clone(), wave);
        wave
    }

    fn cycle(&self) -> Option<Vec<StackId>> {
        let mut done = BTreeSet::new();
        let mut starts = self.before.keys();
        starts.find_map(|start| self.visit(start, &mut Vec::new(), &mut done))
    }

    fn visit(
        &self,
        stack: &StackId,
        path: &mut Vec<StackId>,
        done: &mut BTreeSet<StackId>,
    ) -> Option<Vec<StackId>> {
        if let Some(at) = path.iter().position(|seen| seen == stack) {
            let mut cycle = path[at..].to_vec();
            cycle.push(stack.clone());
            return Some(cycle);
        }
        if !done.insert(stack.clone()) {
            return None;
        }
        path.push(stack.clone());
        let found = self.before(stack).find_map(|first| self.visit(first, path, done));
        path.pop();
        found
    }
}

/// Returns the stacks whose outputs each stack reads. Stacks that read each other in a circle are left out with their
/// readers, because each has an error of its own and must not delay other stacks.
fn declared_reads(targets: &[Target]) -> BTreeMap<&StackId, BTreeSet<&StackId>> {
    let known: BTreeSet<&StackId> = targets.iter().map(|target| &target.id).collect();
    let reads = targets.iter().map(|target| {
        let reads = target.rules().into_iter().flat_map(|stack| stack.reads.values());
        (&target.id, reads.filter(|read| known.contains(read)).collect())
    });
    let mut open: BTreeMap<&StackId, BTreeSet<&StackId>> = reads.collect();
    let mut ordered = BTreeMap::new();
    loop {
        let is_ready = |reads: &BTreeSet<&StackId>| reads.iter().all(|read| ordered.contains_key(read));
        let (ready, rest): (BTreeMap<_, _>, _) = open.into_iter().partition(|(_, reads)| is_ready(reads));
        if ready.is_empty() {
            return ordered;
        }
        ordered.extend(ready);
        open = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::RepoPath;

    /// A stack that only the state knows: identity and folder are enough.
    fn stack(folder: &str) -> Target {
        let folder = RepoPath::normalize(folder).unwrap();
        let id = folder.as_str().strip_prefix("appops/").unwrap().parse().unwrap();
        Target::forgotten(id, folder)
    }

    #[test]
    fn waves_follow_the_rules_and_a_stack_never_waits_for_itself() {
        let rules = "stacks:\n- {match: 'appops/*/prod', after: ['appops/*/dev']}\n- {match: 'appops/z/*', after: ['appops/z/*', 'a/prod']}\n";
        let config = Config::parse(rules).unwrap();
        let stacks = [
            stack("appops/a/dev"),
            stack("appops/a/prod"),
            stack("appops/z/stage"),
        ];
        let waves = StackOrder::build(&config, &stacks).unwrap().waves();
        let waves: Vec<_> = waves.iter().map(|(id, wave)| (id.as_str(), *wave)).collect();
        assert_eq!(waves, [("a/dev", 0), ("a/prod", 1), ("z/stage", 2)]);
    }

    #[test]
    fn what_is_taken_down_goes_backwards_and_after_what_stays() {
        let rules =
            "stacks:\n- {match: 'b/dev', after: ['a/dev']}\n- {match: 'c/dev', after: ['a/dev', 'b/dev']}\n";
        let config = Config::parse(rules).unwrap();
        let stacks = [
            stack("appops/a/dev"),
            stack("appops/b/dev"),
            stack("appops/c/dev"),
        ];
        let order = StackOrder::build(&config, &stacks).unwrap();
        let waves = |leaving: &[&str]| {
            let leaving = leaving.iter().map(|id| id.parse().unwrap()).collect();
            let waves = order.taking_down(&leaving).waves();
            waves.values().copied().collect::<Vec<_>>()
        };
        assert_eq!(waves(&[]), [0, 1, 2]);
        assert_eq!(waves(&["a/dev", "b/dev", "c/dev"]), [2, 1, 0]);
        assert_eq!(waves(&["b/dev"]), [0, 2, 1]);
    }

    #[test]
    fn a_cycle_is_named_in_full() {
        let config = Config::parse(
            "stacks:\n- {match: 'a/dev', after: ['b/dev']}\n- {match: 'b/dev', after: ['a/dev']}\n",
        )
        .unwrap();
        let failure =
            StackOrder::build(&config, &[stack("appops/a/dev"), stack("appops/b/dev")]).unwrap_err();
        assert!(failure.message.contains("a/dev → b/dev → a/dev"), "{failure}");
    }
}
