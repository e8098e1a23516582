//! Finds earlier contents of files: every content that a later commit changed, removed or moved.

use std::collections::{BTreeMap, HashSet};

use super::{
    GitError,
    object_ids::{blob_id, commit_id},
    pool::RepositoryPool,
};
use konverge_base::model::{
    RepoPath,
    file_source::{BlobId, EarlierFile, FileTree, SourceError},
};

/// Returns the regular files of a commit and of all commits before it, except those of `now`. Each content of a
/// path is returned once.
pub(super) fn earlier_files(
    handles: &RepositoryPool,
    tip: git2::Oid,
    now: &FileTree,
) -> Result<Vec<EarlierFile>, SourceError> {
    let mut found = BTreeMap::new();
    let walked = handles.with(|git| walk(git, tip, &mut found));
    walked.map_err(|error| SourceError {
        what: "the history".to_owned(),
        why: error.into(),
    })?;
    let is_other = |path: &RepoPath, blob: BlobId| now.get(path).is_none_or(|entry| entry.blob != blob);
    let found = found
        .into_iter()
        .filter(|((path, blob), _)| is_other(path, *blob));
    let found = found.map(|((path, blob), commit)| EarlierFile {
        path,
        blob,
        commit: commit_id(commit),
    });
    Ok(found.collect())
}

/// Returns the earlier files of the checked-out commit; nothing if the repository has no commit.
pub(super) fn earlier_than_head(
    handles: &RepositoryPool,
    now: &FileTree,
) -> Result<Vec<EarlierFile>, SourceError> {
    let head = handles.with(|git| match git.head() {
        Ok(head) => Ok(Some(head.peel_to_commit()?.id())),
        Err(error) if error.code() == git2::ErrorCode::UnbornBranch => Ok(None),
        Err(error) => Err(error.into()),
    });
    let head = head.map_err(|error| SourceError {
        what: "HEAD".to_owned(),
        why: error.into(),
    })?;
    head.map_or_else(|| Ok(Vec::new()), |head| earlier_files(handles, head, now))
}

/// A commit that has the content, for each content of a path.
type Found = BTreeMap<(RepoPath, BlobId), git2::Oid>;

fn walk(git: &git2::Repository, tip: git2::Oid, found: &mut Found) -> Result<(), GitError> {
    let boundary = shallow_boundary(git);
    // The tip itself counts as well, because the working tree may differ from it.
    add_differences(git, tip, None, found)?;
    let (mut seen, mut commits) = (HashSet::from([tip]), vec![tip]);
    while let Some(id) = commits.pop() {
        if boundary.contains(&id.to_string()) {
            let short: String = id.to_string().chars().take(7).collect();
            return Err(GitError::Shallow(format!(
                "the commits before {short} are missing"
            )));
        }
        for parent in git.find_commit(id)?.parent_ids() {
            add_differences(git, parent, Some(id), found)?;
            if seen.insert(parent) {
                commits.push(parent);
            }
        }
    }
    Ok(())
}

/// Adds the files of a commit that another commit does not have, or has with another content.
fn add_differences(
    git: &git2::Repository,
    of: git2::Oid,
    than: Option<git2::Oid>,
    found: &mut Found,
) -> Result<(), GitError> {
    let tree = |commit| git.find_commit(commit)?.tree();
    let than = than.map(tree).transpose()?;
    let differences = git.diff_tree_to_tree(Some(&tree(of)?), than.as_ref(), None)?;
    for delta in differences.deltas() {
        let old = delta.old_file();
        let is_file = matches!(
            old.mode(),
            git2::FileMode::Blob | git2::FileMode::BlobExecutable | git2::FileMode::BlobGroupWritable
        );
        let path = old.path_bytes().and_then(|path| std::str::from_utf8(path).ok());
        if let Some(path) = path.and_then(RepoPath::normalize).filter(|_| is_file) {
            let blob = blob_id(old.id());
            found.entry((path, blob)).or_insert(of);
        }
    }
    Ok(())
}

/// Returns the commits whose parents a shallow clone lacks.
pub(super) fn shallow_boundary(git: &git2::Repository) -> HashSet<String> {
    let shallow = std::fs::read_to_string(git.commondir().join("shallow")).unwrap_or_default();
    shallow.lines().map(|line| line.trim().to_owned()).collect()
}
