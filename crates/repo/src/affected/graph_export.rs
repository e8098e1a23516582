//! The dependency graph of stacks, packages and files as data, DOT and Mermaid, and its parts upstream and
//! downstream of a file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde::Serialize;

use super::{Analysis, graph::NodeId, resolve::ResolvedImport};
use konverge_base::model::{RepoPath, affected::InputKind, text::is_hidden};

/// The dependency graph. The JSON has `"version":1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GraphExport {
    /// Version of this format.
    pub version: u32,
    /// The nodes, sorted by path and kind.
    pub nodes: Vec<ExportNode>,
    /// The edges from dependent to dependency, sorted.
    pub edges: Vec<ExportEdge>,
}

/// A stack, package or file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ExportNode {
    /// The path of the file or folder.
    pub path: RepoPath,
    /// The kind of the node.
    pub kind: NodeKind,
}

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, derive_more::Display)]
#[display(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// A stack, by its folder.
    Stack,
    /// A folder that is imported as a whole.
    Package,
    /// A file of the repository.
    File,
    /// A folder whose files may be read during evaluation.
    Data,
}

/// An edge of the graph.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ExportEdge {
    /// The node that depends on the other.
    pub from: ExportNode,
    /// The node on which `from` depends.
    pub to: ExportNode,
}

impl Analysis {
    /// Returns the graph of everything that the stacks of this revision reach.
    pub fn picture(&self) -> GraphExport {
        let mut edges = BTreeSet::new();
        for (at, (stack, inputs)) in self.layout.stacks.iter().zip(&self.inputs).enumerate() {
            let from = node(&stack.folder, NodeKind::Stack);
            for writer in stack
                .reads
                .values()
                .filter_map(|writer| self.layout.stack(writer))
            {
                edges.insert(edge(from.clone(), node(&writer.folder, NodeKind::Stack)));
            }
            for entry in &inputs.entries {
                edges.insert(edge(from.clone(), self.export_node(*entry)));
            }
            for (readable, reader) in self.shared_reads(at) {
                let reader = node(&reader, NodeKind::File);
                edges.insert(edge(reader, node(&readable, NodeKind::Data)));
            }
            let own = inputs.files.iter().map(|(kind, path, _)| (*kind, path));
            let settings = inputs
                .settings_files
                .iter()
                .map(|(path, _)| (InputKind::Settings, path));
            for (_, path) in own.chain(settings) {
                edges.insert(edge(from.clone(), node(path, NodeKind::File)));
            }
        }
        for id in self.reachable_nodes() {
            let loaded = &self.graph.nodes[id];
            if !matches!(loaded.place, ResolvedImport::File(_)) {
                for file in &loaded.files {
                    edges.insert(edge(self.export_node(id), node(&file.path, NodeKind::File)));
                }
            }
            for (to, importer) in &loaded.edges {
                let importer = node(&loaded.files[*importer].path, NodeKind::File);
                edges.insert(edge(importer, self.export_node(*to)));
            }
            for (folder, reader) in &loaded.data {
                let reader = node(&loaded.files[*reader].path, NodeKind::File);
                edges.insert(edge(reader, node(folder, NodeKind::Data)));
            }
        }
        GraphExport::new(edges, [])
    }

    fn export_node(&self, id: NodeId) -> ExportNode {
        match &self.graph.nodes[id].place {
            ResolvedImport::File(path) => node(path, NodeKind::File),
            ResolvedImport::Package(path) | ResolvedImport::EntryFolder(path) => {
                node(path, NodeKind::Package)
            }
        }
    }
}

impl GraphExport {
    /// Creates a graph of edges, their nodes and other nodes.
    fn new(edges: BTreeSet<ExportEdge>, others: impl IntoIterator<Item = ExportNode>) -> Self {
        let mut nodes: BTreeSet<_> = others.into_iter().collect();
        nodes.extend(edges.iter().flat_map(|edge| [edge.from.clone(), edge.to.clone()]));
        Self {
            version: 1,
            nodes: nodes.into_iter().collect(),
            edges: edges.into_iter().collect(),
        }
    }

