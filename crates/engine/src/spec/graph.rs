//! The dependency graph of a stack.
//!
//! It has four kinds of edges: explicit dependencies (`dependsOn`), references, the order that Kubernetes itself
//! requires (`implicit_deps`), and hooks. An edge of the third kind is omitted if it would close a cycle with the
//! others.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap, hash_map::Entry},
};

use petgraph::{
    Direction,
    algo::tarjan_scc,
    graph::{DiGraph, EdgeIndex, NodeIndex},
    visit::EdgeRef,
};

use super::implicit_deps;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ResourceId,
        reference::{Targets, Unreadable},
        spec::Resource,
        state::Recorded,
    },
};

/// The reason why one resource comes before another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Edge {
    /// The dependent names the dependency in `dependsOn`.
    Explicit,
    /// A `$kusion_path` reference: the value is needed, not only the order.
    Reference,
    /// The order that Kubernetes kinds require.
    Order,
    /// A hook runs before or after the resources that it guards.
    Hook,
}

/// Returns the ids of a cycle: `a` → `b` → `a`.
pub(super) fn cycle_text(cycle: &[ResourceId]) -> String {
    let ids = cycle.iter().chain(cycle.first()).map(|id| format!("`{id}`"));
    ids.collect::<Vec<_>>().join(" → ")
}

/// The index of each edge by its two nodes. A lookup in the graph itself would take time linear in a node's neighbours.
type KnownEdges = HashMap<(NodeIndex, NodeIndex), EdgeIndex>;

/// Resources and their dependencies. Edges run from a dependency to its dependent.
#[derive(Debug, Clone, Default)]
pub struct ResourceGraph {
    graph: DiGraph<ResourceId, Edge>,
    index: HashMap<ResourceId, NodeIndex>,
}

impl ResourceGraph {
    /// Builds the graph of a Spec.
    ///
    /// # Errors
    /// The resources have no valid order: an id occurs twice or is missing, a reference cannot be read, or dependencies
    /// form a cycle.
    pub fn from_spec(resources: &[Resource]) -> Result<Self, UserError> {
        let refused = |what: String| UserError::new(ErrorKind::Spec, what);
        let mut graph = Self::default();
        for resource in resources {
            if graph.index.contains_key(&resource.id) {
                let what = format!("the id `{}` occurs more than once in the Spec", resource.id);
                return Err(refused(what).hint("give each resource an id of its own"));
            }
            graph.add(&resource.id);
        }
        let mut known = KnownEdges::new();
        let targets: Targets = resources.iter().map(|resource| &resource.id).collect();
        for resource in resources {
            let from = &resource.id;
            for dependency in &resource.depends_on {
                if !graph.index.contains_key(dependency) {
                    let is_same = |id: &&ResourceId| id.as_str().eq_ignore_ascii_case(dependency.as_str());
                    let hint = match graph.ids().find(is_same) {
                        Some(spelling) => format!("the Spec has `{spelling}`: write both in the same way"),
                        None => format!("add `{dependency}` to the stack, or remove it from `dependsOn`"),
                    };
                    let what = format!("`{from}` depends on `{dependency}`, which is not in the Spec");
                    return Err(refused(what).hint(hint));
                }
                graph.connect(&mut known, dependency, &resource.id, Edge::Explicit);
            }
            let referenced = targets.referenced(&resource.attributes).map_err(|error| {
                let failure = refused(format!("in `{from}`: {error}"));
                match error {
                    Unreadable::NoTarget { nearest: Some(id), .. } => failure.hint(format!("did you mean `{id}`?")),
                    _ => failure.hint("a reference is written `$kusion_path.<id>.<path>`, for instance `$kusion_path.v1:Service:ns:web.spec.ports[0].port`"),
                }
            })?;
            for dependency in referenced {
                graph.connect(&mut known, &dependency, &resource.id, Edge::Reference);
            }
        }
        // Only edges that the author wrote can be an error. Implicit edges are added after this check, and dropped if
        // they close a cycle.
        if let Some(cycle) = graph.cycle() {
            let what = format!("these resources wait for each other: {}", cycle_text(&cycle));
            return Err(refused(what).hint("remove one of these `dependsOn` or references"));
        }
        for (dependency, dependent) in implicit_deps::implicit_dependencies(resources) {
            graph.connect(&mut known, dependency, dependent, Edge::Order);
        }
        graph.drop_order_edges_in_cycles();
        Ok(graph)
    }

