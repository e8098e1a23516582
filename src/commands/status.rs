//! The `status` use case: the recorded state of each stack, whether changes are pending, and the current
//! health of its objects.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use futures::{StreamExt, stream};

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ResourceId, StackId,
        apply_result::StackResult,
        condition::{HeadFact, StackCondition, StackFacts},
        event::{RunEvent, Step},
        health::Health,
        spec::RuntimeKind,
        stack_status::{AppliedStatus, FreezeStatus, HeadStatus, ObjectStatus, StackStatus, StatusReport},
    },
};
use konverge_config as config;
use konverge_portal_site::recorded_facts;
use konverge_run::{
    Planner, Selection, Session, SpecSource, StepCounter, Target, cluster_selection::Live,
    pending_stacks::pending_targets, stack_health,
};
use konverge_state::{ApplyFreeze, IndexedStates, Versioned, WriteReason};

/// The number of stacks queried concurrently.
const AT_ONCE: usize = 8;
/// The interval of a watch.
const AGAIN: Duration = Duration::from_secs(2);
/// The maximum duration of a watch if `apply.ready_timeout` is not set.
const WATCHED: Duration = Duration::from_secs(600);

/// Returns the selected stacks. For a selection of all, stacks that only the states have are included.
///
/// # Errors
/// Errors of the store.
pub async fn targets(session: &Session, selection: &Selection) -> Result<Vec<Target>, UserError> {
    let mut targets = session.targets.clone();
    if let (Selection::All, Some(backend)) = (selection, &session.planning.backend) {
        let known = backend.states.known().await?;
        let renamed = session.planning.renamed_stacks(known).await?;
        let goes_on = |id: &StackId| renamed.values().any(|earlier| earlier == id);
        let gone = known.entries.clone().into_iter().filter(|(id, entry)| {
            entry.is_known() && !goes_on(id) && !targets.iter().any(|target| target.id == *id)
        });
        let gone: Vec<_> = gone
            .map(|(id, entry)| Target::forgotten(id, entry.folder))
            .collect();
        targets.extend(gone);
    }
    Ok(targets)
}

/// Queries the status once. A stack with an unknown status does not affect the others.
///
/// # Errors
/// The run was interrupted.
pub async fn run(planning: &Planner, targets: &[Target]) -> Result<StatusReport, UserError> {
    fetch_status(
        planning,
        targets,
        &[RuntimeKind::Kubernetes, RuntimeKind::Terraform],
    )
    .await
}

