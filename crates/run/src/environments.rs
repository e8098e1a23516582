//! [`EnvironmentScope`]: the stacks that a job applies. With `for-environment` these are the stacks whose rule names
//! that environment, so that GitHub's own reviewers, wait timers and OIDC subjects guard it. A stack that comes after a
//! pending stack of another environment is held back until the next run of the job.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Target, apply, stack_order::StackOrder};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        StackId,
        apply_result::{StackOutcome, StackResult},
    },
};
use konverge_config::{Config, StackRules};

/// The stacks that a job applies.
pub struct EnvironmentScope<'a> {
    environment: Option<&'a str>,
    config: &'a Config,
    rules: StackRules<'a>,
}

/// The pending stacks of a job.
pub struct ScopedTargets {
    /// Stacks to apply now.
    pub targets: Vec<Target>,
    /// Stacks of the job that wait for another environment, with the reason.
    pub held_back: Vec<StackOutcome>,
    /// Stacks that other jobs apply.
    pub elsewhere: Vec<Target>,
}

impl<'a> EnvironmentScope<'a> {
    /// Creates the scope of a job. Without an environment, the scope covers every stack.
    ///
    /// # Errors
    /// No rule names the environment.
    pub fn new(environment: Option<&'a str>, config: &'a Config) -> Result<Self, UserError> {
        let known = config.environments();
        match environment {
            Some(name) if !known.contains(&name) => Err(UserError::new(
                ErrorKind::Config,
                format!(
                    "`for-environment` is `{}`, and no rule of konverge.yaml on the default branch names that environment: nothing is applied",
                    name.escape_debug()
                ),
            )
            .hint(if known.is_empty() {
"give stacks an environment: `stacks: [{match: 'appops/*/prod', environment: production}]`".to_owned()
            } else {
format!("rules name {}", known.join(", ").escape_debug())
            })),
            _ => Ok(Self {
                environment,
                config,
                rules: config.rules(),
            }),
        }
    }

    /// Returns true if the job applies a stack.
    pub fn covers(&self, target: &Target) -> bool {
        let Some(environment) = self.environment else {
            return true;
        };
        self.environment(target).as_deref() == Some(environment)
    }

    /// Returns the environment whose job applies a stack. Rules match the folder, because a pull request may choose the
    /// identity.
    pub fn environment(&self, target: &Target) -> Option<String> {
        self.rules.for_place(&target.id, target.folder()).environment
    }

    /// Selects the stacks of the job from all pending ones. A stack that comes after a stack of a rollout (`guarded`)
    /// is held back.
    ///
    /// # Errors
    /// The `after` rules form a cycle.
    pub fn select(&self, pending: Vec<Target>, guarded: &[Target]) -> Result<ScopedTargets, UserError> {
        if self.environment.is_none() && guarded.is_empty() {
            return Ok(ScopedTargets {
                targets: pending,
                held_back: Vec::new(),
                elsewhere: Vec::new(),
            });
        }
        let all: Vec<_> = pending.iter().chain(guarded).cloned().collect();
        let order = StackOrder::for_apply(self.config, &all)?;
        let waves = order.waves();
        let (mut own, elsewhere): (Vec<_>, Vec<_>) =
            pending.into_iter().partition(|target| self.covers(target));
        // Sort by wave, so that a stack comes after all stacks that may block it.
        own.sort_by_key(|target| waves.get(&target.id).copied());
        // Maps each stack to the stacks of other environments that it waits for, directly or through other stacks, so
        // that a chain of `after` names its real cause.
        let mut blocked: BTreeMap<StackId, BTreeSet<StackId>> = elsewhere
            .iter()
            .chain(guarded)
            .map(|target| (target.id.clone(), BTreeSet::from([target.id.clone()])))
            .collect();
        let (mut targets, mut held_back) = (Vec::new(), Vec::new());
        for target in own {
            let first = order.before(&target.id).filter_map(|first| blocked.get(first));
            let first: BTreeSet<_> = first.flatten().cloned().collect();
            if first.is_empty() {
                targets.push(target);
                continue;
            }
            held_back.push(self.held_back(&target, &first, &elsewhere, guarded));
            blocked.insert(target.id.clone(), first);
        }
        targets.sort_by(|a, b| (a.folder(), &a.id).cmp(&(b.folder(), &b.id)));
        Ok(ScopedTargets {
            targets,
            held_back,
            elsewhere,
        })
    }

