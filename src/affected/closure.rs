//! [`Closure`]: the files that a compilation may read, to be laid out for the core. What is not in it can not be read,
//! so a gap shows as an error, never as a stale Spec.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::{AffectedError, Analysis, graph::readable_files, resolve::Place};
use crate::model::{
    RepoPath,
    affected::InputKind,
    source::{BlobId, FileKind},
};

/// All that a stack's compilation may read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Closure {
    /// Sorted by path.
    pub files: Vec<ClosureFile>,
    /// Folders that must exist even if no file of the closure lies in them: an import of a folder without KCL is legal.
    pub folders: Vec<RepoPath>,
}

/// One file to lay out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosureFile {
    /// Where.
    pub path: RepoPath,
    /// Its content; of a link, the target.
    pub blob: BlobId,
    /// A regular file, or a link that stays inside the repository.
    pub kind: FileKind,
}

pub(super) fn of(analysis: &Analysis, stack: usize) -> Result<Closure, AffectedError> {
    let inputs = &analysis.inputs[stack];
    if let Some(error) = &inputs.error {
        return Err(error.clone().into());
    }
    let tree = &analysis.tree;
    let all = tree.source().files();
    let mut files: BTreeMap<RepoPath, (BlobId, FileKind)> = BTreeMap::new();
    let mut folders = BTreeSet::new();
    let link = |path: &RepoPath| {
        let entry = all.get(path)?;
        (entry.kind == FileKind::Symlink).then(|| (path.clone(), (entry.blob, FileKind::Symlink)))
    };
    let mut seen: HashSet<_> = inputs.entries.iter().copied().collect();
    let mut queue = inputs.entries.clone();
    while let Some(id) = queue.pop() {
        let node = &analysis.graph.nodes[id];
        for file in &node.files {
            files.insert(file.path.clone(), (file.blob, FileKind::File));
        }
        files.extend(node.links.iter().filter_map(&link));
        for (folder, _) in &node.data {
            let readable = readable_files(tree, folder).into_iter();
            files.extend(
                readable
                    .filter(|(_, _, kind)| *kind != FileKind::Submodule)
                    .map(|(path, blob, kind)| (path, (blob, kind))),
            );
        }
        if let Place::Package(folder) | Place::EntryFolder(folder) = &node.place {
            folders.insert(folder.clone());
            // A folder named like a file breaks the load; it must do so in the worker's folder too.
            let named_like_files = tree.children(folder).into_iter();
            folders.extend(
                named_like_files
                    .filter(|(name, entry)| entry.is_none() && name.ends_with(".k"))
                    .map(|(name, _)| folder.child(&name)),
            );
        }
        for (to, _) in &node.edges {
            if seen.insert(*to) {
                queue.push(*to);
            }
        }
    }
    for (kind, path, _) in &inputs.files {
        match kind {
            InputKind::Entry => files.extend(link(path)),
            InputKind::Module => {
                if let Some((real, entry)) = tree.file(path) {
                    files.extend(link(path));
                    files.insert(real, (entry.blob, FileKind::File));
                }
            }
            _ => {}
        }
    }
    Ok(Closure {
        files: files
            .into_iter()
            .map(|(path, (blob, kind))| ClosureFile { path, blob, kind })
            .collect(),
        folders: folders.into_iter().collect(),
    })
}