async fn fetch_status(
    planning: &Planner,
    targets: &[Target],
    kinds: &[RuntimeKind],
) -> Result<StatusReport, UserError> {
    let counter = StepCounter::start(&planning.run, Step::QueryStatus, targets.len());
    let recorded = &RecordedStacks::read(planning).await?;
    let mut stacks: Vec<_> = stream::iter(targets)
        .map(async |target| {
            let status = one(planning, target, recorded, kinds).await;
            counter.advance();
            status
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    planning.run.check_interrupted()?;
    stacks.sort_by(|a, b| (&a.stack, &a.id).cmp(&(&b.stack, &b.id)));
    let freeze = match &planning.backend {
        Some(backend) => backend.states.freeze().await?.and_then(freeze_status),
        None => None,
    };
    Ok(StatusReport {
        version: 1,
        freeze,
        stacks,
    })
}

/// Queries the status until no rollout is in progress, and reports changes.
///
/// # Errors
/// The run was interrupted; a rollout is still in progress after `apply.ready_timeout`.
pub async fn watch(planning: &Planner, targets: &[Target]) -> Result<StatusReport, UserError> {
    let limit = planning.config.apply.ready_timeout;
    let limit = limit.map_or(WATCHED, config::Span::duration);
    let deadline = tokio::time::Instant::now() + limit;
    let mut reported = HashMap::new();
    loop {
        // Terraform resources have no rollout.
        let status = fetch_status(planning, targets, &[RuntimeKind::Kubernetes]).await?;
        let mut moving = 0;
        for stack in &status.stacks {
            for object in stack.objects.iter().flatten() {
                moving += usize::from(object.health == Health::Progressing);
                write_row(planning, &stack.id, object, &mut reported);
            }
        }
        if moving == 0 {
            return run(planning, targets).await;
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(UserError::new(
                ErrorKind::Kubernetes,
                match moving {
                    1 => format!("1 object is not ready after {} s", limit.as_secs()),
                    _ => format!("{moving} objects are not ready after {} s", limit.as_secs()),
                },
            )
            .hint("run `konverge status` to see which; `apply.ready_timeout` in konverge.yaml says how long to watch"));
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            () = planning.run.cancel.cancelled() => {}
        }
    }
}

/// Writes one line for an object that has changed.
fn write_row(
    planning: &Planner,
    stack: &StackId,
    object: &ObjectStatus,
    reported: &mut HashMap<(StackId, ResourceId), String>,
) {
    let message = match object.message.as_str() {
        "" => object.health.to_string(),
        why => format!("{}: {why}", object.health),
    };
    let key = (stack.clone(), object.id.clone());
    let news = reported.get(&key) != Some(&message);
    // Objects that are ready from the start are not reported.
    if news && (object.health != Health::Ready || reported.contains_key(&key)) {
        planning.run.events.event(RunEvent::ResourceProgress {
            stack: stack.clone(),
            id: object.id.clone(),
            message: message.clone(),
        });
    }
    reported.insert(key, message);
}

fn freeze_status(freeze: ApplyFreeze) -> Option<FreezeStatus> {
    let reasons: Vec<_> = freeze.reasons.iter().map(|one| one.reason.as_str()).collect();
    let reason = reasons.join("; ");
    let first = freeze.reasons.into_iter().next()?;
    Some(FreezeStatus {
        reason,
        since: first.since,
        actor: first.writer.actor,
        run: first.writer.run,
    })
}

/// The recorded facts about all stacks.
#[derive(Default)]
struct RecordedStacks {
    /// The stacks that `konverge ci`, or an apply with `--pending`, would apply.
    pending: BTreeSet<StackId>,
    index: IndexedStates,
}

impl RecordedStacks {
    async fn read(planning: &Planner) -> Result<Self, UserError> {
        let (SpecSource::Compiled { head, .. }, Some(backend)) = (&planning.wanted, &planning.backend) else {
            return Ok(Self::default());
        };
        let known = backend.states.read_all().await?;
        let renamed = planning.renamed_stacks(&known).await?;
        let pending = pending_targets(head, backend, &known, &renamed).await?;
        Ok(Self {
            pending: pending.into_iter().map(|target| target.id).collect(),
            index: known.into_inner(),
        })
    }

    /// Returns the conditions of a stack, as the portal shows them.
    fn conditions(&self, id: &StackId, prior: Option<&Versioned>, head: HeadFact) -> Vec<StackCondition> {
        let result = |prior: &Versioned| prior.receipt.as_ref().map(|receipt| receipt.result);
        let facts = recorded_facts(&self.index, id, prior.map(|prior| (prior.written, result(prior))));
        StackFacts {
            recorded: prior.is_some(),
            head,
            ..facts
        }
        .conditions()
    }
}

async fn one(
    planning: &Planner,
    target: &Target,
    recorded: &RecordedStacks,
    kinds: &[RuntimeKind],
) -> StackStatus {
    let mut status = StackStatus {
        stack: target.folder().clone(),
        id: target.id.clone(),
        head: HeadStatus::New,
        conditions: Vec::new(),
        applied: None,
        pending: Vec::new(),
        resources: 0,
        objects: None,
        error: None,
    };
    if let Err(failure) = fill(planning, target, recorded, kinds, &mut status).await {
        let mut body = failure.body();
        body.message = planning.secrets().mask(&body.message);
        status.error = Some(body);
    }
    status
}

/// Returns true if the last apply ended because a stack has to wait, such as for a rollout.
fn waits(prior: &Versioned) -> bool {
    let record = prior.receipt.as_ref();
    prior.pending.is_empty() && record.is_some_and(|record| record.result == StackResult::Waiting)
}

async fn fill(
    planning: &Planner,
    target: &Target,
    recorded: &RecordedStacks,
    kinds: &[RuntimeKind],
    status: &mut StackStatus,
) -> Result<(), UserError> {
    let Some(backend) = &planning.backend else {
        return Ok(());
    };
    let is_pending = recorded.pending.contains(&target.id);
    let head = match (&target.head, is_pending) {
        (None, true) => HeadFact::Removed,
        (None, false) => HeadFact::Kept,
        (Some(_), false) => HeadFact::Same,
        (Some(_), true) => HeadFact::Changed,
    };
    // A renamed stack may still be recorded under its earlier identity.
    let earlier = planning.earlier_identity(&target.id).await?;
    let id = earlier.as_ref().unwrap_or(&target.id);
    let prior = backend.states.load(id).await?;
    // A retired state is shown only for a destroyed stack, not for one that was moved or forgotten.
    let prior = prior.filter(|prior| !prior.retired || prior.reason == WriteReason::Destroy);
    status.conditions = recorded.conditions(id, prior.as_ref(), head);
    let Some(prior) = prior else {
        return Ok(());
    };
    status.applied = Some(applied(&prior));
    status.resources = prior.state.resources.len();
    status.pending.clone_from(&prior.pending);
    let is_unfinished =
        |condition: &StackCondition| matches!(condition, StackCondition::Failed | StackCondition::Open);
    let has_failed = status.conditions.iter().any(is_unfinished) || prior.was_interrupted();
    status.head = match head {
        _ if prior.retired => HeadStatus::Destroyed,
        HeadFact::Removed => HeadStatus::Removed,
        HeadFact::Kept => HeadStatus::Kept,
        HeadFact::Same | HeadFact::Unknown => HeadStatus::Applied,
        HeadFact::Changed if waits(&prior) => HeadStatus::Waiting,
        HeadFact::Changed if has_failed => HeadStatus::Unfinished,
        HeadFact::Changed => HeadStatus::Changed,
    };
    let reachable = !planning.config.clusters.is_empty() || planning.given.is_any();
    for &kind in kinds {
        let holds = || {
            prior
                .state
                .resources
                .iter()
                .any(|resource| resource.runtime == kind)
        };
        let asked = match (planning.live, kind) {
            (Live::Never, _) => false,
            (Live::Required, _) => true,
            (Live::Auto, RuntimeKind::Kubernetes) => reachable,
            (Live::Auto, RuntimeKind::Terraform) => holds(),
        };
        if asked {
            let seen = stack_health::observe(planning, target, &prior, kind).await?;
            status
                .objects
                .get_or_insert_default()
                .extend(seen.into_iter().map(|seen| seen.status));
        }
    }
    Ok(())
}

fn applied(prior: &Versioned) -> AppliedStatus {
    AppliedStatus {
        serial: prior.serial,
        written: prior.written,
        reason: prior.reason.to_string(),
        actor: prior.writer.actor.clone(),
        run: prior.writer.run.clone(),
        commit: prior.state.commit.clone(),
        spec_digest: prior.state.spec_digest,
    }
}
