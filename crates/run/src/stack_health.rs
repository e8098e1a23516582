//! The health of the recorded objects of a stack: one by one, and of all together.

use crate::{Planner, Target, cluster_selection};
use konverge_base::{
    error::UserError,
    model::{apply_result::Waiting, health::Health, spec::RuntimeKind, status::ObjectStatus},
};
use konverge_engine::runtime::{Item, Needs, StackScope};
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

/// The recorded objects of one runtime as they are now.
///
/// # Errors
/// The cluster or the provider cannot be reached.
pub async fn observe(
    planning: &Planner,
    target: &Target,
    prior: &Versioned,
    kind: RuntimeKind,
) -> Result<Vec<(ObjectStatus, Option<Waiting>)>, UserError> {
    let recorded = prior.state.resources.iter();
    let recorded: Vec<_> = recorded.filter(|resource| resource.runtime == kind).collect();
    if recorded.is_empty() {
        return Ok(Vec::new());
    }
    let cluster = match target.rules() {
        Some(stack) if kind == RuntimeKind::Kubernetes => {
            cluster_selection::cluster_of(&planning.config, stack, &planning.given, planning.live)?
        }
        _ => None,
    };
    let items: Vec<_> = recorded
        .iter()
        .map(|resource| Item {
            id: resource.id.clone(),
            cluster: resource.cluster.clone().or_else(|| cluster.clone()),
            prior: Some((*resource).clone()),
            desired: None,
            needs: Needs::default(),
        })
        .collect();
    let scope = StackScope {
        stack: target.id.clone(),
        earlier: prior.state.earlier_identities.clone(),
        data: prior.state.runtime.clone(),
        ignore: Vec::new(),
        read: std::sync::Arc::default(),
        pending: std::sync::Arc::default(),
        hooks: std::sync::Arc::default(),
    };
    let runtimes = planning.runtimes_to_read(target).await?;
    let seen = runtimes.get(kind)?.observe(&scope, &items).await?;
    let objects = items.iter().zip(seen).map(|(item, seen)| {
        let (health, message) = seen.health;
        let status = ObjectStatus {
            id: item.id.clone(),
            cluster: item.cluster.clone(),
            health,
            message,
        };
        (status, seen.waiting)
    });
    Ok(objects.collect())
}
