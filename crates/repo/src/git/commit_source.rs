//! The files of a commit, read from its git trees without a checkout.

use std::{path::Path, sync::Arc};

use super::{
    GitError,
    blobs::read_blob,
    earlier_files::earlier_files,
    object_ids::{oid, tree_id, tree_of},
    pool::RepositoryPool,
    submodules::graft_submodules,
    tree_diff,
    tree_walk::walk,
};
use konverge_base::model::{
    CommitId, RepoPath,
    file_source::{BlobId, EarlierFile, FileEntry, FileKind, FileTree, Listing, Source, SourceError, TreeId},
};

pub(super) struct CommitSource {
    commit: CommitId,
    tree: TreeId,
    files: Arc<FileTree>,
    handles: Arc<RepositoryPool>,
    /// True if the commit has submodules, checked out or not: then its tree alone does not determine the files.
    has_submodules: bool,
    submodules: Vec<Arc<RepositoryPool>>,
}

impl CommitSource {
    /// Reads the trees of a commit. If the files of another tree are known, only the folders that differ are read.
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

    /// Creates the source of a commit whose files are known already.
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

    fn earlier_files(&self) -> Result<Vec<EarlierFile>, SourceError> {
        earlier_files(&self.handles, oid(&self.commit), &self.files)
    }

    fn listing(&self) -> Option<Listing> {
        (!self.has_submodules).then(|| Listing {
            tree: self.tree,
            files: Arc::clone(&self.files),
        })
    }
}
