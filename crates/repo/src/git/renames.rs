//! Detects whether git considers a folder as renamed into another folder.

use super::{GitError, object_ids::oid, pool::RepositoryPool};
use konverge_base::model::{CommitId, RepoPath};

/// A folder of a commit.
#[derive(Debug, Clone, Copy)]
pub struct CommitFolder<'a> {
    /// The commit that has the folder.
    pub commit: &'a CommitId,
    /// The path of the folder at the commit.
    pub folder: &'a RepoPath,
}

/// Returns true if git considers a file below one folder as renamed into the other: removed here, added there, and
/// at least half of its content unchanged.
pub(super) fn is_renamed(
    handles: &RepositoryPool,
    from: CommitFolder<'_>,
    to: CommitFolder<'_>,
) -> Result<bool, GitError> {
    handles.with(|git| {
        let tree = |side: CommitFolder<'_>| git.find_commit(oid(side.commit))?.tree();
        let mut options = git2::DiffOptions::new();
        options.disable_pathspec_match(true);
        for side in [from, to] {
            options.pathspec(side.folder.as_str());
        }
        let mut diff = git.diff_tree_to_tree(Some(&tree(from)?), Some(&tree(to)?), Some(&mut options))?;
        diff.find_similar(Some(git2::DiffFindOptions::new().renames(true)))?;
        let is_below = |file: git2::DiffFile<'_>, folder: &RepoPath| {
            let path = file.path_bytes().and_then(|path| std::str::from_utf8(path).ok());
            let path = path.and_then(RepoPath::normalize);
            path.is_some_and(|path| path.is_within(folder))
        };
        Ok(diff.deltas().any(|delta| {
            delta.status() == git2::Delta::Renamed
                && is_below(delta.old_file(), from.folder)
                && is_below(delta.new_file(), to.folder)
        }))
    })
}
