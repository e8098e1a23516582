//! [`GuardedTargets`]: the pending stacks of a commit, split by rollout. Stacks in no rollout are free.

use std::collections::{BTreeMap, BTreeSet};

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        StackId,
        apply_result::{StackOutcome, StackResult},
    },
};
use konverge_config::Config;
use konverge_rollout::left_rollout_outcome;
use konverge_run::{OpenRevision, Target, apply, stack_order::StackOrder};

use super::records::RolloutRecords;

/// The pending stacks, split by rollout.
#[derive(Default)]
pub struct GuardedTargets {
    /// The stacks in no rollout.
    pub free: Vec<Target>,
    /// The stacks of each rollout, each with the number of its wave from 0.
    pub by_rollout: BTreeMap<String, Vec<(usize, Target)>>,
    /// The stacks that are not applied, because they are in several rollouts, in a rollout with an empty wave or a
    /// cycle, or were removed from a rollout that is under way.
    pub refused: Vec<StackOutcome>,
}

impl GuardedTargets {
    /// Splits the pending stacks of a commit. A stack of a rollout under way waits for the end of that rollout, even if
    /// the configuration no longer has the stack in it.
    ///
    /// # Errors
    /// The `after` rules form a cycle; there are no rollouts and the records cannot be read.
    pub fn split(
        config: &Config,
        revision: &OpenRevision,
        pending: Vec<Target>,
        records: &RolloutRecords,
    ) -> Result<Self, UserError> {
        let matcher = config.rollout_matcher();
        let order = if config.rollouts.is_empty() {
            // A stack may still be in a rollout that began before the rollouts were removed from the configuration.
            // Fails closed: without the records, such a rollout would not be noticed.
            if let Err(failure) = &records.0 {
                return Err(failure.clone());
            }
            None
        } else {
            Some(StackOrder::for_apply(config, &pending)?)
        };
        let mut split = Self::default();
        for target in pending {
            let membership = matcher.wave_of(target.folder());
            let rollout = membership.as_ref().ok().and_then(|wave| Some(wave.as_ref()?.0));
            // The stack left a rollout that is under way. That rollout must end first, because it may still write to
            // the stack.
            if let Some(record) = records.under_way(&target.id, rollout) {
                let outcome = left_rollout_outcome(&target.id, target.folder(), record);
                split.refused.push(outcome);
                continue;
            }
            match membership {
                Ok(None) => split.free.push(target),
                Ok(Some((rollout, wave))) => {
                    let of_rollout = split.by_rollout.entry(rollout.to_owned()).or_default();
                    of_rollout.push((wave, target));
                }
                Err(several) => {
                    let names = several.0.join("`, `");
                    let failure = UserError::new(
                        ErrorKind::Config,
                        format!("{} is in several rollouts: `{names}`", target.id),
                    )
                    .hint("change the patterns of the waves, so that only one rollout matches the folder of the stack");
                    split
                        .refused
                        .push(apply::stopped_outcome(&target, StackResult::Failed, &failure));
                }
            }
        }
        if let Some(order) = order {
            split.refuse(&empty_waves(config, revision));
            // Each iteration refuses the rollouts of one cycle, so the loop ends. The other rollouts can still run.
            while let Some(cycle) = WaveOrder::new(&split.by_rollout, &order).cycle() {
                split.refuse(&cycle);
            }
        }
        Ok(split)
    }

    /// Returns the stacks of all rollouts.
    pub fn guarded(&self) -> impl Iterator<Item = &Target> {
        self.by_rollout.values().flatten().map(|(_, target)| target)
    }

    fn refuse(&mut self, rollouts: &BTreeMap<String, UserError>) {
        for (rollout, failure) in rollouts {
            for (_, target) in self.by_rollout.remove(rollout).into_iter().flatten() {
                self.refused
                    .push(apply::stopped_outcome(&target, StackResult::Failed, failure));
            }
        }
    }
}

