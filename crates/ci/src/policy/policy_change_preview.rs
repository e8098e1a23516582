//! Previews the effect of a pull request that edits policy sets: compares the findings of its version and of the
//! default branch's version on every stack. Only the default branch's version decides until the merge, so this is
//! advice.
//!
//! Stacks that the pull request does not change are evaluated by their Specs alone, as resources without changes.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};

use konverge_base::{
    error::UserError,
    model::{
        Shard, StackId,
        plan_document::StackDocument,
        policy_finding::{Enforcement, PolicyFinding},
        text::first_few,
    },
    sync::lock,
};
use konverge_engine::ComparedSpecs;
use konverge_policy_sets::PolicySets;
use konverge_report::plural;
use konverge_run::{Planner, SpecSource, Target, plan_documents, rule_evaluator::RuleEvaluator};

/// The number of stacks that are compiled at the same time.
const AT_ONCE: usize = 8;
/// The maximum number of stacks that the finding lists.
const NAMED: usize = 5;
/// The time limit for the stacks that the pull request does not change. Compiled Specs are cached, so a second run gets
/// further.
const TIME: Duration = Duration::from_secs(60);

/// The stacks that only one of the two versions denies.
pub(crate) struct PolicyOutlook {
    now: PolicySets,
    then: PolicySets,
    compared: Mutex<Compared>,
}

#[derive(Default)]
struct Compared {
    more: BTreeSet<StackId>,
    fewer: BTreeSet<StackId>,
    /// The stacks that were compared.
    seen: BTreeSet<StackId>,
    /// The number of stacks that were not compared, because the time was over or they do not compile.
    missing: usize,
}

impl Compared {
    /// Adds a stack. `before` is true if the present version denies it, `after` if the new version does.
    fn add(&mut self, stack: &StackId, before: bool, after: bool) {
        match (before, after) {
            (false, true) => drop(self.more.insert(stack.clone())),
            (true, false) => drop(self.fewer.insert(stack.clone())),
            (true, true) | (false, false) => {}
        }
        self.seen.insert(stack.clone());
    }
}

impl PolicyOutlook {
    /// Creates the comparison of two versions; `None` if they are equal.
    pub(crate) fn new(now: &PolicySets, then: &PolicySets) -> Option<Self> {
        (now != then).then(|| Self {
            now: now.clone(),
            then: then.clone(),
            compared: Mutex::default(),
        })
    }

    /// Evaluates both versions on the plan document of a stack.
    pub(crate) async fn compare(&self, evaluator: &RuleEvaluator, document: &Arc<StackDocument>) {
        let denies = async |sets: &PolicySets| {
            let findings = evaluator.judge(std::slice::from_ref(sets), document).await;
            findings
                .iter()
                .any(|finding| finding.verdict == Enforcement::Deny)
        };
        let (before, after) = (denies(&self.now).await, denies(&self.then).await);
        let mut compared = lock(&self.compared);
        compared.add(&document.stack.id, before, after);
    }

    /// Evaluates both versions on the stacks of the head that were not planned, until the time limit.
    ///
    /// # Errors
    /// The run was interrupted.
    pub(crate) async fn compare_others(
        &self,
        evaluator: &RuleEvaluator,
        planning: &Planner,
        share: Option<Shard>,
    ) -> Result<(), UserError> {
        let SpecSource::Compiled { head, .. } = &planning.wanted else {
            return Ok(());
        };
        let mut others: Vec<_> = {
            let compared = lock(&self.compared);
            let stacks = head.layout.stacks.iter();
            let others = stacks.filter(|stack| !compared.seen.contains(&stack.id));
            others.map(|stack| Target::new(stack, None)).collect()
        };
        if let Some(share) = share {
            share.keep(&mut others);
        }
        let started = Instant::now();
        let looked = stream::iter(&others)
            .map(async |target| {
                let in_time = started.elapsed() < TIME && !planning.run.cancel.is_cancelled();
                let document = if in_time {
                    document(planning, target).await
                } else {
                    None
                };
                match document {
                    Some(document) => {
                        self.compare(evaluator, &Arc::new(document)).await;
                        true
                    }
                    None => false,
                }
            })
            .buffer_unordered(AT_ONCE);
        let looked: Vec<bool> = looked.collect().await;
        planning.run.check_interrupted()?;
        let mut compared = lock(&self.compared);
        compared.missing = looked.into_iter().filter(|looked| !looked).count();
        Ok(())
    }

