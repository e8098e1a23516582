//! The `drift` use case: what differs from what was applied last. If the code has changed since, the last
//! applied commit is compiled again and the live objects are compared with that Spec. So pending changes of
//! the code never count as drift and never hide drift.

use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use serde_json::Value;

use super::{Planner, StepCounter, Target, TargetPlan, applied_spec::AppliedSpec, redact};
use crate::{
    error::{ErrorKind, UserError},
    model::{
        Digest, StackId,
        digest::DigestBuilder,
        event::Step,
        plan::{Action, Basis, ChangeOrigin, FieldChange, Plan, ResourcePlan, StackPlan},
        review,
        state::StackState,
    },
};

/// The number of stacks checked concurrently.
const AT_ONCE: usize = 8;

/// Checks the targets within the `budget`, but at least the first one. A stack that cannot be checked does
/// not affect the others.
///
/// # Errors
/// The run was interrupted.
pub async fn run(
    planning: &Planner,
    targets: &[Target],
    budget: Option<Duration>,
) -> Result<Plan, UserError> {
    let began = Instant::now();
    let in_time = |at: usize| at == 0 || budget.is_none_or(|budget| began.elapsed() < budget);
    let last_applied = AppliedSpec::new(planning);
    let counter = StepCounter::start(&planning.run, Step::CheckDrift, targets.len());
    let targets = targets.iter().enumerate();
    let mut stacks: Vec<_> = stream::iter(targets.take_while(|(at, _)| in_time(*at)))
        .map(|(_, target)| target)
        .map(async |target| {
            let checked = one(planning, &last_applied, target).await;
            counter.advance();
            checked
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    planning.run.check_interrupted()?;
    stacks.sort_by(|a, b| (&a.stack, &a.id).cmp(&(&b.stack, &b.id)));
    let mut plan = Plan { version: 1, stacks };
    redact::plan(&mut plan, planning.secrets());
    Ok(plan)
}

/// The digest of a difference, over the live and the expected value.
pub fn digest(plan: &StackPlan) -> Digest {
    Digest::of_set(review::stack_units(plan).iter().map(|unit| {
        let mut builder = DigestBuilder::new("drift");
        builder.part(unit.digest().as_bytes());
        let found = unit.from.as_ref().map(Digest::of_json);
        builder.part(found.as_ref().map_or(&[][..], |digest| digest.as_bytes()));
        builder.finish()
    }))
}

async fn one(planning: &Planner, last_applied: &AppliedSpec<'_>, target: &Target) -> StackPlan {
    match check_drift(planning, last_applied, target).await {
        Ok(plan) => plan,
        Err(failure) => StackPlan::failed(
            target.folder.clone(),
            target.id.clone(),
            Basis::Live,
            failure.body(),
        ),
    }
}

async fn check_drift(
    planning: &Planner,
    last_applied: &AppliedSpec<'_>,
    target: &Target,
) -> Result<StackPlan, UserError> {
    let prior = match &planning.backend {
        Some(backend) => backend.states.load(&target.id).await?.map(|prior| prior.state),
        None => None,
    };
    let Some(mut state) = prior.filter(|state| !is_blank(state)) else {
        let (folder, id) = (target.folder.clone(), target.id.clone());
        return Ok(StackPlan::new(folder, id, Basis::NeverApplied, Vec::new()));
    };
    planning.take_up_rescue(&mut state)?;
    // A missing object counts as missing even if an earlier run started to replace it.
    state.begun.clear();
    let mut wanted = planning.spec(target).await?;
    let mut is_applied = state.spec_digest == Some(wanted.digest());
    if !is_applied && let Some(applied) = last_applied.spec(&target.id, &state).await {
        (wanted, is_applied) = (applied, true);
    }
    if !is_applied && target.head.is_none() && state.commit.is_none() && !state.resources.is_empty() {
        return Err(not_comparable(&target.id));
    }
    let plan = match planning.plan_from(target, wanted, &state).await? {
        TargetPlan::Live(plan) => plan.public,
        TargetPlan::Spec(plan) => plan.public,
    };
    if plan.error.is_some() {
        return Ok(plan);
    }
    let compared = plan.resources.len() + plan.summary.unchanged;
    let drifted = plan
        .resources
        .iter()
        .filter_map(|resource| match resource.action {
            // Values that the server fills in are not drift.
            _ if is_applied => {
                (resource.action != Action::Update || differs(resource)).then(|| resource.clone())
            }
            // Changes of the code itself are not drift either.
            Action::Create => missing_resource(&plan.id, resource, &state),
            _ => drifted_resource(&plan.id, resource),
        });
    let mut found = StackPlan::new(plan.stack.clone(), plan.id.clone(), plan.basis, drifted.collect());
    found.summary.unchanged = compared - found.resources.len();
    Ok(found)
}

/// Returns true if anything differs except values that the server fills in.
fn differs(resource: &ResourcePlan) -> bool {
    let by_server =
        |change: &FieldChange| matches!(change.origin, ChangeOrigin::Default | ChangeOrigin::Admission);
    match resource.changes.is_empty() {
        // Every value is as applied: only the field managers differ.
        true => resource.ownership.is_empty(),
        false => !resource.changes.iter().all(by_server),
    }
}

/// Returns true if a state records no applied resource.
fn is_blank(state: &StackState) -> bool {
    state.resources.is_empty() && state.input_digest.is_none() && state.spec_digest.is_none()
}

/// The error for a stack whose code is unknown: it is not in the repository, and it was not applied from a
/// commit.
fn not_comparable(stack: &StackId) -> UserError {
    UserError::new(
        ErrorKind::State,
        format!("`{stack}` cannot be compared: it was applied from a file (`--spec`), and only that file says what it should be"),
    )
    .hint(format!("`konverge preview --spec FILE --stack {stack}` shows what differs from FILE"))
}

/// A recorded resource that no longer exists, as it was applied.
fn missing_resource(stack: &StackId, resource: &ResourcePlan, state: &StackState) -> Option<ResourcePlan> {
    let recorded = state.resource(&resource.id)?;
    let whole = FieldChange {
        path: String::new(),
        from: None,
        to: Some(Value::Object(recorded.attributes.as_ref().clone())),
        origin: ChangeOrigin::Drift,
    };
    Some(ResourcePlan {
        cluster: resource.cluster.clone(),
        ..ResourcePlan::new(
            stack,
            resource.id.clone(),
            resource.runtime,
            Action::Create,
            vec![whole],
        )
    })
}

/// The part of a resource's plan that restores changes by others.
fn drifted_resource(stack: &StackId, resource: &ResourcePlan) -> Option<ResourcePlan> {
    let foreign = |change: &&FieldChange| {
        matches!(
            change.origin,
            ChangeOrigin::Drift | ChangeOrigin::Manager(_) | ChangeOrigin::Rotation
        )
    };
    let changes: Vec<_> = resource.changes.iter().filter(foreign).cloned().collect();
    (!changes.is_empty()).then(|| ResourcePlan {
        cluster: resource.cluster.clone(),
        notes: resource.notes.clone(),
        ..ResourcePlan::new(
            stack,
            resource.id.clone(),
            resource.runtime,
            Action::Update,
            changes,
        )
    })
}
