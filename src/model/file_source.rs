//! The files of one revision, as data: what git (or the working tree) holds at a moment, without a checkout.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::{CommitId, RepoPath};

/// Git's object id of a file's content (SHA-1 of `blob <size>\0<content>`), also computed for working-tree files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobId(pub [u8; 20]);

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a tree entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A symbolic link; its content is the target.
    Symlink,
    /// A submodule; its id is a commit of another repository.
    Submodule,
}

/// One file of a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileEntry {
    /// The content's id.
    pub blob: BlobId,
    /// Regular file, link or submodule.
    pub kind: FileKind,
}

/// All files of a revision by path, sorted. Folders exist only through their files, as in git.
pub type FileTree = BTreeMap<RepoPath, FileEntry>;

/// Git's id of a folder: equal ids hold equal files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TreeId(pub [u8; 20]);

/// Every file of one git tree.
#[derive(Debug, Clone)]
pub struct Listing {
    /// The tree.
    pub tree: TreeId,
    /// Its files, none of them a submodule's.
    pub files: Arc<FileTree>,
}

/// A content could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("could not read {what}: {why}")]
pub struct SourceError {
    /// The path or blob id.
    pub what: String,
    /// The cause.
    pub why: String,
}

/// A revision that can be read: a commit's tree or the working tree. Made by `git/`, read by `konfig/`, `affected/`
/// and `ops/`.
pub trait Source: Send + Sync {
    /// Every file.
    fn files(&self) -> &FileTree;

    /// A file's content by the id that stands in [`Source::files`].
    ///
    /// # Errors
    /// The object is missing (a partial clone) or damaged.
    fn read(&self, blob: BlobId) -> Result<Arc<[u8]>, SourceError>;

    /// The commit, or `None` for the working tree.
    fn commit(&self) -> Option<&CommitId>;

    /// The tree whose files these are; `None` for the working tree, and where files of submodules are among them.
    fn listing(&self) -> Option<Listing> {
        None
    }

    /// A regular file's content by path, `None` if there is no regular file.
    ///
    /// # Errors
    /// As [`Source::read`].
    fn read_path(&self, path: &RepoPath) -> Result<Option<Arc<[u8]>>, SourceError> {
        match self.files().get(path) {
            Some(entry) if entry.kind == FileKind::File => self.read(entry.blob).map(Some),
            _ => Ok(None),
        }
    }
}
