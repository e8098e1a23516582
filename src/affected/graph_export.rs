//! The dependency graph of stacks, packages and files as data, DOT and Mermaid; parts of it up or down from a file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use serde::Serialize;

use super::{Analysis, data_files, graph::NodeId, resolve::ImportTarget};
use crate::model::{RepoPath, affected::InputKind, text::is_hidden};

/// The graph; `"version":1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GraphExport {
    /// Always 1.
    pub version: u32,
    /// Sorted by path and kind.
    pub nodes: Vec<ExportNode>,
    /// Each from what depends to what it depends on, sorted.
    pub edges: Vec<ExportEdge>,
}

/// A stack, package or file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ExportNode {
    /// Where it lies.
    pub path: RepoPath,
    /// What it is.
    pub kind: NodeKind,
}

/// What a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeKind {
    /// A stack, by its folder.
    Stack,
    /// A folder that is imported as a whole.
    Package,
    /// A file.
    File,
    /// A folder whose files may be read at run time.
    Data,
}

/// A dependency.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ExportEdge {
    /// What depends.
    pub from: ExportNode,
    /// On what.
    pub to: ExportNode,
}

impl Analysis {
    /// The whole graph of this revision, as far as stacks reach.
    pub fn picture(&self) -> GraphExport {
        let mut edges = BTreeSet::new();
        for (stack, inputs) in self.layout.stacks.iter().zip(&self.inputs) {
            let from = node(&stack.folder, NodeKind::Stack);
            for entry in &inputs.entries {
                edges.insert((from.clone(), self.export_node(*entry)));
            }
            let shared = data_files::shared_reads(&self.tree, &self.rules, &self.graph, &inputs.entries);
            for (readable, reader) in shared {
                let reader = node(&reader, NodeKind::File);
                edges.insert((reader, node(&readable, NodeKind::Data)));
            }
            let own = inputs.files.iter().map(|(kind, path, _)| (*kind, path));
            let settings = inputs
                .settings_files
                .iter()
                .map(|(path, _)| (InputKind::Settings, path));
            for (_, path) in own.chain(settings) {
                edges.insert((from.clone(), node(path, NodeKind::File)));
            }
        }
        let entries = self
            .inputs
            .iter()
            .flat_map(|inputs| inputs.entries.iter().copied());
        for id in self.graph.reachable(entries) {
            let loaded = &self.graph.nodes[id];
            if !matches!(loaded.place, ImportTarget::File(_)) {
                for file in &loaded.files {
                    edges.insert((self.export_node(id), node(&file.path, NodeKind::File)));
                }
            }
            for (to, importer) in &loaded.edges {
                let importer = node(&loaded.files[*importer].path, NodeKind::File);
                edges.insert((importer, self.export_node(*to)));
            }
            for (folder, reader) in &loaded.data {
                let reader = node(&loaded.files[*reader].path, NodeKind::File);
                edges.insert((reader, node(folder, NodeKind::Data)));
            }
        }
        GraphExport::of(edges)
    }

    fn export_node(&self, id: NodeId) -> ExportNode {
        match &self.graph.nodes[id].place {
            ImportTarget::File(path) => node(path, NodeKind::File),
            ImportTarget::Package(path) | ImportTarget::EntryFolder(path) => node(path, NodeKind::Package),
        }
    }
}

impl GraphExport {
    fn of(edges: BTreeSet<(ExportNode, ExportNode)>) -> Self {
        let nodes: BTreeSet<_> = edges
            .iter()
            .flat_map(|(from, to)| [from.clone(), to.clone()])
            .collect();
        Self {
            version: 1,
            nodes: nodes.into_iter().collect(),
            edges: edges
                .into_iter()
                .map(|(from, to)| ExportEdge { from, to })
                .collect(),
        }
    }

    /// What the files depend on, over any number of steps; a folder stands for all in it.
    #[must_use]
    pub fn upstream(&self, focus: &[RepoPath]) -> Self {
        self.part(focus, |edge| (&edge.from, &edge.to))
    }

    /// What depends on the files, over any number of steps.
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
            // A data folder is hit by whatever lies in it.
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
                edges.insert((edge.from.clone(), edge.to.clone()));
                if seen.insert(to) {
                    queue.push(to);
                }
            }
        }
        let mut part = Self::of(edges);
        let mut nodes: BTreeSet<_> = part.nodes.drain(..).collect();
        nodes.extend(seen.into_iter().cloned());
        part.nodes = nodes.into_iter().collect();
        part
    }

    /// Both together.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut nodes: BTreeSet<_> = self.nodes.iter().chain(&other.nodes).cloned().collect();
        let edges: BTreeSet<_> = self.edges.iter().chain(&other.edges).cloned().collect();
        nodes.extend(edges.iter().flat_map(|edge| [edge.from.clone(), edge.to.clone()]));
        Self {
            version: 1,
            nodes: nodes.into_iter().collect(),
            edges: edges.into_iter().collect(),
        }
    }

    /// Graphviz's language.
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

    /// Mermaid, as GitHub draws it in Markdown.
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
        let kind = match self.kind {
            NodeKind::Stack => "stack",
            NodeKind::Package => "package",
            NodeKind::File => "file",
            NodeKind::Data => "data",
        };
        format!("{kind}:{}", self.path)
    }
}

fn node(path: &RepoPath, kind: NodeKind) -> ExportNode {
    ExportNode {
        path: path.clone(),
        kind,
    }
}

/// A DOT string: quotes and backslashes escaped, hidden characters shown, and the runner's `##[` broken.
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

/// Mermaid reads entities inside quoted labels; whatever could end or style a label is written as one.
fn mermaid_char(c: char) -> String {
    if c.is_alphanumeric() && !is_hidden(c) || "/._- ".contains(c) {
        c.to_string()
    } else {
        format!("#{};", u32::from(c))
    }
}
