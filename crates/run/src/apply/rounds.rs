//! Applies a plan in rounds: objects that disappear during a round are planned and applied again in the next one.

use std::collections::BTreeMap;

use super::{
    consent::LateReview,
    journal::ApplyJournal,
    options::ApplyOptions,
    outcome::{has_succeeded, not_started},
};
use crate::{
    PlanStart, Planner, StackSecrets, Target, TargetPlan, other_stack_claims::PlanPurpose,
    plan_error::PlanError,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        apply_result::{StackOutcome, StackResult},
        note::Note,
        plan::{Action, ResourcePlan},
        spec::Spec,
    },
};
use konverge_delivery as delivery;
use konverge_engine::{self as engine, Applied, ApplyRequest, EnginePlan, Journal as _, Review as _};

/// The maximum number of rounds. If an object still disappears after that, somebody keeps deleting it.
const ROUNDS: usize = 3;

/// The rounds of the apply of one stack, under its lease.
pub(super) struct ApplyRounds<'a> {
    pub planning: &'a Planner,
    pub target: &'a Target,
    pub options: &'a ApplyOptions,
    pub journal: &'a ApplyJournal<'a>,
    /// The serial of the state before the apply.
    pub serial: u64,
    /// The secrets of the stack, with their values.
    pub secrets: Option<&'a StackSecrets>,
    /// Approves changes that the approved plan did not show.
    pub late: &'a LateReview,
    /// True if Argo CD or Flux delivered the stack before, and no longer does.
    pub ends_delivery: bool,
}

/// Returns the result of a stack to which nothing was applied, so that no outputs change.
pub(super) fn nothing_applied(outcome: StackOutcome) -> Applied {
    Applied {
        outcome,
        missing: Vec::new(),
        outputs: None,
    }
}

impl ApplyRounds<'_> {
    /// Applies an approved plan, and returns one outcome for all rounds together.
    pub(super) async fn run(&self, plan: EnginePlan) -> Applied {
        let plan = match self.take_back(plan).await {
            Ok(plan) => plan,
            Err(failure) => return nothing_applied(not_started(self.target, &failure)),
        };
        let mut applied = self.carry_out(plan).await;
        // An object that the plan found unchanged may have disappeared since the plan read it, for example with its
        // Namespace. Another round creates the object again. If objects are missing after the last round, the stack
        // fails.
        for _ in 1..ROUNDS {
            let Some(first) = applied.missing.first() else {
                break;
            };
            if let Some(error) = &applied.outcome.error {
                let note = Note::remark(format!("{}; it is planned again", error.message));
                self.planning.run.notes.say(note.of(&applied.outcome.id));
            }
            let plan = match self.plan_again(&[]).await {
                Ok(plan) => plan,
                Err(failure) => {
                    let what = format!("`{first}` disappeared during the apply, and was not created again");
                    applied.outcome.error = Some(failure.context(&what).body());
                    break;
                }
            };
            let next = self.carry_out(*plan).await;
            applied = Applied {
                outcome: join(applied.outcome, next.outcome),
                ..next
            };
        }
        applied
    }

    /// If the delivery of the stack by Argo CD or Flux ends, makes Konverge the manager of the fields again and plans
    /// the stack again.
    async fn take_back(&self, approved: EnginePlan) -> Result<EnginePlan, UserError> {
        if !self.ends_delivery {
            return Ok(approved);
        }
        // Konverge must own the fields of the delivery controller before the first write. Otherwise a field that leaves
        // the Spec would stay in the object for ever.
        self.journal.check_lease().await?;
        if let Some(clusters) = self.planning.clusters_to_apply(self.target).await? {
            delivery::take_back(&clusters, &self.journal.state().await).await?;
        }
        self.journal.record(delivery::ended()).await?;
        Ok(*self.plan_again(&approved.public.resources).await?)
    }

    async fn carry_out(&self, plan: EnginePlan) -> Applied {
        let Self {
            planning,
            target,
            options,
            journal,
            late,
            ..
        } = self;
        let config = &planning.config.apply;
        engine::apply(ApplyRequest {
            plan,
            review: *late,
            journal: *journal,
            events: planning.run.events.as_ref(),
            cancel: planning.run.cancel.clone(),
            parallelism: config.parallel_resources.map_or(16, |n| n.max(1) as usize),
            allow_empty: options.allow_empty || target.head.is_none(),
        })
        .await
    }

    /// Plans the stack again from the current records. Each resource needs an approval of its own, unless it is in
    /// `approved`.
    async fn plan_again(&self, approved: &[ResourcePlan]) -> Result<Box<EnginePlan>, UserError> {
        self.planning.run.check_interrupted()?;
        let state = self.journal.state().await;
        let wanted = self.planning.spec(self.target).await?;
        let start = PlanStart {
            state: &state,
            serial: Some(self.serial),
            secrets: self.secrets,
        };
        let plan = plan_live(self.planning, self.target, wanted, start).await?;
        for late in plan.late_plans() {
            if approved.contains(late.shown) {
                continue;
            }
            // A recorded resource that is created again was already reviewed when it was created first.
            let mut recorded = state.resources.iter();
            let is_recorded = recorded.any(|recorded| recorded.id == late.shown.id);
            match late.shown.action {
                Action::Create if is_recorded => self.late.recreate(late).await?,
                _ => self.late.check(late).await?,
            }
        }
        Ok(plan)
    }
}

