//! The `apply` use case: applies the stacks in order, each with its lease and journal, and only approved
//! plans.

mod awaited_stacks;
mod consent;
mod ended_apply;
mod journal;
mod one_stack;
mod options;
mod outcome;
mod rounds;
mod workflow_hooks;

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream::FuturesUnordered};

use crate::{Planner, StateBackend, StepCounter, Target, stack_order::StackOrder};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        StackId,
        apply_result::{ApplyReport, StackOutcome, StackResult},
        event::Step,
    },
};
use konverge_secrets::redact;

use awaited_stacks::AwaitedStacks;
pub use consent::{
    ApprovedPlan, Approver, AutoApprove, Decisions, LateApprover, PriorState, ProposedPlan, Refusal,
    StoppedPlan,
};
pub use konverge_engine::LatePlan;
pub use options::{ApplyOptions, NewerCommitCheck};
pub use outcome::stopped_outcome;
pub use outcome::{ended_well, exit_code, has_succeeded, is_unbroken, only_waits};
pub use rounds::plan_live;
pub use workflow_hooks::{SEARCH, WorkflowCall, WorkflowStart, WorkflowStarter};

/// The outcome of an apply of several stacks, and the decisions about their plans.
pub struct EndedRun {
    /// The outcome of each stack.
    pub report: ApplyReport,
    /// The decisions about the plans, in the order of the stacks in the report.
    pub decisions: Decisions,
}

/// Applies the targets. Independent stacks are applied concurrently.
///
/// # Errors
/// The order of the stacks has a cycle. An error of one stack is in its outcome, not here.
pub async fn run(
    planning: &Planner,
    targets: &[Target],
    options: &ApplyOptions,
) -> Result<EndedRun, UserError> {
    let config = &planning.config;
    let order = StackOrder::for_apply(config, targets)?;
    let at_once = config.apply.parallel_stacks.map_or(4, |n| n.max(1) as usize);

    let counter = StepCounter::start(&planning.run, Step::Apply, targets.len());
    let mut waiting: BTreeMap<&StackId, &Target> =
        targets.iter().map(|target| (&target.id, target)).collect();
    // `failed` has the stacks that were not applied. `paused` has those of them that wait for another stack, directly
    // or not.
    let mut failed: BTreeSet<StackId> = BTreeSet::new();
    let mut paused: BTreeSet<StackId> = BTreeSet::new();
    let mut ended: BTreeSet<StackId> = BTreeSet::new();
    // Stacks of a project are destroyed one after the other: the last one deletes the objects that they share.
    let mut being_destroyed: BTreeSet<&StackId> = BTreeSet::new();
    let mut awaited = AwaitedStacks::default();
    let mut outcomes = Vec::new();
    let mut decided = BTreeMap::new();
    let mut under_way = FuturesUnordered::new();
    loop {
        let ready: Vec<_> = waiting
            .keys()
            .filter(|id| order.before(id).all(|first| ended.contains(first)))
            .filter(|id| !awaited.holds(id, &ended))
            .map(|id| (*id).clone())
            .collect();
        for id in ready {
            let held_by: Vec<_> = order
                .before(&id)
                .filter(|first| failed.contains(*first))
                .cloned()
                .collect();
            // A stack that is only skipped needs no free slot.
            if held_by.is_empty() && under_way.len() >= at_once {
                continue;
            }
            let leaves = waiting.get(&id).is_some_and(|target| target.head.is_none());
            let mut others = being_destroyed.iter();
            if held_by.is_empty() && leaves && others.any(|other| other.is_sibling_of(id.as_str())) {
                continue;
            }
            let Some(target) = waiting.remove(&id) else {
                continue;
            };
            if held_by.is_empty() {
                if leaves {
                    being_destroyed.insert(&target.id);
                }
                under_way.push(async move { one_stack::apply(planning, target, options).await });
            } else {
                // If all stacks before it only wait, this stack waits as well and has not failed.
                let is_paused = held_by.iter().all(|first| paused.contains(first));
                if is_paused {
                    paused.insert(id.clone());
                }
                failed.insert(id.clone());
                ended.insert(id);
                counter.advance();
                outcomes.push(skipped_outcome(target, &held_by, is_paused));
            }
        }
        match under_way.next().await {
            // The stack deletes a Namespace or a CRD with objects of other stacks, so it is planned again after them.
            Some((outcome, decisions)) if awaited.is_due(&outcome, &decisions, targets, &ended) => {
                being_destroyed.remove(&outcome.id);
                let again = targets.iter().filter(|target| target.id == outcome.id);
                waiting.extend(again.map(|target| (&target.id, target)));
                awaited.add(outcome, decisions);
            }
            Some((outcome, decisions)) => {
                let (outcome, decisions) = awaited.complete(outcome, decisions);
                decided.insert((outcome.stack.clone(), outcome.id.clone()), decisions);
                if !has_succeeded(outcome.result) {
                    failed.insert(outcome.id.clone());
                }
                if outcome.result == StackResult::Waiting {
                    paused.insert(outcome.id.clone());
                }
                being_destroyed.remove(&outcome.id);
                ended.insert(outcome.id.clone());
                counter.advance();
                outcomes.push(outcome);
            }
            None if waiting.is_empty() => break,
            // The remaining stacks wait, but no stack is running that they could wait for. Their second attempt fails
            // with the reason.
            None => awaited.give_up(),
        }
    }
    if let Some(backend) = &planning.backend {
        save_index(planning, backend, &outcomes).await;
    }
    outcomes.sort_by(|a, b| (&a.stack, &a.id).cmp(&(&b.stack, &b.id)));
    let mut report = ApplyReport {
        version: 1,
        stacks: outcomes,
    };
    redact::report(&mut report, planning.secrets());
    let mut decisions = Decisions::default();
    decided
        .into_values()
        .for_each(|of_stack| decisions.extend(of_stack));
    Ok(EndedRun { report, decisions })
}

/// Writes the results of this run into the index. If this fails, the index is behind the states, and readers look up
/// the missing entries in the states.
async fn save_index(planning: &Planner, backend: &StateBackend, outcomes: &[StackOutcome]) {
    let ended_early = |outcome: &&StackOutcome| {
        outcome.serial.is_none()
            && matches!(
                outcome.result,
                StackResult::Failed | StackResult::Stopped | StackResult::HeldBack
            )
    };
    // After an interruption, these results come from the interruption and not from the stacks.
    if !planning.run.cancel.is_cancelled() {
        for outcome in outcomes.iter().filter(ended_early) {
            backend.states.note_stopped_apply(&outcome.id, outcome.result);
        }
    }
    backend.save_index(&planning.run).await;
}

fn skipped_outcome(target: &Target, by: &[StackId], is_paused: bool) -> StackOutcome {
    let names = by.iter().map(StackId::as_str).collect::<Vec<_>>().join(", ");
    let why = if is_paused { "is not ready yet" } else { "failed" };
    let failure = UserError::new(
        ErrorKind::Policy,
        format!("skipped: {names} must be applied first and {why}"),
    );
    stopped_outcome(target, StackResult::HeldBack, &failure)
}
