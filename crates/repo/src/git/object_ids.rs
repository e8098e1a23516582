//! Commit, tree and blob ids between this crate's types and libgit2's.

use super::GitError;
use konverge_base::model::{
    CommitId,
    file_source::{BlobId, TreeId},
};

pub(super) fn oid(commit: &CommitId) -> git2::Oid {
    git2::Oid::from_str(commit.as_str()).expect("a CommitId has 40 hexadecimal digits")
}

pub(super) fn commit_id(oid: git2::Oid) -> CommitId {
    oid.to_string()
        .parse()
        .expect("an object id prints as 40 hexadecimal digits")
}

pub(super) fn tree_of(git: &git2::Repository, commit: &CommitId) -> Result<git2::Oid, GitError> {
    let found = git
        .find_commit(oid(commit))
        .map_err(|_| GitError::UnknownRevision(commit.to_string()))?;
    Ok(found.tree_id())
}

pub(super) fn tree_id(id: git2::Oid) -> TreeId {
    let mut bytes = [0; 20];
    bytes.copy_from_slice(id.as_bytes());
    TreeId(bytes)
}

pub(super) fn blob_id(oid: git2::Oid) -> BlobId {
    let mut id = [0; 20];
    id.copy_from_slice(oid.as_bytes());
    BlobId(id)
}
