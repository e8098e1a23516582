//! The folders of fetched packages: their names, how they are created, verified and counted.

use std::{
    collections::HashSet,
    io,
    path::{Path, PathBuf},
    sync::{MutexGuard, PoisonError},
};

use tempfile::TempDir;

use super::{checksum, fetcher::PackageFetcher, source::PackageSource};
use crate::CacheUse;
use konverge_base::model::{digest::DigestBuilder, package_lock::is_whole_commit};

/// The pins that determine the content of a package.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Pins {
    pub checksum: Option<String>,
    /// The commit id, not abbreviated.
    pub commit: Option<String>,
}

impl Pins {
    /// Collects the pins of a lock entry, and the commit in the requirement itself.
    pub(super) fn new(checksum: Option<&str>, commit: Option<&str>, source: &PackageSource) -> Self {
        let commit = commit.filter(|id| is_whole_commit(id)).or(source.whole_commit());
        Self {
            checksum: checksum.map(str::to_owned),
            commit: commit
                .filter(|_| matches!(source, PackageSource::Git { .. }))
                .map(str::to_owned),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.checksum.is_none() && self.commit.is_none()
    }
}

impl PackageFetcher {
    /// Returns the folder for a package with these pins.
    pub(super) fn folder_of(&self, name: &str, source: &PackageSource, pins: &Pins) -> PathBuf {
        let mut key = DigestBuilder::new("kcl package 2");
        source.add_to(&mut key);
        for pin in [&pins.commit, &pins.checksum] {
            key.part(pin.as_deref().unwrap_or_default().as_bytes());
        }
        self.folder
            .join(format!("{}-{}", plain_name(name), key.finish().short()))
    }

    /// Creates an empty folder to fetch into.
    pub(super) fn fresh_folder(&self) -> io::Result<TempDir> {
        std::fs::create_dir_all(&self.folder)?;
        tempfile::Builder::new()
            .prefix(".fetching-")
            .tempdir_in(&self.folder)
    }

    /// Moves a fetched and verified package to its final folder, in one atomic step.
    pub(super) fn move_in(&self, fresh: TempDir, target: &Path) -> io::Result<()> {
        self.lock_whole().insert(target.to_owned());
        let fresh = fresh.keep();
        if let Err(error) = std::fs::rename(&fresh, target) {
            let _ = std::fs::remove_dir_all(&fresh);
            // Another process was faster. Its result is the same, so this one is dropped.
            if !target.is_dir() {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Returns true if a folder has the locked checksum. This is verified only once per run, because it reads every
    /// file.
    pub(super) fn is_whole(&self, folder: &Path, checksum: Option<&str>) -> io::Result<bool> {
        let Some(pinned) = checksum else {
            return Ok(true);
        };
        if self.lock_whole().contains(folder) {
            return Ok(true);
        }
        let whole = checksum::compute(folder)? == pinned && !checksum::has_ignored(folder)?;
        if whole {
            self.lock_whole().insert(folder.to_owned());
        }
        Ok(whole)
    }

    fn lock_whole(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.whole.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts the packages in a folder, and their bytes.
///
/// # Errors
/// The folder cannot be read. A missing folder counts as empty.
pub fn packages_use(folder: &Path) -> io::Result<CacheUse> {
    let mut all = CacheUse::default();
    for package in fetched(folder)? {
        all.entries += 1;
        checksum::walk(&package, &package, &mut |path, _| {
            all.bytes += std::fs::metadata(path)?.len();
            Ok(())
        })?;
    }
    Ok(all)
}

/// Deletes every fetched package. Returns the deleted packages and bytes.
///
/// # Errors
/// The folder cannot be read or written.
pub fn clear_packages(folder: &Path) -> io::Result<CacheUse> {
    let all = packages_use(folder)?;
    for package in fetched(folder)? {
        std::fs::remove_dir_all(package)?;
    }
    Ok(all)
}

fn fetched(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let paths: Vec<_> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    Ok(paths.into_iter().filter(|path| path.is_dir()).collect())
}

/// Returns a name in a form that can be part of a folder name.
fn plain_name(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' {
                c
            } else {
                '-'
            }
        })
        .take(60)
        .collect()
}
