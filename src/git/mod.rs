//! Git: which commits there are, what files they hold, and fetching what a shallow checkout lacks.
//!
//! Reads objects in process with libgit2; only fetching runs the `git` program, because it knows the credentials that
//! `actions/checkout` left behind. Knows nothing of Konfig: files in, files out. Renames are never guessed: a rename is
//! a removal and an addition.

mod commit_source;
mod error;
mod fetch;
mod pool;
mod remote_url;
mod repository;
mod tree_diff;
mod worktree_source;

pub use error::GitError;
pub use fetch::GitCredentials;
pub use remote_url::normalise_url;
pub use repository::Repository;
