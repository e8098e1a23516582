//! The `drift` use case: finds the differences between live objects and the Spec that was applied last. If the code has
//! changed since, the last applied commit is compiled again for the comparison. So a pending change of the code neither
//! counts as drift nor hides drift.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use futures::{StreamExt, stream};
use serde_json::Value;
use tracing::Instrument as _;

use crate::{
    PlanStart, Planner, StateBackend, StepCounter, Target, TargetPlan,
    applied_spec::{self, AppliedSpec},
    other_stack_claims::PlanPurpose,
    stack_outputs,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        CommitId, Digest, FieldPath, StackId,
        digest::DigestBuilder,
        event::Step,
        note::Note,
        plan::{Action, Basis, ChangeOrigin, FieldChange, Plan, ResourcePlan, StackPlan},
        review,
        stack_status::ObjectStatus,
        state::StackState,
    },
    spans,
};
use konverge_delivery as delivery;
use konverge_secrets::redact;
use konverge_state::Versioned;

/// The number of stacks that are checked concurrently.
const AT_ONCE: usize = 8;
/// The time, in seconds, until a run that has written a state has also written the index.
const RUN_SECONDS: i64 = 3600;

/// The result of a drift check.
pub struct DriftReport {
    /// The difference of each stack. The digest of its plan is the [`digest`] of the difference.
    pub plan: Plan,
    /// The stacks whose last apply cannot be restored, each with the reason.
    pub unrestorable: BTreeMap<StackId, UserError>,
    /// The stacks whose objects are as applied, but whose delivery controller is not healthy. An apply could restore
    /// nothing.
    pub left_to_controller: BTreeSet<StackId>,
    /// The health of the live objects of each stack that was compared with the cluster.
    pub health: BTreeMap<StackId, Vec<ObjectStatus>>,
}

/// The drift of one stack.
pub struct StackDrift {
    /// The difference, with its [`digest`]. Secrets that only this run knows are not masked yet.
    pub plan: StackPlan,
    /// The reason why the last apply cannot be restored.
    obstacle: Option<UserError>,
    is_left_to_controller: bool,
    /// The health of the live objects.
    health: Vec<ObjectStatus>,
}

impl StackDrift {
    /// Adds the state of the stack's delivery controller to the difference. The digest stays that of the objects,
    /// because an apply restores only them. If the objects are as applied, the digest covers the message of the
    /// controller.
    fn add_controller(&mut self, controller: ResourcePlan, commit: Option<&CommitId>) {
        let StackPlan {
            stack,
            id,
            basis,
            digest: of_objects,
            summary,
            ..
        } = &self.plan;
        let mut resources = self.plan.resources.clone();
        resources.push(controller);
        let mut whole = StackPlan::new(stack.clone(), id.clone(), *basis, resources);
        whole.summary.unchanged = summary.unchanged;
        whole.digest = *of_objects;
        if self.plan.resources.is_empty() {
            whole.digest = digest(&whole, commit);
            self.is_left_to_controller = true;
            let obstacle = delivery::left_to_controller(&whole.id);
            self.obstacle.get_or_insert(obstacle);
        }
        self.plan = whole;
    }

    fn new(plan: StackPlan, obstacle: Option<UserError>) -> Self {
        Self {
            plan,
            obstacle,
            is_left_to_controller: false,
            health: Vec::new(),
        }
    }
}

/// Checks targets until the `budget` has passed, but at least the first one. An error of one stack does not affect the
/// others.
///
/// # Errors
/// The run was interrupted.
pub async fn run(
    planning: &Planner,
    targets: &[Target],
    budget: Option<Duration>,
) -> Result<DriftReport, UserError> {
    let stacks = differences(planning, targets, budget).await?;
    let mut unrestorable = BTreeMap::new();
    let mut left_to_controller = BTreeSet::new();
    let mut health = BTreeMap::new();
    let mut plan = Plan {
        version: 1,
        stacks: Vec::new(),
    };
    for stack in stacks {
        if let Some(failure) = stack.obstacle {
            let failure = redact::failure(&failure, planning.secrets());
            unrestorable.insert(stack.plan.id.clone(), failure);
        }
        if stack.is_left_to_controller {
            left_to_controller.insert(stack.plan.id.clone());
        }
        health.insert(stack.plan.id.clone(), stack.health);
        plan.stacks.push(stack.plan);
    }
    redact::plan(&mut plan, planning.secrets());
    Ok(DriftReport {
        plan,
        unrestorable,
        left_to_controller,
        health,
    })
}

