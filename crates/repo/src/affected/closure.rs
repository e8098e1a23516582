//! [`Closure`]: the files that a compilation may read. Only these are copied into the core's working folder, so if the
//! analysis misses a file, the compilation fails; it never uses an outdated Spec.

use std::collections::{BTreeMap, BTreeSet};

use super::{AffectedError, Analysis, data_files, resolve::ResolvedImport};
use crate::konfig::FileTreeView;
use konverge_base::model::{
    RepoPath,
    affected::InputKind,
    file_source::{BlobId, FileKind},
    stack::Stack,
};

/// The files and folders that the compilation of a stack may read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Closure {
    /// The files, sorted by path.
    pub files: Vec<ClosureFile>,
    /// The folders that must exist even if the closure has no file in them: KCL allows the import of a folder
    /// without KCL files.
    pub folders: Vec<RepoPath>,
}

/// One file of a closure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosureFile {
    /// The path of the file.
    pub path: RepoPath,
    /// The id of the content; for a link, of its target.
    pub blob: BlobId,
    /// The kind: a regular file, or a link that stays inside the repository.
    pub kind: FileKind,
}

impl Analysis {
    /// Returns every file that the compilation of a stack may read.
    ///
    /// # Errors
    /// The stack does not belong to this revision, or its files cannot be resolved.
    pub fn closure(&self, stack: &Stack) -> Result<Closure, AffectedError> {
        compute(self, self.position(stack)?)
    }
}

fn compute(analysis: &Analysis, stack: usize) -> Result<Closure, AffectedError> {
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
    for id in analysis.graph.reachable(inputs.entries.iter().copied()) {
        let node = &analysis.graph.nodes[id];
        for file in &node.files {
            files.insert(file.path.clone(), (file.blob, FileKind::File));
        }
        files.extend(node.links.iter().filter_map(&link));
        files.extend(
            node.data
                .iter()
                .flat_map(|(readable, _)| data_files(tree, readable)),
        );
        if let ResolvedImport::Package(folder) | ResolvedImport::EntryFolder(folder) = &node.place {
            folders.insert(folder.clone());
            // A folder with the name of a KCL file makes the core fail, so the copy must have such a folder too.
            let named_like_files = tree.children(folder).into_iter();
            folders.extend(
                named_like_files
                    .filter(|(name, entry)| entry.is_none() && name.ends_with(".k"))
                    .map(|(name, _)| folder.child(&name)),
            );
        }
    }
    for (kind, path, _) in &inputs.files {
        match kind {
            // The file of an entry is in a node already. The link to it is not, but the core opens the entry by that
            // path.
            InputKind::Entry => files.extend(link(path)),
            InputKind::Module => {
                // The core looks for `kcl.mod` itself, to find the root of a package.
                if let Some((real, entry)) = tree.file(path) {
                    files.extend(link(path));
                    files.insert(real, (entry.blob, FileKind::File));
                }
            }
            _ => {}
        }
    }
    for (readable, _) in analysis.shared_reads(stack) {
        files.extend(data_files(tree, &readable));
    }
    Ok(Closure {
        files: files
            .into_iter()
            .map(|(path, (blob, kind))| ClosureFile { path, blob, kind })
            .collect(),
        folders: folders.into_iter().collect(),
    })
}

fn data_files(
    tree: &FileTreeView,
    readable: &RepoPath,
) -> impl Iterator<Item = (RepoPath, (BlobId, FileKind))> + use<> {
    let files = data_files::files(tree, readable).into_iter();
    files
        .filter(|(_, _, kind)| *kind != FileKind::Submodule)
        .map(|(path, blob, kind)| (path, (blob, kind)))
}
