//! A pool of libgit2 repository handles. Threads cannot share a handle, so each reader gets one of its
//! own.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use super::GitError;

/// The open handles of one repository, which are opened as needed and reused.
pub(super) struct RepositoryPool {
    git_dir: PathBuf,
    work_dir: Option<PathBuf>,
    free: Mutex<Vec<git2::Repository>>,
}

impl RepositoryPool {
    pub(super) fn new(git_dir: &Path, work_dir: Option<&Path>) -> Self {
        Self {
            git_dir: git_dir.to_owned(),
            work_dir: work_dir.map(Path::to_owned),
            free: Mutex::default(),
        }
    }

    /// Calls `read` with a handle that no other thread uses.
    pub(super) fn with<T>(
        &self,
        read: impl FnOnce(&git2::Repository) -> Result<T, GitError>,
    ) -> Result<T, GitError> {
        let taken = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let handle = match taken {
            Some(handle) => handle,
            None => self.open()?,
        };
        let answer = read(&handle);
        self.free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(handle);
        answer
    }

    /// Opens the git folder that was found by `repository.rs`, which also checked its owner. Opening it as
    /// a bare repository and then setting the working tree does not check the owner again.
    fn open(&self) -> Result<git2::Repository, GitError> {
        let repository = git2::Repository::open_bare(&self.git_dir)?;
        if let Some(work_dir) = &self.work_dir {
            repository.set_workdir(work_dir, false)?;
        }
        Ok(repository)
    }
}