/// Compares the targets with the Specs that were applied last, as [`run`] does, but without masking. A restore by
/// digest uses this result.
///
/// # Errors
/// The run was interrupted.
pub async fn differences(
    planning: &Planner,
    targets: &[Target],
    budget: Option<Duration>,
) -> Result<Vec<StackDrift>, UserError> {
    let began = Instant::now();
    // The first target is always checked, so that a run makes progress even with a very small budget.
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
    stacks.sort_by(|a, b| (&a.plan.stack, &a.plan.id).cmp(&(&b.plan.stack, &b.plan.id)));
    for failure in last_applied.missing_commits().await {
        planning.run.notes.note(&format!(
            "{failure}, so drift in fields that the code has changed since is not detected"
        ));
    }
    Ok(stacks)
}

/// Returns the digest of a difference, over the applied commit, the live values and the expected values.
pub fn digest(difference: &StackPlan, commit: Option<&CommitId>) -> Digest {
    let units = review::stack_units(difference);
    let units = Digest::of_set(units.iter().map(|unit| {
        let mut builder = DigestBuilder::new("drift");
        builder.part(unit.digest().as_bytes());
        let found = unit.from.as_ref().map(Digest::of_json);
        builder.part(found.as_ref().map_or(&[][..], |digest| digest.as_bytes()));
        builder.finish()
    }));
    let mut builder = DigestBuilder::new("stack-drift");
    builder.part(difference.id.as_str().as_bytes());
    builder.part(commit.map_or("", CommitId::as_str).as_bytes());
    builder.part(units.as_bytes());
    builder.finish()
}

/// Returns the drift in a plan for the Spec that was applied last: all differences except values that the server sets.
pub fn difference(plan: &StackPlan) -> StackPlan {
    let differs = |resource: &&ResourcePlan| match resource.action {
        // A hook that would run again is not drift.
        Action::Run => false,
        Action::Update => differs(resource),
        _ => true,
    };
    let resources = plan.resources.iter().filter(differs).cloned().collect();
    StackPlan::new(plan.stack.clone(), plan.id.clone(), plan.basis, resources)
}

async fn one(planning: &Planner, last_applied: &AppliedSpec<'_>, target: &Target) -> StackDrift {
    let checked = check_drift(planning, last_applied, target).instrument(spans::stack(&target.id, "drift"));
    match checked.await {
        Ok(checked) => checked,
        Err(failure) => {
            let (folder, id) = (target.folder().clone(), target.id.clone());
            StackDrift::new(StackPlan::failed(folder, id, Basis::Live, failure.body()), None)
        }
    }
}

/// Warns if the index and the state of a stack come from different applies, because then one of them may have been
/// restored from a backup.
async fn note_older_store(
    planning: &Planner,
    backend: &StateBackend,
    prior: Option<&Versioned>,
) -> Result<(), UserError> {
    let Some(prior) = prior else { return Ok(()) };
    let entry = backend.states.known().await?.entries.get(&prior.state.stack);
    let Some(entry) = entry.filter(|entry| !entry.open && entry.serial != prior.serial) else {
        return Ok(());
    };
    // A run that is applying the stack now writes its index last, so its state may be newer for a while.
    let is_meanwhile = entry.serial < prior.serial
        && prior.written.as_second() + RUN_SECONDS > jiff::Timestamp::now().as_second();
    if !is_meanwhile {
        planning.run.notes.warning(&format!(
            "the index has serial {} of {}, but the newest state has serial {}: the store may have been restored from a backup\n  hint: `konverge state doctor` compares both",
            entry.serial, prior.state.stack, prior.serial
        ));
    }
    Ok(())
}