    /// Returns the part of the graph that the files depend on, directly or indirectly. A folder stands for everything
    /// in it.
    #[must_use]
    pub fn upstream(&self, focus: &[RepoPath]) -> Self {
        self.part(focus, |edge| (&edge.from, &edge.to))
    }

    /// Returns the part of the graph that depends on the files, directly or indirectly.
    #[must_use]
    pub fn downstream(&self, focus: &[RepoPath]) -> Self {
        self.part(focus, |edge| (&edge.to, &edge.from))
    }

    fn part<'a>(
        &'a self,
        focus: &[RepoPath],
        step: impl Fn(&'a ExportEdge) -> (&'a ExportNode, &'a ExportNode),
    ) -> Self {
        let mut next: BTreeMap<&ExportNode, Vec<(&ExportNode, &ExportEdge)>> = BTreeMap::new();
        for edge in &self.edges {
            let (at, to) = step(edge);
            next.entry(at).or_default().push((to, edge));
        }
        let hit = |node: &ExportNode| match node.kind {
            // A data folder stands for every file in it.
            NodeKind::Data => focus
                .iter()
                .any(|path| path.is_within(&node.path) || node.path.is_within(path)),
            _ => focus.iter().any(|path| node.path.is_within(path)),
        };
        let mut queue: Vec<_> = self.nodes.iter().filter(|node| hit(node)).collect();
        let mut seen: BTreeSet<_> = queue.iter().copied().collect();
        let mut edges = BTreeSet::new();
        while let Some(node) = queue.pop() {
            for (to, edge) in next.get(node).into_iter().flatten() {
                edges.insert(ExportEdge::clone(edge));
                if seen.insert(to) {
                    queue.push(to);
                }
            }
        }
        Self::new(edges, seen.into_iter().cloned())
    }

    /// Returns the union of both graphs.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let edges = self.edges.iter().chain(&other.edges).cloned();
        Self::new(edges.collect(), self.nodes.iter().chain(&other.nodes).cloned())
    }

    /// Returns the graph in Graphviz's DOT language.
    pub fn dot(&self) -> String {
        let mut text = String::from("digraph konverge {\n  rankdir=LR;\n  node [shape=box];\n");
        for node in &self.nodes {
            let shape = match node.kind {
                NodeKind::Stack => "ellipse",
                NodeKind::Package => "folder",
                NodeKind::File => "note",
                NodeKind::Data => "cylinder",
            };
            let _ = writeln!(
                text,
                "  {} [label={}, shape={shape}];",
                quoted(&node.key()),
                quoted(&node.path.to_string())
            );
        }
        for edge in &self.edges {
            let _ = writeln!(
                text,
                "  {} -> {};",
                quoted(&edge.from.key()),
                quoted(&edge.to.key())
            );
        }
        text.push_str("}\n");
        text
    }

    /// Returns the graph in Mermaid, as GitHub renders it in Markdown.
    pub fn mermaid(&self) -> String {
        let ids: BTreeMap<_, _> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(id, node)| (node, id))
            .collect();
        let mut text = String::from("graph LR\n");
        for (node, id) in &ids {
            let label: String = node
                .path
                .to_string()
                .chars()
                .map(mermaid_char)
                .collect::<Vec<_>>()
                .concat();
            let _ = match node.kind {
                NodeKind::Stack => writeln!(text, "  n{id}([\"{label}\"])"),
                NodeKind::Package => writeln!(text, "  n{id}[[\"{label}\"]]"),
                NodeKind::File => writeln!(text, "  n{id}[\"{label}\"]"),
                NodeKind::Data => writeln!(text, "  n{id}[(\"{label}\")]"),
            };
        }
        for edge in &self.edges {
            let _ = writeln!(text, "  n{} --> n{}", ids[&edge.from], ids[&edge.to]);
        }
        text
    }
}

impl ExportNode {
    fn key(&self) -> String {
        format!("{}:{}", self.kind, self.path)
    }
}

