//! The health of the recorded objects of a stack: one by one, and of all together.

use crate::{Planner, Target, delivery::ControllerStatus, observe_recorded};
use konverge_base::{
    error::UserError,
    model::{apply_result::Waiting, health::Health, spec::RuntimeKind, status::ObjectStatus},
};
use konverge_policy::rollout::StackReadiness;
use konverge_state::Versioned;

/// Whether the Kubernetes objects of a stack are ready. Terraform knows no health. A stack of which nothing is recorded is
/// ready.
pub async fn readiness(planning: &Planner, target: &Target) -> StackReadiness {
    match observed(planning, target).await {
        Ok(readiness) => readiness,
        Err(failure) => StackReadiness::Unready(planning.secrets().mask(&failure.message)),
    }
}

async fn observed(planning: &Planner, target: &Target) -> Result<StackReadiness, UserError> {
    let Some(backend) = &planning.backend else {
        return Ok(StackReadiness::Unready("there is no state".to_owned()));
    };
    let Some(prior) = backend
        .states
        .load(&target.id)
        .await?
        .filter(|prior| !prior.retired)
    else {
        return Ok(StackReadiness::Ready);
    };
    let seen = observe(planning, target, &prior, RuntimeKind::Kubernetes).await?;
    let mut unready = None;
    for (object, waiting) in seen {
        let why = format!("{}: {}", object.id, object.message);
        match object.health {
            Health::Failed => return Ok(StackReadiness::Failed(why)),
            Health::Ready => {}
            Health::Suspended if waiting.is_none() => {}
            Health::Suspended | Health::Progressing | Health::Unknown => {
                unready.get_or_insert(why);
            }
        }
    }
    Ok(unready.map_or(StackReadiness::Ready, StackReadiness::Unready))
}

/// The recorded objects of one runtime as they are now, and the object of the controller that delivers them.
///
/// # Errors
/// The cluster or the provider cannot be reached.
pub async fn observe(
    planning: &Planner,
    target: &Target,
    prior: &Versioned,
    kind: RuntimeKind,
) -> Result<Vec<(ObjectStatus, Option<Waiting>)>, UserError> {
    let seen = observe_recorded(planning, target, &prior.state, kind).await?;
    let objects = seen.into_iter().map(|(item, seen)| {
        let (health, message) = seen.health;
        let status = ObjectStatus {
            id: item.id,
            cluster: item.cluster,
            health,
            message,
        };
        (status, seen.waiting)
    });
    let mut objects: Vec<_> = objects.collect();
    if kind == RuntimeKind::Kubernetes
        && let Some(controller) = ControllerStatus::read(planning, target, &prior.state).await?
    {
        let mut status = controller.health();
        status.message = planning.secrets().mask(&status.message);
        objects.push((status, None));
    }
    Ok(objects)
}
