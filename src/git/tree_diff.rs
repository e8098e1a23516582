//! From the files of one tree to those of another: a folder with the same id is the same, and is not read.

use std::{collections::BTreeMap, sync::Arc};

use super::{GitError, pool::Handles, commit_source::list};
use crate::model::{
    CommitId, RepoPath,
    file_source::{FileEntry, FileKind, FileTree, Listing},
};

/// What a folder holds under one name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    File(FileEntry),
    Folder(git2::Oid),
}

/// A path, and what lies there now (`None`: no longer anything).
type Edit = (RepoPath, Option<FileEntry>);

/// The files of `tree`, by way of those of another one. `None` where that is no way: the other tree is not here any
/// more, or there are submodules, whose files no tree lists.
pub(super) fn follow(
    handles: &Handles,
    commit: &CommitId,
    near: &Listing,
    tree: git2::Oid,
) -> Option<Arc<FileTree>> {
    let from = git2::Oid::from_bytes(&near.tree.0).ok()?;
    let mut edits = Vec::new();
    let followed = handles.with(|git| {
        let odb = git.odb()?;
        let root = (RepoPath::root(), Some(from), Some(tree));
        let mut folders = vec![root];
        while let Some((folder, from, to)) = folders.pop() {
            if from != to {
                differ(&odb, commit, &folder, (from, to), &mut edits, &mut folders)?;
            }
        }
        Ok(())
    });
    followed.ok()?;
    if edits.is_empty() {
        return Some(Arc::clone(&near.files));
    }
    let mut files = FileTree::clone(&near.files);
    // What is gone first: where a file gives way to a folder of its name, both are told.
    edits.sort_by_key(|(_, entry)| entry.is_some());
    for (path, entry) in edits {
        match entry {
            Some(entry) if entry.kind == FileKind::Submodule => return None,
            Some(entry) => {
                files.insert(path, entry);
            }
            None => {
                files.remove(&path);
            }
        }
    }
    Some(Arc::new(files))
}

fn differ(
    odb: &git2::Odb<'_>,
    commit: &CommitId,
    folder: &RepoPath,
    (from, to): (Option<git2::Oid>, Option<git2::Oid>),
    edits: &mut Vec<Edit>,
    folders: &mut Vec<(RepoPath, Option<git2::Oid>, Option<git2::Oid>)>,
) -> Result<(), GitError> {
    let before = held(odb, commit, folder, from)?;
    let after = held(odb, commit, folder, to)?;
    for (path, was) in &before {
        let is = after.get(path);
        if is == Some(was) {
            continue;
        }
        match (was, is) {
            (Held::Folder(was), Some(Held::Folder(is))) => {
                folders.push((path.clone(), Some(*was), Some(*is)));
            }
            (Held::Folder(was), _) => folders.push((path.clone(), Some(*was), None)),
            (Held::File(_), Some(Held::File(_))) => {}
            (Held::File(_), _) => edits.push((path.clone(), None)),
        }
    }
    for (path, is) in after {
        let was = before.get(&path);
        match is {
            _ if was == Some(&is) => {}
            Held::File(entry) => edits.push((path, Some(entry))),
            Held::Folder(_) if matches!(was, Some(Held::Folder(_))) => {}
            Held::Folder(id) => folders.push((path, None, Some(id))),
        }
    }
    Ok(())
}

fn held(
    odb: &git2::Odb<'_>,
    commit: &CommitId,
    folder: &RepoPath,
    tree: Option<git2::Oid>,
) -> Result<BTreeMap<RepoPath, Held>, GitError> {
    let Some(tree) = tree else {
        return Ok(BTreeMap::new());
    };
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    list(odb, commit, folder, tree, &mut files, &mut folders)?;
    let files = files.into_iter().map(|(path, entry)| (path, Held::File(entry)));
    let folders = folders.into_iter().map(|(path, id)| (path, Held::Folder(id)));
    Ok(files.chain(folders).collect())
}
