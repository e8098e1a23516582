//! The files of the working tree, each with the id that git would give its content.

use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    GitError, blobs::read_blob, earlier_files::earlier_files, object_ids::blob_id, pool::RepositoryPool,
    submodules::graft_submodules, tree_walk::checked_name,
};
use konverge_base::model::{
    CommitId, RepoPath,
    file_source::{BlobId, EarlierFile, FileEntry, FileKind, FileTree, Source, SourceError},
};

/// The working tree at the moment of the listing.
pub(super) struct WorktreeSource {
    files: FileTree,
    /// The paths of contents that are in no git object.
    on_disk: HashMap<BlobId, PathBuf>,
    handles: Arc<RepositoryPool>,
    submodules: Vec<Arc<RepositoryPool>>,
}

impl WorktreeSource {
    /// Starts from the index and applies the differences on disk, so that only changed files are hashed.
    pub(super) fn read(handles: &Arc<RepositoryPool>, root: &Path) -> Result<Self, GitError> {
        let mut files: HashMap<RepoPath, FileEntry> = HashMap::new();
        let mut on_disk = HashMap::new();
        // A sparse checkout leaves these out: without a copy they are as in the index, not deleted.
        let mut left_out: HashSet<RepoPath> = HashSet::new();
        handles.with(|git| {
            let mut index = git.index()?;
            index.read(false)?;
            for entry in index.iter() {
                let kind = match entry.mode {
                    0o120000 => FileKind::Symlink,
                    0o160000 => FileKind::Submodule,
                    _ => FileKind::File,
                };
                let path = checked_path(&entry.path)?;
                let extended = git2::IndexEntryExtendedFlag::from_bits_truncate(entry.flags_extended);
                if extended.is_skip_worktree() {
                    left_out.insert(path.clone());
                }
                let blob = blob_id(entry.id);
                files.insert(path, FileEntry { blob, kind });
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
                // libgit2 ends the name of a nested repository with a slash: its files are not ours.
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
            // libgit2 does not look at them.
            for path in &left_out {
                if let Some((entry, place)) = on_disk_entry(root, path.as_str().as_bytes())? {
                    on_disk.insert(entry.blob, place);
                    files.insert(path.clone(), entry);
                }
            }
            Ok(())
        })?;
        let mut listed: Vec<_> = files.into_iter().collect();
        let mut submodules = Vec::new();
        graft_submodules(handles, root, &mut listed, &mut submodules);
        Ok(Self {
            files: listed.into_iter().collect(),
            on_disk,
            handles: Arc::clone(handles),
            submodules,
        })
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
        let failed = |why: String| SourceError {
            what: path.display().to_string(),
            why,
        };
        let bytes = match std::fs::symlink_metadata(path) {
            Ok(meta) if meta.is_symlink() => link_target(path),
            _ => std::fs::read(path),
        }
        .map_err(|error| failed(error.to_string()))?;
        match hash(&bytes) {
            Ok(now) if now == blob => Ok(bytes.into()),
            _ => Err(failed(
                "it was changed meanwhile; run the command again".to_owned(),
            )),
        }
    }

    fn commit(&self) -> Option<&CommitId> {
        None
    }

    fn earlier_files(&self) -> Result<Vec<EarlierFile>, SourceError> {
        let head = self.handles.with(|git| match git.head() {
            Ok(head) => Ok(Some(head.peel_to_commit()?.id())),
            Err(error) if error.code() == git2::ErrorCode::UnbornBranch => Ok(None),
            Err(error) => Err(error.into()),
        });
        let head = head.map_err(|error| SourceError {
            what: "HEAD".to_owned(),
            why: error.to_string(),
        })?;
        match head {
            Some(head) => earlier_files(&self.handles, head, &self.files),
            None => Ok(Vec::new()),
        }
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

fn checked_path(path: &[u8]) -> Result<RepoPath, GitError> {
    path.split(|b| *b == b'/')
        .try_fold(RepoPath::root(), |folder, name| {
            checked_name(name).map(|name| folder.child(&name))
        })
        .ok_or_else(|| GitError::HostileName {
            revision: "the working tree".to_owned(),
            folder: ".".to_owned(),
            name: path.escape_ascii().to_string(),
        })
}

fn hash(bytes: &[u8]) -> Result<BlobId, GitError> {
    Ok(blob_id(git2::Oid::hash_object(git2::ObjectType::Blob, bytes)?))
}