async fn check_drift(
    planning: &Planner,
    last_applied: &AppliedSpec<'_>,
    target: &Target,
) -> Result<StackDrift, UserError> {
    let prior = match &planning.backend {
        Some(backend) => {
            let prior = backend.states.load(&target.id).await?;
            note_older_store(planning, backend, prior.as_ref()).await?;
            prior.map(|prior| prior.state)
        }
        None => None,
    };
    let Some(mut state) = prior.filter(|state| !is_blank(state)) else {
        let (folder, id) = (target.folder().clone(), target.id.clone());
        let plan = StackPlan::new(folder, id, Basis::NeverApplied, Vec::new());
        return Ok(StackDrift::new(plan, None));
    };
    planning.take_up_rescue(&mut state)?;
    // A drift check reports an object that does not exist as missing, even if an earlier run had started to replace it.
    state.begun.clear();
    // The comparison is with the Spec that was applied last, so that a pending change of the code neither counts as
    // drift nor hides drift.
    let head = planning.spec(target).await?;
    let applied = last_applied.spec(&target.id, Some(&head), &state).await;
    let is_applied = applied.is_ok() || state.spec_digest == Some(head.digest());
    let obstacle = match (&applied, &target.head) {
        (Err(failure), _) => Some(failure.clone()),
        (Ok(_), None) => Some(applied_spec::removed(&target.id)),
        (Ok(_), Some(_)) => None,
    };
    let wanted = applied.unwrap_or(head);
    if !is_applied && target.head.is_none() && state.commit.is_none() && !state.resources.is_empty() {
        return Err(not_comparable(&target.id));
    }
    let (plan, is_live, health) = match planning
        .plan_for(PlanPurpose::Drift, target, wanted, PlanStart::from_state(&state))
        .await?
    {
        TargetPlan::Live(plan) => {
            let health = plan.health().cloned().collect();
            (plan.public, true, health)
        }
        TargetPlan::Spec(plan) => (plan.public, false, Vec::new()),
    };
    if let Some(error) = &plan.error {
        let obstacle = partly_unknown(&target.id, error.kind);
        return Ok(StackDrift::new(plan, Some(obstacle)));
    }
    let compared = plan.resources.len() + plan.summary.unchanged;
    let moved = stack_outputs::moved_since(&plan.read, &state.reads);
    let mut found = if is_applied && moved.is_empty() {
        difference(&plan)
    } else {
        difference_besides_code(&plan, &state)
    };
    let mut obstacle = obstacle;
    if !moved.is_empty() {
        let failure = stack_outputs::moved_error(&moved);
        planning
            .run
            .notes
            .say(Note::info(&failure.message).of(&target.id));
        obstacle.get_or_insert(failure);
    }
    found.summary.unchanged = compared - found.resources.len();
    found.digest = digest(&found, state.commit.as_ref());
    let mut drift = StackDrift::new(found, obstacle);
    drift.health = health;
    if is_live && let Some(controller) = planning.controller_status(target, &state).await? {
        let found = controller.difference(&target.id);
        found
            .into_iter()
            .for_each(|one| drift.add_controller(one, state.commit.as_ref()));
    }
    Ok(drift)
}

/// Returns the drift in a plan for a Spec that is not the one that was applied last. Changes that come from the code
/// are left out.
fn difference_besides_code(plan: &StackPlan, state: &StackState) -> StackPlan {
    let resources = plan.resources.iter();
    let drifted = resources.filter_map(|resource| match resource.action {
        Action::Create => missing_resource(&plan.id, resource, state),
        Action::Run => None,
        _ => drifted_resource(&plan.id, resource),
    });
    StackPlan::new(plan.stack.clone(), plan.id.clone(), plan.basis, drifted.collect())
}

/// Returns true if a resource has differences besides values that the server sets.
fn differs(resource: &ResourcePlan) -> bool {
    let by_server =
        |change: &FieldChange| matches!(change.origin, ChangeOrigin::Default | ChangeOrigin::Admission);
    if resource.changes.is_empty() {
        // All values are as applied, but the managers of the fields differ.
        resource.ownership.is_empty()
    } else {
        !resource.changes.iter().all(by_server)
    }
}

/// Returns true if a state records no applied resource.
fn is_blank(state: &StackState) -> bool {
    state.resources.is_empty() && state.input_digest.is_none() && state.spec_digest.is_none()
}

/// Returns the error for a stack whose code is unknown: it is not in the repository, and was not applied from a commit.
fn not_comparable(stack: &StackId) -> UserError {
    UserError::new(
        ErrorKind::State,
        format!("`{stack}` cannot be compared: it was applied from a file (`--spec`), and only that file has its Spec"),
    )
    .hint(format!("`konverge preview --spec FILE --stack {stack}` shows what differs from FILE"))
}

/// Returns why a stack cannot be restored if a part of it could not be planned.
fn partly_unknown(stack: &StackId, kind: ErrorKind) -> UserError {
    UserError::new(
        kind,
        format!("`{stack}` is not restored: a part of it could not be compared"),
    )
    .hint("the summary of the drift job shows the reason: fix it first")
}

