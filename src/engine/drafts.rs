//! The nodes of a plan before anything is planned: what is wanted and what is to go, in stages.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::{PlanRequest, rename, stages};
use crate::{
    error::{ErrorKind, Failure},
    model::{
        ClusterName, ResourceId,
        spec::{Resource, RuntimeKind},
        state::Recorded,
    },
    runtime::{Granularity, Item},
    spec::graph::{Edge, Graph},
};

/// A node before it is planned.
pub(super) struct Draft {
    pub granularity: Granularity,
    pub stage: usize,
    /// Indices of the drafts that come before.
    pub waits: Vec<usize>,
    pub depends_on: Vec<ResourceId>,
    /// Those of its dependencies whose values it needs.
    pub references: Vec<ResourceId>,
    pub wanted: Option<Resource>,
    pub item: Item,
    pub kind: RuntimeKind,
}

/// What is wanted, in the order of the Spec, each with its stage.
pub(super) fn wanted_drafts(
    request: &PlanRequest<'_>,
    prepared: &rename::Prepared,
    graph: &Graph,
) -> Result<Vec<Draft>, Failure> {
    let index: HashMap<_, _> = prepared
        .resources
        .iter()
        .enumerate()
        .map(|(n, r)| (&r.id, n))
        .collect();
    let mut drafts = Vec::with_capacity(prepared.resources.len());
    for (resource, old_id) in prepared.resources.iter().zip(&prepared.old_ids) {
        let dependencies = graph.dependencies(&resource.id);
        let state = request.state;
        drafts.push(Draft {
            granularity: request.runtimes.get(resource.runtime)?.granularity(),
            stage: 0,
            waits: dependencies.iter().map(|(id, _)| index[id]).collect(),
            depends_on: dependencies.iter().map(|(id, _)| (*id).clone()).collect(),
            references: dependencies
                .iter()
                .filter(|(_, edge)| *edge == Edge::Reference)
                .map(|(id, _)| (*id).clone())
                .collect(),
            item: Item {
                id: resource.id.clone(),
                cluster: cluster_of(resource, request.cluster.as_ref())?,
                prior: state
                    .resource(&resource.id)
                    .or_else(|| state.resource(old_id))
                    .cloned(),
                desired: None,
            },
            wanted: Some(resource.clone()),
            kind: resource.runtime,
        });
    }
    let order: Vec<_> = graph.order().into_iter().map(|id| index[id]).collect();
    let nodes: Vec<_> = drafts
        .iter()
        .map(|draft| stages::Node {
            kind: draft.kind,
            granularity: draft.granularity,
            waits: draft
                .waits
                .iter()
                .map(|&on| (on, draft.references.contains(&drafts[on].item.id)))
                .collect(),
        })
        .collect();
    for (draft, stage) in drafts.iter_mut().zip(stages::cut(&nodes, &order)) {
        draft.stage = stage;
    }
    Ok(drafts)
}

/// Adds what is recorded and no longer wanted; who needed another goes before it.
pub(super) fn add_deletes(
    request: &PlanRequest<'_>,
    drafts: &mut Vec<Draft>,
    prepared: &rename::Prepared,
) -> Result<(), Failure> {
    let wanted: HashSet<_> = prepared
        .old_ids
        .iter()
        .chain(prepared.resources.iter().map(|r| &r.id))
        .collect();
    let gone: Vec<&Recorded> = request
        .state
        .resources
        .iter()
        .filter(|r| !wanted.contains(&r.id))
        .collect();
    let graph = Graph::of_state(gone.iter().copied());
    let first = drafts.len();
    let index: HashMap<_, _> = gone.iter().enumerate().map(|(n, r)| (&r.id, first + n)).collect();
    for recorded in &gone {
        drafts.push(Draft {
            granularity: request.runtimes.get(recorded.runtime)?.granularity(),
            stage: 0,
            waits: graph
                .dependents(&recorded.id)
                .iter()
                .map(|(id, _)| index[id])
                .collect(),
            depends_on: Vec::new(),
            references: Vec::new(),
            wanted: None,
            item: Item {
                id: recorded.id.clone(),
                cluster: recorded.cluster.clone().or_else(|| request.cluster.clone()),
                prior: Some((*recorded).clone()),
                desired: None,
            },
            kind: recorded.runtime,
        });
    }
    let order: Vec<_> = graph
        .order()
        .into_iter()
        .rev()
        .map(|id| index[id] - first)
        .collect();
    let nodes: Vec<_> = drafts[first..]
        .iter()
        .map(|draft| stages::Node {
            kind: draft.kind,
            granularity: draft.granularity,
            waits: draft.waits.iter().map(|&on| (on - first, false)).collect(),
        })
        .collect();
    for (draft, stage) in drafts[first..].iter_mut().zip(stages::cut(&nodes, &order)) {
        draft.stage = stage;
    }
    Ok(())
}

pub(super) fn cluster_of(
    resource: &Resource,
    stack: Option<&ClusterName>,
) -> Result<Option<ClusterName>, Failure> {
    if resource.runtime != RuntimeKind::Kubernetes {
        return Ok(None);
    }
    match resource.extensions.get("cluster") {
        None | Some(Value::Null) => Ok(stack.cloned()),
        Some(Value::String(name)) => name.parse().map(Some).map_err(|error| {
            Failure::new(
                ErrorKind::Spec,
                format!("extension `cluster` of `{}`: {error}", resource.id),
            )
            .hint("it is a name defined in `konverge.yaml` under `clusters`")
        }),
        Some(_) => Err(Failure::new(
            ErrorKind::Spec,
            format!("extension `cluster` of `{}` is not a text", resource.id),
        )),
    }
}
