//! The files of the index, which the next commit will contain.

use std::{path::Path, sync::Arc};

use super::{
    GitError, blobs::read_blob, earlier_files::earlier_than_head, object_ids::blob_id, pool::RepositoryPool,
    submodules::graft_submodules, tree_walk::checked_path,
};
use konverge_base::model::{
    RepoPath,
    file_source::{BlobId, EarlierFile, FileEntry, FileKind, FileTree, Source, SourceError},
};

/// The files of the index when they were listed. All contents are git objects.
pub(super) struct IndexSource {
    files: FileTree,
    handles: Arc<RepositoryPool>,
    submodules: Vec<Arc<RepositoryPool>>,
}

/// A file in git's index.
pub(super) struct IndexedFile {
    pub path: RepoPath,
    pub entry: FileEntry,
    /// True if a sparse checkout excludes the file from the working tree.
    pub is_left_out: bool,
    /// True if a commit would not contain the file yet (`git add --intent-to-add`).
    is_intended: bool,
    /// True if the entry is one side of a conflict.
    is_conflict: bool,
}

impl IndexSource {
    /// Reads the index of the repository, or the index in `file`: for `git commit PATH`, git creates a separate index.
    pub(super) fn read(
        handles: &Arc<RepositoryPool>,
        root: &Path,
        file: Option<&Path>,
    ) -> Result<Self, GitError> {
        let mut listed = handles.with(|git| {
            let index = match file {
                Some(file) => open_of(git, &root.join(file))?,
                None => {
                    let mut index = git.index()?;
                    index.read(false)?;
                    index
                }
            };
            let mut listed = Vec::with_capacity(index.len());
            for file in index.iter().map(|entry| IndexedFile::new(&entry)) {
                let file = file?;
                if file.is_conflict {
                    return Err(GitError::Conflict(file.path.to_string()));
                }
                if !file.is_intended {
                    listed.push((file.path, file.entry));
                }
            }
            Ok(listed)
        })?;
        let mut submodules = Vec::new();
        graft_submodules(handles, root, &mut listed, &mut submodules);
        Ok(Self {
            files: listed.into_iter().collect(),
            handles: Arc::clone(handles),
            submodules,
        })
    }
}

/// Opens a separate index of this repository. Refuses an index of another repository, whose objects do not exist here,
/// and a missing file, which would look like an empty commit.
fn open_of(git: &git2::Repository, path: &Path) -> Result<git2::Index, GitError> {
    let other = || GitError::OtherIndex(path.display().to_string());
    let real = path.canonicalize().map_err(|_| other())?;
    let own = git.path().canonicalize().map_err(|_| other())?;
    if real.parent() == Some(&own) {
        Ok(git2::Index::open(&real)?)
    } else {
        Err(other())
    }
}

impl IndexedFile {
    pub(super) fn new(entry: &git2::IndexEntry) -> Result<Self, GitError> {
        let kind = match entry.mode {
            0o120000 => FileKind::Symlink,
            0o160000 => FileKind::Submodule,
            _ => FileKind::File,
        };
        let extended = git2::IndexEntryExtendedFlag::from_bits_truncate(entry.flags_extended);
        Ok(Self {
            path: checked_path(&entry.path)?,
            entry: FileEntry {
                blob: blob_id(entry.id),
                kind,
            },
            is_left_out: extended.is_skip_worktree(),
            is_intended: extended.is_intent_to_add(),
            // The stage has two bits in the flags, see git's index-format(5).
            is_conflict: entry.flags & 0x3000 != 0,
        })
    }
}

impl Source for IndexSource {
    fn files(&self) -> &FileTree {
        &self.files
    }

    fn read(&self, blob: BlobId) -> Result<Arc<[u8]>, SourceError> {
        read_blob(&self.handles, &self.submodules, blob)
    }

    fn earlier_files(&self) -> Result<Vec<EarlierFile>, SourceError> {
        earlier_than_head(&self.handles, &self.files)
    }
}