    fn held_back(
        &self,
        target: &Target,
        first: &BTreeSet<StackId>,
        elsewhere: &[Target],
        guarded: &[Target],
    ) -> StackOutcome {
        let name = |target: &Target| match self.environment(target) {
            Some(environment) => format!("{} of the environment {}", target.id, environment.escape_debug()),
            None => format!("{} without an environment", target.id),
        };
        let is_first = |target: &&Target| first.contains(&target.id);
        let of_rollouts = guarded.iter().filter(is_first);
        let of_rollouts = of_rollouts.map(|target| format!("{} of a rollout", target.id));
        let names: Vec<_> = elsewhere
            .iter()
            .filter(is_first)
            .map(name)
            .chain(of_rollouts)
            .collect();
        let failure = UserError::new(
            ErrorKind::Policy,
            format!(
                "skipped: {} must be applied first and is pending",
                names.join(", ")
            ),
        )
        .hint(if guarded.is_empty() {
            "the next run of this job applies the stack, after the job of that environment has succeeded"
        } else {
            "the next run applies the stack, after the earlier one is applied"
        });
        apply::stopped_outcome(target, StackResult::HeldBack, &failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "stacks:\n- {match: 'appops/*/dev', environment: dev}\n- {match: 'appops/*/prod', environment: production, after: ['appops/*/dev']}\n- {match: 'appops/last/prod', after: ['appops/shop/prod']}\n- {match: 'appops/alone/prod', after: []}\n";

    fn stack(id: &str) -> Target {
        Target::new(&crate::test_fixture::stack(id), None)
    }

    fn selected(environment: Option<&str>, pending: &[&str]) -> (Vec<String>, Vec<String>) {
        let config = Config::parse(RULES).unwrap();
        let scope = EnvironmentScope::new(environment, &config).unwrap();
        let found = scope
            .select(pending.iter().map(|id| stack(id)).collect(), &[])
            .unwrap();
        let said =
            |outcome: &StackOutcome| format!("{}: {}", outcome.id, outcome.error.as_ref().unwrap().message);
        let ids = found.targets.iter().map(|target| target.id.to_string()).collect();
        (ids, found.held_back.iter().map(said).collect())
    }

    #[test]
    fn a_job_applies_its_environment_and_waits_for_the_others() {
        let all = ["shop/dev", "shop/prod", "alone/prod", "last/prod", "other/x"];
        assert_eq!(
            selected(None, &all).0.len(),
            5,
            "one job without the input applies all"
        );
        assert_eq!(
            selected(Some("dev"), &all),
            (vec!["shop/dev".to_owned()], Vec::new())
        );
        let (targets, held) = selected(Some("production"), &all);
        assert_eq!(targets, ["alone/prod"]);
        let says = "skipped: shop/dev of the environment dev must be applied first and is pending";
        assert_eq!(held, [format!("shop/prod: {says}"), format!("last/prod: {says}")]);
        let (targets, held) = selected(Some("production"), &all[1..]);
        assert_eq!((targets.len(), held.len()), (3, 0), "it catches up");
    }

    #[test]
    fn an_environment_that_no_rule_has_is_refused() {
        let config = Config::parse(RULES).unwrap();
        let refused = EnvironmentScope::new(Some("prod"), &config).err().unwrap();
        assert!(
            refused.message.contains("`for-environment` is `prod`"),
            "{refused}"
        );
        assert_eq!(refused.hints, ["rules name dev, production"]);
        assert!(EnvironmentScope::new(Some("x"), &Config::default()).is_err());
    }

    /// A small generator of numbers: the same seed gives the same run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % limit
        }
    }

    /// For any split of stacks over environments, any order of the jobs and any cancellation: every stack is applied
    /// once, after those that come before it.
    #[test]
    fn every_stack_is_applied_once_and_in_order() {
        const NAMES: [&str; 4] = ["dev", "stage", "production", "edge"];
        const SEEDS: u64 = 1000;
        for seed in 0..SEEDS {
            let mut random = Random(seed);
            let count = 2 + random.below(9);
            let environments = 1 + random.below(NAMES.len());
            let mut rules = String::new();
            let mut before: BTreeMap<StackId, Vec<StackId>> = BTreeMap::new();
            let id = |at: usize| -> StackId { format!("s{at}/x").parse().unwrap() };
            for at in 0..count {
                let after: Vec<_> = (0..at).filter(|_| random.below(3) == 0).collect();
                // Names have no wildcards, so no glob is compiled: that would be most of the test's time.
                let names: Vec<_> = after.iter().map(|at| format!("'appops/s{at}/x'")).collect();
                let after_globs = names.join(", ");
                let environment = NAMES[random.below(environments)];
                rules += &format!(
                    "- {{match: 'appops/s{at}/x', environment: {environment}, after: [{after_globs}]}}\n"
                );
                before.insert(id(at), after.into_iter().map(id).collect());
            }
            let config = Config::parse(&format!("stacks:\n{rules}")).unwrap();
            let names = config.environments();
            let mut pending: Vec<Target> = (0..count).map(|at| stack(&format!("s{at}/x"))).collect();
            let waves = StackOrder::build(&config, &pending).unwrap().waves();
            let mut applied = Vec::new();
            let mut jobs = 0;
            while !pending.is_empty() {
                jobs += 1;
                assert!(jobs < 2000, "seed {seed}: the jobs do not come to an end");
                let scope = EnvironmentScope::new(Some(names[random.below(names.len())]), &config).unwrap();
                let found = scope.select(pending.clone(), &[]).unwrap();
                assert_eq!(
                    found.targets.len() + found.held_back.len() + found.elsewhere.len(),
                    pending.len(),
                    "seed {seed}: none is lost"
                );
                let mut order: Vec<_> = found.targets.iter().map(|target| &target.id).collect();
                order.sort_by_key(|id| waves[*id]);
                // The job may be cancelled at any stack.
                let until = random.below(order.len() + 1);
                for done in &order[..until] {
                    let first = before[*done].iter();
                    let late: Vec<_> = first.filter(|first| !applied.contains(*first)).collect();
                    assert!(late.is_empty(), "seed {seed}: {done} before {late:?}");
                    assert!(!applied.contains(*done), "seed {seed}: {done} twice");
                    applied.push((*done).clone());
                }
                pending.retain(|target| !applied.contains(&target.id));
            }
            assert_eq!(applied.len(), count, "seed {seed}");
        }
    }
}
