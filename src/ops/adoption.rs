//! Says of each resource that a plan adopts why no state has it.

use super::{Planner, Target};
use crate::{
    error::UserError,
    model::plan::{Action, StackPlan},
    state::WriteReason,
};

/// Adds to each adopted resource of a plan why it is adopted, and what that means.
///
/// # Errors
/// The store's.
pub(super) async fn explain(
    planning: &Planner,
    target: &Target,
    plan: &mut StackPlan,
) -> Result<(), UserError> {
    let is_adopted = |action: &Action| *action == Action::Adopt;
    if !plan.resources.iter().any(|resource| is_adopted(&resource.action)) {
        return Ok(());
    }
    let why = missing_from(planning, target).await?;
    for resource in plan
        .resources
        .iter_mut()
        .filter(|resource| is_adopted(&resource.action))
    {
        resource.notes.push(format!(
            "it exists and {why}: the first apply takes it over, and fields that the Spec does not set stay as they are"
        ));
    }
    Ok(())
}

/// The state that an adopted resource is missing from.
async fn missing_from(planning: &Planner, target: &Target) -> Result<String, UserError> {
    let prior = match &planning.memory {
        Some(memory) => memory.states.load(&target.id).await?,
        None => None,
    };
    Ok(match prior.filter(|prior| !prior.retired) {
        Some(prior) if prior.reason == WriteReason::Import => match prior.note {
            Some(note) => format!("is not in the state that was imported ({note})"),
            None => "is not in the state that was imported".to_owned(),
        },
        Some(prior) if !prior.state.is_blank() => format!("is not in the state of `{}`", target.id),
        _ => format!("nothing is recorded of `{}`", target.id),
    })
}
