//! [`Scratch`]: a worker's own folder, into which exactly the files of one compile are laid.
//!
//! Consecutive compiles share most of their files: only what differs is written, and what the next compile may not
//! read is taken away, with the folders that become empty (an empty folder would hide a file of that name from an
//! import).

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::model::RepoPath;

/// A folder of laid files; deleted when dropped.
#[derive(Debug)]
pub(super) struct Scratch {
    _folder: tempfile::TempDir,
    root: PathBuf,
    laid: BTreeMap<RepoPath, Arc<[u8]>>,
}

impl Scratch {
    /// An empty folder below the system's folder for temporary files.
    pub(super) fn new() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("konverge-kcl-").tempdir()?;
        let root = folder.path().canonicalize()?;
        Ok(Self {
            _folder: folder,
            root,
            laid: BTreeMap::new(),
        })
    }

    /// Where the repository's root is, all links resolved.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Makes the folder hold these files and no others; `work_dir` is there even if it is empty.
    pub(super) fn lay(&mut self, files: &[(RepoPath, Arc<[u8]>)], work_dir: &RepoPath) -> io::Result<()> {
        let wanted: BTreeMap<&RepoPath, &Arc<[u8]>> =
            files.iter().map(|(path, content)| (path, content)).collect();
        if let Some(path) = wanted.keys().find(|path| in_git(path)) {
            return Err(io::Error::other(format!("`{path}` is git's own: refused")));
        }
        let stale: Vec<RepoPath> = self
            .laid
            .iter()
            .filter(|(path, content)| !wanted.get(path).is_some_and(|new| same(new, content)))
            .map(|(path, _)| path.clone())
            .collect();
        for path in stale {
            self.laid.remove(&path);
            std::fs::remove_file(self.root.join(&path))?;
            if !wanted.contains_key(&path) {
                self.remove_empty_folders(&path);
            }
        }
        for (path, content) in wanted {
            if self.laid.contains_key(path) {
                continue;
            }
            let target = self.root.join(path);
            if let Some(folder) = target.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(&target, content)?;
            self.laid.insert(path.clone(), Arc::clone(content));
        }
        std::fs::create_dir_all(self.root.join(work_dir))
    }

    fn remove_empty_folders(&self, path: &RepoPath) {
        for folder in path.ancestors().skip(1).filter(|folder| !folder.is_root()) {
            // Fails at the first that still holds something: that is the end.
            if std::fs::remove_dir(self.root.join(&folder)).is_err() {
                break;
            }
        }
    }
}

fn same(one: &Arc<[u8]>, other: &Arc<[u8]>) -> bool {
    Arc::ptr_eq(one, other) || one == other
}

fn in_git(path: &RepoPath) -> bool {
    path.as_str()
        .split('/')
        .any(|part| part.eq_ignore_ascii_case(".git"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn files(list: &[(&str, &str)]) -> Vec<(RepoPath, Arc<[u8]>)> {
        list.iter()
            .map(|(path, text)| (RepoPath::normalise(path).unwrap(), Arc::from(text.as_bytes())))
            .collect()
    }

    fn found(root: &Path) -> Vec<String> {
        let mut all = Vec::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                all.push(path.strip_prefix(root).unwrap().display().to_string());
                if path.is_dir() {
                    folders.push(path);
                }
            }
        }
        all.sort();
        all
    }

    #[test]
    fn holds_exactly_what_was_laid_last() {
        let mut scratch = Scratch::new().unwrap();
        let root = RepoPath::root();
        scratch
            .lay(
                &files(&[("a/b/x.k", "1"), ("a/c.k", "2"), ("kcl.mod", "")]),
                &root,
            )
            .unwrap();
        scratch
            .lay(&files(&[("a/b.k", "3"), ("a/c.k", "4")]), &root)
            .unwrap();
        assert_eq!(found(scratch.root()), ["a", "a/b.k", "a/c.k"]);
        assert_eq!(
            std::fs::read_to_string(scratch.root().join("a/c.k")).unwrap(),
            "4"
        );
        // A file where a folder was, and the other way round.
        scratch.lay(&files(&[("a", "5")]), &root).unwrap();
        assert_eq!(found(scratch.root()), ["a"]);
        scratch.lay(&files(&[("a/b", "6")]), &root).unwrap();
        assert_eq!(found(scratch.root()), ["a", "a/b"]);
        let folder = scratch.root().to_owned();
        drop(scratch);
        assert!(!folder.exists());
    }

    #[test]
    fn nothing_of_git_is_laid() {
        let mut scratch = Scratch::new().unwrap();
        for path in [".git/config", "a/.GIT/config"] {
            assert!(
                scratch
                    .lay(&files(&[(path, "token")]), &RepoPath::root())
                    .is_err()
            );
        }
        assert!(found(scratch.root()).is_empty());
    }
}
