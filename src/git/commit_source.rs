//! The files of a commit, read from its git trees without a checkout.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use super::{GitError, pool::RepositoryPool, repository::oid, tree_diff};
use crate::model::{
    CommitId, RepoPath,
    file_source::{BlobId, FileEntry, FileKind, FileTree, Listing, Source, SourceError, TreeId},
};

pub(super) struct CommitSource {
    commit: CommitId,
    tree: TreeId,
    files: Arc<FileTree>,
    handles: Arc<RepositoryPool>,
    /// True if there are submodules, checked out or not: then the tree alone does not determine the files.
    has_submodules: bool,
    submodules: Vec<Arc<RepositoryPool>>,
}

impl CommitSource {
    /// Reads the trees of a commit. If the files of another tree are known, only differing folders are read.
    pub(super) fn read(
        handles: &Arc<RepositoryPool>,
        work_dir: &Path,
        commit: &CommitId,
        near: Option<&Listing>,
    ) -> Result<Self, GitError> {
        let tree = handles.with(|git| tree_of(git, commit))?;
        if let Some(near) = near
            && let Some(files) = tree_diff::follow(handles, commit, near, tree)
        {
            let tree = tree_id(tree);
            return Ok(Self::from_listing(handles, commit, &Listing { tree, files }));
        }
        let mut files: Vec<(RepoPath, FileEntry)> = Vec::new();
        let mut submodules = Vec::new();
        walk(handles, commit, tree, &RepoPath::root(), &mut files)?;
        let has_submodules = files.iter().any(|(_, entry)| entry.kind == FileKind::Submodule);
        graft_submodules(handles, work_dir, &mut files, &mut submodules);
        Ok(Self {
            commit: commit.clone(),
            tree: tree_id(tree),
            files: Arc::new(files.into_iter().collect()),
            handles: Arc::clone(handles),
            has_submodules,
            submodules,
        })
    }

    /// A commit whose files are known.
    pub(super) fn from_listing(handles: &Arc<RepositoryPool>, commit: &CommitId, listing: &Listing) -> Self {
        Self {
            commit: commit.clone(),
            tree: listing.tree,
            files: Arc::clone(&listing.files),
            handles: Arc::clone(handles),
            has_submodules: false,
            submodules: Vec::new(),
        }
    }
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

impl Source for CommitSource {
    fn files(&self) -> &FileTree {
        &self.files
    }

    fn read(&self, blob: BlobId) -> Result<Arc<[u8]>, SourceError> {
        read_blob(&self.handles, &self.submodules, blob)
    }

    fn commit(&self) -> Option<&CommitId> {
        Some(&self.commit)
    }

    fn listing(&self) -> Option<Listing> {
        (!self.has_submodules).then(|| Listing {
            tree: self.tree,
            files: Arc::clone(&self.files),
        })
    }
}

/// Reads a blob from the repository or from a submodule.
pub(super) fn read_blob(
    handles: &RepositoryPool,
    submodules: &[Arc<RepositoryPool>],
    blob: BlobId,
) -> Result<Arc<[u8]>, SourceError> {
    let read = |handles: &RepositoryPool| {
        handles.with(|git| {
            let odb = git.odb()?;
            let object = odb.read(git2::Oid::from_bytes(&blob.0)?)?;
            Ok(Arc::from(object.data()))
        })
    };
    let first = read(handles);
    let mut answers = submodules.iter().map(|submodule| read(submodule));
    match first {
        Ok(bytes) => Ok(bytes),
        Err(error) => answers.find_map(Result::ok).ok_or_else(|| SourceError {
            what: format!("object {blob}"),
            why: if is_partial(handles) {
                WITHOUT_FILTER.to_owned()
            } else {
                error.to_string()
            },
        }),
    }
}

/// How to replace a clone without file contents.
const WITHOUT_FILTER: &str = "this is a partial clone, which lacks files. In the workflow, take the line `filter: …` \
    out under `uses: actions/checkout`; on your machine, `git fetch --refetch --no-filter origin` brings them";

/// Returns true for a partial clone (`git clone --filter`), where objects are missing on purpose.
fn is_partial(handles: &RepositoryPool) -> bool {
    let asked = handles.with(|git| Ok(git.config()?.get_bool("remote.origin.promisor")?));
    asked.unwrap_or_default()
}

/// The number of threads that walk trees: the work is decompressing small objects, and CI machines have two
/// cores.
const WALKERS: usize = 2;

/// Lists every file below a tree. With enough subtrees they are distributed to threads.
pub(super) fn walk(
    handles: &RepositoryPool,
    commit: &CommitId,
    tree: git2::Oid,
    at: &RepoPath,
    files: &mut Vec<(RepoPath, FileEntry)>,
) -> Result<(), GitError> {
    let mut level = vec![(at.clone(), tree)];
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

/// Parses one tree object: entries `<mode> <name>\0<20 bytes>` in sequence (git's tree format).
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

/// A name as UTF-8, with other bytes written as `\xff`; `None` for a name that would leave its folder or
/// enter git's own.
pub(super) fn checked_name(name: &[u8]) -> Option<String> {
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') {
        return None;
    }
    if name.eq_ignore_ascii_case(b".git") {
        return None;
    }
    Some(match std::str::from_utf8(name) {
        Ok(text) => text.to_owned(),
        Err(_) => name.escape_ascii().to_string(),
    })
}

/// Adds the files of every submodule that is (or was) checked out here below its entry. Other submodules stay
/// entries without files, and whatever needs them is unresolved.
pub(super) fn graft_submodules(
    handles: &RepositoryPool,
    work_dir: &Path,
    files: &mut Vec<(RepoPath, FileEntry)>,
    submodules: &mut Vec<Arc<RepositoryPool>>,
) {
    let found: Vec<_> = files
        .iter()
        .filter(|(_, entry)| entry.kind == FileKind::Submodule)
        .cloned()
        .collect();
    for (path, entry) in found {
        let Ok(id) = entry.blob.to_string().parse::<CommitId>() else {
            continue;
        };
        let Some(git_dir) = submodule_git_dir(handles, work_dir, &path) else {
            continue;
        };
        let submodule = Arc::new(RepositoryPool::new(&git_dir, None));
        let tree = submodule.with(|git| Ok(git.find_commit(oid(&id))?.tree_id()));
        let mut below = Vec::new();
        if let Ok(tree) = tree
            && walk(&submodule, &id, tree, &path, &mut below).is_ok()
        {
            files.extend(below);
            submodules.push(submodule);
        }
    }
}

fn submodule_git_dir(
    handles: &RepositoryPool,
    work_dir: &Path,
    path: &RepoPath,
) -> Option<std::path::PathBuf> {
    let own = handles.with(|git| Ok(git.commondir().to_owned())).ok()?;
    let candidates = [
        own.join("modules").join(path.as_str()),
        work_dir.join(path.as_str()).join(".git"),
    ];
    candidates.into_iter().find(|dir| dir.join("objects").is_dir())
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
    }
}
