//! The import graph of one revision. A node is a package or a file that an import loads; an edge is an import.
//! One graph contains everything that the stacks of the revision reach.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{
    FileScan, ReaderImport, RuntimeReads, ScanCache,
    core_compat::CoreRules,
    data_files,
    resolve::{ImportContext, ResolvedImport, resolve},
};
use crate::konfig::FileTreeView;
use konverge_base::model::{
    Digest, RepoPath,
    digest::DigestBuilder,
    file_source::{BlobId, FileKind, SourceError},
};
use serde::{Deserialize, Serialize};

pub(super) type NodeId = usize;

/// A package or a file, with the context in which its imports are resolved.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct PackageNode {
    pub(super) place: ResolvedImport,
    pub(super) context: usize,
    /// The `.k` files, in the order in which they are loaded.
    pub(super) files: Vec<NodeFile>,
    /// The imported nodes, each with the index of the importing file.
    pub(super) edges: Vec<(NodeId, usize)>,
    /// The symbolic links on the paths to the files and to their imports.
    pub(super) links: Vec<RepoPath>,
    /// The files and folders that may be read during evaluation, each with the index of the reading file.
    pub(super) data: Vec<(RepoPath, usize)>,
    /// The digest of the node's own content, without its imports.
    pub(super) local: Digest,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct NodeFile {
    pub(super) path: RepoPath,
    pub(super) blob: BlobId,
    /// The import of a module that can read files, if there is one, and the files that it reads.
    pub(super) reader_import: ReaderImport,
    pub(super) reads: RuntimeReads,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "(Vec<PackageNode>, Vec<ImportContext>)")]
pub(super) struct ImportGraph {
    pub(super) nodes: Vec<PackageNode>,
    pub(super) contexts: Vec<ImportContext>,
    #[serde(skip)]
    by_key: HashMap<(usize, ResolvedImport), NodeId>,
    #[serde(skip)]
    by_context: HashMap<ImportContext, usize>,
}

/// A node whose imports are not resolved yet.
struct UnlinkedNode {
    id: NodeId,
    digest: DigestBuilder,
}

impl From<(Vec<PackageNode>, Vec<ImportContext>)> for ImportGraph {
    fn from((nodes, contexts): (Vec<PackageNode>, Vec<ImportContext>)) -> Self {
        let key = |(id, node): (usize, &PackageNode)| ((node.context, node.place.clone()), id);
        Self {
            by_key: nodes.iter().enumerate().map(key).collect(),
            by_context: contexts.iter().cloned().zip(0..).collect(),
            nodes,
            contexts,
        }
    }
}