/// Returns the rollouts with a wave that matches no stack of the commit, each with its error.
fn empty_waves(config: &Config, revision: &OpenRevision) -> BTreeMap<String, UserError> {
    let matcher = config.rollout_matcher();
    let stacks = revision.layout.stacks.iter();
    let matched: BTreeSet<(String, usize)> = stacks
        .filter_map(|stack| matcher.wave_of(&stack.folder).ok().flatten())
        .map(|(rollout, wave)| (rollout.to_owned(), wave))
        .collect();
    let mut empty = BTreeMap::new();
    for rollout in &config.rollouts {
        let unmatched = rollout.waves.iter().enumerate();
        let unmatched = unmatched.filter(|(wave, _)| !matched.contains(&(rollout.name.clone(), *wave)));
        for (wave, rules) in unmatched {
            let failure = UserError::new(
                ErrorKind::Config,
                format!(
                    "wave {} of the rollout `{}` (`{}`) has no stack, so nothing of the rollout is applied",
                    wave + 1,
                    rollout.name,
                    rules.pattern.escape_debug()
                ),
            )
            .hint("correct the pattern of the wave: a stack belongs to the first wave that matches its folder; `konverge list` shows the folders");
            empty.entry(rollout.name.clone()).or_insert(failure);
        }
    }
    empty
}

/// The order of stacks and of ends of waves, from the waves of all rollouts and from `after`.
struct WaveOrder<'a> {
    waves: BTreeMap<&'a StackId, (&'a str, usize)>,
    before: BTreeMap<WaveStep<'a>, Vec<WaveStep<'a>>>,
}

