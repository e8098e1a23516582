//! Reads the live state of a stack's recorded objects.

use std::sync::Arc;

use crate::{Planner, Target};
use konverge_base::{
    error::UserError,
    model::{spec::RuntimeKind, state::StackState},
};
use konverge_engine::runtime::{Item, Needs, ObservedObject, StackScope};
use konverge_secrets::StackReferences;

/// Reads the recorded objects of one runtime, each with the item of the request.
///
/// # Errors
/// The cluster of the stack is unknown, or cannot be reached.
pub async fn observe_recorded(
    planning: &Planner,
    target: &Target,
    state: &StackState,
    kind: RuntimeKind,
) -> Result<Vec<(Item, ObservedObject)>, UserError> {
    let recorded = state.resources.iter();
    let recorded: Vec<_> = recorded.filter(|resource| resource.runtime == kind).collect();
    if recorded.is_empty() {
        return Ok(Vec::new());
    }
    let cluster = match target.rules() {
        Some(stack) if kind == RuntimeKind::Kubernetes => planning.cluster_of(stack)?,
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
        earlier: state.earlier_identities.clone(),
        data: state.runtime.clone(),
        ignore: Vec::new(),
        read: Arc::default(),
        pending: Arc::default(),
        hooks: Arc::default(),
        references: StackReferences::default(),
        only_compares: true,
    };
    let (runtimes, _) = planning.runtimes_to_read(target).await?;
    let seen = runtimes.get(kind)?.observe(&scope, &items).await?;
    Ok(items.into_iter().zip(seen).collect())
}
