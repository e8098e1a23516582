//! The `apply` use case: applies the stacks in order, each with its lease and journal, and only approved
//! plans.

mod consent;
mod journal;
mod one_stack;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use futures::{StreamExt, stream::FuturesUnordered};

use super::{Planner, Target, redact, stack_order::StackOrder};
use crate::{
    error::{ErrorKind, UserError},
    model::{
        CommitId, Digest, StackId,
        apply_result::{ApplyReport, StackOutcome, StackResult},
        authorization::Authorization,
    },
};

pub use consent::{Approver, AutoApprove, PriorState};

/// Checks whether a newer commit than the current one was applied to a stack.
#[async_trait]
pub trait Newer: Send + Sync {
    /// Of the state with this serial, which these commits were applied to or tried on.
    ///
    /// # Errors
    /// It is not known.
    async fn has_newer(&self, stack: &StackId, serial: u64, commits: &[CommitId]) -> Result<bool, UserError>;
}

/// The options of an apply.
pub struct ApplyOptions {
    /// Approves the plans.
    pub consent: Arc<dyn Approver>,
    /// Selects the stacks to skip because a newer commit was applied to them.
    pub newer: Option<Arc<dyn Newer>>,
    /// The commit that is applied, if there is one.
    pub commit: Option<CommitId>,
    /// The merged pull requests whose reviews a successful stack uses, including those that did not show the
    /// stack: it now contains all of their changes. A preview of them that is recorded later (by a late shard
    /// or a re-run job) was not visible when they were merged, so it authorizes nothing.
    pub pull_requests: Vec<u64>,
    /// Restore what was applied last. A stack with other recorded inputs is stopped, because another run has
    /// applied something else in the meantime.
    pub restore: bool,
    /// Allows the deletion of a whole stack whose Spec has become empty. Removed stacks may always be
    /// deleted, because their review says so.
    pub allow_empty: bool,
    /// The serial that is restored, for the history.
    pub rolled_back_to: Option<u64>,
}

/// Applies the targets. Independent stacks are applied concurrently.
///
/// # Errors
/// The order of the stacks has a cycle. Errors of a stack are in its outcome.
pub async fn run(
    planning: &Planner,
    targets: &[Target],
    options: &ApplyOptions,
) -> Result<ApplyReport, UserError> {
    let config = &planning.config;
    let leaving = targets.iter().filter(|target| target.head.is_none());
    let leaving = leaving.map(|target| target.id.clone()).collect();
    let order = StackOrder::build(config, targets)?.taking_down(&leaving);
    let at_once = config.apply.stacks.map_or(4, |n| n.max(1) as usize);

    let mut waiting: BTreeMap<&StackId, &Target> =
        targets.iter().map(|target| (&target.id, target)).collect();
    let mut failed: BTreeSet<StackId> = BTreeSet::new();
    let mut ended: BTreeSet<StackId> = BTreeSet::new();
    let mut outcomes = Vec::new();
    let mut under_way = FuturesUnordered::new();
    loop {
        let ready: Vec<_> = waiting
            .keys()
            .filter(|id| order.before(id).all(|first| ended.contains(first)))
            .map(|id| (*id).clone())
            .collect();
        for id in ready {
            let held_by: Vec<_> = order
                .before(&id)
                .filter(|first| failed.contains(*first))
                .cloned()
                .collect();
            if held_by.is_empty() && under_way.len() >= at_once {
                continue;
            }
            let Some(target) = waiting.remove(&id) else {
                continue;
            };
            if held_by.is_empty() {
                under_way.push(async move { one_stack::apply(planning, target, options).await });
            } else {
                failed.insert(id.clone());
                ended.insert(id);
                outcomes.push(skipped_outcome(target, &held_by));
            }
        }
        match under_way.next().await {
            Some(outcome) => {
                if !is_well(outcome.result) {
                    failed.insert(outcome.id.clone());
                }
                ended.insert(outcome.id.clone());
                outcomes.push(outcome);
            }
            None if waiting.is_empty() => break,
            None => {}
        }
    }
    // The index may be outdated: entries that were not written are looked up.
    if let Some(memory) = &planning.memory
        && let Err(error) = memory.states.settle().await
    {
        planning
            .run
            .notes
            .note(&format!("warning: could not update the state index: {error}"));
    }
    outcomes.sort_by(|a, b| (&a.stack, &a.id).cmp(&(&b.stack, &b.id)));
    let mut report = ApplyReport {
        version: 1,
        stacks: outcomes,
    };
    redact::report(&mut report, planning.secrets());
    Ok(report)
}

fn skipped_outcome(target: &Target, by: &[StackId]) -> StackOutcome {
    let names = by.iter().map(StackId::as_str).collect::<Vec<_>>().join(", ");
    let failure = UserError::new(
        ErrorKind::Policy,
        format!("skipped: {names} comes before it and failed"),
    );
    stopped_outcome(target, StackResult::HeldBack, &failure)
}

/// The outcome of a stack that was not changed, and why.
pub(super) fn stopped_outcome(target: &Target, result: StackResult, failure: &UserError) -> StackOutcome {
    StackOutcome {
        stack: target.folder.clone(),
        id: target.id.clone(),
        result,
        digest: Digest::of_set([]),
        serial: None,
        grounds: Authorization::default(),
        resources: Vec::new(),
        error: Some(failure.body()),
    }
}

/// Returns true if every stack succeeded.
pub fn ended_well(report: &ApplyReport) -> bool {
    report.stacks.iter().all(|stack| is_well(stack.result))
}

/// Returns true if the stack is up to date.
pub fn is_well(result: StackResult) -> bool {
    matches!(result, StackResult::Applied | StackResult::Unchanged)
}

/// The exit code of the most severe result: failed before stopped before held by a lease.
pub fn exit_code(report: &ApplyReport, interrupted: bool) -> u8 {
    if interrupted {
        return ErrorKind::Interrupted.exit_code();
    }
    let code = |outcome: &StackOutcome| match (outcome.result, &outcome.error) {
        (StackResult::Applied | StackResult::Unchanged, _) => 0,
        (StackResult::Stopped, Some(error)) => error.kind.exit_code(),
        // The stack that it depends on has a code of its own.
        (StackResult::HeldBack, _) => 0,
        _ => 1,
    };
    let codes: Vec<u8> = report.stacks.iter().map(code).collect();
    [1, 3, 4]
        .into_iter()
        .find(|code| codes.contains(code))
        .unwrap_or(0)
}