/// A stack, or the end of a wave of a rollout.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum WaveStep<'a> {
    Stack(&'a StackId),
    End(&'a str, usize),
}

impl<'a> WaveOrder<'a> {
    fn new(by_rollout: &'a BTreeMap<String, Vec<(usize, Target)>>, order: &'a StackOrder) -> Self {
        let mut wave_order = Self {
            waves: BTreeMap::new(),
            before: BTreeMap::new(),
        };
        let before = &mut wave_order.before;
        for (rollout, targets) in by_rollout {
            let last = targets.iter().map(|(wave, _)| *wave).max().unwrap_or(0);
            // A wave without pending stacks also ends after those before it.
            for wave in 1..=last {
                let end = before.entry(WaveStep::End(rollout, wave)).or_default();
                end.push(WaveStep::End(rollout, wave - 1));
            }
            for (wave, target) in targets {
                wave_order.waves.insert(&target.id, (rollout, *wave));
                let end = before.entry(WaveStep::End(rollout, *wave)).or_default();
                end.push(WaveStep::Stack(&target.id));
                if let Some(earlier) = wave.checked_sub(1) {
                    let stack = before.entry(WaveStep::Stack(&target.id)).or_default();
                    stack.push(WaveStep::End(rollout, earlier));
                }
            }
        }
        // The `after` rules are in the same graph, so that a cycle over waves and rules is found.
        for id in order.stacks() {
            let stack = before.entry(WaveStep::Stack(id)).or_default();
            stack.extend(order.before(id).map(WaveStep::Stack));
        }
        wave_order
    }

    /// Returns the rollouts of a cycle with their error, because each of them would wait for ever.
    fn cycle(&self) -> Option<BTreeMap<String, UserError>> {
        let cycle = self.find()?;
        // Only stacks of rollouts are named, because the ends of waves between them follow from the waves.
        let stacks = cycle.iter().filter_map(|step| match step {
            WaveStep::Stack(id) => Some((*id, *self.waves.get(id)?)),
            WaveStep::End(..) => None,
        });
        let stacks: Vec<_> = stacks.collect();
        let rollouts: BTreeSet<&str> = stacks.iter().map(|(_, (rollout, _))| *rollout).collect();
        let names: Vec<_> = rollouts.iter().map(|name| format!("`{name}`")).collect();
        let with_name = |rollout: &str| match rollouts.len() {
            1 => String::new(),
            _ => format!(" of `{rollout}`"),
        };
        let mut says = Vec::new();
        for (at, (id, (rollout, wave))) in stacks.iter().enumerate() {
            let (first, (other, late)) = stacks[(at + 1) % stacks.len()];
            if rollout != &other || late > *wave {
                says.push(format!(
                    "{id} of wave {}{} comes after {first} of wave {}{}",
                    wave + 1,
                    with_name(rollout),
                    late + 1,
                    with_name(other)
                ));
            }
        }
        // A cycle of `after` rules alone is an error of `StackOrder`.
        if rollouts.is_empty() {
            return None;
        }
        let what = format!(
            "the rollout{} {} and the `after` rules form a cycle: {}",
            if names.len() == 1 { "" } else { "s" },
            names.join(", "),
            says.join(", and ")
        );
        let failure = || {
            UserError::new(ErrorKind::Config, what.clone())
                .hint("change the waves, or remove the `after` rule")
        };
        Some(
            rollouts
                .iter()
                .map(|name| ((*name).to_owned(), failure()))
                .collect(),
        )
    }

    /// Finds the steps of a cycle. Each is followed by the step that it waits for.
    fn find(&self) -> Option<Vec<WaveStep<'a>>> {
        // Remove each step that waits for nothing, as in a topological sort.
        let mut left: BTreeMap<_, usize> = self.before.iter().map(|(step, all)| (*step, all.len())).collect();
        let mut after: BTreeMap<WaveStep<'_>, Vec<WaveStep<'_>>> = BTreeMap::new();
        for (step, before) in &self.before {
            for first in before {
                after.entry(*first).or_default().push(*step);
                left.entry(*first).or_default();
            }
        }
        let mut free: Vec<_> = left
            .iter()
            .filter(|(_, count)| **count == 0)
            .map(|(step, _)| *step)
            .collect();
        while let Some(done) = free.pop() {
            left.remove(&done);
            for step in after.get(&done).into_iter().flatten() {
                if let Some(count) = left.get_mut(step) {
                    *count -= 1;
                    if *count == 0 {
                        free.push(*step);
                    }
                }
            }
        }
        // Each remaining step waits for another remaining one, so a walk must reach a step a second time.
        let mut path = vec![*left.keys().next()?];
        loop {
            let last = path.last()?;
            let next = self
                .before
                .get(last)?
                .iter()
                .find(|first| left.contains_key(first))?;
            if let Some(at) = path.iter().position(|step| step == next) {
                return Some(path.split_off(at));
            }
            path.push(*next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::RepoPath;

    fn target(name: &str) -> Target {
        let folder = RepoPath::normalize(&format!("appops/{name}/prod")).unwrap();
        Target::forgotten(format!("{name}/prod").parse().unwrap(), folder)
    }

    /// The error of each rollout in a cycle. Each rollout has two waves, of one stack each.
    fn cycles(rollouts: &[(&str, [&str; 2])], rules: &str) -> Vec<(String, String)> {
        let names = rollouts.iter().flat_map(|(_, waves)| waves).copied();
        let all: Vec<_> = names.chain(["free"]).map(target).collect();
        let config = Config::parse(&format!("stacks: [{rules}]\n")).unwrap();
        let order = StackOrder::build(&config, &all).unwrap();
        let by_rollout = rollouts.iter().map(|(name, [first, second])| {
            let targets = vec![(0, target(first)), (2, target(second))];
            ((*name).to_owned(), targets)
        });
        let by_rollout = by_rollout.collect();
        let found = WaveOrder::new(&by_rollout, &order).cycle();
        let said = found.into_iter().flatten();
        said.map(|(name, error)| (name, error.message)).collect()
    }

    #[test]
    fn an_early_wave_cannot_come_after_a_late_one_even_by_way_of_a_free_stack() {
        let web = [("web", ["a", "b"])];
        let waves = |rules: &str| cycles(&web, rules);
        assert!(waves("{match: 'b/prod', after: ['a/prod']}").is_empty());
        let [(name, says)] = &waves("{match: 'a/prod', after: ['b/prod']}")[..] else {
            panic!()
        };
        assert_eq!(name, "web");
        assert!(
            says.contains("a/prod of wave 1 comes after b/prod of wave 3"),
            "{says}"
        );
        let by_way = "{match: 'a/prod', after: ['free/prod']}, {match: 'free/prod', after: ['b/prod']}";
        assert_eq!(waves(by_way).len(), 1);
    }

    #[test]
    fn two_rollouts_whose_waves_wait_for_each_other_form_a_cycle() {
        let both = [("db", ["d1", "d2"]), ("web", ["w1", "w2"]), ("x", ["x1", "x2"])];
        let across = "{match: 'd1/prod', after: ['w2/prod']}, {match: 'w1/prod', after: ['d2/prod']}";
        let found = cycles(&both, across);
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["db", "web"], "the third one is not in it");
        for (_, says) in &found {
            for part in [
                "the rollouts `db`, `web` and the `after` rules form a cycle: ",
                "d1/prod of wave 1 of `db` comes after w2/prod of wave 3 of `web`",
                "w1/prod of wave 1 of `web` comes after d2/prod of wave 3 of `db`",
            ] {
                assert!(says.contains(part), "{says}");
            }
        }
        // One of the two alone is an order.
        assert!(cycles(&both, "{match: 'd1/prod', after: ['w2/prod']}").is_empty());
        // Stacks of one wave may wait for each other in both directions.
        assert!(
            cycles(
                &both,
                "{match: 'd1/prod', after: ['w1/prod']}, {match: 'w2/prod', after: ['d2/prod']}"
            )
            .is_empty()
        );
    }
}
