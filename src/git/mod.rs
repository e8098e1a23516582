//! Git: which commits there are, what files they hold, and fetching what a shallow checkout lacks.
//!
//! Reads objects in process with libgit2; only fetching runs the `git` program, because it knows the credentials that
//! `actions/checkout` left behind. Knows nothing of Konfig: files in, files out. Renames are never guessed: a rename is
//! a removal and an addition.

mod difference;
mod error;
mod fetch;
mod handles;
mod origin;
mod repository;
mod revision;
mod worktree;

pub use error::GitError;
pub use fetch::Credentials;
pub use origin::normalise_url;
pub use repository::Repository;
