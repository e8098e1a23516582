//! The files of the working tree, each with the blob id that git would give its content.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ops::Bound,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    GitError, blobs::read_blob, earlier_files::earlier_than_head, index_source::IndexedFile,
    index_stamp::IndexStamp, object_ids::blob_id, pool::RepositoryPool, submodules::graft_submodules,
    tree_walk::checked_path,
};
use konverge_base::{
    error::SharedError,
    model::{
        RepoPath,
        file_source::{BlobId, EarlierFile, FileEntry, FileKind, FileTree, Source, SourceError},
    },
};

/// The files of the working tree when they were listed.
pub(super) struct WorktreeSource {
    files: FileTree,
    /// The path of each content that is not a git object, by its blob id.
    on_disk: HashMap<BlobId, PathBuf>,
    handles: Arc<RepositoryPool>,
    submodules: Vec<Arc<RepositoryPool>>,
    root: PathBuf,
    /// The stamp of the index when the files were listed.
    stamp: IndexStamp,
    /// True if a sparse checkout excludes files.
    is_sparse: bool,
}

impl WorktreeSource {
    /// Reads the files: starts with the index and applies the differences on disk, so that only changed files are
    /// hashed.
    pub(super) fn read(handles: &Arc<RepositoryPool>, root: &Path) -> Result<Self, GitError> {
        let mut files: HashMap<RepoPath, FileEntry> = HashMap::new();
        let mut on_disk = HashMap::new();
        // A sparse checkout excludes these files. Without a copy on disk they count as in the index, not as deleted.
        let mut left_out: HashSet<RepoPath> = HashSet::new();
        let stamp = handles.with(|git| {
            // The stamp is taken before the index is read: a change in between then makes the next comparison fail,
            // which only costs a whole listing.
            let stamp = IndexStamp::take(git);
            let mut index = git.index()?;
            index.read(false)?;
            for file in index.iter().map(|entry| IndexedFile::new(&entry)) {
                let file = file?;
                if file.is_left_out {
                    left_out.insert(file.path.clone());
                }
                files.insert(file.path, file.entry);
            }
            let mut options = git2::DiffOptions::new();
            options
                .include_untracked(true)
                .recurse_untracked_dirs(true)
                .include_typechange(true)
                .ignore_submodules(true);
            let diff = git.diff_index_to_workdir(Some(&index), Some(&mut options))?;
            for delta in diff.deltas() {
                let Some(name) = delta.new_file().path_bytes().or(delta.old_file().path_bytes()) else {
                    continue;
                };
                // libgit2 reports a nested repository with a slash at the end. Its files do not belong to this one.
                if name.ends_with(b"/") {
                    continue;
                }
                let path = checked_path(name)?;
                match on_disk_entry(root, name)? {
                    Some((entry, place)) => {
                        on_disk.insert(entry.blob, place);
                        files.insert(path, entry);
                    }
                    None if left_out.contains(&path) => {}
                    None => {
                        files.remove(&path);
                    }
                }
            }
            // libgit2 ignores the excluded files, so those that exist on disk are read here.
            for path in &left_out {
                if let Some((entry, place)) = on_disk_entry(root, path.as_str().as_bytes())? {
                    on_disk.insert(entry.blob, place);
                    files.insert(path.clone(), entry);
                }
            }
            Ok(stamp)
        })?;
        let mut listed: Vec<_> = files.into_iter().collect();
        let mut submodules = Vec::new();
        graft_submodules(handles, root, &mut listed, &mut submodules);
        Ok(Self {
            files: listed.into_iter().collect(),
            on_disk,
            handles: Arc::clone(handles),
            submodules,
            root: root.to_owned(),
            stamp,
            is_sparse: !left_out.is_empty(),
        })
    }

