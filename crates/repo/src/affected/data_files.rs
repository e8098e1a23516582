//! Data files: files that KCL code may read while it is evaluated, without an import.

use std::collections::HashSet;

use super::{ReaderImport, RuntimeReads, core_compat::CoreRules};
use crate::konfig::FileTreeView;
use konverge_base::model::{
    Digest, RepoPath,
    digest::DigestBuilder,
    file_source::{BlobId, FileKind},
};

/// Returns the paths that a KCL file may read: the files that it names, or whole folders.
pub(super) fn readable(
    tree: &FileTreeView,
    rules: &CoreRules,
    reader: &RepoPath,
    door: ReaderImport,
    reads: &RuntimeReads,
) -> Vec<RepoPath> {
    let folder = reader.parent().unwrap_or_default();
    let named = match (door, reads) {
        (ReaderImport::Closed, _) | (ReaderImport::Open, RuntimeReads::Nothing) => return Vec::new(),
        (ReaderImport::Open, RuntimeReads::Named(names)) if rules.reads_own_folder_only => names
            .iter()
            .map(|name| plainly_below(tree, &folder, name))
            .collect(),
        _ => None,
    };
    named.unwrap_or_else(|| {
        vec![if rules.reads_own_folder_only {
            folder
        } else {
            RepoPath::root()
        }]
    })
}

/// Returns the path of a named file; `None` if the path leaves the folder or contains a link.
fn plainly_below(tree: &FileTreeView, folder: &RepoPath, name: &str) -> Option<RepoPath> {
    let path = folder.join(name).filter(|_| !name.contains(".."))?;
    let straight = tree.resolve(&path)?.links.is_empty();
    straight.then_some(path)
}

/// Returns a file, or every file below a folder, including links and their targets.
pub(super) fn files(tree: &FileTreeView, readable: &RepoPath) -> Vec<(RepoPath, BlobId, FileKind)> {
    let all = tree.source().files();
    let mut found = Vec::new();
    if let Some(entry) = all.get(readable) {
        found.push((readable.clone(), entry.blob, entry.kind));
    }
    let mut folders = vec![readable.clone()];
    let mut seen = HashSet::new();
    while let Some(folder) = folders.pop() {
        if !seen.insert(folder.clone()) {
            continue;
        }
        for (path, entry) in tree.files_below(&folder) {
            found.push((path.clone(), entry.blob, entry.kind));
            if entry.kind == FileKind::Symlink
                && let Some(target) = tree.resolve(path)
            {
                match all.get(&target.path) {
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

/// Returns the digest over everything that can be read at a path.
pub(super) fn digest(tree: &FileTreeView, readable: &RepoPath) -> Digest {
    let mut digest = DigestBuilder::new("konverge data 1");
    for (path, blob, _) in files(tree, readable) {
        digest.part(path.as_str().as_bytes()).part(&blob.0);
    }
    digest.finish()
}
