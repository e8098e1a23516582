//! Waits until files of a working tree are written, and until the writes are over.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor},
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    time::{Instant, timeout_at},
};

use konverge_base::{
    error::{ErrorKind, UserError},
    model::RepoPath,
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
    /// The system ended the events.
    #[error("the system reports no more file events")]
    Ended,
}

/// Tells whether a path is of no interest.
type IgnoreRule<'a> = Box<dyn Fn(&RepoPath) -> bool + Send + Sync + 'a>;

/// The file events of a working tree, without `.git` and ignored folders. Links to folders are not followed.
pub(super) struct FileEvents<'a> {
    root: PathBuf,
    is_ignored: IgnoreRule<'a>,
    inotify: Arc<Inotify>,
    folders: HashMap<WatchDescriptor, PathBuf>,
    events: UnboundedReceiver<InotifyEvent>,
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
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC).map_err(|source| FileEventError::Folder {
            folder: root.to_owned(),
            source,
        })?;
        let inotify = Arc::new(inotify);
        let (sender, events) = unbounded_channel();
        let reader = Arc::clone(&inotify);
        // It ends with the process, or with the first event after the watch has ended.
        std::thread::spawn(move || {
            while let Ok(events) = reader.read_events() {
                if events.into_iter().any(|event| sender.send(event).is_err()) {
                    return;
                }
            }
        });
        let mut files = Self {
            root: root.to_owned(),
            is_ignored: Box::new(is_ignored),
            inotify,
            folders: HashMap::new(),
            events,
        };
        files.watch(root)?;
        Ok(files)
    }

    /// Waits until files are written, and then until nothing was written for a moment.
    ///
    /// # Errors
    /// The root was removed, or a new folder cannot be watched.
    pub(super) async fn wait(&mut self) -> Result<(), FileEventError> {
        loop {
            let event = self.events.recv().await.ok_or(FileEventError::Ended)?;
            if self.take(&event)? {
                break;
            }
        }
        let last = Instant::now() + MOST;
        let mut until = Instant::now() + QUIET;
        while let Ok(event) = timeout_at(until.min(last), self.events.recv()).await {
            if self.take(&event.ok_or(FileEventError::Ended)?)? {
                until = Instant::now() + QUIET;
            }
        }
        match self.root.is_dir() {
            true => Ok(()),
            false => Err(FileEventError::Removed(self.root.clone())),
        }
    }

    /// Returns true if an event is of a file that may have changed. Watches a folder that appears.
    fn take(&mut self, event: &InotifyEvent) -> Result<bool, FileEventError> {
        // Events are missing.
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
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
        if self.is_outside(&path) {
            return Ok(false);
        }
        let appears = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO;
        if event.mask.contains(AddWatchFlags::IN_ISDIR) && event.mask.intersects(appears) {
            self.watch(&path)?;
        }
        Ok(true)
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
            FileEventError::Folder { .. } => "`konverge affected --diff` compares once, without watching",
            FileEventError::Removed(_) => "run `konverge watch` in a folder that exists",
            FileEventError::Ended => "run `konverge watch` again",
        };
        Self::new(ErrorKind::Git, error.to_string())
            .hint(hint)
            .caused_by(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(root: &Path) -> FileEvents<'static> {
        FileEvents::start(root, |path| path.as_str() == "target").unwrap()
    }

    #[tokio::test]
    async fn a_write_is_seen_at_any_depth_and_in_new_folders() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        let mut events = of(&root);
        fs::write(root.join("a/b/x.k"), "a = 1\n").unwrap();
        events.wait().await.unwrap();
        fs::create_dir_all(root.join("c/d")).unwrap();
        events.wait().await.unwrap();
        fs::write(root.join("c/d/x.k"), "a = 1\n").unwrap();
        events.wait().await.unwrap();
        fs::write(root.join("kcl.mod"), "").unwrap();
        events.wait().await.unwrap();
    }

    #[tokio::test]
    async fn reading_and_ignored_folders_are_no_event() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for inside in [".git", "target", "a"] {
            fs::create_dir(root.join(inside)).unwrap();
        }
        fs::write(root.join("a/x.k"), "a = 1\n").unwrap();
        let mut events = of(&root);
        fs::write(root.join(".git/index"), "x").unwrap();
        fs::write(root.join("target/x"), "x").unwrap();
        fs::read(root.join("a/x.k")).unwrap();
        fs::create_dir_all(root.join(".git/objects/aa")).unwrap();
        // The last event is the only one that counts.
        fs::write(root.join("a/y.k"), "a = 1\n").unwrap();
        loop {
            let event = events.events.recv().await.unwrap();
            if events.take(&event).unwrap() {
                assert_eq!(event.name.as_deref(), Some("y.k".as_ref()));
                break;
            }
        }
    }

    #[tokio::test]
    async fn a_root_that_is_removed_is_an_error_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap().join("repository");
        fs::create_dir(&root).unwrap();
        let mut events = of(&root);
        fs::remove_dir(&root).unwrap();
        let failure = UserError::from(events.wait().await.unwrap_err());
        assert!(
            failure.message.contains("was removed") && !failure.hints.is_empty(),
            "{failure:?}"
        );
    }
}