/// Plans a target against the live cluster, for an apply.
///
/// # Errors
/// No cluster is configured for the stack; the plan has an error, so it must not be applied; errors of the planner.
pub async fn plan_live(
    planning: &Planner,
    target: &Target,
    wanted: Spec,
    start: PlanStart<'_>,
) -> Result<Box<EnginePlan>, PlanError> {
    let planned = planning
        .plan_for(PlanPurpose::Apply, target, wanted, start)
        .await?;
    let TargetPlan::Live(mut plan) = planned else {
        return Err(UserError::new(
            ErrorKind::Config,
            format!("no cluster is configured for `{}`", target.id),
        )
        .hint("name a cluster under `clusters` in konverge.yaml, or give `--kubeconfig FILE`")
        .into());
    };
    match plan.refusal.take() {
        Some(refusal) => Err(PlanError::awaiting(refusal, plan.public.waits_for)),
        None => Ok(plan),
    }
}

/// Combines the outcomes of two rounds.
pub(super) fn join(first: StackOutcome, next: StackOutcome) -> StackOutcome {
    let both = first.resources.into_iter().chain(next.resources);
    let resources: BTreeMap<_, _> = both.map(|resource| (resource.id.clone(), resource)).collect();
    let resources: Vec<_> = resources.into_values().collect();
    let result = match (next.result, resources.is_empty()) {
        (StackResult::Waiting, _) => StackResult::Waiting,
        (result, _) if !has_succeeded(result) => StackResult::Failed,
        (_, true) => StackResult::Unchanged,
        (_, false) => StackResult::Applied,
    };
    StackOutcome {
        result,
        resources,
        ..next
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::stack;
    use konverge_base::model::apply_result::{ResourceOutcome, ResourceResult};

    fn outcome(result: StackResult, resources: &[(&str, ResourceResult)]) -> StackOutcome {
        let target = Target::new(&stack("shop/prod"), None);
        let error = UserError::new(ErrorKind::Kubernetes, "why");
        let resources = resources.iter().map(|(name, result)| ResourceOutcome {
            id: format!("v1:ConfigMap:shop:{name}").parse().unwrap(),
            action: Action::Create,
            result: *result,
            written: false,
            message: None,
            is_stack_error: false,
        });
        StackOutcome {
            result,
            resources: resources.collect(),
            error: None,
            ..not_started(&target, &error)
        }
    }

    /// The first round already changed objects, so that the stack is not unchanged because the second one had nothing to do.
    #[test]
    fn the_outcome_of_two_rounds_has_the_changes_of_both_and_the_last_word_on_each() {
        use ResourceResult::{Done, Failed};
        let first = outcome(StackResult::Failed, &[("a", Done), ("b", Failed)]);
        let both = join(first.clone(), outcome(StackResult::Applied, &[("b", Done)]));
        let results: Vec<_> = both.resources.iter().map(|resource| resource.result).collect();
        assert_eq!((both.result, results), (StackResult::Applied, vec![Done, Done]));
        let nothing_more = join(first.clone(), outcome(StackResult::Unchanged, &[]));
        assert_eq!(nothing_more.result, StackResult::Applied);
        let nothing = outcome(StackResult::Unchanged, &[]);
        assert_eq!(join(nothing.clone(), nothing).result, StackResult::Unchanged);
    }

    #[test]
    fn a_stop_after_a_first_round_is_a_failure_since_something_was_changed() {
        let first = || outcome(StackResult::Applied, &[("a", ResourceResult::Done)]);
        for (next, result) in [
            (StackResult::Stopped, StackResult::Failed),
            (StackResult::HeldBack, StackResult::Failed),
            (StackResult::Failed, StackResult::Failed),
            (StackResult::Waiting, StackResult::Waiting),
        ] {
            assert_eq!(join(first(), outcome(next, &[])).result, result, "{next:?}");
        }
    }
}
