//! The `preview` use case: plans each target. A preview writes nothing to the store; `ci` records the review.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt, stream};
use tracing::Instrument as _;

use crate::{
    Planner, StepCounter, Target, adoption_notes, earlier_failure,
    object_conflicts::{self, DeclaredClaims},
    plan_documents::{DocumentVisitor, PlannedDocument},
};
use konverge_base::{
    error::UserError,
    model::{
        Digest, StackId,
        event::Step,
        plan::{Basis, Plan, StackPlan},
        review::{ReviewedStack, stack_units},
    },
    spans,
};
use konverge_config::{BrokenBase, Config, WorkflowTime};
use konverge_secrets::{
    Secrets,
    redact::{self, UnreviewableValue},
};

/// Returns true if the whole preview fails because of this stack.
pub fn is_failure(stack: &StackPlan, config: &Config) -> bool {
    let passes = stack.fails_as_before && config.policy.broken_base == BrokenBase::Pass;
    stack.error.is_some() && !passes
}

/// Returns a note for each workflow that a merge starts around the apply of a stack.
fn started_workflows(planning: &Planner, target: &Target, plan: &StackPlan) -> Vec<String> {
    // A stack without changes is not applied, and the removal of a stack starts no workflow.
    if plan.resources.is_empty() || target.head.is_none() {
        return Vec::new();
    }
    let of_time = |when, word: &'static str| {
        let hooks = planning
            .config
            .hook_workflows(when, &target.id, target.folder(), &plan.known_as);
        hooks.into_iter().map(move |hook| {
            format!(
                "the merge starts the workflow {} {word} the apply of this stack",
                hook.workflow
            )
        })
    };
    let before = of_time(WorkflowTime::Pre, "before");
    before.chain(of_time(WorkflowTime::Post, "after")).collect()
}

/// The number of stacks that are planned concurrently.
const AT_ONCE: usize = 8;

/// A preview: the plan to show, and the record of the review.
pub struct Preview {
    /// The plan with masked secrets.
    pub plan: Plan,
    /// The content of the review record: the plans that were made and shown.
    pub reviewed: Vec<ReviewedStack>,
    /// The desired values that are masked, so that nobody can review them.
    pub hidden: Vec<UnreviewableValue>,
    /// The claims of the Terraform imports, by stack.
    pub declared: BTreeMap<StackId, DeclaredClaims>,
}

impl Preview {
    /// Counts every failure, even if the base fails in the same way. Used for a change that adds `konverge.yaml`,
    /// because its author wants to see whether Konverge can be used here.
    pub fn count_every_failure(&mut self) {
        for stack in &mut self.plan.stacks {
            stack.fails_as_before = false;
        }
    }

    /// Sets an error on each stack that would create or adopt the same object as a stack of another job's preview.
    pub fn refuse_elsewhere(&mut self, elsewhere: &[ReviewedStack], secrets: &Secrets) {
        object_conflicts::refuse_elsewhere(&mut self.plan, &self.declared, elsewhere, secrets);
    }
}

/// Previews the targets. An error of one stack does not affect the others. The visitor receives each stack that could
/// be planned.
///
/// # Errors
/// The run was interrupted.
pub async fn run(
    planning: &Planner,
    targets: &[Target],
    visitor: Option<&dyn DocumentVisitor>,
) -> Result<Preview, UserError> {
    let counter = StepCounter::start(&planning.run, Step::Plan, targets.len());
    let leaving = targets.iter().filter(|target| target.head.is_none());
    let leaving: BTreeSet<_> = leaving.map(|target| target.id.clone()).collect();
    let mut done: Vec<_> = stream::iter(targets)
        .map(async |target| {
            let planned = one(planning, target, &leaving, visitor)
                .instrument(spans::stack(&target.id, "plan"))
                .await;
            counter.advance();
            planned
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    planning.run.check_interrupted()?;
    done.sort_by(|a, b| (&a.0.stack, &a.0.id).cmp(&(&b.0.stack, &b.0.id)));
    let mut declared = BTreeMap::new();
    let (mut stacks, mut reviewed) = (Vec::new(), Vec::new());
    for (stack, record, claims) in done {
        declared.insert(stack.id.clone(), claims);
        stacks.push(stack);
        reviewed.extend(record);
    }
    let mut plan = Plan { version: 1, stacks };
    // A stack with a conflict cannot be applied, so its review is not recorded.
    let refused = object_conflicts::refuse(&mut plan, &declared);
    reviewed.retain(|stack| !refused.contains(&stack.id));
    // Every stack may add secrets while it is planned, so masking comes after all of them.
    let secrets = planning.secrets();
    for stack in &mut reviewed {
        stack.units.retain(|unit| redact::is_seen(unit, secrets));
    }
    let hidden = redact::plan(&mut plan, secrets);
    Ok(Preview {
        plan,
        reviewed,
        hidden,
        declared,
    })
}

async fn one(
    planning: &Planner,
    target: &Target,
    leaving: &BTreeSet<StackId>,
    visitor: Option<&dyn DocumentVisitor>,
) -> (StackPlan, Option<ReviewedStack>, DeclaredClaims) {
    let failed = |basis, failure: UserError| {
        StackPlan::failed(target.folder().clone(), target.id.clone(), basis, failure.body())
    };
    // Without a Spec there is nothing to compare, so the error is the plan.
    let wanted = match planning.spec(target).await {
        Ok(wanted) => wanted,
        Err(failure) => {
            let fails_as_before = earlier_failure::is_earlier(planning, target, &failure).await;
            let plan = StackPlan {
                fails_as_before,
                ..failed(Basis::Spec, failure.into())
            };
            return (plan, None, DeclaredClaims::default());
        }
    };
    let declared = DeclaredClaims::from_spec(&wanted);
    let notes = wanted.notes.clone();
    let (basis, spec_digest) = (planning.basis(target, &wanted), wanted.digest());
    match planning.plan(target, wanted, leaving).await {
        Ok(planned) => {
            let mut plan = planned.public().clone();
            plan.notes.splice(..0, notes);
            plan.notes.extend(started_workflows(planning, target, &plan));
            if let Err(failure) = adoption_notes::explain(planning, target, &mut plan).await {
                return (failed(basis, failure), None, declared);
            }
            if let Some(visitor) = visitor {
                let planned = PlannedDocument {
                    planned: &planned,
                    secrets: planning.secrets(),
                };
                visitor.visit(planned).await;
            }
            // The part of a stack that was planned is shown and reviewed, so it may be applied without the rest.
            let shown = plan.error.is_none() || plan.fails_in_part();
            let reviewed = shown.then(|| record(&plan, spec_digest, &declared));
            (plan, reviewed, declared)
        }
        Err(failure) => (failed(basis, failure.into()), None, DeclaredClaims::default()),
    }
}

fn record(plan: &StackPlan, spec_digest: Digest, declared: &DeclaredClaims) -> ReviewedStack {
    ReviewedStack {
        id: plan.id.clone(),
        basis: plan.basis,
        digest: plan.digest,
        spec_digest: Some(spec_digest),
        claims: object_conflicts::marks(plan, declared),
        units: stack_units(plan),
    }
}
