//! Cuts a graph into stages. The resources of a stage can be planned together.

use crate::runtime::Granularity;
use konverge_base::model::spec::RuntimeKind;

/// The properties of a node that decide its stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StageNode {
    /// The runtime of the resource.
    pub kind: RuntimeKind,
    /// The unit in which the runtime applies its resources.
    pub granularity: Granularity,
    /// The dependencies: the index of the other node, and whether a value of it is needed.
    pub waits: Vec<(usize, bool)>,
}

/// Returns the stage of each node, from 0. `order` is a topological order of the nodes.
///
/// A node shares the stage of its dependency, with two exceptions. It comes one stage later if it needs a
/// value that its runtime cannot see by itself. It also comes later if it belongs to a batch and waits for a
/// resource of another runtime: a batch is applied as one, so all its outside dependencies must be finished
/// before.
pub(crate) fn cut_stages(nodes: &[StageNode], order: &[usize]) -> Vec<usize> {
    let mut stages = vec![0; nodes.len()];
    for &index in order {
        let node = &nodes[index];
        let stage = node.waits.iter().map(|&(on, value)| {
            let other = &nodes[on];
            let same_segment = node.granularity == Granularity::Segment && node.kind == other.kind;
            let later = match node.granularity {
                Granularity::Segment => !same_segment,
                Granularity::Resource => value,
            };
            stages[on] + usize::from(later)
        });
        stages[index] = stage.max().unwrap_or(0);
    }
    stages
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(kind: RuntimeKind, waits: &[(usize, bool)]) -> StageNode {
        let granularity = match kind {
            RuntimeKind::Kubernetes => Granularity::Resource,
            RuntimeKind::Terraform => Granularity::Segment,
        };
        StageNode {
            kind,
            granularity,
            waits: waits.to_vec(),
        }
    }

    use RuntimeKind::{Kubernetes as K, Terraform as T};

    #[test]
    fn terraform_is_planned_in_as_few_segments_as_possible() {
        let nodes = [
            node(T, &[]),
            node(T, &[(0, true)]),
            node(K, &[(1, true)]),
            node(T, &[(0, false)]),
            node(T, &[(2, false)]),
        ];
        assert_eq!(cut_stages(&nodes, &[0, 1, 2, 3, 4]), [0, 0, 1, 0, 2]);
    }

    #[test]
    fn mere_order_keeps_kubernetes_objects_together() {
        let nodes = [node(K, &[]), node(K, &[(0, false)]), node(K, &[(1, true)])];
        assert_eq!(cut_stages(&nodes, &[0, 1, 2]), [0, 0, 1]);
    }

    #[test]
    fn a_segment_never_waits_for_its_own_stage() {
        let nodes = [node(T, &[]), node(K, &[(0, false)]), node(T, &[(1, false)])];
        assert_eq!(cut_stages(&nodes, &[0, 1, 2]), [0, 0, 1]);
    }
}
