//! The paths that are written in a working tree: at once, or when the writes are over.
//!
//! Linux names them; elsewhere the tree is looked at again and again. The tests run on both.

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
