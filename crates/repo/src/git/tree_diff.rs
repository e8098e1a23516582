//! Derives the file list of one git tree from that of another. Folders with the same id are not read.

use std::{collections::BTreeMap, sync::Arc};

use super::{GitError, pool::RepositoryPool, tree_walk::list};
use konverge_base::model::{
    CommitId, RepoPath,
    file_source::{FileEntry, FileKind, FileTree, Listing},
};

/// The entry of a folder in one tree: a file or a subfolder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TreeItem {
    File(FileEntry),
    Folder(git2::Oid),
}

/// A folder to compare; `None` for a tree that does not have the folder.
struct ComparedFolder {
    path: RepoPath,
    from: Option<git2::Oid>,
    to: Option<git2::Oid>,
}

/// A path with its new entry; `None` if the path was removed.
type Edit = (RepoPath, Option<FileEntry>);

/// Returns the files of `tree`, derived from those of another tree. `None` if the other tree is missing here, or if
/// there are submodules, whose files are not part of a tree.
pub(super) fn follow(
    handles: &RepositoryPool,
    commit: &CommitId,
    near: &Listing,
    tree: git2::Oid,
) -> Option<Arc<FileTree>> {
    let from = git2::Oid::from_bytes(&near.tree.0).ok()?;
    let mut edits = Vec::new();
    let followed = handles.with(|git| {
        let odb = git.odb()?;
        let mut folders = vec![ComparedFolder {
            path: RepoPath::root(),
            from: Some(from),
            to: Some(tree),
        }];
        while let Some(folder) = folders.pop() {
            if folder.from != folder.to {
                differ(&odb, commit, &folder, &mut edits, &mut folders)?;
            }
        }
        Ok(())
    });
    followed.ok()?;
    if edits.is_empty() {
        return Some(Arc::clone(&near.files));
    }
    let mut files = FileTree::clone(&near.files);
    // Removals are applied first, because a folder that replaces a file of the same name has both edits.
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
    folder: &ComparedFolder,
    edits: &mut Vec<Edit>,
    folders: &mut Vec<ComparedFolder>,
) -> Result<(), GitError> {
    let before = item_in(odb, commit, &folder.path, folder.from)?;
    let after = item_in(odb, commit, &folder.path, folder.to)?;
    let mut enter = |path: &RepoPath, from, to| {
        let path = path.clone();
        folders.push(ComparedFolder { path, from, to });
    };
    for (path, was) in &before {
        let is = after.get(path);
        if is == Some(was) {
            continue;
        }
        match (was, is) {
            (TreeItem::Folder(was), Some(TreeItem::Folder(is))) => {
                enter(path, Some(*was), Some(*is));
            }
            (TreeItem::Folder(was), _) => enter(path, Some(*was), None),
            (TreeItem::File(_), Some(TreeItem::File(_))) => {}
            (TreeItem::File(_), _) => edits.push((path.clone(), None)),
        }
    }
    for (path, is) in after {
        let was = before.get(&path);
        match is {
            _ if was == Some(&is) => {}
            TreeItem::File(entry) => edits.push((path, Some(entry))),
            TreeItem::Folder(_) if matches!(was, Some(TreeItem::Folder(_))) => {}
            TreeItem::Folder(id) => enter(&path, None, Some(id)),
        }
    }
    Ok(())
}

fn item_in(
    odb: &git2::Odb<'_>,
    commit: &CommitId,
    folder: &RepoPath,
    tree: Option<git2::Oid>,
) -> Result<BTreeMap<RepoPath, TreeItem>, GitError> {
    let Some(tree) = tree else {
        return Ok(BTreeMap::new());
    };
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    list(odb, commit, folder, tree, &mut files, &mut folders)?;
    let files = files
        .into_iter()
        .map(|(path, entry)| (path, TreeItem::File(entry)));
    let folders = folders.into_iter().map(|(path, id)| (path, TreeItem::Folder(id)));
    Ok(files.chain(folders).collect())
}