    /// Adds the edges of hooks. Each pair is (dependency, dependent).
    ///
    /// # Errors
    /// The edges close this cycle.
    pub(super) fn add_hook_edges(
        &mut self,
        edges: &[(ResourceId, ResourceId)],
    ) -> Result<(), Vec<ResourceId>> {
        let mut known: KnownEdges = (self.graph.edge_references())
            .map(|edge| ((edge.source(), edge.target()), edge.id()))
            .collect();
        for (dependency, dependent) in edges {
            self.connect(&mut known, dependency, dependent, Edge::Hook);
        }
        self.cycle().map_or(Ok(()), Err)
    }

    /// Returns all direct and indirect dependencies of a resource.
    pub(super) fn ancestors(&self, id: &ResourceId) -> BTreeSet<&ResourceId> {
        self.reached(id, Direction::Incoming)
    }

    /// Returns all direct and indirect dependents of a resource.
    pub(super) fn descendants(&self, id: &ResourceId) -> BTreeSet<&ResourceId> {
        self.reached(id, Direction::Outgoing)
    }

    fn reached(&self, id: &ResourceId, direction: Direction) -> BTreeSet<&ResourceId> {
        let mut found = BTreeSet::new();
        let mut open: Vec<_> = self.index.get(id).copied().into_iter().collect();
        while let Some(node) = open.pop() {
            let next = self.graph.neighbors_directed(node, direction);
            open.extend(next.filter(|&next| found.insert(&self.graph[next])));
        }
        found
    }

