//! Executes a plan: sends the same request as the dry-run, bound to the object that the plan read.

mod apply_task;
mod creation;
mod delete;
mod early_failure;
mod field_takeover;
mod hand_over;
mod hook;
pub(super) mod missing_objects;
mod readiness;
mod write;

use serde_json::Value;

use self::{
    apply_task::ApplyTask,
    creation::Owner,
    delete::Dependents,
    readiness::WaitLimits,
    write::{FilledBody, write_and_record},
};
use super::{
    api::clusters::Kubernetes,
    object::{
        completed_jobs, fetch,
        object_record::{self, PreparedWrite},
        plan_item::PlanItem,
        precondition::{self, Precondition},
    },
};
use konverge_base::{
    error::UserError,
    model::{GroupKind, hook::HookTime, plan::Action, state::Recorded},
};
use konverge_engine::runtime::{AppliedResource, ApplySink, PlannedResource, StackScope};

/// Maximum number of lookups of a kind that was just defined.
const KIND_TRIES: u32 = 20;

/// Applies one resource. Every path ends in [`ApplySink::record_result`].
pub(super) async fn apply(
    runtime: &Kubernetes,
    scope: &StackScope,
    planned: PlannedResource,
    sink: &dyn ApplySink,
) -> Result<(), UserError> {
    let id = planned.item.id.clone();
    let mut result = carry_out(runtime, scope, &planned, sink).await;
    if let Err(failure) = &mut result {
        failure.message = runtime.secrets.mask(&failure.message);
        // The journal must know that nothing was created. Otherwise the next run would assume that the object
        // may exist.
        if planned.public.action == Action::Create && nothing_was_made(runtime, scope, &planned).await {
            sink.absent(&id).await?;
        }
    }
    sink.record_result(&id, result).await
}

/// Returns true if this stack certainly created nothing: the object does not exist, or it belongs to another
/// stack. The response to the create may have been lost, so the object is read again; if that fails, the
/// result is false.
async fn nothing_was_made(runtime: &Kubernetes, scope: &StackScope, planned: &PlannedResource) -> bool {
    let Ok(subject) = PlanItem::resolve(runtime, &planned.item).await else {
        return false;
    };
    let Some(of) = subject.readable() else {
        return true;
    };
    match fetch::get(&subject.cluster, of, &subject.name).await {
        Ok(None) => true,
        Ok(Some(object)) => matches!(
            creation::owner(&object, &scope.stack, planned.item.is_shared()),
            Owner::Other(_)
        ),
        Err(_) => false,
    }
}

async fn carry_out(
    runtime: &Kubernetes,
    scope: &StackScope,
    planned: &PlannedResource,
    sink: &dyn ApplySink,
) -> Result<AppliedResource, UserError> {
    let prepared: &PreparedWrite = planned.preparation.get()?;
    let subject = resolve_subject(runtime, planned, sink).await?;
    let Some(of) = subject.of.clone() else {
        let body = prepared.body.as_ref();
        let version = body.and_then(|body| body["apiVersion"].as_str());
        return Err(subject.not_served(version.unwrap_or_default()));
    };
    let task = ApplyTask {
        runtime,
        scope,
        subject: &subject,
        of: &of,
        planned,
        sink,
    };
    let mut seen = prepared.precondition.clone();
    // The watch is opened before the write, so that it sees the first changes of the object.
    if let Some(body) = &prepared.body {
        readiness::prepare(task, body).await;
    }
    // Values are read before anything is deleted, so that a missing value changes nothing.
    let filled = FilledBody::new(scope, prepared).await?;
    match planned.public.action {
        Action::Unchanged | Action::Forget => return still_to_become_ready(task).await,
        Action::Run => return hook::run(task, filled).await,
        Action::Delete => return delete_object(task, seen).await,
        // If an earlier run has already deleted the old object, only the creation remains.
        Action::Replace => {
            if let Some(seen) = seen.take() {
                delete_replaced(task, prepared, seen).await?;
            }
        }
        Action::Create | Action::Update | Action::Adopt | Action::Unknown => {}
    }
    // The name is free only when the object that is being deleted is gone.
    if let Some(ending) = prepared.ending.as_deref() {
        delete::wait_until_gone(task, Some(ending)).await?;
    }
    let (live, recorded) = write_and_record(task, filled, seen).await?;
    become_ready(task, live, recorded).await
}

