//! The files of one revision (a git tree or the working tree), read without a checkout.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use derive_more::{Debug, Display};
use serde::{Deserialize, Serialize};

use super::{CommitId, RepoPath};
use crate::error::{ErrorKind, SharedError, UserError};

/// Git's object id of a file's content (SHA-1 of `blob <size>\0<content>`). It is computed for files of the
/// working tree too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Debug, Display)]
#[debug("{self}")]
#[display("{}", hex::encode(_0))]
pub struct BlobId(pub [u8; 20]);

/// The kind of an entry of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A symbolic link. Its content is the target.
    Symlink,
    /// A submodule. Its id is a commit of another repository.
    Submodule,
}

/// One entry of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// The id of the content.
    pub blob: BlobId,
    /// The kind of the entry.
    pub kind: FileKind,
}

/// All files of a revision by path, sorted. As in git, a folder exists only if it contains files.
pub type FileTree = BTreeMap<RepoPath, FileEntry>;

/// Git's id of a folder. Equal ids mean equal files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TreeId(pub [u8; 20]);

/// Every file of one git tree.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Listing {
    /// The id of the tree.
    pub tree: TreeId,
    /// The files of the tree, without the files of submodules.
    pub files: Arc<FileTree>,
}

/// The error for content that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot read {what}")]
pub struct SourceError {
    /// The path or the blob id that cannot be read.
    pub what: String,
    /// The reason why the source cannot be read.
    #[source]
    pub why: SharedError,
}

impl From<SourceError> for UserError {
    fn from(error: SourceError) -> Self {
        Self::from_error(ErrorKind::Git, error)
    }
}

/// A file as it was in an earlier commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierFile {
    /// The path of the file.
    pub path: RepoPath,
    /// The id of the file's content in that commit.
    pub blob: BlobId,
    /// A commit that has the file with this content.
    pub commit: CommitId,
}

/// The paths that were written in a working tree since it was last read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WrittenPaths {
    /// Exactly these paths were written.
    Known(BTreeSet<RepoPath>),
    /// It is unknown which paths were written.
    Unknown,
}

/// The files of a readable revision: the tree of a commit, or the working tree. `crates/repo/src/git/` creates it;
/// `crates/repo/src/konfig/`, `crates/repo/src/affected/` and `crates/run/src/` read it.
pub trait Source: Send + Sync {
    /// Returns all files.
    fn files(&self) -> &FileTree;

    /// Returns the content of a file, by the id from [`Source::files`].
    ///
    /// # Errors
    /// The object is missing (a partial clone) or damaged.
    fn read(&self, blob: BlobId) -> Result<Arc<[u8]>, SourceError>;

    /// Returns the commit; `None` for the working tree and for the index.
    fn commit(&self) -> Option<&CommitId> {
        None
    }

    /// Returns the tree that the files come from. `None` for the working tree, and if the files include those of
    /// submodules.
    fn listing(&self) -> Option<Listing> {
        None
    }

    /// Returns the working tree after these paths were written; `None` if all of it must be read again.
    fn after_writes(&self, _written: &BTreeSet<RepoPath>) -> Option<Arc<dyn Source>> {
        None
    }

    /// Returns every other content that a regular file had in an earlier commit, including files that were removed or
    /// moved since.
    ///
    /// # Errors
    /// The local history is not complete.
    fn earlier_files(&self) -> Result<Vec<EarlierFile>, SourceError> {
        Ok(Vec::new())
    }

    /// Returns the content of a regular file by path; `None` if the path is not a regular file.
    ///
    /// # Errors
    /// Errors of [`Source::read`].
    fn read_path(&self, path: &RepoPath) -> Result<Option<Arc<[u8]>>, SourceError> {
        match self.files().get(path) {
            Some(entry) if entry.kind == FileKind::File => self.read(entry.blob).map(Some),
            _ => Ok(None),
        }
    }
}