    /// Builds the graph of the resources in a state. Edges to unrecorded resources and edges that form a cycle are
    /// dropped: a state must always be deletable.
    pub fn from_state<'a>(recorded: impl IntoIterator<Item = &'a Recorded> + Clone) -> Self {
        let mut graph = Self::default();
        for resource in recorded.clone() {
            graph.add(&resource.id);
        }
        let mut known = KnownEdges::new();
        for resource in recorded {
            for dependency in &resource.depends_on {
                if graph.index.contains_key(dependency) && *dependency != resource.id {
                    graph.connect(&mut known, dependency, &resource.id, Edge::Order);
                }
            }
        }
        graph.drop_order_edges_in_cycles();
        graph
    }

    /// Returns the ids of the resources in the order of the Spec.
    pub fn ids(&self) -> impl Iterator<Item = &ResourceId> {
        self.graph.node_weights()
    }

    /// Returns the dependencies of a resource, sorted by id; empty for an unknown id. If a dependency has several
    /// reasons, [`Edge::Reference`] takes precedence over [`Edge::Explicit`], and both over [`Edge::Order`].
    pub fn dependencies(&self, id: &ResourceId) -> Vec<(&ResourceId, Edge)> {
        self.neighbours(id, Direction::Incoming)
    }

    /// Returns the dependents of a resource, sorted by id.
    pub fn dependents(&self, id: &ResourceId) -> Vec<(&ResourceId, Edge)> {
        self.neighbours(id, Direction::Outgoing)
    }

    /// Returns all resources in topological order. Resources that do not depend on each other stay in the order of the
    /// Spec.
    pub fn order(&self) -> Vec<&ResourceId> {
        let mut waiting: Vec<usize> = self
            .graph
            .node_indices()
            .map(|node| self.graph.neighbors_directed(node, Direction::Incoming).count())
            .collect();
        let mut ready: BinaryHeap<Reverse<usize>> = (0..waiting.len())
            .filter(|&n| waiting[n] == 0)
            .map(Reverse)
            .collect();
        let mut order = Vec::with_capacity(waiting.len());
        while let Some(Reverse(next)) = ready.pop() {
            let node = NodeIndex::new(next);
            order.push(&self.graph[node]);
            for dependent in self.graph.neighbors(node) {
                waiting[dependent.index()] -= 1;
                if waiting[dependent.index()] == 0 {
                    ready.push(Reverse(dependent.index()));
                }
            }
        }
        order
    }

    fn add(&mut self, id: &ResourceId) {
        if !self.index.contains_key(id) {
            self.index.insert(id.clone(), self.graph.add_node(id.clone()));
        }
    }

    fn connect(
        &mut self,
        known: &mut KnownEdges,
        dependency: &ResourceId,
        dependent: &ResourceId,
        edge: Edge,
    ) {
        let ends = (self.index[dependency], self.index[dependent]);
        match known.entry(ends) {
            Entry::Occupied(found) if edge == Edge::Reference => self.graph[*found.get()] = edge,
            Entry::Occupied(_) => {}
            Entry::Vacant(new) => {
                new.insert(self.graph.add_edge(ends.0, ends.1, edge));
            }
        }
    }

    fn neighbours(&self, id: &ResourceId, direction: Direction) -> Vec<(&ResourceId, Edge)> {
        let Some(&node) = self.index.get(id) else {
            return Vec::new();
        };
        let mut found: Vec<_> = self
            .graph
            .edges_directed(node, direction)
            .map(|edge| {
                let other = if direction == Direction::Incoming {
                    edge.source()
                } else {
                    edge.target()
                };
                (&self.graph[other], *edge.weight())
            })
            .collect();
        found.sort_unstable();
        found
    }

    /// Returns the shortest cycle in the first strongly connected component. Each resource depends on the next one.
    fn cycle(&self) -> Option<Vec<ResourceId>> {
        let knots = tarjan_scc(&self.graph);
        let knot = knots
            .into_iter()
            .filter(|knot| knot.len() > 1 || self.graph.find_edge(knot[0], knot[0]).is_some())
            .min_by_key(|knot| knot.iter().min().copied())?;
        let inside: BTreeSet<_> = knot.iter().copied().collect();
        let start = *inside.first()?;
        // The breadth-first search runs against the edges, because a cycle is printed from dependent to dependency.
        let mut came_from: HashMap<NodeIndex, NodeIndex> = HashMap::new();
        let mut queue = std::collections::VecDeque::from([start]);
        while let Some(node) = queue.pop_front() {
            let mut next: Vec<_> = self.graph.neighbors_directed(node, Direction::Incoming).collect();
            next.sort_unstable();
            for dependency in next.into_iter().filter(|n| inside.contains(n)) {
                if dependency == start {
                    let mut path = vec![node];
                    while let Some(&before) = came_from.get(path.last()?) {
                        path.push(before);
                    }
                    path.reverse();
                    return Some(path.into_iter().map(|n| self.graph[n].clone()).collect());
                }
                if let Entry::Vacant(unseen) = came_from.entry(dependency) {
                    unseen.insert(node);
                    queue.push_back(dependency);
                }
            }
        }
        None
    }

    fn drop_order_edges_in_cycles(&mut self) {
        let mut knot_of = vec![usize::MAX; self.graph.node_count()];
        for (number, knot) in tarjan_scc(&self.graph).into_iter().enumerate() {
            for node in knot {
                knot_of[node.index()] = number;
            }
        }
        self.graph.retain_edges(|graph, edge| {
            let Some((from, to)) = graph.edge_endpoints(edge) else {
                return true;
            };
            graph[edge] != Edge::Order || knot_of[from.index()] != knot_of[to.index()]
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::spec::RuntimeKind;
    use serde_json::{Map, Value, json};

    fn resource(id: &str, depends_on: &[&str], attributes: Value) -> Resource {
        Resource {
            depends_on: depends_on.iter().map(|id| id.parse().unwrap()).collect(),
            ..Resource::new(
                id.parse().unwrap(),
                RuntimeKind::Kubernetes,
                attributes.as_object().unwrap().clone(),
            )
        }
    }

    fn texts(ids: Vec<&ResourceId>) -> Vec<&str> {
        ids.into_iter().map(ResourceId::as_str).collect()
    }

    #[test]
    fn explicit_and_implicit_edges_order_resources() {
        let graph = ResourceGraph::from_spec(&[
            resource("a", &["c"], json!({})),
            resource("b", &[], json!({"x": "$kusion_path.a.metadata.name"})),
            resource("c", &[], json!({})),
        ])
        .unwrap();
        assert_eq!(texts(graph.order()), ["c", "a", "b"]);
        let b: ResourceId = "b".parse().unwrap();
        assert_eq!(graph.dependencies(&b)[0].1, Edge::Reference);
    }

    #[test]
    fn a_cycle_is_named_in_full() {
        let error = ResourceGraph::from_spec(&[
            resource("a", &["b"], json!({})),
            resource("b", &["c"], json!({})),
            resource("c", &["a"], json!({})),
            resource("d", &["a"], json!({})),
        ])
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "these resources wait for each other: `a` → `b` → `c` → `a`"
        );
        // A resource before the cycle does not hide it.
        let error = ResourceGraph::from_spec(&[
            resource("a", &[], json!({})),
            resource("b", &["c"], json!({})),
            resource("c", &["b"], json!({})),
        ])
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "these resources wait for each other: `b` → `c` → `b`"
        );
        let own = ResourceGraph::from_spec(&[resource("a", &["a"], json!({}))]).unwrap_err();
        assert_eq!(own.to_string(), "these resources wait for each other: `a` → `a`");
    }

    #[test]
    fn what_is_missing_is_an_error_in_a_spec_and_none_in_a_state() {
        let error = ResourceGraph::from_spec(&[resource("a", &["gone"], json!({}))]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`a` depends on `gone`, which is not in the Spec"
        );
        let recorded = |id: &str, on: &[&str]| Recorded {
            depends_on: on.iter().map(|id| id.parse().unwrap()).collect(),
            ..Recorded::new(id.parse().unwrap(), RuntimeKind::Kubernetes, Map::new())
        };
        let graph = ResourceGraph::from_state(&[
            recorded("a", &["gone", "b"]),
            recorded("b", &["c"]),
            recorded("c", &["b"]),
        ]);
        assert_eq!(graph.order().len(), 3, "the cycle is broken, nothing is left out");
    }

    #[test]
    fn built_in_order_gives_way_to_what_the_spec_says() {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}});
        let inside =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ns"}});
        let usual = ResourceGraph::from_spec(&[
            resource("c", &[], inside.clone()),
            resource("n", &[], namespace.clone()),
        ])
        .unwrap();
        assert_eq!(texts(usual.order()), ["n", "c"]);
        let odd = ResourceGraph::from_spec(&[resource("n", &["c"], namespace), resource("c", &[], inside)])
            .unwrap();
        assert_eq!(texts(odd.order()), ["c", "n"]);
    }

    #[test]
    fn a_reference_counts_more_than_depends_on() {
        let both = json!({"x": "$kusion_path.a.metadata.name"});
        let graph =
            ResourceGraph::from_spec(&[resource("a", &[], json!({})), resource("b", &["a"], both)]).unwrap();
        let b: ResourceId = "b".parse().unwrap();
        assert_eq!(graph.dependencies(&b)[0].1, Edge::Reference);
    }

    #[test]
    fn a_wrong_target_is_named_with_the_nearest() {
        let text = json!({"x": "$kusion_path.v1:Service:ns:wbe.spec"});
        let resources = [
            resource("v1:Service:ns:web", &[], json!({})),
            resource("b", &[], text),
        ];
        let error = ResourceGraph::from_spec(&resources).unwrap_err();
        assert_eq!(error.hints, ["did you mean `v1:Service:ns:web`?"]);
    }

    #[test]
    fn a_reference_counts_more_than_the_usual_order() {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}});
        let inside = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "ns"},
            "data": {"x": "$kusion_path.v1:Namespace:ns.metadata.uid"}});
        let graph = ResourceGraph::from_spec(&[
            resource("v1:Namespace:ns", &[], namespace),
            resource("c", &[], inside),
        ])
        .unwrap();
        let dependencies = graph.dependencies(&"c".parse().unwrap());
        assert_eq!(dependencies.len(), 1);
        assert_eq!(dependencies[0].1, Edge::Reference);
    }
}
