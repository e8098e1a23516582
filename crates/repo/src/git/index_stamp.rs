//! [`IndexStamp`]: detects changes of the git files that describe a working tree, without reading them.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

/// The state of the files that decide which paths of a working tree are listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IndexStamp([Option<FileStamp>; 3]);

/// The identity of a file's content, as far as the file system shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl IndexStamp {
    /// Returns the current state.
    pub(super) fn take(git: &git2::Repository) -> Self {
        let common = git.commondir();
        Self([
            FileStamp::take(&git.path().join("index")),
            FileStamp::take(&common.join("info/exclude")),
            FileStamp::take(&common.join("config")),
        ])
    }
}

impl FileStamp {
    /// Returns the stamp of a file; `None` if the file does not exist.
    fn take(path: &Path) -> Option<Self> {
        let meta = fs::metadata(path).ok()?;
        Some(Self {
            inode: meta.ino(),
            bytes: meta.len(),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}
