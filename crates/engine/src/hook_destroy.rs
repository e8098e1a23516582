//! The `pre-destroy` hooks of a plan. The Spec no longer has them, so they run from their record in the state, before
//! the other resources of the stack are deleted.

use super::{PlanRequest, plan_error::PlanError, plan_nodes::DraftNode};
use crate::spec::hooks::pre_destroy_task;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{ResourceId, hook::HookTasks, masked_value, spec::Resource, state::Recorded},
};

/// If the whole stack is deleted, makes its `pre-destroy` hooks run before all deletions.
///
/// # Errors
/// A recorded hook cannot run as it was declared.
pub(super) fn order(
    request: &PlanRequest<'_>,
    drafts: &mut [DraftNode],
    tasks: &mut HookTasks,
) -> Result<(), PlanError> {
    if drafts.iter().any(|draft| !draft.is_deletion) {
        return Ok(());
    }
    let ids: Vec<ResourceId> = drafts.iter().map(|draft| draft.item.id.clone()).collect();
    let mut hooks = Vec::new();
    for (at, draft) in drafts.iter_mut().enumerate() {
        let Some(job) = draft.item.prior.as_ref().map(as_desired) else {
            continue;
        };
        let others = ids.iter().filter(|id| **id != job.id).cloned().collect();
        let Some(task) = pre_destroy_task(&job, others, &request.hooks)? else {
            continue;
        };
        if job.attributes.values().any(masked_value::holds_mark) {
            return Err(masked(&job.id).into());
        }
        tasks.insert(job.id.clone(), task);
        draft.wanted = Some(job);
        draft.waits.clear();
        hooks.push(at);
    }
    for (at, draft) in drafts.iter_mut().enumerate() {
        if !hooks.contains(&at) {
            draft.waits.extend(&hooks);
        }
    }
    Ok(())
}

fn as_desired(recorded: &Recorded) -> Resource {
    Resource {
        id: recorded.id.clone(),
        runtime: recorded.runtime,
        attributes: (*recorded.attributes).clone(),
        depends_on: Vec::new(),
        extensions: recorded.extensions.clone(),
        sharing: recorded.sharing,
    }
}

fn masked(id: &ResourceId) -> UserError {
    let what = format!(
        "the `pre-destroy` hook `{id}` cannot run: its Job has secret values, which the state does not hold"
    );
    UserError::new(ErrorKind::Spec, what)
        .hint("let the Job read these values from a Secret by `envFrom` or `secretKeyRef`, and apply this change before the stack is deleted")
        .hint("to delete the stack without the hook, remove the Job from the Spec and apply that first")
}
