//! The nodes of a plan before planning: desired resources and deletions, in stages.

use std::{
    cell::LazyCell,
    collections::{HashMap, HashSet},
};

use super::{PlanRequest, planning_stages, resource_cluster::cluster_of};
use crate::{
    runtime::{Granularity, Item, Needs},
    spec::graph::{Edge, ResourceGraph},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ClusterName, ResourceId,
        spec::{ObjectKeyRef, Resource, RuntimeKind, object_key},
        state::Recorded,
    },
};

/// A node that is not planned yet.
pub(super) struct DraftNode {
    pub granularity: Granularity,
    pub stage: usize,
    /// Indices of the drafts that are applied before this one.
    pub waits: Vec<usize>,
    pub depends_on: Vec<ResourceId>,
    /// The dependencies from which the draft reads values.
    pub references: Vec<ResourceId>,
    /// True for a deletion.
    pub is_deletion: bool,
    /// The new id, if the Spec now declares the same object with another `apiVersion`. Only the old record is removed.
    pub renamed_to: Option<ResourceId>,
    /// The desired resource with unresolved references; moved out when it is planned; `None` for a deletion.
    pub wanted: Option<Resource>,
    pub item: Item,
    pub kind: RuntimeKind,
}

impl DraftNode {
    /// Returns true for an object that Argo CD or Flux delivers.
    pub(super) fn is_delivered(&self) -> bool {
        self.kind == RuntimeKind::Kubernetes && self.granularity == Granularity::Segment && !self.is_deletion
    }
}

/// Creates the drafts of the desired resources, in the order of the Spec, each with its stage.
pub(super) fn wanted_drafts(
    request: &PlanRequest<'_>,
    resources: Vec<Resource>,
    old_ids: &[ResourceId],
    graph: &ResourceGraph,
) -> Result<Vec<DraftNode>, UserError> {
    let index: HashMap<_, _> = graph.ids().enumerate().map(|(n, id)| (id, n)).collect();
    let recorded: HashMap<_, _> = request.state.resources.iter().map(|r| (&r.id, r)).collect();
    let in_another_version = LazyCell::new(|| objects(&request.state.resources, request.cluster.as_ref()));
    let mut drafts = Vec::with_capacity(resources.len());
    for (resource, old_id) in resources.into_iter().zip(old_ids) {
        let dependencies = graph.dependencies(&resource.id);
        let cluster = cluster_of(&resource, request.cluster.as_ref())?;
        drafts.push(DraftNode {
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
                // An object whose `apiVersion` changed is still the same object. Without its old record it would be
                // adopted under its new id, and then deleted under the old one.
                prior: recorded
                    .get(&resource.id)
                    .or_else(|| recorded.get(old_id))
                    .or_else(|| in_another_version.get(&object(&resource, cluster.as_ref())?))
                    .copied()
                    .cloned(),
                cluster,
                desired: None,
                needs: Needs::default(),
            },
            kind: resource.runtime,
            is_deletion: false,
            renamed_to: None,
            wanted: Some(resource),
        });
    }
    let order: Vec<_> = graph.order().into_iter().map(|id| index[id]).collect();
    set_stages(&mut drafts, 0, &order);
    unite_delivered(&mut drafts)?;
    Ok(drafts)
}

/// Sets the stages of the drafts from `first` on, which wait only for each other. `order` has their indices, counted
/// from `first`. All of them must exist, because a stage depends on the stages of the dependencies.
fn set_stages(drafts: &mut [DraftNode], first: usize, order: &[usize]) {
    let nodes: Vec<_> = drafts[first..]
        .iter()
        .map(|draft| planning_stages::StageNode {
            kind: draft.kind,
            granularity: draft.granularity,
            waits: draft
                .waits
                .iter()
                .map(|&on| (on - first, draft.references.contains(&drafts[on].item.id)))
                .collect(),
        })
        .collect();
    let stages = planning_stages::cut_stages(&nodes, order);
    for (draft, stage) in drafts[first..].iter_mut().zip(stages) {
        draft.stage = stage;
    }
}

/// Moves all objects that a controller delivers into one stage, after Terraform, because they are pushed as one
/// artifact.
///
/// # Errors
/// A Terraform resource depends on one of these objects.
fn unite_delivered(drafts: &mut [DraftNode]) -> Result<(), UserError> {
    let Some(last) = drafts.iter().filter(|d| d.is_delivered()).map(|d| d.stage).max() else {
        return Ok(());
    };
    for draft in drafts.iter().filter(|draft| !draft.is_delivered()) {
        if let Some(&on) = draft.waits.iter().find(|&&on| drafts[on].is_delivered()) {
            let (id, object) = (&draft.item.id, &drafts[on].item.id);
            let what = format!("`{id}` needs `{object}`, which a controller delivers after Terraform");
            return Err(UserError::new(ErrorKind::Spec, what).hint(
                "move one of the two resources into a stack of its own, or remove `deliver` from the rule of this stack",
            ));
        }
    }
    let delivered = drafts.iter_mut().filter(|draft| draft.is_delivered());
    delivered.for_each(|draft| draft.stage = last);
    Ok(())
}

