//! The import graph of one revision: nodes are what an import loads (a package or a file), edges are imports. Built
//! once for all stacks, as far as they reach.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{
    EntryPoint, FileScan, RuntimeReads, ScanCache,
    core_compat::CoreRules,
    data_files,
    resolve::{ImportContext, ImportTarget, resolve},
};
use crate::{
    konfig::FileTreeView,
    model::{
        Digest, RepoPath,
        digest::DigestBuilder,
        file_source::{BlobId, FileKind, SourceError},
    },
};

pub(super) type NodeId = usize;

/// A package or file, loaded in a context.
#[derive(Debug, Clone)]
pub(super) struct PackageNode {
    pub(super) place: ImportTarget,
    pub(super) context: usize,
    /// Its `.k` files in the order in which they are loaded.
    pub(super) files: Vec<NodeFile>,
    /// What its files import: the node, and which of its files does.
    pub(super) edges: Vec<(NodeId, usize)>,
    /// Links on the way to its files and to what they import.
    pub(super) links: Vec<RepoPath>,
    /// Files, and folders with all in them, that its files may read at run time, and which file does.
    pub(super) data: Vec<(RepoPath, usize)>,
    /// Its own content, what it imports left out.
    pub(super) local: Digest,
}

#[derive(Debug, Clone)]
pub(super) struct NodeFile {
    pub(super) path: RepoPath,
    pub(super) blob: BlobId,
    /// Whether it imports a module that reads files, and what it then reads.
    pub(super) door: EntryPoint,
    pub(super) reads: RuntimeReads,
}

/// The graph.
#[derive(Clone)]
pub(super) struct ImportGraph {
    pub(super) nodes: Vec<PackageNode>,
    pub(super) contexts: Vec<ImportContext>,
    by_key: HashMap<(usize, ImportTarget), NodeId>,
    by_context: HashMap<ImportContext, usize>,
}

/// A node before its imports are known.
struct UnlinkedNode {
    id: NodeId,
    digest: DigestBuilder,
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

    /// A graph from its contexts and nodes.
    pub(super) fn from_parts(contexts: Vec<ImportContext>, nodes: Vec<PackageNode>) -> Self {
        let key = |(id, node): (usize, &PackageNode)| ((node.context, node.place.clone()), id);
        Self {
            by_key: nodes.iter().enumerate().map(key).collect(),
            by_context: contexts
                .iter()
                .cloned()
                .enumerate()
                .map(|(id, c)| (c, id))
                .collect(),
            nodes,
            contexts,
        }
    }

    /// Every number in it means something in it.
    pub(super) fn holds_together(&self) -> bool {
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

    /// The node of a place, made if it is new; the caller then calls [`ImportGraph::complete`].
    pub(super) fn node(&mut self, context: &ImportContext, place: ImportTarget) -> NodeId {
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

    pub(super) fn node_in(&mut self, context: usize, place: ImportTarget) -> NodeId {
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

    /// The node that stands for the same place in another revision's graph, where it has the number `there`. A graph
    /// that was reached from another one has the same numbers.
    pub(super) fn counterpart(
        &self,
        context: &ImportContext,
        place: &ImportTarget,
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

    /// The nodes that hold a changed file, or may read one at run time.
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

    /// Empties a node, to be filled in anew.
    pub(super) fn forget(&mut self, id: NodeId) {
        let node = &mut self.nodes[id];
        node.files.clear();
        node.edges.clear();
        node.links.clear();
        node.data.clear();
    }

    /// Fills in the nodes given and all new ones that they import, wave by wave: the files of a wave are read together.
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
            ImportTarget::File(path) => {
                digest.part(b"file");
                if let Some((path, entry)) = tree.file(path) {
                    node.files.push(NodeFile::new(path, entry.blob));
                }
            }
            ImportTarget::Package(folder) | ImportTarget::EntryFolder(folder) => {
                let hidden_too = matches!(node.place, ImportTarget::EntryFolder(_));
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
                        // A folder named like a file, or a link to nothing, breaks the load.
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
            (file.door, file.reads) = (facts.door, facts.reads.clone());
            for readable in data_files::readable(tree, rules, &path, facts.door, &facts.reads) {
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

    /// All that some nodes reach, themselves included; sorted.
    pub(super) fn reachable(&self, from: impl IntoIterator<Item = NodeId>) -> BTreeSet<NodeId> {
        let mut queue: Vec<NodeId> = from.into_iter().collect();
        let mut seen: BTreeSet<NodeId> = queue.iter().copied().collect();
        while let Some(id) = queue.pop() {
            let new = self.nodes[id].edges.iter().filter(|(to, _)| seen.insert(*to));
            queue.extend(new.map(|(to, _)| *to));
        }
        seen
    }

    /// The contexts and places of all nodes, by id.
    pub(super) fn key(&self, id: NodeId) -> (&ImportContext, &ImportTarget) {
        let node = &self.nodes[id];
        (&self.contexts[node.context], &node.place)
    }
}

impl NodeFile {
    fn new(path: RepoPath, blob: BlobId) -> Self {
        Self {
            path,
            blob,
            door: EntryPoint::Closed,
            reads: RuntimeReads::Nothing,
        }
    }
}
