//! Lists the files below a git tree, several folders in parallel.

use std::{
    borrow::Cow,
    sync::{Mutex, PoisonError},
};

use super::{GitError, pool::RepositoryPool};
use konverge_base::model::{
    CommitId, RepoPath,
    file_source::{BlobId, FileEntry, FileKind},
};

/// The number of threads that read trees. Most of the time is spent in decompressing small objects, and CI machines
/// usually have two cores.
const WALKERS: usize = 2;

/// Lists every file below a tree. If there are enough subtrees, several threads share the work.
pub(super) fn walk(
    handles: &RepositoryPool,
    commit: &CommitId,
    tree: git2::Oid,
    at: &RepoPath,
    files: &mut Vec<(RepoPath, FileEntry)>,
) -> Result<(), GitError> {
    let mut level = vec![(at.clone(), tree)];
    // One thread walks the first levels, until there are enough folders to keep several threads busy.
    while !level.is_empty() && level.len() < 64 {
        let mut next = Vec::new();
        handles.with(|git| {
            let odb = git.odb()?;
            for (folder, tree) in &level {
                list(&odb, commit, folder, *tree, files, &mut next)?;
            }
            Ok(())
        })?;
        level = next;
    }
    if level.is_empty() {
        return Ok(());
    }
    // Folders are handed out in small portions, because subtrees differ much in size.
    let queue = Mutex::new(level.chunks(8));
    let walk_some = || {
        handles.with(|git| {
            let odb = git.odb()?;
            let mut found = Vec::new();
            loop {
                let taken = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(chunk) = taken else {
                    return Ok(found);
                };
                let mut stack = chunk.to_vec();
                while let Some((folder, tree)) = stack.pop() {
                    list(&odb, commit, &folder, tree, &mut found, &mut stack)?;
                }
            }
        })
    };
    let parts: Vec<Result<Vec<_>, GitError>> = std::thread::scope(|scope| {
        let walkers: Vec<_> = (0..WALKERS).map(|_| scope.spawn(walk_some)).collect();
        walkers
            .into_iter()
            .map(|walker| {
                walker
                    .join()
                    .unwrap_or_else(|_| Err(GitError::Library("a tree walker ended early".to_owned())))
            })
            .collect()
    });
    for part in parts {
        files.extend(part?);
    }
    Ok(())
}

/// Parses one tree object, a sequence of `<mode> <name>\0<20 bytes>` (git's tree format).
pub(super) fn list(
    odb: &git2::Odb<'_>,
    commit: &CommitId,
    folder: &RepoPath,
    tree: git2::Oid,
    files: &mut Vec<(RepoPath, FileEntry)>,
    folders: &mut Vec<(RepoPath, git2::Oid)>,
) -> Result<(), GitError> {
    let object = odb.read(tree)?;
    let damaged = || GitError::Library(format!("tree {tree} is damaged"));
    let mut rest = object.data();
    while !rest.is_empty() {
        let space = rest.iter().position(|b| *b == b' ').ok_or_else(damaged)?;
        let (mode, after) = (&rest[..space], &rest[space + 1..]);
        let end = after.iter().position(|b| *b == 0).ok_or_else(damaged)?;
        let (name, after) = (&after[..end], &after[end + 1..]);
        let id: [u8; 20] = after
            .get(..20)
            .and_then(|id| id.try_into().ok())
            .ok_or_else(damaged)?;
        rest = &after[20..];
        let name = checked_name(name).ok_or_else(|| GitError::HostileName {
            revision: commit.to_string(),
            folder: folder.to_string(),
            name: name.escape_ascii().to_string(),
        })?;
        let path = folder.child(&name);
        let kind = match mode {
            b"40000" | b"040000" => {
                folders.push((path, git2::Oid::from_bytes(&id)?));
                continue;
            }
            b"120000" => FileKind::Symlink,
            b"160000" => FileKind::Submodule,
            _ => FileKind::File,
        };
        let blob = BlobId(id);
        files.push((path, FileEntry { blob, kind }));
    }
    Ok(())
}

/// Returns a name as UTF-8, with other bytes written as `\xff`; `None` for a name that would leave its folder or
/// enter `.git`.
fn checked_name(name: &[u8]) -> Option<Cow<'_, str>> {
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') {
        return None;
    }
    if name.eq_ignore_ascii_case(b".git") {
        return None;
    }
    Some(match std::str::from_utf8(name) {
        Ok(text) => text.into(),
        Err(_) => name.escape_ascii().to_string().into(),
    })
}

/// Parses a path of the index or of the working tree, and checks each of its names.
pub(super) fn checked_path(path: &[u8]) -> Result<RepoPath, GitError> {
    let names: Option<Vec<_>> = path.split(|b| *b == b'/').map(checked_name).collect();
    let hostile = || GitError::HostileName {
        revision: "the working tree".to_owned(),
        folder: ".".to_owned(),
        name: path.escape_ascii().to_string(),
    };
    Ok(RepoPath::from_kept(&names.ok_or_else(hostile)?.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_their_folder_are_refused() {
        for bad in [&b".."[..], b".", b"", b"a/b", b".git", b".GIT"] {
            assert_eq!(checked_name(bad), None, "{bad:?}");
        }
        assert_eq!(checked_name(b"caf\xc3\xa9").as_deref(), Some("caf\u{e9}"));
        assert_eq!(checked_name(b"a\xff").as_deref(), Some("a\\xff"));
        assert_eq!(checked_path(b"a/caf\xc3\xa9").unwrap().as_str(), "a/caf\u{e9}");
        for bad in [&b"a/../b"[..], b"/a", b"a//b", b"a/", b"a/.git/config"] {
            assert!(
                matches!(checked_path(bad), Err(GitError::HostileName { .. })),
                "{bad:?}"
            );
        }
    }
}
