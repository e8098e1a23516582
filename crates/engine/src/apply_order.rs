//! Groups the nodes of a plan into batches that are applied together, and determines which batch waits for
//! which.

use std::collections::BTreeMap;

use super::engine_plan::PlanNode;
use crate::runtime::Granularity;
use konverge_base::model::{
    hook::{HookTasks, HookTime},
    spec::RuntimeKind,
};

/// The nodes that one call of a runtime applies: one resource, or a whole Terraform batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// Indices of nodes, ascending. Empty for the barrier between desired resources and deletions.
    pub members: Vec<usize>,
}

/// The batches and their dependencies, ready for the schedule.
pub(super) struct Batches {
    pub units: Vec<Batch>,
    pub waits: Vec<Vec<usize>>,
}

/// Groups the nodes into batches.
///
/// Deletions start only after every desired resource has succeeded: until then a live object may still use a
/// resource that will be deleted, even without a dependency in the Spec. One empty batch, the barrier, represents this
/// rule and keeps the number of edges small. Hooks of the time `failed` are in no batch: they run after all others.
pub(super) fn group(nodes: &[PlanNode], hooks: &HookTasks) -> Batches {
    let mut units: Vec<Batch> = Vec::new();
    let mut unit_of = vec![0; nodes.len()];
    let mut segments: BTreeMap<(RuntimeKind, usize, bool), usize> = BTreeMap::new();
    let in_order = |node: &PlanNode| !is_failed_hook(node, hooks);
    for (index, node) in nodes.iter().enumerate().filter(|(_, node)| in_order(node)) {
        let unit = match node.granularity {
            Granularity::Resource => units.len(),
            Granularity::Segment => {
                let key = (node.planned.public.runtime, node.stage, node.is_deletion);
                *segments.entry(key).or_insert(units.len())
            }
        };
        if unit == units.len() {
            units.push(Batch { members: Vec::new() });
        }
        units[unit].members.push(index);
        unit_of[index] = unit;
    }
    let barrier = units.len();
    units.push(Batch { members: Vec::new() });
    let mut waits = vec![Vec::new(); units.len()];
    for (index, node) in nodes.iter().enumerate().filter(|(_, node)| in_order(node)) {
        let unit = unit_of[index];
        let others = node
            .waits
            .iter()
            .map(|&on| unit_of[on])
            .filter(|&other| other != unit);
        waits[unit].extend(others);
        // The objects that a controller (Argo CD or Flux) delivers are one batch, because they are pushed as one
        // artifact. It waits for the Terraform resources of its stage and of earlier stages.
        let kind = node.planned.public.runtime;
        if node.granularity == Granularity::Segment && kind == RuntimeKind::Kubernetes && !node.is_deletion {
            let before = segments.iter().filter(|((kind, stage, deletes), _)| {
                *kind == RuntimeKind::Terraform && *stage <= node.stage && !deletes
            });
            waits[unit].extend(before.map(|(_, &unit)| unit));
        }
        if !node.is_deletion {
            waits[barrier].push(unit);
        } else {
            waits[unit].push(barrier);
        }
    }
    Batches { units, waits }
}

/// Returns true for the Job of a hook that runs only after a failure.
pub(super) fn is_failed_hook(node: &PlanNode, hooks: &HookTasks) -> bool {
    let task = hooks.get(&node.planned.item.id).filter(|_| !node.is_deletion);
    task.is_some_and(|task| task.time == HookTime::Failed)
}