    /// Returns the working tree after these paths were written; `None` if all of it must be listed again.
    fn after(&self, written: &BTreeSet<RepoPath>) -> Result<Option<Self>, GitError> {
        let is_known = !self.is_sparse && written.iter().all(|path| self.is_alone(path));
        if !is_known {
            return Ok(None);
        }
        let (mut files, mut on_disk) = (self.files.clone(), self.on_disk.clone());
        let mut stale = HashSet::new();
        let is_listed = self.handles.with(|git| {
            // Another git command changed the index, so other paths than the written ones may differ.
            if IndexStamp::take(git) != self.stamp {
                return Ok(false);
            }
            let index = git.index()?;
            for path in written {
                // The old entry goes in any case: the file may be deleted or ignored now.
                stale.extend(files.remove(path).map(|entry| entry.blob));
                let is_tracked = index.get_path(path.as_str().as_ref(), 0).is_some();
                if !is_tracked && git.is_path_ignored(path.as_str())? {
                    continue;
                }
                if let Some((entry, place)) = on_disk_entry(&self.root, path.as_str().as_bytes())? {
                    on_disk.insert(entry.blob, place);
                    files.insert(path.clone(), entry);
                }
            }
            Ok(true)
        })?;
        if !is_listed {
            return Ok(None);
        }
        // The earlier content of a written file stays in the listing if another file still has that content.
        stale.retain(|blob| on_disk.remove(blob).is_some());
        if !stale.is_empty() {
            let same = files.iter().filter(|(_, entry)| stale.contains(&entry.blob));
            on_disk.extend(same.map(|(path, entry)| (entry.blob, self.root.join(path.as_str()))));
        }
        Ok(Some(Self {
            files,
            on_disk,
            handles: Arc::clone(&self.handles),
            submodules: self.submodules.clone(),
            root: self.root.clone(),
            stamp: self.stamp.clone(),
            is_sparse: false,
        }))
    }

    /// Returns true if a write to this path has no effect on other paths: it neither is nor was a folder, is in no
    /// nested repository, and does not change which files git ignores or converts.
    fn is_alone(&self, path: &RepoPath) -> bool {
        if path.is_root() || matches!(path.file_name(), ".gitignore" | ".gitattributes" | ".gitmodules") {
            return false;
        }
        let place = self.root.join(path.as_str());
        let is_folder = std::fs::symlink_metadata(&place).is_ok_and(|meta| meta.is_dir());
        let below = format!("{path}/");
        let was_folder = self
            .files
            .range::<str, _>((Bound::Included(below.as_str()), Bound::Unbounded))
            .next()
            .is_some_and(|(other, _)| other.as_str().starts_with(&below));
        let is_submodule = |path: &RepoPath| {
            let entry = self.files.get(path);
            entry.is_some_and(|entry| entry.kind == FileKind::Submodule)
        };
        let is_elsewhere = path.ancestors().filter(|above| !above.is_root()).any(|above| {
            above != *path
                && (self.files.contains_key(&above) || self.root.join(above.as_str()).join(".git").exists())
        });
        !is_folder && !was_folder && !is_submodule(path) && !is_elsewhere
    }
}

impl Source for WorktreeSource {
    fn files(&self) -> &FileTree {
        &self.files
    }

    fn read(&self, blob: BlobId) -> Result<Arc<[u8]>, SourceError> {
        let Some(path) = self.on_disk.get(&blob) else {
            return read_blob(&self.handles, &self.submodules, blob);
        };
        let failed = |why: SharedError| SourceError {
            what: path.display().to_string(),
            why,
        };
        let bytes = match std::fs::symlink_metadata(path) {
            Ok(meta) if meta.is_symlink() => link_target(path),
            _ => std::fs::read(path),
        }
        .map_err(|error| failed(error.into()))?;
        match hash(&bytes) {
            Ok(now) if now == blob => Ok(bytes.into()),
            _ => Err(failed("it was changed meanwhile; run the command again".into())),
        }
    }

    fn after_writes(&self, written: &BTreeSet<RepoPath>) -> Option<Arc<dyn Source>> {
        // An error is ignored here: the listing of the whole tree will report it.
        Some(Arc::new(self.after(written).ok()??))
    }

    fn earlier_files(&self) -> Result<Vec<EarlierFile>, SourceError> {
        earlier_than_head(&self.handles, &self.files)
    }
}

fn on_disk_entry(root: &Path, name: &[u8]) -> Result<Option<(FileEntry, PathBuf)>, GitError> {
    use std::os::unix::ffi::OsStrExt as _;
    let place = root.join(std::ffi::OsStr::from_bytes(name));
    let failed = |source| GitError::Io {
        path: place.display().to_string(),
        source,
    };
    let Ok(meta) = std::fs::symlink_metadata(&place) else {
        return Ok(None);
    };
    let (kind, bytes) = if meta.is_symlink() {
        (FileKind::Symlink, link_target(&place).map_err(failed)?)
    } else if meta.is_file() {
        (FileKind::File, std::fs::read(&place).map_err(failed)?)
    } else {
        return Ok(None);
    };
    let blob = hash(&bytes)?;
    Ok(Some((FileEntry { blob, kind }, place)))
}

fn link_target(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt as _;
    Ok(std::fs::read_link(path)?.into_os_string().into_vec())
}

fn hash(bytes: &[u8]) -> Result<BlobId, GitError> {
    Ok(blob_id(git2::Oid::hash_object(git2::ObjectType::Blob, bytes)?))
}
