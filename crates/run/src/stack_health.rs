//! The health of the recorded objects of a stack.

use crate::{Planner, Target, observe_recorded};
use konverge_base::{
    error::UserError,
    model::{apply_result::Waiting, spec::RuntimeKind, stack_status::ObjectStatus},
};
use konverge_state::Versioned;

/// The live state of a recorded object.
pub struct SeenObject {
    /// The health of the object.
    pub status: ObjectStatus,
    /// The event that the object waits for, if there is one.
    pub waiting: Option<Waiting>,
}

/// Returns the live state of the recorded objects of one runtime, and of the object of the controller that delivers
/// them.
///
/// # Errors
/// The cluster or the provider cannot be reached.
pub async fn observe(
    planning: &Planner,
    target: &Target,
    prior: &Versioned,
    kind: RuntimeKind,
) -> Result<Vec<SeenObject>, UserError> {
    let seen = observe_recorded(planning, target, &prior.state, kind).await?;
    let objects = seen.into_iter().map(|(item, seen)| {
        let (health, message) = seen.health;
        SeenObject {
            status: ObjectStatus {
                id: item.id,
                cluster: item.cluster,
                health,
                message,
                suspended_by_spec: seen.is_suspended_by_spec && seen.waiting.is_none(),
            },
            waiting: seen.waiting,
        }
    });
    let mut objects: Vec<_> = objects.collect();
    if kind == RuntimeKind::Kubernetes
        && let Some(controller) = planning.controller_status(target, &prior.state).await?
    {
        let mut status = controller.health();
        status.message = planning.secrets().mask(&status.message);
        objects.push(SeenObject {
            status,
            waiting: None,
        });
    }
    Ok(objects)
}
