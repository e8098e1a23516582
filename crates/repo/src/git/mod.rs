//! Git: finds commits, lists their files, and fetches what a shallow clone lacks.
//!
//! Objects are read in process with libgit2. Only fetching runs the `git` program, because it knows the
//! credentials that `actions/checkout` stored. This module knows nothing about Konfig. Renames are not
//! detected (a rename is a removal and an addition), except between two given folders.

mod blobs;
mod commit_source;
mod earlier_files;
mod edited_source;
mod error;
mod fetch;
mod index_source;
mod index_stamp;
mod object_ids;
mod pool;
mod remote_url;
mod renames;
mod repository;
mod scratch;
mod submodules;
mod tree_diff;
mod tree_walk;
mod worktree_source;

pub use edited_source::EditedSource;
pub use error::GitError;
pub use fetch::GitCredentials;
pub use remote_url::normalize_url;
pub use renames::CommitFolder;
pub use repository::Repository;
pub use scratch::ScratchRepository;
