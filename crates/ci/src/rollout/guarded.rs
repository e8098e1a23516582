//! [`GuardedTargets`]: the pending stacks of a commit, split by rollout. Those in no rollout are free.

use std::collections::{BTreeMap, BTreeSet};

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        StackId,
        apply_result::{StackOutcome, StackResult},
    },
};
use konverge_config::Config;
use konverge_run::{OpenRevision, Target, apply, stack_order::StackOrder};

/// The pending stacks, by rollout.
#[derive(Default)]
pub(crate) struct GuardedTargets {
    /// Those in no rollout.
    pub free: Vec<Target>,
    /// Those of each rollout, with their wave from 0.
    pub by_rollout: BTreeMap<String, Vec<(usize, Target)>>,
    /// Those whose rollout makes no sense. They are not applied.
    pub refused: Vec<StackOutcome>,
}

impl GuardedTargets {
    /// Splits the pending stacks of a commit.
    ///
    /// # Errors
    /// The `after` rules form a cycle.
    pub(crate) fn split(
        config: &Config,
        side: &OpenRevision,
        pending: Vec<Target>,
    ) -> Result<Self, UserError> {
        if config.rollouts.is_empty() {
            return Ok(Self {
                free: pending,
                ..Self::default()
            });
        }
        let matcher = config.rollout_matcher();
        let empty = empty_waves(config, side);
        let order = StackOrder::build(config, &pending)?;
        let mut split = Self::default();
        for target in pending {
            match matcher.wave_of(&target.folder) {
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
                    .hint("let the waves of one rollout alone match its folder");
                    split
                        .refused
                        .push(apply::stopped_outcome(&target, StackResult::Failed, &failure));
                }
            }
        }
        split.refuse(&empty);
        let cycles: BTreeMap<String, UserError> = split
            .by_rollout
            .iter()
            .filter_map(|(rollout, targets)| Some((rollout.clone(), cycle(rollout, targets, &order)?)))
            .collect();
        split.refuse(&cycles);
        Ok(split)
    }

    /// All stacks of rollouts.
    pub(crate) fn guarded(&self) -> impl Iterator<Item = &Target> {
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

/// The rollouts with a wave that no stack of the commit belongs to.
fn empty_waves(config: &Config, side: &OpenRevision) -> BTreeMap<String, UserError> {
    let matcher = config.rollout_matcher();
    let stacks = side.layout.stacks.iter();
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
            .hint("a stack belongs to the first wave that matches its folder; `konverge list` shows the folders");
            empty.entry(rollout.name.clone()).or_insert(failure);
        }
    }
    empty
}

/// The error if a stack of a wave must be applied after one of a later wave.
fn cycle(rollout: &str, targets: &[(usize, Target)], order: &StackOrder) -> Option<UserError> {
    let waves: BTreeMap<&StackId, usize> = targets.iter().map(|(wave, target)| (&target.id, *wave)).collect();
    targets.iter().find_map(|(early, target)| {
        let mut seen = BTreeSet::new();
        let mut behind = vec![&target.id];
        while let Some(id) = behind.pop() {
            for first in order.before(id).filter(|first| seen.insert((*first).clone())) {
                if let Some(late) = waves.get(first).filter(|late| *late > early) {
                    let what = format!(
                        "the rollout `{rollout}` and the `after` rules form a cycle: {} of wave {} comes after {first} of wave {}",
                        target.id,
                        early + 1,
                        *late + 1
                    );
                    let failure = UserError::new(ErrorKind::Config, what);
                    return Some(failure.hint("change the waves, or take the `after` rule out"));
                }
                behind.push(first);
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::RepoPath;

    #[test]
    fn an_early_wave_cannot_come_after_a_late_one_even_by_way_of_a_free_stack() {
        let target = |name: &str| {
            let folder = RepoPath::normalize(&format!("appops/{name}/prod")).unwrap();
            Target::forgotten(format!("{name}/prod").parse().unwrap(), folder)
        };
        let all = ["a", "b", "free"].map(target);
        let waves = |rules: &str| {
            let config = Config::parse(&format!("stacks: [{rules}]\n")).unwrap();
            let order = StackOrder::build(&config, &all).unwrap();
            cycle("web", &[(0, target("a")), (1, target("b"))], &order)
        };
        assert!(waves("{match: 'b/prod', after: ['a/prod']}").is_none());
        let direct = waves("{match: 'a/prod', after: ['b/prod']}").unwrap();
        assert!(
            direct
                .message
                .contains("a/prod of wave 1 comes after b/prod of wave 2"),
            "{direct}"
        );
        let by_way = "{match: 'a/prod', after: ['free/prod']}, {match: 'free/prod', after: ['b/prod']}";
        assert!(waves(by_way).is_some());
    }
}
