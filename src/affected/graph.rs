//! The import graph of one revision: nodes are what an import loads (a package or a file), edges are imports. Built
//! once for all stacks, as far as they reach.

use std::collections::HashMap;

use super::{
    Facts, Index, Reads,
    resolve::{Context, Place, resolve},
    rules::CoreRules,
};
use crate::{
    konfig::Tree,
    model::{
        Digest, RepoPath,
        digest::DigestBuilder,
        source::{BlobId, FileKind, SourceError},
    },
};

pub(super) type NodeId = usize;

/// A package or file, loaded in a context.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) context: usize,
    /// Its `.k` files in the order in which they are loaded.
    pub(super) files: Vec<NodeFile>,
    /// What its files import: the node, and which of its files does.
    pub(super) edges: Vec<(NodeId, usize)>,
    /// Links on the way to its files and to what they import.
    pub(super) links: Vec<RepoPath>,
    /// Folders whose whole content its files may read, and which file does.
    pub(super) data: Vec<(RepoPath, usize)>,
    /// Its own content, what it imports left out.
    pub(super) local: Digest,
}

#[derive(Debug)]
pub(super) struct NodeFile {
    pub(super) path: RepoPath,
    pub(super) blob: BlobId,
}

/// The graph.
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    pub(super) contexts: Vec<Context>,
    by_key: HashMap<(usize, Place), NodeId>,
    by_context: HashMap<Context, usize>,
}

/// A node before its imports are known.
struct Draft {
    id: NodeId,
    digest: DigestBuilder,
}

impl Graph {
    pub(super) fn new() -> Self {
        Self {
            nodes: Vec::new(),
            contexts: Vec::new(),
            by_key: HashMap::new(),
            by_context: HashMap::new(),
        }
    }

    /// The node of a place, made if it is new; the caller then calls [`Graph::complete`].
    pub(super) fn node(&mut self, context: &Context, place: Place) -> NodeId {
        let context = self.context(context);
        self.node_in(context, place)
    }

    pub(super) fn context(&mut self, context: &Context) -> usize {
        if let Some(id) = self.by_context.get(context) {
            return *id;
        }
        self.contexts.push(context.clone());
        self.by_context.insert(context.clone(), self.contexts.len() - 1);
        self.contexts.len() - 1
    }

    pub(super) fn node_in(&mut self, context: usize, place: Place) -> NodeId {
        let next = self.nodes.len();
        let id = *self.by_key.entry((context, place.clone())).or_insert(next);
        if id == next {
            self.nodes.push(Node {
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

    /// The node that stands for the same place in another revision's graph.
    pub(super) fn counterpart(&self, context: &Context, place: &Place) -> Option<NodeId> {
        let context = *self.by_context.get(context)?;
        self.by_key.get(&(context, place.clone())).copied()
    }

    /// Fills in every node made so far and all that they import, wave by wave: the files of a wave are read together.
    pub(super) fn complete(
        &mut self,
        tree: &Tree,
        rules: &CoreRules,
        index: &Index,
    ) -> Result<(), SourceError> {
        let mut data = HashMap::new();
        let mut done = 0;
        while done < self.nodes.len() {
            let wave: Vec<_> = (done..self.nodes.len())
                .map(|id| self.list_files(id, tree))
                .collect();
            done = self.nodes.len();
            let blobs: Vec<BlobId> = wave
                .iter()
                .flat_map(|draft| self.nodes[draft.id].files.iter().map(|file| file.blob))
                .collect();
            let facts = index.facts(tree.source().as_ref(), &blobs)?;
            let mut facts = facts.iter();
            for draft in wave {
                let count = self.nodes[draft.id].files.len();
                let own: Vec<&Facts> = facts.by_ref().take(count).map(AsRef::as_ref).collect();
                self.follow(draft, &own, tree, rules, &mut data);
            }
        }
        Ok(())
    }

    fn list_files(&mut self, id: NodeId, tree: &Tree) -> Draft {
        let node = &mut self.nodes[id];
        let mut digest = DigestBuilder::new("konverge node 1");
        match &node.place {
            Place::File(path) => {
                digest.part(b"file");
                if let Some((path, entry)) = tree.file(path) {
                    node.files.push(NodeFile {
                        path,
                        blob: entry.blob,
                    });
                }
            }
            Place::Package(folder) | Place::EntryFolder(folder) => {
                let hidden_too = matches!(node.place, Place::EntryFolder(_));
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
                        Some((path, entry)) => node.files.push(NodeFile {
                            path,
                            blob: entry.blob,
                        }),
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
        Draft { id, digest }
    }

    fn follow(
        &mut self,
        draft: Draft,
        facts: &[&Facts],
        tree: &Tree,
        rules: &CoreRules,
        data: &mut HashMap<RepoPath, Digest>,
    ) {
        let Draft { id, mut digest } = draft;
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
            if facts.reads == Reads::Anything {
                let readable = if rules.reads_own_folder_only {
                    folder
                } else {
                    RepoPath::root()
                };
                let sum = *data
                    .entry(readable.clone())
                    .or_insert_with(|| folder_digest(tree, &readable));
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

    /// The contexts and places of all nodes, by id.
    pub(super) fn key(&self, id: NodeId) -> (&Context, &Place) {
        let node = &self.nodes[id];
        (&self.contexts[node.context], &node.place)
    }
}

/// Every file that can be read below a folder, links and what they lead to included.
pub(super) fn readable_files(tree: &Tree, folder: &RepoPath) -> Vec<(RepoPath, BlobId, FileKind)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.clone()];
    let mut seen = std::collections::HashSet::new();
    while let Some(folder) = folders.pop() {
        if !seen.insert(folder.clone()) {
            continue;
        }
        for (path, entry) in tree.below(&folder) {
            found.push((path.clone(), entry.blob, entry.kind));
            if entry.kind == FileKind::Symlink
                && let Some(target) = tree.resolve(path)
            {
                match tree.source().files().get(&target.path) {
                    Some(entry) => found.push((target.path, entry.blob, entry.kind)),
                    None => folders.push(target.path),
                }
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

fn folder_digest(tree: &Tree, folder: &RepoPath) -> Digest {
    let mut digest = DigestBuilder::new("konverge data 1");
    for (path, blob, _) in readable_files(tree, folder) {
        digest.part(path.as_str().as_bytes()).part(&blob.0);
    }
    digest.finish()
}
