//! [`Workdir`]: the working folder of a worker or a module, which contains exactly the files of one compilation.
//!
//! Consecutive compilations share most of their files, so only the differences are written. Files that the next
//! compilation may not read are removed, together with folders that become empty: an empty folder would hide
//! a file of the same name from an import.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::CompileRequest;
use konverge_base::model::RepoPath;

/// A folder with the files of one compilation. It is deleted when dropped.
#[derive(Debug)]
pub struct Workdir {
    _folder: tempfile::TempDir,
    root: PathBuf,
    laid: BTreeMap<RepoPath, WorkdirEntry>,
}

/// An entry at a path of the working folder.
#[derive(Debug, Clone, PartialEq, Eq)]
enum WorkdirEntry {
    File(Arc<[u8]>),
    Link(String),
    Folder,
}

impl Workdir {
    /// Creates an empty folder below the system's folder for temporary files.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn new() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("konverge-kcl-").tempdir()?;
        let root = folder.path().canonicalize()?;
        Ok(Self {
            _folder: folder,
            root,
            laid: BTreeMap::new(),
        })
    }

    /// Returns the real path of the folder. To the core it is the root of the repository.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes the folder contain exactly the files, links and folders of the request.
    ///
    /// # Errors
    /// A path leaves the folder, or cannot be written.
    pub fn lay(&mut self, request: &CompileRequest) -> io::Result<()> {
        let wanted = planned_entries(request)?;
        // Entries are removed from the last path to the first, so that the content of a folder is removed before the
        // folder.
        let stale: Vec<(RepoPath, WorkdirEntry)> = self
            .laid
            .iter()
            .rev()
            .filter(|(path, laid)| wanted.get(*path) != Some(*laid))
            .map(|(path, laid)| (path.clone(), laid.clone()))
            .collect();
        for (path, laid) in stale {
            self.laid.remove(&path);
            if laid == WorkdirEntry::Folder {
                // The error of a folder that is not empty is ignored: the folder stays because of its content, and no
                // longer counts as an entry.
                let _ = std::fs::remove_dir(self.root.join(&path));
            } else {
                std::fs::remove_file(self.root.join(&path))?;
            }
            self.remove_empty_folders(&path, &wanted);
        }
        for (path, laid) in wanted {
            if self.laid.contains_key(&path) {
                continue;
            }
            let target = self.root.join(&path);
            if let Some(folder) = target.parent() {
                std::fs::create_dir_all(folder)?;
            }
            match &laid {
                WorkdirEntry::File(content) => std::fs::write(&target, content)?,
                WorkdirEntry::Link(to) => std::os::unix::fs::symlink(to, &target)?,
                WorkdirEntry::Folder => std::fs::create_dir_all(&target)?,
            }
            self.laid.insert(path, laid);
        }
        Ok(())
    }

    fn remove_empty_folders(&self, path: &RepoPath, wanted: &BTreeMap<RepoPath, WorkdirEntry>) {
        for folder in path.ancestors().skip(1) {
            // `remove_dir` fails at the first folder that is not empty. The folders above it are not empty either, so
            // the loop can end.
            if folder.is_root()
                || wanted.get(&folder) == Some(&WorkdirEntry::Folder)
                || std::fs::remove_dir(self.root.join(&folder)).is_err()
            {
                break;
            }
        }
    }
}

/// Returns the entries for a request. Returns an error if a path leaves the folder.
fn planned_entries(request: &CompileRequest) -> io::Result<BTreeMap<RepoPath, WorkdirEntry>> {
    let mut wanted: BTreeMap<RepoPath, WorkdirEntry> = BTreeMap::new();
    for folder in request.folders.iter().chain([&request.setup.work_dir]) {
        if !folder.is_root() {
            wanted.insert(folder.clone(), WorkdirEntry::Folder);
        }
    }
    for (path, content) in &request.files {
        wanted.insert(path.clone(), WorkdirEntry::File(Arc::clone(content)));
    }
    for (path, target) in &request.links {
        let inside = path.parent().and_then(|folder| folder.join(target));
        if inside.is_none() {
            return Err(io::Error::other(format!(
                "the link `{path}` leads out of the repository"
            )));
        }
        // Nothing may be written through a link. In git, a path below a link cannot exist either.
        if let Some(below) = wanted
            .keys()
            .find(|other| *other != path && other.is_within(path))
        {
            return Err(io::Error::other(format!(
                "`{below}` lies below the link `{path}`"
            )));
        }
        wanted.insert(path.clone(), WorkdirEntry::Link(target.clone()));
    }
    match wanted.keys().find(|path| in_git(path)) {
        Some(path) => Err(io::Error::other(format!("`{path}` is git's own: refused"))),
        None => Ok(wanted),
    }
}

