//! [`WatchedTree`]: the root of a working tree, and which of its paths are reported.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use konverge_base::model::{RepoPath, file_source::WrittenPaths};

/// Time without a write after which an event is reported.
pub(super) const QUIET: Duration = Duration::from_millis(150);

/// The longest time that a stream of writes delays an event.
pub(super) const MOST: Duration = Duration::from_secs(2);

/// Returns an empty set of written paths.
pub(super) fn nothing() -> WrittenPaths {
    WrittenPaths::Known(BTreeSet::new())
}

/// Adds a path. `None` means that any file may have been written.
pub(super) fn add(written: &mut WrittenPaths, path: Option<RepoPath>) {
    match (path, written) {
        (Some(path), WrittenPaths::Known(paths)) => drop(paths.insert(path)),
        (_, written) => *written = WrittenPaths::Unknown,
    }
}

/// Returns true if a path is ignored.
type IgnoreRule<'a> = Box<dyn Fn(&RepoPath) -> bool + Send + Sync + 'a>;

/// The root of a working tree, and which of its paths are reported.
pub(super) struct WatchedTree<'a> {
    pub(super) root: PathBuf,
    is_ignored: IgnoreRule<'a>,
}

impl<'a> WatchedTree<'a> {
    pub(super) fn new(root: &Path, is_ignored: impl Fn(&RepoPath) -> bool + Send + Sync + 'a) -> Self {
        Self {
            root: root.to_owned(),
            is_ignored: Box::new(is_ignored),
        }
    }

    /// Returns true if a write to a path changes which paths are reported: a folder becomes a repository of its own, or
    /// other files are ignored.
    pub(super) fn decides(&self, path: &Path) -> bool {
        match path.file_name().and_then(|name| name.to_str()) {
            Some(".git") => path.parent() != Some(&self.root),
            Some(".gitignore") => !self.is_outside(path),
            _ => false,
        }
    }

    /// Returns a path relative to the root; `None` for the root, and for a name that git cannot store.
    pub(super) fn inside(&self, path: &Path) -> Option<RepoPath> {
        let inside = path.strip_prefix(&self.root).ok()?.to_str()?;
        RepoPath::normalize(inside).filter(|path| !path.is_root())
    }

    /// Returns true for paths in `.git`, and for paths that git ignores.
    pub(super) fn is_outside(&self, path: &Path) -> bool {
        let inside = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
        let Some(inside) = inside.filter(|inside| !inside.is_empty()) else {
            return false;
        };
        let is_git = inside.split('/').any(|part| part == ".git");
        is_git || RepoPath::normalize(inside).is_some_and(|path| (self.is_ignored)(&path))
    }
}