/// Looks up the kind of the object, and waits for a kind that was just defined.
async fn resolve_subject(
    runtime: &Kubernetes,
    planned: &PlannedResource,
    sink: &dyn ApplySink,
) -> Result<PlanItem, UserError> {
    let mut subject = PlanItem::resolve(runtime, &planned.item).await?;
    if subject.of.is_none() {
        subject.cluster.forget_discovery().await;
        subject = PlanItem::awaited(runtime, &planned.item, |attempt| {
            sink.progress(&planned.item.id, "waiting until the cluster serves its kind");
            attempt >= KIND_TRIES || sink.cancelled()
        })
        .await?;
    }
    subject.places = object_record::secret_places(&planned.item);
    Ok(subject.with_policy_of(planned.recorded.as_ref()))
}

async fn delete_object(
    task: ApplyTask<'_>,
    seen: Option<Precondition>,
) -> Result<AppliedResource, UserError> {
    task.sink.check_lease().await?;
    if let Some(seen) = seen {
        delete::delete(task, seen, Dependents::Go).await?;
    }
    Ok(AppliedResource::unread(task.id().clone(), None))
}

/// Deletes the object that a new one replaces. Its dependents are kept if its volume claims can be expanded
/// in place.
async fn delete_replaced(
    task: ApplyTask<'_>,
    prepared: &PreparedWrite,
    seen: Precondition,
) -> Result<(), UserError> {
    let ApplyTask { subject, sink, .. } = task;
    // Recorded before the deletion, so that after a kill the next run only creates the new object.
    sink.replacing(task.id()).await?;
    sink.check_lease().await?;
    let mut dependents = Dependents::Go;
    if let Some(expansion) = &prepared.expansion {
        let grown = expansion.carry_out(&subject.cluster, false).await;
        grown.map_err(|error| subject.refusal(&error).context("expanding its volume claims"))?;
        dependents = Dependents::Stay;
    }
    delete::delete(task, seen, dependents).await
}

/// Returns true if a `post` hook runs after the object, which must then be ready, even if the options disable
/// waiting.
fn is_awaited(task: ApplyTask<'_>) -> bool {
    let mut after = task
        .scope
        .hooks
        .values()
        .filter(|hook| hook.time == HookTime::Post && hook.may_run);
    after.any(|hook| hook.guards.contains(task.id()))
}

/// Waits until a written object is ready. During the wait, its record says that it is not ready.
async fn become_ready(
    task: ApplyTask<'_>,
    mut live: Value,
    mut recorded: Recorded,
) -> Result<AppliedResource, UserError> {
    let ApplyTask {
        runtime, subject, of, ..
    } = task;
    let waits = runtime.options.wait || is_awaited(task);
    if waits && !readiness::is_settled(task, &live).await {
        // Recorded before the wait, so that after a kill the next run knows the object and waits for it.
        let unready = object_record::mark_unready(recorded.clone(), true);
        task.sink.record_written(task.id(), unready.clone()).await?;
        let limits = WaitLimits::of_object(runtime, subject);
        let waiting;
        (live, waiting) = readiness::until_ready(task, &limits, live).await?;
        if waiting.is_some() {
            return Ok(task.applied(Some(unready), Some(live), waiting));
        }
    }
    // Objects of the new kind may follow, and the cached discovery does not contain it.
    if of.group_kind() == GroupKind::CUSTOM_RESOURCE_DEFINITION {
        subject.cluster.forget_discovery().await;
    }
    completed_jobs::note(&mut recorded, &live);
    Ok(task.applied(Some(recorded), Some(live), None))
}

/// Waits for an object that an earlier run wrote, without writing it.
async fn still_to_become_ready(task: ApplyTask<'_>) -> Result<AppliedResource, UserError> {
    let ApplyTask {
        runtime,
        subject,
        of,
        planned,
        ..
    } = task;
    let waits = planned.unready && (runtime.options.wait || is_awaited(task));
    let mut live = planned.expected.clone();
    let mut waiting = None;
    if waits {
        let object = precondition::read_again(subject, of).await?;
        let limits = WaitLimits::of_object(runtime, subject);
        let found;
        (found, waiting) = readiness::until_ready(task, &limits, object).await?;
        live = Some(found);
    }
    let is_unready = planned.unready && (!waits || waiting.is_some());
    let recorded = planned.recorded.clone();
    let recorded = recorded.map(|recorded| object_record::mark_unready(recorded, is_unready));
    Ok(task.applied(recorded, live, waiting))
}
