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
    Ok(find_commit(git, commit)?.tree_id())
}

/// Returns a commit of the repository.
pub(super) fn find_commit<'g>(
    git: &'g git2::Repository,
    commit: &CommitId,
) -> Result<git2::Commit<'g>, GitError> {
    git.find_commit(oid(commit))
        .map_err(|_| GitError::UnknownRevision(commit.to_string()))
}

pub(super) fn tree_id(id: git2::Oid) -> TreeId {
    TreeId(blob_id(id).0)
}

pub(super) fn blob_id(oid: git2::Oid) -> BlobId {
    let mut id = [0; 20];
    id.copy_from_slice(oid.as_bytes());
    BlobId(id)
}