/// Returns a recorded resource that no longer exists, with the values that were applied.
fn missing_resource(stack: &StackId, resource: &ResourcePlan, state: &StackState) -> Option<ResourcePlan> {
    let recorded = state.resource(&resource.id)?;
    let whole = FieldChange {
        path: FieldPath::root(),
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

/// Returns the part of a resource's plan that would revert changes made by others.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{id, stack, state};
    use konverge_base::model::spec::RuntimeKind;
    use serde_json::json;

    fn change(origin: ChangeOrigin) -> FieldChange {
        FieldChange {
            path: "/data/note".into(),
            from: Some(json!("by hand")),
            to: Some(json!("applied")),
            origin,
        }
    }

    fn resource(name: &str, action: Action, origins: Vec<ChangeOrigin>) -> ResourcePlan {
        let object = format!("v1:ConfigMap:shop:{name}").parse().unwrap();
        let changes = origins.into_iter().map(change).collect();
        ResourcePlan::new(&id("shop/prod"), object, RuntimeKind::Kubernetes, action, changes)
    }

    fn plan(resources: Vec<ResourcePlan>) -> StackPlan {
        StackPlan::new(stack("shop/prod").folder, id("shop/prod"), Basis::Live, resources)
    }

    fn names(plan: &StackPlan) -> Vec<&str> {
        let ids = plan.resources.iter().map(|resource| resource.id.as_str());
        ids.map(|id| id.rsplit(':').next().unwrap()).collect()
    }

    #[test]
    fn what_the_server_sets_and_a_hook_that_would_run_again_is_no_drift() {
        use ChangeOrigin::{Admission, Default, Drift};
        let found = difference(&plan(vec![
            resource("default", Action::Update, vec![Default, Admission]),
            resource("hook", Action::Run, vec![]),
            resource("drift", Action::Update, vec![Default, Drift]),
            resource("gone", Action::Create, vec![]),
            resource("more", Action::Delete, vec![]),
        ]));
        assert_eq!(names(&found), ["drift", "gone", "more"]);
    }

    /// The code changed since the last apply: what it changes is pending, and no drift.
    #[test]
    fn a_pending_change_of_the_code_neither_is_drift_nor_hides_it() {
        use ChangeOrigin::{Change, Drift};
        let recorded = state("shop/prod", &["gone"]);
        let found = difference_besides_code(
            &plan(vec![
                resource("code", Action::Update, vec![Change]),
                resource("both", Action::Update, vec![Change, Drift]),
                resource("gone", Action::Create, vec![Change]),
                resource("new", Action::Create, vec![Change]),
                resource("hook", Action::Run, vec![Drift]),
            ]),
            &recorded,
        );
        assert_eq!(names(&found), ["both", "gone"]);
        let by_name = |name| {
            found
                .resources
                .iter()
                .find(|one| one.id.as_str().ends_with(name))
                .unwrap()
        };
        assert_eq!(by_name("both").changes, [change(Drift)]);
        let whole = &by_name("gone").changes[0];
        assert_eq!(whole.origin, Drift);
        assert_eq!(
            whole.to.as_ref().unwrap()["metadata"]["name"],
            "gone",
            "as it was applied"
        );
    }

    /// A person approves this digest: it must not stand for another difference.
    #[test]
    fn the_digest_of_a_difference_covers_the_commit_and_both_values() {
        let one = |from: &str, to: &str| {
            let changed = FieldChange {
                from: Some(json!(from)),
                to: Some(json!(to)),
                ..change(ChangeOrigin::Drift)
            };
            let mut resource = resource("web", Action::Update, vec![]);
            resource = ResourcePlan::new(
                &id("shop/prod"),
                resource.id.clone(),
                RuntimeKind::Kubernetes,
                Action::Update,
                vec![changed],
            );
            plan(vec![resource])
        };
        let commit: CommitId = "a".repeat(40).parse().unwrap();
        let other: CommitId = "b".repeat(40).parse().unwrap();
        let shown = digest(&one("x", "y"), Some(&commit));
        assert_eq!(shown, digest(&one("x", "y"), Some(&commit)));
        for different in [
            digest(&one("z", "y"), Some(&commit)),
            digest(&one("x", "z"), Some(&commit)),
            digest(&one("x", "y"), Some(&other)),
            digest(&one("x", "y"), None),
        ] {
            assert_ne!(different, shown);
        }
        let mut elsewhere = one("x", "y");
        elsewhere.id = id("shop/dev");
        assert_ne!(digest(&elsewhere, Some(&commit)), shown);
    }

    #[test]
    fn a_controller_that_is_not_healthy_is_shown_and_cannot_be_restored() {
        let controller = || resource("controller", Action::Update, vec![ChangeOrigin::Drift]);
        let mut with_drift = StackDrift::new(plan(vec![resource("web", Action::Delete, vec![])]), None);
        let of_objects = with_drift.plan.digest;
        with_drift.add_controller(controller(), None);
        assert_eq!(
            with_drift.plan.digest, of_objects,
            "an apply restores the objects only"
        );
        assert!(with_drift.obstacle.is_none() && !with_drift.is_left_to_controller);
        let mut alone = StackDrift::new(plan(vec![]), None);
        let nothing = alone.plan.digest;
        alone.add_controller(controller(), None);
        assert_ne!(alone.plan.digest, nothing);
        assert!(alone.obstacle.is_some() && alone.is_left_to_controller);
    }
}
