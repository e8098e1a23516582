//! [`ResolvedFiles`]: the files below a folder as a checkout shows them, with links followed.

use std::collections::{BTreeMap, HashSet};

use super::{FileTreeView, Resolved};
use konverge_base::model::{
    RepoPath,
    file_source::{BlobId, FileKind},
};

/// The files below a folder, with links followed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResolvedFiles {
    /// The regular files, sorted by the path at which they are visible.
    pub files: Vec<ResolvedFile>,
    /// The links that were followed, with the ids of their contents.
    pub links: Vec<(RepoPath, BlobId)>,
    /// The paths of dangling links and of submodules that are not checked out.
    pub nowhere: Vec<RepoPath>,
}

/// A file, which may be visible at another path than its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResolvedFile {
    /// The path at which the file is visible.
    pub path: RepoPath,
    /// The real path of the file.
    pub real: RepoPath,
    /// The id of the content.
    pub blob: BlobId,
}

impl FileTreeView {
    /// Returns the files below a folder as a checkout shows them, if `wanted` is true for their visible
    /// path. A file is returned once, preferably at its own path, and each real folder is visited once, because links
    /// may form a cycle.
    pub fn resolve_files(&self, folder: &RepoPath, wanted: impl Fn(&RepoPath) -> bool) -> ResolvedFiles {
        let mut shown = ResolvedFiles::default();
        let mut files: BTreeMap<RepoPath, ResolvedFile> = BTreeMap::new();
        let mut take = |path: RepoPath, real: &RepoPath, blob: BlobId| {
            if wanted(&path) && (path == *real || !files.contains_key(real)) {
                let real = real.clone();
                files.insert(real.clone(), ResolvedFile { path, real, blob });
            }
        };
        let all = self.source().files();
        let is_empty = |folder: &RepoPath| self.files_below(folder).next().is_none();
        let mut met = HashSet::new();
        let mut waiting = vec![(folder.clone(), folder.clone())];
        while let Some((seen_at, path)) = waiting.pop() {
            let Some(Resolved { path: real, links }) = self.resolve(&path) else {
                shown.nowhere.push(seen_at);
                continue;
            };
            let links = links.into_iter();
            shown.links.extend(links.filter_map(|link| {
                let target = all.get(&link)?.blob;
                Some((link, target))
            }));
            let entry = all.get(&real);
            match entry.filter(|entry| entry.kind == FileKind::File) {
                Some(file) => take(seen_at, &real, file.blob),
                None if is_empty(&real) => {
                    // A folder that does not exist is not an error.
                    if entry.is_some() || path != real {
                        shown.nowhere.push(seen_at);
                    }
                }
                None if !met.insert(real.clone()) => {}
                None => {
                    for (path, entry) in self.files_below(&real) {
                        let inside = path.as_str().strip_prefix(real.as_str()).unwrap_or_default();
                        let Some(seen_at) = seen_at.join(inside.trim_start_matches('/')) else {
                            continue;
                        };
                        match entry.kind {
                            FileKind::File => take(seen_at, path, entry.blob),
                            FileKind::Symlink => waiting.push((seen_at, path.clone())),
                            FileKind::Submodule if is_empty(path) => shown.nowhere.push(seen_at),
                            FileKind::Submodule => {}
                        }
                    }
                }
            }
        }
        shown.files = files.into_values().collect();
        shown.files.sort();
        shown.nowhere.sort();
        shown
    }
}
