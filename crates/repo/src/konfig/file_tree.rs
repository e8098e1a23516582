//! [`FileTreeView`]: the files of a revision as folders and links, as a checkout shows them.

use std::{
    collections::{HashMap, HashSet},
    ops::Bound,
    sync::{Arc, OnceLock},
};

use konverge_base::model::{
    RepoPath,
    file_source::{FileEntry, FileKind, Source, SourceError},
};

/// The maximum number of links that are followed, as in Linux (`path_resolution(7)`).
const MAX_LINKS: usize = 40;

/// The files of a revision with folder and link semantics.
pub struct FileTreeView {
    source: Arc<dyn Source>,
    links: HashSet<RepoPath>,
    module_folders: HashSet<RepoPath>,
    by_path: OnceLock<HashMap<RepoPath, FileEntry>>,
}

/// The target of a path after every link on it is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The real path.
    pub path: RepoPath,
    /// The links that were followed, in order.
    pub links: Vec<RepoPath>,
}

impl FileTreeView {
    /// Creates a view of a revision.
    pub fn new(source: Arc<dyn Source>) -> Self {
        let mut links = HashSet::new();
        let mut modules = Vec::new();
        for (path, entry) in source.files() {
            if entry.kind == FileKind::Symlink {
                links.insert(path.clone());
            }
            if path.file_name() == "kcl.mod" {
                modules.push(path.clone());
            }
        }
        let mut tree = Self {
            source,
            links,
            module_folders: HashSet::new(),
            by_path: OnceLock::new(),
        };
        tree.module_folders = modules
            .into_iter()
            .filter(|path| tree.is_file(path))
            .filter_map(|path| path.parent())
            .collect();
        tree
    }

    /// Returns the source of the files.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Announces that most files will be looked up. From now on they are found through a hash map instead of the
    /// sorted list.
    pub(super) fn will_be_read_whole(&self) {
        let all = || self.source.files().iter();
        self.by_path
            .get_or_init(|| all().map(|(path, entry)| (path.clone(), *entry)).collect());
    }

    fn entry(&self, path: &RepoPath) -> Option<&FileEntry> {
        match self.by_path.get() {
            Some(files) => files.get(path),
            None => self.source.files().get(path),
        }
    }

    /// Returns true if the root has a `kcl.mod`.
    pub fn has_module(&self) -> bool {
        !self.module_folders.is_empty()
    }

    /// Returns every folder with a `kcl.mod`.
    pub(super) fn module_folders(&self) -> impl Iterator<Item = &RepoPath> {
        self.module_folders.iter()
    }

    /// Returns the nearest folder at or above `folder` with a file `kcl.mod`: the package root. A folder that is named
    /// `kcl.mod` does not count.
    pub fn module_root(&self, folder: &RepoPath) -> Option<RepoPath> {
        let mut above = folder.as_str();
        loop {
            if let Some(root) = self.module_folders.get(above) {
                return Some(root.clone());
            }
            if above.is_empty() {
                return None;
            }
            above = above.rsplit_once('/').map_or("", |(parent, _)| parent);
        }
    }

    /// Follows every link on a path; `None` if a link leaves the repository or is part of a cycle. The path need
    /// not exist.
    pub fn resolve(&self, path: &RepoPath) -> Option<Resolved> {
        let mut resolved = Resolved {
            path: path.clone(),
            links: Vec::new(),
        };
        if self.links.is_empty() {
            return Some(resolved);
        }
        'again: for _ in 0..=MAX_LINKS {
            let text = resolved.path.as_str();
            let ends = text.match_indices('/').map(|(at, _)| at).chain([text.len()]);
            for end in ends {
                let Some(link) = self.links.get(&text[..end]) else {
                    continue;
                };
                let target = self
                    .source
                    .files()
                    .get(link)
                    .and_then(|entry| self.source.read(entry.blob).ok())?;
                let target = std::str::from_utf8(&target).ok()?;
                let next = link.parent()?.join(&format!("{target}{}", &text[end..]))?;
                resolved.links.push(link.clone());
                resolved.path = next;
                continue 'again;
            }
            return Some(resolved);
        }
        None
    }

    /// Returns true if a link leads to one of `paths`, or to a folder above one of them.
    pub(super) fn links_lead_to(&self, paths: &HashSet<RepoPath>) -> bool {
        self.links.iter().any(|link| match self.resolve(link) {
            Some(target) => paths.iter().any(|path| path.is_within(&target.path)),
            None => false,
        })
    }

    /// Returns the regular file at a path, with links followed.
    pub fn file(&self, path: &RepoPath) -> Option<(RepoPath, FileEntry)> {
        if let Some(entry) = self.entry(path)
            && entry.kind == FileKind::File
        {
            return Some((path.clone(), *entry));
        }
        if self.links.is_empty() {
            return None;
        }
        let real = self.resolve(path)?.path;
        let entry = self.entry(&real)?;
        (entry.kind == FileKind::File).then_some((real, *entry))
    }

    /// Returns true if there is a regular file at a path, with links followed.
    pub fn is_file(&self, path: &RepoPath) -> bool {
        self.file(path).is_some()
    }

    /// Returns true if there is a folder at a path, with links followed. A submodule is a folder.
    pub fn is_folder(&self, path: &RepoPath) -> bool {
        let Some(real) = self.resolve(path).map(|resolved| resolved.path) else {
            return false;
        };
        self.files_below(&real).next().is_some()
            || self
                .source
                .files()
                .get(&real)
                .is_some_and(|entry| entry.kind == FileKind::Submodule)
    }

    /// Returns the content of a file, with links followed; `None` if there is no file.
    ///
    /// # Errors
    /// The object is missing or damaged.
    pub fn read(&self, path: &RepoPath) -> Result<Option<Arc<[u8]>>, SourceError> {
        self.file(path)
            .map(|(_, entry)| self.source.read(entry.blob))
            .transpose()
    }

    /// Returns every file below a real folder, at any depth, sorted by path.
    pub fn files_below(&self, folder: &RepoPath) -> impl Iterator<Item = (&RepoPath, &FileEntry)> {
        let prefix = if folder.is_root() {
            String::new()
        } else {
            format!("{folder}/")
        };
        self.source
            .files()
            .range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded))
            .take_while(move |(path, _)| path.as_str().starts_with(&prefix))
    }

    /// Returns the direct children of a real folder: the name, and the entry of a file, link or submodule (`None` for a
    /// folder). Subfolders are skipped, not walked.
    pub fn children(&self, folder: &RepoPath) -> Vec<(String, Option<FileEntry>)> {
        let prefix = if folder.is_root() {
            String::new()
        } else {
            format!("{folder}/")
        };
        let files = self.source.files();
        let mut found = Vec::new();
        let mut from = prefix.clone();
        'seek: loop {
            for (path, entry) in files.range::<str, _>((Bound::Included(from.as_str()), Bound::Unbounded)) {
                let Some(rest) = path.as_str().strip_prefix(&prefix) else {
                    break 'seek;
                };
                match rest.split_once('/') {
                    None => found.push((rest.to_owned(), Some(*entry))),
                    Some((name, _)) => {
                        // `0` is the character after `/`, so the search continues with the first path after that
                        // folder.
                        from = format!("{prefix}{name}0");
                        found.push((name.to_owned(), None));
                        continue 'seek;
                    }
                }
            }
            break;
        }
        found
    }
}
