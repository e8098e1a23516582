//! [`PackageFetcher`]: fetches the dependencies of `kcl.mod` from git repositories and OCI registries.
//!
//! Each package is fetched once into a folder that runs share, checked against the checksum of
//! `kcl.mod.lock`, and appears there complete or not at all. Each run verifies the checksum again.
//! Dependencies without a checksum are not fetched, because a stack's digest must say what was compiled. Only
//! this process uses the network; the compiler reads the folder.

mod bounds;
mod checksum;
mod fetcher;
mod git;
mod lock;
mod oci;
mod platform;
mod source;
mod trust;
mod unpack;

use std::{
    collections::{HashSet, VecDeque},
    io,
    path::{Path, PathBuf},
    sync::{MutexGuard, PoisonError},
};

use self::{
    lock::locked_package,
    source::{GitRevision, PackageSource},
};
use super::{CacheUse, KclError};
use crate::model::{digest::DigestBuilder, stack::RemotePackage};

pub use self::{
    bounds::Bounds,
    fetcher::PackageFetcher,
    platform::platform,
    trust::{KnownPackages, PackageTrust},
};

impl PackageFetcher {
    /// The folders of these packages and of their dependencies, by the names used in imports. `lock` is the
    /// text of the `kcl.mod.lock` beside the stack's `kcl.mod`.
    ///
    /// # Errors
    /// A package is not locked, cannot be fetched, or does not have its locked checksum; code from outside
    /// brings a package of its own.
    pub async fn resolve(
        &self,
        wanted: &[RemotePackage],
        lock: Option<&str>,
    ) -> Result<Vec<(String, PathBuf)>, KclError> {
        let lock: toml::Table = lock.and_then(|text| text.parse().ok()).unwrap_or_default();
        self.asker.check_wanted(wanted)?;
        let mut found: Vec<(String, PathBuf)> = Vec::new();
        let mut queue: VecDeque<RemotePackage> = wanted.iter().cloned().collect();
        while let Some(package) = queue.pop_front() {
            if found.iter().any(|(name, _)| *name == package.name) {
                continue;
            }
            self.asker.check_locked(&package.name, &lock)?;
            let folder = self.one(&package, &lock).await?;
            queue.extend(dependencies(&package.name, &folder, &lock)?);
            found.push((package.name, folder));
        }
        Ok(found)
    }

    async fn one(&self, package: &RemotePackage, lock: &toml::Table) -> Result<PathBuf, KclError> {
        let failed = |why: String| KclError::Package {
            name: package.name.clone(),
            why,
        };
        let original =
            locked_package(lock, &package.name).map_or_else(|| package.name.clone(), |(name, _)| name);
        let registry = self.environment.get("KCL_REGISTRY").map(String::as_str);
        let place = source::read(package, &original, registry)?;
        self.asker.check_place(&place).map_err(failed)?;
        let pinned = package.checksum.as_deref().filter(|sum| !sum.is_empty());
        let whole_commit = matches!(&place, PackageSource::Git { at: GitRevision::Commit(id), .. }
            if id.len() == 40 && id.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if pinned.is_none() && !whole_commit {
            return Err(KclError::NotLocked(package.name.clone()));
        }
        let mut key = DigestBuilder::new("kcl package");
        key.part(format!("{place:?}").as_bytes())
            .part(pinned.unwrap_or_default().as_bytes());
        let io = |error: std::io::Error| failed(error.to_string());
        let target = self
            .folder
            .join(format!("{}-{}", plain_name(&package.name), key.finish().short()));
        if target.is_dir() {
            if self.is_whole(&target, pinned).map_err(io)? {
                return Ok(target);
            }
            if self.offline {
                return Err(failed(format!(
                    "the content of {} does not match kcl.mod.lock; delete that folder, and run again to fetch it",
                    target.display()
                )));
            }
            std::fs::remove_dir_all(&target).map_err(io)?;
        }
        if self.offline {
            return Err(KclError::Offline(package.name.clone()));
        }
        std::fs::create_dir_all(&self.folder).map_err(io)?;
        let fresh = tempfile::Builder::new()
            .prefix(".fetching-")
            .tempdir_in(&self.folder)
            .map_err(io)?;
        match &place {
            PackageSource::Git { url, at, package } => {
                git::fetch(self, url, at, package.as_deref(), fresh.path()).await
            }
            PackageSource::Oci { repository, tag } => oci::fetch(self, repository, tag, fresh.path()).await,
        }
        .map_err(failed)?;
        checksum::remove_ignored(fresh.path()).map_err(io)?;
        if let Some(pinned) = pinned {
            let sum = checksum::compute(fresh.path()).map_err(io)?;
            if sum != pinned {
                return Err(KclError::PackageDiffers {
                    name: package.name.clone(),
                    pinned: pinned.to_owned(),
                });
            }
        }
        self.lock_whole().insert(target.clone());
        let fresh = fresh.keep();
        if let Err(error) = std::fs::rename(&fresh, &target) {
            let _ = std::fs::remove_dir_all(&fresh);
            // Another process was faster; its result is equal.
            if !target.is_dir() {
                return Err(io(error));
            }
        }
        Ok(target)
    }

    /// Returns true if a folder has the locked checksum. Verified once per run, because it reads every file.
    fn is_whole(&self, folder: &Path, pinned: Option<&str>) -> io::Result<bool> {
        let Some(pinned) = pinned else {
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
/// It cannot be read. A missing folder counts as empty.
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

/// Deletes every fetched package; returns what it deleted.
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

/// The dependencies of a fetched package: other packages of the same lock. Folders inside it are part of it.
fn dependencies(name: &str, folder: &Path, lock: &toml::Table) -> Result<Vec<RemotePackage>, KclError> {
    let Ok(text) = std::fs::read_to_string(folder.join("kcl.mod")) else {
        return Ok(Vec::new());
    };
    let module: toml::Table = text.parse().map_err(|_| KclError::Package {
        name: name.to_owned(),
        why: "its kcl.mod cannot be read".to_owned(),
    })?;
    let Some(entries) = module.get("dependencies").and_then(toml::Value::as_table) else {
        return Ok(Vec::new());
    };
    Ok(entries
        .iter()
        .filter(|(_, entry)| entry.get("path").is_none())
        .map(|(original, entry)| {
            let name = original.replace('-', "_");
            let sum = locked_package(lock, &name).and_then(|(_, entry)| entry.get("sum")?.as_str());
            RemotePackage {
                requirement: serde_json::to_string(entry).expect("TOML has a JSON form"),
                checksum: sum.map(str::to_owned),
                name,
            }
        })
        .collect())
}

/// A name as part of a folder name.
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
