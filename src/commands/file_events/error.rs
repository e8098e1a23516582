//! [`FileEventError`]: why a working tree cannot be watched.

use std::path::PathBuf;

use konverge_base::error::{ErrorKind, UserError};
use nix::errno::Errno;

/// Reasons why a working tree cannot be watched.
#[derive(Debug, thiserror::Error)]
#[cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "only a kernel that names writes can refuse to")
)]
pub(in crate::commands) enum FileEventError {
    /// The system refuses to watch a folder.
    #[error("{} cannot be watched: {source}", folder.display())]
    Folder {
        /// The folder that is not watched.
        folder: PathBuf,
        /// The error of the system.
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

impl From<FileEventError> for UserError {
    fn from(error: FileEventError) -> Self {
        let hint = match &error {
            FileEventError::Folder {
                source: Errno::ENOSPC | Errno::EMFILE,
                ..
            } => {
                "the limit of watched folders is reached: raise it, for example \
                 `sysctl fs.inotify.max_user_watches=524288`"
            }
            FileEventError::Folder { .. } | FileEventError::Signal(_) => {
                "`konverge affected --diff` compares once, without watching"
            }
            FileEventError::Removed(_) => "run `konverge watch` in a folder that exists",
            FileEventError::Ended => "run `konverge watch` again",
        };
        Self::new(ErrorKind::Git, error.to_string()).hint(hint)
    }
}
