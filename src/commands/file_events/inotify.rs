//! [`FileEvents`] on Linux: inotify reports the written paths.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
};

use nix::{
    errno::Errno,
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor},
    },
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{
    error::FileEventError,
    watched_tree::{MOST, QUIET, WatchedTree, add, nothing},
};
use konverge_base::model::{RepoPath, file_source::WrittenPaths};

/// Starts a thread that signals the arrival of events. It ends with the process, or at the first event after the watch
/// has ended.
fn signal_arrivals(inotify: &Arc<Inotify>) -> Result<Arc<Notify>, Errno> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    // Edge-triggered: new events give one signal, even if earlier events are still unread.
    let new_events = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0);
    epoll.add(inotify, new_events)?;
    let arrival = Arc::new(Notify::new());
    let (watched, inotify): (Weak<Notify>, _) = (Arc::downgrade(&arrival), Arc::clone(inotify));
    std::thread::spawn(move || {
        let _open = inotify;
        let mut events = [EpollEvent::empty()];
        loop {
            match epoll.wait(&mut events, EpollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return,
            }
            let Some(arrival) = watched.upgrade() else {
                return;
            };
            arrival.notify_one();
        }
    });
    Ok(arrival)
}

/// The file events of a working tree, without `.git` and ignored folders. Links to folders are not followed.
pub(in crate::commands) struct FileEvents<'a> {
    tree: WatchedTree<'a>,
    inotify: Arc<Inotify>,
    /// Signals that there are events.
    arrival: Option<Arc<Notify>>,
    folders: HashMap<WatchDescriptor, PathBuf>,
    /// The paths that were written since they were last taken.
    written: WrittenPaths,
}

impl<'a> FileEvents<'a> {
    /// Starts to watch.
    ///
    /// # Errors
    /// The system refuses the watch.
    pub(in crate::commands) fn start(
        root: &Path,
        is_ignored: impl Fn(&RepoPath) -> bool + Send + Sync + 'a,
    ) -> Result<Self, FileEventError> {
        let flags = InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK;
        let inotify = Inotify::init(flags).map_err(|source| FileEventError::Folder {
            folder: root.to_owned(),
            source,
        })?;
        let mut files = Self {
            tree: WatchedTree::new(root, is_ignored),
            inotify: Arc::new(inotify),
            arrival: None,
            folders: HashMap::new(),
            written: nothing(),
        };
        files.watch(root)?;
        Ok(files)
    }

    /// Returns the paths that were written since the last call. A write that ended before this call is among them.
    ///
    /// # Errors
    /// The root was removed, or a new folder cannot be watched.
    pub(in crate::commands) fn take_written(&mut self) -> Result<WrittenPaths, FileEventError> {
        self.read()?;
        if self.tree.root.is_dir() {
            Ok(std::mem::replace(&mut self.written, nothing()))
        } else {
            Err(FileEventError::Removed(self.tree.root.clone()))
        }
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
        let arrival = match &self.arrival {
            Some(arrival) => Arc::clone(arrival),
            None => Arc::clone(
                self.arrival
                    .insert(signal_arrivals(&self.inotify).map_err(FileEventError::Signal)?),
            ),
        };
        while !self.next(&arrival).await? {}
        // An editor writes in several steps. Wait until there was no event for a moment, but not for ever.
        let last = Instant::now() + MOST;
        let mut until = Instant::now() + QUIET;
        while let Ok(is_written) = timeout_at(until.min(last), self.next(&arrival)).await {
            if is_written? {
                until = Instant::now() + QUIET;
            }
        }
        self.take_written()
    }

    /// Waits for events. Returns true if one is of a file that may have changed.
    async fn next(&mut self, arrival: &Notify) -> Result<bool, FileEventError> {
        arrival.notified().await;
        self.read()
    }

    /// Reads all pending events. Returns true if one is of a file that may have changed.
    fn read(&mut self) -> Result<bool, FileEventError> {
        let mut is_written = false;
        loop {
            match self.inotify.read_events() {
                Ok(events) => {
                    for event in events {
                        is_written |= self.take(&event)?;
                    }
                }
                Err(Errno::EAGAIN) => return Ok(is_written),
                Err(Errno::EINTR) => {}
                Err(_) => return Err(FileEventError::Ended),
            }
        }
    }

    /// Handles one event. Returns true if a file may have changed. Watches a folder that appears.
    fn take(&mut self, event: &InotifyEvent) -> Result<bool, FileEventError> {
        // The queue was full, so events are missing: watch and compare everything again.
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            self.written = WrittenPaths::Unknown;
            self.watch(&self.tree.root.clone())?;
            return Ok(true);
        }
        let Some(folder) = self.folders.get(&event.wd) else {
            return Ok(false);
        };
        if event.mask.contains(AddWatchFlags::IN_IGNORED) {
            self.folders.remove(&event.wd);
            return Ok(false);
        }
        let path = match &event.name {
            Some(name) => folder.join(name),
            None => folder.clone(),
        };
        // The ignore rules have changed, so folders that were ignored may have to be watched now.
        if self.tree.decides(&path) {
            self.written = WrittenPaths::Unknown;
            self.watch(&self.tree.root.clone())?;
            return Ok(true);
        }
        if self.tree.is_outside(&path) {
            return Ok(false);
        }
        let appears = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
        if event.mask.contains(AddWatchFlags::IN_ISDIR) && event.mask.intersects(appears) {
            self.watch(&path)?;
        }
        add(&mut self.written, self.tree.inside(&path));
        Ok(true)
    }

    /// Watches a folder and the folders below it. A folder that no longer exists is skipped.
    fn watch(&mut self, folder: &Path) -> Result<(), FileEventError> {
        let flags = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        let mut waiting = vec![folder.to_owned()];
        while let Some(folder) = waiting.pop() {
            match self.inotify.add_watch(&folder, flags) {
                Ok(id) => drop(self.folders.insert(id, folder.clone())),
                Err(Errno::ENOENT | Errno::ENOTDIR) if folder != self.tree.root => continue,
                Err(source) => return Err(FileEventError::Folder { folder, source }),
            }
            let inside = fs::read_dir(&folder).into_iter().flatten().flatten();
            let below = inside.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            let below: Vec<_> = below.map(|entry| entry.path()).collect();
            waiting.extend(below.into_iter().filter(|path| !self.tree.is_outside(path)));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests.rs"]
#[allow(clippy::duplicate_mod, reason = "each kind of file events has the same tests")]
mod tests;
