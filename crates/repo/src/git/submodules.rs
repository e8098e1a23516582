//! Lists the files of submodules below the entry of the submodule.

use std::{path::Path, sync::Arc};

use super::{object_ids::oid, pool::RepositoryPool, tree_walk::walk};
use konverge_base::model::{
    CommitId, RepoPath,
    file_source::{FileEntry, FileKind},
};

/// Adds the files of every submodule that is (or was) checked out here below its entry. Other submodules stay
/// entries without files, so a stack that needs their files cannot be resolved.
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
