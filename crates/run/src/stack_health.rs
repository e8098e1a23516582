//! The health of the recorded objects of a stack: of each object, and of all together.

use crate::{Planner, Target, observe_recorded};
use konverge_base::{
    error::UserError,
    model::{apply_result::Waiting, health::Health, spec::RuntimeKind, stack_status::ObjectStatus},
};
use konverge_policy::rollout::StackReadiness;
use konverge_state::Versioned;

/// Returns whether the Kubernetes objects of a stack are ready. Terraform resources have no health, so they do not
/// count. A stack without a record is ready.
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
    Ok(of_all(
        observe(planning, target, &prior, RuntimeKind::Kubernetes).await?,
    ))
}

/// Combines the health of a stack's objects: the first failure, or else the first object that is not ready.
fn of_all(seen: Vec<SeenObject>) -> StackReadiness {
    let mut unready = None;
    for object in seen {
        let why = format!("{}: {}", object.status.id, object.status.message);
        if object.status.health == Health::Failed {
            return StackReadiness::Failed(why);
        }
        if !object.status.is_ready() {
            unready.get_or_insert(why);
        }
    }
    unready.map_or(StackReadiness::Ready, StackReadiness::Unready)
}

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

#[cfg(test)]
mod tests {
    use konverge_base::model::apply_result::WaitReason;

    use super::*;

    fn object(health: Health, waits: bool, is_suspended_by_spec: bool) -> SeenObject {
        let waiting = Waiting {
            reason: WaitReason::Promotion,
            until: None,
            wave: None,
        };
        SeenObject {
            status: ObjectStatus {
                id: "example.com/v1:Thing:shop:web".parse().unwrap(),
                cluster: None,
                health,
                message: "paused".to_owned(),
                suspended_by_spec: is_suspended_by_spec && !waits,
            },
            waiting: waits.then_some(waiting),
        }
    }

    #[test]
    fn a_stack_is_ready_if_nothing_of_it_waits_and_only_its_spec_suspends() {
        let ready = || object(Health::Ready, false, false);
        let of = |other: SeenObject| of_all(vec![ready(), other, ready()]);
        assert_eq!(of(ready()), StackReadiness::Ready);
        assert_eq!(of(object(Health::Suspended, false, true)), StackReadiness::Ready);
        let why = "example.com/v1:Thing:shop:web: paused".to_owned();
        for unready in [
            object(Health::Suspended, false, false),
            object(Health::Suspended, true, false),
            object(Health::Suspended, true, true),
            object(Health::Progressing, false, false),
            object(Health::Unknown, false, true),
        ] {
            assert_eq!(of(unready), StackReadiness::Unready(why.clone()));
        }
        let failed = vec![
            object(Health::Progressing, false, false),
            object(Health::Failed, false, false),
        ];
        assert_eq!(of_all(failed), StackReadiness::Failed(why));
    }
}