fn edge(from: ExportNode, to: ExportNode) -> ExportEdge {
    ExportEdge { from, to }
}

fn node(path: &RepoPath, kind: NodeKind) -> ExportNode {
    ExportNode {
        path: path.clone(),
        kind,
    }
}

/// Formats a DOT string: quotes and backslashes are escaped, hidden characters are made visible, and `##[` is
/// split, because GitHub's runner would read it as a workflow command.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.replace("##[", "#\u{2009}#[").chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if is_hidden(c) => out.extend(
                c.escape_unicode()
                    .flat_map(|c| if c == '\\' { vec!['\\', '\\'] } else { vec![c] }),
            ),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Escapes a character as an entity if it could end or style a quoted Mermaid label.
fn mermaid_char(c: char) -> String {
    if c.is_alphanumeric() && !is_hidden(c) || "/._- ".contains(c) {
        c.to_string()
    } else {
        format!("#{};", u32::from(c))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_and_a_package_in_one_folder_are_two_nodes_of_a_drawing() {
        let folder = RepoPath::normalize("apps/shop").unwrap();
        let edge = edge(node(&folder, NodeKind::Stack), node(&folder, NodeKind::Package));
        let dot = GraphExport::new([edge].into(), []).dot();
        assert!(
            dot.contains("\"stack:apps/shop\" -> \"package:apps/shop\";"),
            "{dot}"
        );
        assert!(
            dot.contains("\"stack:apps/shop\" [label=\"apps/shop\", shape=ellipse];"),
            "{dot}"
        );
        assert!(
            dot.contains("\"package:apps/shop\" [label=\"apps/shop\", shape=folder];"),
            "{dot}"
        );
    }

    #[test]
    fn a_file_stands_for_its_folders_and_a_data_folder_for_its_files() {
        let path = |text: &str| RepoPath::normalize(text).unwrap();
        let file = |text: &str| node(&path(text), NodeKind::File);
        let data = node(&path("conf/data"), NodeKind::Data);
        let stack = node(&path("apps/shop"), NodeKind::Stack);
        let edges = [
            edge(stack.clone(), file("apps/shop/main.k")),
            edge(file("apps/shop/main.k"), data.clone()),
            edge(file("apps/shop/main.k"), file("lib/a.k")),
        ];
        let whole = GraphExport::new(edges.into(), []);
        let downstream = |focus: &str| {
            let part = whole.downstream(&[path(focus)]);
            let names = part.nodes.into_iter().map(|node| node.path.to_string());
            names.collect::<Vec<_>>()
        };
        let readers = ["apps/shop", "apps/shop/main.k", "conf/data"];
        assert_eq!(downstream("conf/data/x.txt"), readers);
        assert_eq!(downstream("conf"), readers);
        assert_eq!(downstream("conf/other"), Vec::<String>::new());
        assert_eq!(downstream("lib"), ["apps/shop", "apps/shop/main.k", "lib/a.k"]);
        assert_eq!(downstream("lib/a.k/x"), Vec::<String>::new());
        let upstream = whole.upstream(&[path("apps/shop/main.k")]);
        assert_eq!(upstream.edges.len(), 2);
        assert!(!upstream.nodes.contains(&stack) && upstream.nodes.contains(&data));
    }

    #[test]
    fn a_label_has_no_character_that_ends_it() {
        for (c, text) in [
            ('a', "a"),
            ('ü', "ü"),
            ('/', "/"),
            (' ', " "),
            ('"', "#34;"),
            ('<', "#60;"),
            ('\u{200b}', "#8203;"),
        ] {
            assert_eq!(mermaid_char(c), text);
        }
    }

    #[test]
    fn a_name_in_a_drawing_hides_nothing() {
        for (name, text) in [
            ("a/b", "\"a/b\""),
            ("a\"\\", "\"a\\\"\\\\\""),
            ("a\u{202e}b", "\"a\\\\u{202e}b\""),
        ] {
            assert_eq!(quoted(name), text);
        }
    }
}
