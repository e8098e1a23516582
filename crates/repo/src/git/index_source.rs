//! The files of the index, which the next commit will hold.

use std::{path::Path, sync::Arc};

use super::{
    GitError, blobs::read_blob, earlier_files::earlier_than_head, object_ids::blob_id, pool::RepositoryPool,
    submodules::graft_submodules, tree_walk::checked_path,
};
use konverge_base::model::{
    CommitId, RepoPath,
    file_source::{BlobId, EarlierFile, FileEntry, FileKind, FileTree, Source, SourceError},
};

/// The index at the moment of the listing. All its contents are git objects.
pub(super) struct IndexSource {
    files: FileTree,
    handles: Arc<RepositoryPool>,
    submodules: Vec<Arc<RepositoryPool>>,
}

/// An entry of the index.
pub(super) struct IndexedFile {
    pub path: RepoPath,
    pub entry: FileEntry,
    /// True if a sparse checkout leaves it out.
    pub is_left_out: bool,
    /// True if a commit would not hold it: `git add --intent-to-add`.
    is_intended: bool,
    /// True if it is one side of a conflict.
    is_conflict: bool,
}

impl IndexSource {
    /// Reads the index of the repository, or another file: for `git commit PATH` git makes one of its own.
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

/// Opens an index that git made beside the one of the repository. An index of another repository has other objects, and
/// a missing one would be an empty commit: both are refused.
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
            // The stage stands in two bits of the flags: git's index-format(5).
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

    fn commit(&self) -> Option<&CommitId> {
        None
    }

    fn earlier_files(&self) -> Result<Vec<EarlierFile>, SourceError> {
        earlier_than_head(&self.handles, &self.files)
    }
}
