//! The Merkle digests of the import graph. The digest of a node covers its content and all direct and indirect
//! imports. The nodes of an import cycle are treated as one node.

use petgraph::{algo::kosaraju_scc, graph::DiGraph};

use super::graph::{ImportGraph, NodeId};
use konverge_base::model::{Digest, digest::DigestBuilder};

/// Returns the digest of every node, by id.
pub(super) fn digests(graph: &ImportGraph) -> Vec<Digest> {
    let mut shape: DiGraph<(), (), u32> = DiGraph::with_capacity(graph.nodes.len(), graph.nodes.len() * 2);
    let ids: Vec<_> = graph.nodes.iter().map(|_| shape.add_node(())).collect();
    for (from, node) in graph.nodes.iter().enumerate() {
        for (to, _) in &node.edges {
            shape.add_edge(ids[from], ids[*to], ());
        }
    }
    let mut digests = vec![Digest::of_bytes(b""); graph.nodes.len()];
    let mut group_of = vec![usize::MAX; graph.nodes.len()];
    // The components come in reverse topological order, so the digests of dependencies are known.
    for (number, group) in kosaraju_scc(&shape).into_iter().enumerate() {
        let members: Vec<NodeId> = group.iter().map(|id| id.index()).collect();
        for member in &members {
            group_of[*member] = number;
        }
        let mut own: Vec<Digest> = members.iter().map(|member| graph.nodes[*member].local).collect();
        // Sorted, because the numbers of nodes differ between a derived graph and one that was built from scratch, but
        // the digests must be equal.
        own.sort_unstable();
        let mut outside: Vec<Digest> = members
            .iter()
            .flat_map(|member| &graph.nodes[*member].edges)
            .filter(|(to, _)| group_of[*to] != number)
            .map(|(to, _)| digests[*to])
            .collect();
        outside.sort_unstable();
        outside.dedup();
        let mut builder = DigestBuilder::new("konverge component 1");
        for part in own.iter().chain(&outside) {
            builder.part(part.as_bytes());
        }
        let component = builder.finish();
        for member in members {
            let mut builder = DigestBuilder::new("konverge member 1");
            builder
                .part(component.as_bytes())
                .part(graph.nodes[member].local.as_bytes());
            digests[member] = builder.finish();
        }
    }
    digests
}
