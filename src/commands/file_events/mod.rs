//! The paths that are written in a working tree, reported at once or after the writes have paused.
//!
//! Linux reports them by inotify; on other systems the tree is listed repeatedly. The tests run on both
//! implementations.

mod error;
#[cfg(target_os = "linux")]
mod inotify;
#[cfg(any(test, not(target_os = "linux")))]
mod polling;
mod watched_tree;

#[cfg(target_os = "linux")]
pub(super) use self::inotify::FileEvents;
#[cfg(not(target_os = "linux"))]
pub(super) use self::polling::FileEvents;
