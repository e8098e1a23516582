//! [`FileEvents`] for systems that do not report written paths: the tree is listed, and compared with the earlier
//! listing.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    fs::{self, Metadata},
    hash::{Hash as _, Hasher as _},
    os::unix::{ffi::OsStringExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::Instant;

use super::{
    error::FileEventError,
    watched_tree::{MOST, QUIET, WatchedTree, add, nothing},
};
use konverge_base::model::{RepoPath, file_source::WrittenPaths};

/// The time between two listings, unless a listing takes long.
const PAUSE: Duration = Duration::from_millis(300);

/// Listings take at most one part in `PART` of the time.
const PART: u32 = 10;

/// The assumed resolution of file timestamps: a file may be written twice within this time and have the same timestamp.
const TICK: Duration = Duration::from_millis(50);

/// The file events of a working tree, without `.git` and ignored folders. Links to folders are not followed.
pub(in crate::commands) struct FileEvents<'a> {
    tree: WatchedTree<'a>,
    known: Listing,
    /// The paths that were written since they were last taken.
    written: WrittenPaths,
}

/// The entries of a tree, by path.
type Listing = BTreeMap<PathBuf, Entry>;

/// The properties of an entry that a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// A folder. Its children have entries of their own.
    Folder,
    /// A file or a link. `content` is the hash of a file that was written shortly before it was listed: a later write
    /// within the same tick would leave the metadata as it is.
    File { stamp: Stamp, content: Option<u64> },
}

/// Metadata that a write changes, unless the clock stands still. No program can set `changed` back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    mode: u32,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl<'a> FileEvents<'a> {
    /// Starts the watch.
    ///
    /// # Errors
    /// The root does not exist.
    pub(in crate::commands) fn start(
        root: &Path,
        is_ignored: impl Fn(&RepoPath) -> bool + Send + Sync + 'a,
    ) -> Result<Self, FileEventError> {
        let tree = WatchedTree::new(root, is_ignored);
        Ok(Self {
            known: list(&tree)?,
            tree,
            written: nothing(),
        })
    }

    /// Returns the paths that were written since the last call. A write that ended before this call is among them.
    ///
    /// # Errors
    /// The root was removed.
    pub(in crate::commands) fn take_written(&mut self) -> Result<WrittenPaths, FileEventError> {
        self.compare()?;
        Ok(std::mem::replace(&mut self.written, nothing()))
    }

    /// Discards the knowledge about what was written: the next call reports that any file may have been written.
    pub(in crate::commands) fn lose_track(&mut self) {
        self.written = WrittenPaths::Unknown;
    }

    /// Waits until files are written, and then until nothing was written for a moment. Returns what was written since
    /// the last call.
    ///
    /// # Errors
    /// The same as for [`FileEvents::take_written`].
    pub(in crate::commands) async fn wait(&mut self) -> Result<WrittenPaths, FileEventError> {
        let mut pause = PAUSE;
        loop {
            let begin = Instant::now();
            if self.compare()? {
                break;
            }
            // A large tree takes long to list. Wait in proportion, so that the watch does not use up the machine.
            pause = pause.max(begin.elapsed() * PART);
            tokio::time::sleep(pause).await;
        }
        let last = Instant::now() + MOST;
        loop {
            tokio::time::sleep(QUIET).await;
            if !self.compare()? || Instant::now() > last {
                break;
            }
        }
        self.take_written()
    }

    /// Lists the tree again. Returns true if a file may have changed.
    fn compare(&mut self) -> Result<bool, FileEventError> {
        let now = list(&self.tree)?;
        let before = std::mem::replace(&mut self.known, now);
        let now = &self.known;
        let appeared_or_changed = now.iter().filter(|(path, entry)| {
            let known = before.get(*path);
            known.is_none_or(|known| known.differs(entry, path))
        });
        let removed = before.keys().filter(|path| !now.contains_key(*path));
        let mut is_written = false;
        for path in appeared_or_changed.map(|(path, _)| path).chain(removed) {
            if self.tree.decides(path) {
                self.written = WrittenPaths::Unknown;
            } else if self.tree.is_outside(path) {
                continue;
            } else {
                add(&mut self.written, self.tree.inside(path));
            }
            is_written = true;
        }
        Ok(is_written)
    }
}

/// Lists a tree.
fn list(tree: &WatchedTree<'_>) -> Result<Listing, FileEventError> {
    if !tree.root.is_dir() {
        return Err(FileEventError::Removed(tree.root.clone()));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut listing = Listing::new();
    let mut waiting = vec![tree.root.clone()];
    while let Some(folder) = waiting.pop() {
        // Skip an entry that no longer exists.
        for found in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(metadata) = found.metadata() else { continue };
            let (path, is_git) = (found.path(), found.file_name() == ".git");
            if is_git && folder == tree.root {
                continue;
            }
            if metadata.is_dir() && !is_git {
                if tree.is_outside(&path) {
                    continue;
                }
                waiting.push(path.clone());
            }
            let entry = Entry::read(&path, &metadata, now);
            listing.insert(path, entry);
        }
    }
    Ok(listing)
}

impl Entry {
    fn read(path: &Path, found: &Metadata, now: Duration) -> Self {
        if found.is_dir() {
            return Self::Folder;
        }
        let stamp = Stamp {
            device: found.dev(),
            inode: found.ino(),
            mode: found.mode(),
            size: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        };
        let is_fresh = stamp.changed_at() + TICK >= now;
        Self::File {
            stamp,
            content: if is_fresh { hash_of(path, found) } else { None },
        }
    }

    /// Returns true if the entry of a path differs from its earlier entry.
    fn differs(&self, now: &Self, path: &Path) -> bool {
        match (self, now) {
            (Self::Folder, Self::Folder) => false,
            (Self::File { stamp, content }, Self::File { stamp: later, .. }) => {
                let is_other =
                    || fs::symlink_metadata(path).map_or(true, |found| hash_of(path, &found) != *content);
                stamp != later || content.is_some() && is_other()
            }
            (Self::Folder, Self::File { .. }) | (Self::File { .. }, Self::Folder) => true,
        }
    }
}

impl Stamp {
    fn changed_at(&self) -> Duration {
        let part = |number: i64| u64::try_from(number).unwrap_or_default();
        Duration::from_secs(part(self.changed.0)) + Duration::from_nanos(part(self.changed.1))
    }
}

/// Returns the hash of a file's content or of a link's target; `None` for other entries, and for those that no longer
/// exist.
fn hash_of(path: &Path, found: &Metadata) -> Option<u64> {
    let content = if found.is_symlink() {
        fs::read_link(path).ok()?.into_os_string().into_vec()
    } else if found.is_file() {
        fs::read(path).ok()?
    } else {
        return None;
    };
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    Some(hasher.finish())
}

#[cfg(test)]
#[path = "tests.rs"]
#[allow(clippy::duplicate_mod, reason = "each kind of file events has the same tests")]
mod tests;
