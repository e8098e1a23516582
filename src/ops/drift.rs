//! `drift`: what differs from what was applied last. The wanted state is the recorded one, so that a change of the code
//! that is not applied yet is never taken for drift.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};

use super::{Planned, Planning, Target};
use crate::{
    error::Failure,
    model::{
        Digest, StackId,
        digest::DigestBuilder,
        plan::{Action, Basis, Change, Origin, Plan, ResourcePlan, StackPlan},
        review,
        state::StackState,
    },
};

/// Stacks looked at side by side.
const AT_ONCE: usize = 8;

/// Looks at the targets, one after the other as long as `budget` lasts, the first in any case; a stack that can not be
/// looked at takes no other down.
///
/// # Errors
/// The run was interrupted.
pub async fn run(planning: &Planning, targets: &[Target], budget: Option<Duration>) -> Result<Plan, Failure> {
    let began = Instant::now();
    let in_time = |at: usize| at == 0 || budget.is_none_or(|budget| began.elapsed() < budget);
    let targets = targets.iter().enumerate();
    let mut stacks: Vec<_> = stream::iter(targets.take_while(|(at, _)| in_time(*at)))
        .map(|(_, target)| target)
        .map(|target| one(planning, target))
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    planning.run.check_interrupted()?;
    stacks.sort_by(|a, b| (&a.stack, &a.id).cmp(&(&b.stack, &b.id)));
    Ok(Plan { version: 1, stacks })
}

/// The digest of a difference: over what was found as well as over what it should be.
pub fn digest(plan: &StackPlan) -> Digest {
    Digest::of_set(review::stack_units(plan).iter().map(|unit| {
        let mut builder = DigestBuilder::new("drift");
        builder.part(unit.digest().as_bytes());
        let found = unit.from.as_ref().map(Digest::of_json);
        builder.part(found.as_ref().map_or(&[][..], |digest| digest.as_bytes()));
        builder.finish()
    }))
}

async fn one(planning: &Planning, target: &Target) -> StackPlan {
    match looked(planning, target).await {
        Ok(plan) => plan,
        Err(failure) => {
            let mut body = failure.body();
            body.message = planning.secrets().mask(&body.message);
            StackPlan::failed(target.folder.clone(), target.id.clone(), Basis::Live, body)
        }
    }
}

async fn looked(planning: &Planning, target: &Target) -> Result<StackPlan, Failure> {
    let prior = match &planning.memory {
        Some(memory) => memory.states.load(&target.id).await?.map(|prior| prior.state),
        None => None,
    };
    let state = prior.unwrap_or_else(|| StackState::empty(target.id.clone(), target.folder.clone()));
    let wanted = planning.spec(target).await?;
    let plan = match planning.plan_from(target, &wanted, &state).await? {
        Planned::Live(plan) => plan.public,
        Planned::Spec(plan) => *plan,
    };
    if state.spec_digest == Some(wanted.digest()) || plan.error.is_some() {
        return Ok(plan);
    }
    // The code has moved on: what the change itself would do is no drift.
    let drifted = plan
        .resources
        .iter()
        .filter_map(|resource| drifted(&plan.id, resource))
        .collect();
    Ok(StackPlan::new(plan.stack, plan.id, plan.basis, drifted))
}

/// The part of a resource's plan that puts back what somebody changed.
fn drifted(stack: &StackId, resource: &ResourcePlan) -> Option<ResourcePlan> {
    let foreign = |change: &&Change| matches!(change.origin, Origin::Drift | Origin::Manager(_));
    let changes: Vec<_> = resource.changes.iter().filter(foreign).cloned().collect();
    (!changes.is_empty()).then(|| ResourcePlan {
        cluster: resource.cluster.clone(),
        ..ResourcePlan::new(
            stack,
            resource.id.clone(),
            resource.runtime,
            Action::Update,
            changes,
        )
    })
}
