//! Groups the nodes of a plan into batches that are applied together, and determines which batch waits for
//! which.

use std::collections::BTreeMap;

use super::engine_plan::PlanNode;
use crate::runtime::Granularity;
use konverge_base::model::spec::RuntimeKind;

/// What one call of a runtime applies: one resource, or a whole Terraform batch.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// Indices of nodes, ascending. Empty for the barrier.
    pub members: Vec<usize>,
}

/// The batches and their dependencies, ready for the schedule.
pub(super) struct Batches {
    pub units: Vec<Batch>,
    pub waits: Vec<Vec<usize>>,
}

/// Groups the nodes into batches. Deletions start only after every desired resource has succeeded, because until
/// then a live object may still use a resource that will be deleted, even without a dependency in the Spec. One
/// empty barrier batch represents this rule and keeps the number of edges small.
pub(super) fn group(nodes: &[PlanNode]) -> Batches {
    let mut units: Vec<Batch> = Vec::new();
    let mut unit_of = vec![0; nodes.len()];
    let mut segments: BTreeMap<(RuntimeKind, usize, bool), usize> = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
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
    for (index, node) in nodes.iter().enumerate() {
        let unit = unit_of[index];
        let others = node
            .waits
            .iter()
            .map(|&on| unit_of[on])
            .filter(|&other| other != unit);
        waits[unit].extend(others);
        if !node.is_deletion {
            waits[barrier].push(unit);
        } else {
            waits[unit].push(barrier);
        }
    }
    Batches { units, waits }
}