impl ImportGraph {
    pub(super) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            contexts: Vec::new(),
            by_key: HashMap::new(),
            by_context: HashMap::new(),
        }
    }

    /// Returns true if all indices in the graph are within bounds. A damaged snapshot may violate this.
    pub(super) fn is_consistent(&self) -> bool {
        self.nodes.iter().all(|node| {
            let files = node.files.len();
            node.context < self.contexts.len()
                && node
                    .edges
                    .iter()
                    .all(|(to, by)| *to < self.nodes.len() && *by < files)
                && node.data.iter().all(|(_, by)| *by < files)
        })
    }

    /// Returns the node of a target, and adds it if it is new. The caller must then call [`ImportGraph::complete`].
    pub(super) fn node(&mut self, context: &ImportContext, place: ResolvedImport) -> NodeId {
        let context = self.context(context);
        self.node_in(context, place)
    }

    pub(super) fn context(&mut self, context: &ImportContext) -> usize {
        if let Some(id) = self.by_context.get(context) {
            return *id;
        }
        self.contexts.push(context.clone());
        self.by_context.insert(context.clone(), self.contexts.len() - 1);
        self.contexts.len() - 1
    }

    pub(super) fn node_in(&mut self, context: usize, place: ResolvedImport) -> NodeId {
        let next = self.nodes.len();
        let id = *self.by_key.entry((context, place.clone())).or_insert(next);
        if id == next {
            self.nodes.push(PackageNode {
                place,
                context,
                files: Vec::new(),
                edges: Vec::new(),
                links: Vec::new(),
                data: Vec::new(),
                local: Digest::of_bytes(b""),
            });
        }
        id
    }

    /// Returns the node for the same target in another revision's graph, where it has the number `there`. If one graph
    /// was derived from the other, both numbers are the same.
    pub(super) fn counterpart(
        &self,
        context: &ImportContext,
        place: &ResolvedImport,
        there: NodeId,
    ) -> Option<NodeId> {
        if let Some(node) = self.nodes.get(there)
            && node.place == *place
            && self.contexts[node.context] == *context
        {
            return Some(there);
        }
        let context = *self.by_context.get(context)?;
        self.by_key.get(&(context, place.clone())).copied()
    }

    /// Returns the nodes that contain a changed file, or may read one during evaluation.
    pub(super) fn changed_nodes(&self, changed: &HashSet<RepoPath>) -> Vec<NodeId> {
        let reads = |node: &PackageNode| {
            node.data
                .iter()
                .any(|(folder, _)| changed.iter().any(|path| path.is_within(folder)))
        };
        (0..self.nodes.len())
            .filter(|id| {
                let node = &self.nodes[*id];
                node.files.iter().any(|file| changed.contains(&file.path)) || reads(node)
            })
            .collect()
    }

    /// Clears a node, so that it is resolved again.
    pub(super) fn forget(&mut self, id: NodeId) {
        let node = &mut self.nodes[id];
        node.files.clear();
        node.edges.clear();
        node.links.clear();
        node.data.clear();
    }

    /// Resolves these nodes and all new nodes that they import. The files of each level of imports are read
    /// together.
    pub(super) fn complete(
        &mut self,
        empty: Vec<NodeId>,
        tree: &FileTreeView,
        rules: &CoreRules,
        index: &ScanCache,
    ) -> Result<(), SourceError> {
        let mut data = HashMap::new();
        let mut next = empty;
        while !next.is_empty() {
            let wave: Vec<_> = next.into_iter().map(|id| self.list_files(id, tree)).collect();
            let done = self.nodes.len();
            let blobs: Vec<BlobId> = wave
                .iter()
                .flat_map(|draft| self.nodes[draft.id].files.iter().map(|file| file.blob))
                .collect();
            let facts = index.facts(tree.source().as_ref(), &blobs)?;
            let mut facts = facts.iter();
            for draft in wave {
                let count = self.nodes[draft.id].files.len();
                let own: Vec<&FileScan> = facts.by_ref().take(count).map(AsRef::as_ref).collect();
                self.follow(draft, &own, tree, rules, &mut data);
            }
            next = (done..self.nodes.len()).collect();
        }
        Ok(())
    }

    fn list_files(&mut self, id: NodeId, tree: &FileTreeView) -> UnlinkedNode {
        let node = &mut self.nodes[id];
        let mut digest = DigestBuilder::new("konverge node 1");
        match &node.place {
            ResolvedImport::File(path) => {
                digest.part(b"file");
                if let Some((path, entry)) = tree.file(path) {
                    node.files.push(NodeFile::new(path, entry.blob));
                }
            }
            ResolvedImport::Package(folder) | ResolvedImport::EntryFolder(folder) => {
                let hidden_too = matches!(node.place, ResolvedImport::EntryFolder(_));
                digest.part(if hidden_too { b"entries" } else { b"package" });
                let folder = folder.clone();
                for (name, entry) in tree.children(&folder) {
                    let counts = name.ends_with(".k")
                        && !name.ends_with("_test.k")
                        && (hidden_too || !name.starts_with('_'));
                    if !counts {
                        continue;
                    }
                    let path = folder.child(&name);
                    if entry.is_some_and(|entry| entry.kind == FileKind::Symlink) {
                        node.links.extend(
                            tree.resolve(&path)
                                .map(|resolved| resolved.links)
                                .unwrap_or_default(),
                        );
                    }
                    match tree.file(&path) {
                        Some((path, entry)) => node.files.push(NodeFile::new(path, entry.blob)),
                        // A folder that is named like a KCL file, or a dangling link, makes the core fail.
                        None => {
                            digest.part(b"broken").part(name.as_bytes());
                        }
                    }
                }
                if let Some(entry) = tree.source().files().get(&folder)
                    && entry.kind == FileKind::Submodule
                {
                    digest.part(b"submodule").part(&entry.blob.0);
                    node.links.push(folder);
                }
            }
        }
        for file in &node.files {
            digest.part(file.path.as_str().as_bytes()).part(&file.blob.0);
        }
        UnlinkedNode { id, digest }
    }

    fn follow(
        &mut self,
        draft: UnlinkedNode,
        facts: &[&FileScan],
        tree: &FileTreeView,
        rules: &CoreRules,
        data: &mut HashMap<RepoPath, Digest>,
    ) {
        let UnlinkedNode { id, mut digest } = draft;
        let context_id = self.nodes[id].context;
        let context = self.contexts[context_id].clone();
        for (index, facts) in facts.iter().enumerate() {
            let path = self.nodes[id].files[index].path.clone();
            let folder = path.parent().unwrap_or_default();
            for (dots, import) in &facts.imports {
                let resolution = resolve(tree, rules, &context, &folder, *dots, import);
                // The missing file is an input as well, so that adding it changes the digest.
                if resolution.missing {
                    digest
                        .part(b"missing")
                        .part(&dots.to_le_bytes())
                        .part(import.as_bytes());
                }
                for (other, place) in resolution.loads {
                    let to = match other {
                        Some(other) => self.node(&other, place),
                        None => self.node_in(context_id, place),
                    };
                    if !self.nodes[id].edges.iter().any(|(known, _)| *known == to) {
                        self.nodes[id].edges.push((to, index));
                    }
                }
                self.nodes[id].links.extend(resolution.links);
            }
            let file = &mut self.nodes[id].files[index];
            (file.reader_import, file.reads) = (facts.reader_import, facts.reads.clone());
            for readable in data_files::readable(tree, rules, &path, facts.reader_import, &facts.reads) {
                let sum = *data
                    .entry(readable.clone())
                    .or_insert_with(|| data_files::digest(tree, &readable));
                digest.part(b"data").part(sum.as_bytes());
                self.nodes[id].data.push((readable, index));
            }
        }
        let node = &mut self.nodes[id];
        node.links.sort();
        node.links.dedup();
        for link in &node.links {
            let entry = tree.source().files().get(link);
            digest.part(b"link").part(link.as_str().as_bytes());
            digest.part(entry.map_or(&[][..], |entry| &entry.blob.0));
        }
        node.local = digest.finish();
    }

    /// Returns all nodes that are reachable from some nodes, including those; sorted.
    pub(super) fn reachable(&self, from: impl IntoIterator<Item = NodeId>) -> BTreeSet<NodeId> {
        let mut queue: Vec<NodeId> = from.into_iter().collect();
        let mut seen: BTreeSet<NodeId> = queue.iter().copied().collect();
        while let Some(id) = queue.pop() {
            let new = self.nodes[id].edges.iter().filter(|(to, _)| seen.insert(*to));
            queue.extend(new.map(|(to, _)| *to));
        }
        seen
    }

    /// Returns the context and target of a node.
    pub(super) fn key(&self, id: NodeId) -> (&ImportContext, &ResolvedImport) {
        let node = &self.nodes[id];
        (&self.contexts[node.context], &node.place)
    }
}

impl NodeFile {
    fn new(path: RepoPath, blob: BlobId) -> Self {
        Self {
            path,
            blob,
            reader_import: ReaderImport::Closed,
            reads: RuntimeReads::Nothing,
        }
    }
}