fn in_git(path: &RepoPath) -> bool {
    path.as_str()
        .split('/')
        .any(|part| part.eq_ignore_ascii_case(".git"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Vec<(RepoPath, Arc<[u8]>)> {
        list.iter()
            .map(|(path, text)| (RepoPath::normalize(path).unwrap(), Arc::from(text.as_bytes())))
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

    fn request(list: &[(&str, &str)]) -> CompileRequest {
        CompileRequest {
            files: files(list),
            ..CompileRequest::default()
        }
    }

    #[test]
    fn holds_exactly_what_was_laid_last() {
        let mut scratch = Workdir::new().unwrap();
        let mut lay = |list: &[(&str, &str)]| {
            scratch.lay(&request(list)).unwrap();
            found(scratch.root())
        };
        lay(&[("a/b/x.k", "1"), ("a/c.k", "2"), ("kcl.mod", "")]);
        assert_eq!(lay(&[("a/b.k", "3"), ("a/c.k", "4")]), ["a", "a/b.k", "a/c.k"]);
        // A file replaces a folder, and the other way round.
        assert_eq!(lay(&[("a", "5")]), ["a"]);
        assert_eq!(lay(&[("a/b", "6")]), ["a", "a/b"]);
        assert_eq!(lay(&[("a/b", "7")]), ["a", "a/b"]);
        let text = std::fs::read_to_string(scratch.root().join("a/b")).unwrap();
        assert_eq!(text, "7");
        let folder = scratch.root().to_owned();
        drop(scratch);
        assert!(!folder.exists());
    }

    #[test]
    fn folders_and_links_come_and_go() {
        let mut scratch = Workdir::new().unwrap();
        let path = |text: &str| RepoPath::normalize(text).unwrap();
        let mut with = request(&[("a/x.k", "1")]);
        with.folders = vec![path("a"), path("empty/inner")];
        with.links = vec![(path("l/k"), "../a/x.k".to_owned())];
        scratch.lay(&with).unwrap();
        assert_eq!(
            found(scratch.root()),
            ["a", "a/x.k", "empty", "empty/inner", "l", "l/k"]
        );
        // The folder is wanted, its file no longer.
        with.files.clear();
        with.links.clear();
        scratch.lay(&with).unwrap();
        assert_eq!(found(scratch.root()), ["a", "empty", "empty/inner"]);
        scratch.lay(&request(&[("empty", "now a file")])).unwrap();
        assert_eq!(found(scratch.root()), ["empty"]);
    }

    #[test]
    fn nothing_is_laid_through_a_link_or_out_of_the_folder() {
        let path = |text: &str| RepoPath::normalize(text).unwrap();
        for (file, link, target) in [
            ("l/x", "l", "a"),
            ("x", "l", "../../etc"),
            ("x", "l", "/etc"),
            ("x", "d/l", "../../etc"),
        ] {
            let mut request = request(&[(file, "1")]);
            request.links = vec![(path(link), target.to_owned())];
            let mut scratch = Workdir::new().unwrap();
            assert!(scratch.lay(&request).is_err(), "{link} -> {target}");
            assert!(found(scratch.root()).is_empty());
        }
    }

    #[test]
    fn nothing_of_git_is_laid() {
        let mut scratch = Workdir::new().unwrap();
        for path in [".git/config", "a/.GIT/config"] {
            assert!(scratch.lay(&request(&[(path, "token")])).is_err());
        }
        assert!(found(scratch.root()).is_empty());
    }
}
