//! Groups a plan's nodes into what is applied in one go, and says which group waits for which.

use std::collections::BTreeMap;

use super::plan::PlanNode;
use crate::{model::spec::RuntimeKind, runtime::Granularity};

/// What one call of a runtime applies: one resource, or a whole segment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Batch {
    /// Indices of nodes, ascending. Empty for the barrier.
    pub members: Vec<usize>,
}

/// Units and what each waits for, ready for the schedule.
pub(super) struct Batches {
    pub units: Vec<Batch>,
    pub waits: Vec<Vec<usize>>,
}

/// Deletes start when everything wanted has ended well: until then something may still use what is to go, whether the
/// Spec says so or not. A barrier stands for that, so that the number of edges stays small.
pub(super) fn group(nodes: &[PlanNode]) -> Batches {
    let mut units: Vec<Batch> = Vec::new();
    let mut unit_of = vec![0; nodes.len()];
    let mut segments: BTreeMap<(RuntimeKind, usize, bool), usize> = BTreeMap::new();
    for (index, node) in nodes.iter().enumerate() {
        let unit = match node.granularity {
            Granularity::Resource => units.len(),
            Granularity::Segment => {
                let key = (node.planned.public.runtime, node.stage, node.goes);
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
        if !node.goes {
            waits[barrier].push(unit);
        } else {
            waits[unit].push(barrier);
        }
    }
    Batches { units, waits }
}