/// Adds the deletions of recorded resources that are no longer desired. A dependent is deleted before its
/// dependencies.
pub(super) fn add_deletes(
    request: &PlanRequest<'_>,
    drafts: &mut Vec<DraftNode>,
    old_ids: &[ResourceId],
) -> Result<(), UserError> {
    let wanted: HashSet<_> = old_ids.iter().chain(drafts.iter().map(|d| &d.item.id)).collect();
    let gone: Vec<&Recorded> = request
        .state
        .resources
        .iter()
        .filter(|r| !wanted.contains(&r.id))
        .collect();
    // An object that the Spec declares with another `apiVersion` stays: only its record under the old id is removed.
    let renamed_to: Vec<Option<ResourceId>> = {
        let claimed = claimed_objects(drafts)?;
        let now = |recorded: &&Recorded| {
            let object = recorded_object(recorded, request.cluster.as_ref())?;
            claimed.get(&object).map(|id| (*id).clone())
        };
        gone.iter().map(now).collect()
    };
    if gone.is_empty() {
        return Ok(());
    }
    // The Spec no longer has these resources, so only their records know the order of deletion.
    let graph = ResourceGraph::from_state(gone.iter().copied());
    let first = drafts.len();
    let index: HashMap<_, _> = gone.iter().enumerate().map(|(n, r)| (&r.id, first + n)).collect();
    for (recorded, renamed_to) in gone.iter().zip(renamed_to) {
        drafts.push(DraftNode {
            granularity: request.runtimes.get(recorded.runtime)?.granularity(),
            stage: 0,
            waits: graph
                .dependents(&recorded.id)
                .iter()
                .map(|(id, _)| index[id])
                .collect(),
            depends_on: Vec::new(),
            references: Vec::new(),
            is_deletion: true,
            renamed_to,
            wanted: None,
            item: Item {
                id: recorded.id.clone(),
                cluster: recorded.cluster.clone().or_else(|| request.cluster.clone()),
                prior: Some((*recorded).clone()),
                desired: None,
                needs: Needs::default(),
            },
            kind: recorded.runtime,
        });
    }
    let order: Vec<_> = graph
        .order()
        .into_iter()
        // Reversed, because a dependent is deleted before its dependencies.
        .rev()
        .map(|id| index[id] - first)
        .collect();
    set_stages(drafts, first, &order);
    Ok(())
}

/// Returns the id under which the Spec has each Kubernetes object.
///
/// # Errors
/// The Spec has an object twice, with two versions of its kind: each would overwrite the other.
fn claimed_objects(drafts: &[DraftNode]) -> Result<HashMap<Object<'_>, &ResourceId>, UserError> {
    let mut claimed = HashMap::with_capacity(drafts.len());
    for draft in drafts {
        let wanted = draft.wanted.as_ref();
        let Some(wanted) = wanted else { continue };
        let Some(key) = object(wanted, draft.item.cluster.as_ref()) else {
            continue;
        };
        if let Some(other) = claimed.insert(key, &wanted.id) {
            let what = format!("`{other}` and `{}` are the same object", wanted.id);
            return Err(UserError::new(ErrorKind::Spec, what).hint("keep one of the two resources"));
        }
    }
    Ok(claimed)
}

/// The identity of a Kubernetes object with its cluster.
type Object<'a> = (Option<&'a str>, ObjectKeyRef<'a>);

fn object<'a>(resource: &'a Resource, cluster: Option<&'a ClusterName>) -> Option<Object<'a>> {
    (resource.runtime == RuntimeKind::Kubernetes)
        .then(|| (cluster.map(ClusterName::as_str), object_key(&resource.attributes)))
}

/// Returns the identity of a recorded object. An imported record may have no cluster: then the stack's cluster counts.
fn recorded_object<'a>(recorded: &'a Recorded, stack: Option<&'a ClusterName>) -> Option<Object<'a>> {
    let cluster = recorded.cluster.as_ref().or(stack).map(ClusterName::as_str);
    (recorded.runtime == RuntimeKind::Kubernetes).then(|| (cluster, object_key(&recorded.attributes)))
}

fn objects<'a>(
    recorded: &'a [Recorded],
    stack: Option<&'a ClusterName>,
) -> HashMap<Object<'a>, &'a Recorded> {
    let key = |recorded| Some((recorded_object(recorded, stack)?, recorded));
    recorded.iter().filter_map(key).collect()
}