    /// Returns the finding with the numbers of stacks that the merge would deny, or no longer deny.
    pub(crate) fn finding(&self) -> PolicyFinding {
        let compared = lock(&self.compared);
        let stacks = |number: usize| plural(number, "stack");
        let named = |ids: &BTreeSet<StackId>| match ids.len() {
            0 => String::new(),
            _ => format!(" ({})", first_few(ids.iter().map(StackId::as_str), NAMED)),
        };
        let verb = |number: usize| if number == 1 { "is" } else { "are" };
        let (more, fewer) = (compared.more.len(), compared.fewer.len());
        let missing = match compared.missing {
            0 => String::new(),
            number => format!("; {} could not be checked", stacks(number)),
        };
        PolicyFinding {
            verdict: Enforcement::Warn,
            rule: "policy.sets".to_owned(),
            stack: None,
            message: format!(
                "with the rules of this pull request {} more {} denied{}, and {} no longer {} denied{}{missing}",
                stacks(more),
                verb(more),
                named(&compared.more),
                stacks(fewer),
                verb(fewer),
                named(&compared.fewer),
            ),
            hint: None,
            place: None,
        }
    }
}

/// Returns the plan document of a stack without changes; `None` if the stack does not compile.
async fn document(planning: &Planner, target: &Target) -> Option<StackDocument> {
    let spec = planning.spec(target).await.ok()?;
    let same = ComparedSpecs {
        base: &spec,
        head: &spec,
    };
    let secrets = planning.secrets();
    Some(plan_documents::of_specs(
        &target.id,
        target.folder(),
        same,
        secrets,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_config::Config;
    use konverge_policy_sets::PolicySet;

    fn sets(names: &[&str]) -> PolicySets {
        let sets = names.iter().map(|name| {
            let text = format!("policy: {{sets: [{{name: {name}, path: p}}]}}\n");
            PolicySet::broken(&Config::parse(&text).unwrap().policy.sets[0], "gone".to_owned())
        });
        PolicySets::new(sets.collect(), &[])
    }

    /// The finding for stacks `s0/prod`, `s1/prod`…, each with its verdict before and after.
    fn said(verdicts: &[(bool, bool)], missing: usize) -> String {
        let outlook = PolicyOutlook::new(&sets(&[]), &sets(&["a"])).unwrap();
        {
            let mut compared = outlook.compared.lock().unwrap();
            for (at, (before, after)) in verdicts.iter().enumerate() {
                compared.add(&format!("s{at}/prod").parse().unwrap(), *before, *after);
            }
            assert_eq!(compared.seen.len(), verdicts.len());
            compared.missing = missing;
        }
        let finding = outlook.finding();
        // Advice: it stops nothing.
        assert_eq!((finding.verdict, finding.stack), (Enforcement::Warn, None));
        assert_eq!(finding.rule, "policy.sets");
        finding.message
    }

    #[test]
    fn equal_versions_have_no_outlook() {
        assert!(PolicyOutlook::new(&sets(&["a"]), &sets(&["a"])).is_none());
        assert!(PolicyOutlook::new(&sets(&["a"]), &sets(&["b"])).is_some());
    }

    #[test]
    fn the_finding_counts_what_is_denied_more_and_less() {
        assert_eq!(
            said(&[(false, true), (true, true), (false, false), (true, false)], 0),
            "with the rules of this pull request 1 stack more is denied (s0/prod), and 1 stack no longer is denied (s3/prod)"
        );
        assert_eq!(
            said(&[], 2),
            "with the rules of this pull request 0 stacks more are denied, and 0 stacks no longer are denied; 2 stacks could not be checked"
        );
        let many = said(&[(false, true); NAMED + 1], 0);
        assert!(
            many.contains(
                "6 stacks more are denied (s0/prod, s1/prod, s2/prod, s3/prod, s4/prod and 1 more)"
            ),
            "{many}"
        );
        let all_named = said(&[(true, false); NAMED], 0);
        assert!(
            all_named.contains("5 stacks no longer are denied (s0/prod, s1/prod, s2/prod, s3/prod, s4/prod)"),
            "{all_named}"
        );
    }
}
