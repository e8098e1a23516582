//! The paths that are written in a working tree: at once, or when the writes are over.

use std::{
    collections::{BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::Duration,
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

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{RepoPath, file_source::WrittenPaths},
};

/// How long nothing may be written before an event is reported.
const QUIET: Duration = Duration::from_millis(150);

/// The longest time that a stream of writes delays an event.
const MOST: Duration = Duration::from_secs(2);

/// Why a working tree cannot be watched.
#[derive(Debug, thiserror::Error)]
pub(super) enum FileEventError {
    /// The system refuses to watch a folder.
    #[error("{} cannot be watched: {source}", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What the system says.
        source: Errno,
    },
    /// The folder was removed.
    #[error("{} was removed while it was watched", .0.display())]
    Removed(PathBuf),
    /// The system does not signal events.
    #[error("file events cannot be awaited: {0}")]
    Signal(Errno),
    /// The system ended the events.
    #[error("the system reports no more file events")]
    Ended,
}

/// A thread that signals the arrival of events. It ends with the process, or with the first event after the watch has ended.
fn signal_arrivals(inotify: &Arc<Inotify>) -> Result<Arc<Notify>, Errno> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    // Once for new events, however many of the earlier ones are still unread.
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

fn nothing() -> WrittenPaths {
    WrittenPaths::Known(BTreeSet::new())
}

/// Tells whether a path is of no interest.
type IgnoreRule<'a> = Box<dyn Fn(&RepoPath) -> bool + Send + Sync + 'a>;

/// The file events of a working tree, without `.git` and ignored folders. Links to folders are not followed.
pub(super) struct FileEvents<'a> {
    root: PathBuf,
    is_ignored: IgnoreRule<'a>,
    inotify: Arc<Inotify>,
    /// Signals that there are events.
    arrival: Option<Arc<Notify>>,
    folders: HashMap<WatchDescriptor, PathBuf>,
    /// What was written since it was last taken.
    written: WrittenPaths,
}

impl<'a> FileEvents<'a> {
    /// Starts to watch.
    ///
    /// # Errors
    /// The system refuses it.
    pub(super) fn start(
        root: &Path,
        is_ignored: impl Fn(&RepoPath) -> bool + Send + Sync + 'a,
    ) -> Result<Self, FileEventError> {
        let flags = InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK;
        let inotify = Inotify::init(flags).map_err(|source| FileEventError::Folder {
            folder: root.to_owned(),
            source,
        })?;
        let mut files = Self {
            root: root.to_owned(),
            is_ignored: Box::new(is_ignored),
            inotify: Arc::new(inotify),
            arrival: None,
            folders: HashMap::new(),
            written: nothing(),
        };
        files.watch(root)?;
        Ok(files)
    }

    /// What was written since the last call. A write that ended before this call is among it.
    ///
    /// # Errors
    /// The root was removed, or a new folder cannot be watched.
    pub(super) fn take_written(&mut self) -> Result<WrittenPaths, FileEventError> {
        self.read()?;
        if self.root.is_dir() {
            Ok(std::mem::replace(&mut self.written, nothing()))
        } else {
            Err(FileEventError::Removed(self.root.clone()))
        }
    }

    /// Says that what was taken last could not be read: the next answer is that anything may have been written.
    pub(super) fn lose_track(&mut self) {
        self.written = WrittenPaths::Unknown;
    }

    /// Waits until files are written, and then until nothing was written for a moment. Returns what was written since the
    /// last call.
    ///
    /// # Errors
    /// As [`FileEvents::take_written`].
    pub(super) async fn wait(&mut self) -> Result<WrittenPaths, FileEventError> {
        let arrival = match &self.arrival {
            Some(arrival) => Arc::clone(arrival),
            None => Arc::clone(
                self.arrival
                    .insert(signal_arrivals(&self.inotify).map_err(FileEventError::Signal)?),
            ),
        };
        while !self.next(&arrival).await? {}
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

    /// Reads all events that there are. Returns true if one is of a file that may have changed.
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

    /// Returns true if an event is of a file that may have changed. Watches a folder that appears.
    fn take(&mut self, event: &InotifyEvent) -> Result<bool, FileEventError> {
        // Events are missing.
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            self.written = WrittenPaths::Unknown;
            self.watch(&self.root.clone())?;
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
        // A folder becomes a repository of its own, or other files are ignored.
        let decides = match path.file_name().and_then(|name| name.to_str()) {
            Some(".git") => folder != &self.root,
            Some(".gitignore") => !self.is_outside(&path),
            _ => false,
        };
        if decides {
            self.written = WrittenPaths::Unknown;
            self.watch(&self.root.clone())?;
            return Ok(true);
        }
        if self.is_outside(&path) {
            return Ok(false);
        }
        let appears = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
        if event.mask.contains(AddWatchFlags::IN_ISDIR) && event.mask.intersects(appears) {
            self.watch(&path)?;
        }
        match (self.inside(&path), &mut self.written) {
            (Some(path), WrittenPaths::Known(written)) => drop(written.insert(path)),
            _ => self.written = WrittenPaths::Unknown,
        }
        Ok(true)
    }

    /// The path in the working tree; `None` for the root, and for a name that git cannot have here.
    fn inside(&self, path: &Path) -> Option<RepoPath> {
        let inside = path.strip_prefix(&self.root).ok()?.to_str()?;
        RepoPath::normalize(inside).filter(|path| !path.is_root())
    }

    /// Returns true for `.git`, and for what git ignores.
    fn is_outside(&self, path: &Path) -> bool {
        let inside = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
        let Some(inside) = inside.filter(|inside| !inside.is_empty()) else {
            return false;
        };
        let is_git = inside.split('/').any(|part| part == ".git");
        is_git || RepoPath::normalize(inside).is_some_and(|path| (self.is_ignored)(&path))
    }

    /// Watches a folder and those below it. One that is gone meanwhile is skipped.
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
                Err(Errno::ENOENT | Errno::ENOTDIR) if folder != self.root => continue,
                Err(source) => return Err(FileEventError::Folder { folder, source }),
            }
            let inside = fs::read_dir(&folder).into_iter().flatten().flatten();
            let below = inside.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            let below: Vec<_> = below.map(|entry| entry.path()).collect();
            waiting.extend(below.into_iter().filter(|path| !self.is_outside(path)));
        }
        Ok(())
    }
}

impl From<FileEventError> for UserError {
    fn from(error: FileEventError) -> Self {
        let hint = match &error {
            FileEventError::Folder {
                source: Errno::ENOSPC | Errno::EMFILE,
                ..
            } => {
                "the system watches too many folders: raise the limit, for example \
                 `sysctl fs.inotify.max_user_watches=524288`"
            }
            FileEventError::Folder { .. } | FileEventError::Signal(_) => {
                "`konverge affected --diff` compares once, without watching"
            }
            FileEventError::Removed(_) => "run `konverge watch` in a folder that exists",
            FileEventError::Ended => "run `konverge watch` again",
        };
        Self::new(ErrorKind::Git, error.to_string())
            .hint(hint)
            .caused_by(error)
    }
}

#[cfg(test)]
#[path = "file_events_tests.rs"]
mod tests;
