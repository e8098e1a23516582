//! Resolves the packages of a stack: pinned ones by their pins, others by the current content of their source.

use std::{collections::VecDeque, path::Path};

use tempfile::TempDir;

use super::{
    checksum,
    fetcher::PackageFetcher,
    git, oci,
    package_folder::Pins,
    resolved_package::{ResolvedPackage, UnlockedPackage},
    source::{self, GitRevision, PackageSource},
    trust::PackageTrust,
};
use crate::KclError;
use konverge_base::{
    error::SharedError,
    model::{package_lock::PackageLock, stack::RemotePackage},
    variables,
};

/// The choice of lock entries to replace.
#[derive(Debug, Clone, Copy)]
pub(super) enum Renewal<'a> {
    /// No entry is replaced: an entry that does not match `kcl.mod` is an error.
    Nothing,
    /// The entries that do not match `kcl.mod`, and the entries of these packages.
    Stale(&'a [String]),
}

impl Renewal<'_> {
    /// Returns true if the entry of a package must be replaced.
    pub(super) fn is_of(self, package: &RemotePackage, source: &PackageSource) -> bool {
        match self {
            Self::Nothing => false,
            Self::Stale(renewed) => {
                source.lock_difference(package).is_some()
                    || renewed.iter().any(|name| name.replace('-', "_") == package.name)
            }
        }
    }
}

impl PackageFetcher {
    /// Returns the packages of a stack and their dependencies.
    ///
    /// # Errors
    /// A package cannot be fetched, does not have its locked checksum, or has the lock entry of another version; code
    /// from outside needs a package that its target branch does not have; an offline run, or code from outside, needs a
    /// package that no lock pins.
    pub async fn resolve(
        &self,
        wanted: &[RemotePackage],
        lock: &PackageLock,
    ) -> Result<Vec<ResolvedPackage>, KclError> {
        let found = self.resolve_each(wanted, lock, Renewal::Nothing).await?;
        Ok(found.into_iter().map(|(_, resolved)| resolved).collect())
    }

    /// Resolves packages like [`PackageFetcher::resolve`], and returns each with its requirement.
    pub(super) async fn resolve_each(
        &self,
        wanted: &[RemotePackage],
        lock: &PackageLock,
        renewal: Renewal<'_>,
    ) -> Result<Vec<(RemotePackage, ResolvedPackage)>, KclError> {
        // The trust is checked before any request: code from outside must not make the runner contact a server of its
        // choice.
        self.asker.check_wanted(wanted)?;
        let mut found: Vec<(RemotePackage, ResolvedPackage)> = Vec::new();
        let mut queue: VecDeque<RemotePackage> = wanted.iter().cloned().collect();
        while let Some(package) = queue.pop_front() {
            if found.iter().any(|(known, _)| known.name == package.name) {
                continue;
            }
            self.asker.check_locked(&package.name, lock)?;
            let resolved = self.resolve_one(&package, renewal).await?;
            queue.extend(dependencies(&package.name, &resolved.folder, lock)?);
            found.push((package, resolved));
        }
        Ok(found)
    }

    async fn resolve_one(
        &self,
        package: &RemotePackage,
        renewal: Renewal<'_>,
    ) -> Result<ResolvedPackage, KclError> {
        let source = source::read(package, self.registry())?;
        self.asker
            .check_place(&source)
            .map_err(|why| failure(package, why))?;
        let pins = match (source.lock_difference(package), renewal) {
            (Some((asked, locked)), Renewal::Nothing) => {
                return Err(KclError::LockDiffers {
                    name: package.name.clone(),
                    asked,
                    locked,
                });
            }
            _ if renewal.is_of(package, &source) => Pins::new(None, None, &source),
            _ => {
                let locked = &package.locked;
                Pins::new(locked.checksum.as_deref(), locked.commit.as_deref(), &source)
            }
        };
        if pins.is_empty() {
            self.look_up(package, source).await
        } else {
            self.fetch_pinned(package, &source, &pins).await
        }
    }

    /// Returns a pinned package, and fetches it if it is missing.
    async fn fetch_pinned(
        &self,
        package: &RemotePackage,
        source: &PackageSource,
        pins: &Pins,
    ) -> Result<ResolvedPackage, KclError> {
        let io = |error: std::io::Error| failure(package, error);
        let pinned = pins.checksum.as_deref();
        let folder = self.folder_of(&package.name, source, pins);
        let resolved = ResolvedPackage {
            name: package.name.clone(),
            folder: folder.clone(),
            unlocked: None,
        };
        if folder.is_dir() {
            if self.is_whole(&folder, pinned).map_err(io)? {
                return Ok(resolved);
            }
            if self.offline {
                let why = format!(
                    "the content of {} does not match kcl.mod.lock; delete that folder, and run again to fetch it",
                    folder.display()
                );
                return Err(failure(package, why));
            }
            std::fs::remove_dir_all(&folder).map_err(io)?;
        }
        if self.offline {
            return Err(KclError::Offline(package.name.clone()));
        }
        let (fresh, _) = self.fetch(package, source, pins.commit.as_deref()).await?;
        if let Some(pinned) = pinned
            && checksum::compute(fresh.path()).map_err(io)? != pinned
        {
            return Err(KclError::PackageDiffers {
                name: package.name.clone(),
                pinned: pinned.to_owned(),
            });
        }
        self.move_in(fresh, &folder).map_err(io)?;
        Ok(resolved)
    }

    /// Returns a package that no lock pins: the current content of its source, looked up once in a run.
    async fn look_up(
        &self,
        package: &RemotePackage,
        source: PackageSource,
    ) -> Result<ResolvedPackage, KclError> {
        if self.offline || matches!(self.asker, PackageTrust::Outside(_)) {
            return Err(KclError::NotLocked {
                name: package.name.clone(),
                offline: self.offline,
            });
        }
        let io = |error: std::io::Error| failure(package, error);
        let key = self.folder_of(&package.name, &source, &Pins::default());
        // The lock is held during the fetch, so that all stacks of the run get the same content of an unpinned package.
        let mut known = self.unlocked.lock().await;
        if let Some(resolved) = known.get(&key) {
            return Ok(resolved.clone());
        }
        let (fresh, commit) = self.fetch(package, &source, None).await?;
        let pins = Pins {
            checksum: Some(checksum::compute(fresh.path()).map_err(io)?),
            commit,
        };
        let checksum = pins.checksum.clone().unwrap_or_default();
        let folder = self.folder_of(&package.name, &source, &pins);
        if folder.is_dir() && !self.is_whole(&folder, Some(&checksum)).map_err(io)? {
            std::fs::remove_dir_all(&folder).map_err(io)?;
        }
        self.move_in(fresh, &folder).map_err(io)?;
        let resolved = ResolvedPackage {
            name: package.name.clone(),
            folder,
            unlocked: Some(UnlockedPackage {
                source,
                commit: pins.commit,
                checksum,
            }),
        };
        known.insert(key, resolved.clone());
        Ok(resolved)
    }

    /// Fetches a package into a new folder, and deletes the files that its checksum does not cover. Returns the commit
    /// as well, if the source is a git repository.
    async fn fetch(
        &self,
        package: &RemotePackage,
        source: &PackageSource,
        commit: Option<&str>,
    ) -> Result<(TempDir, Option<String>), KclError> {
        let io = |error: std::io::Error| failure(package, error);
        let fresh = self.fresh_folder().map_err(io)?;
        let fetched = match source {
            PackageSource::Git { url, at, package } => {
                let pinned = commit.map(|commit| GitRevision::Commit(commit.to_owned()));
                let at = pinned.as_ref().unwrap_or(at);
                let fetched = git::fetch(self, url, at, package.as_deref(), fresh.path()).await;
                fetched.map(Some)
            }
            PackageSource::Oci { repository, tag } => {
                let fetched = oci::fetch(self, repository, tag, fresh.path()).await;
                fetched.map(|()| None)
            }
        };
        let commit = fetched.map_err(|why| failure(package, why))?;
        // Files without a checksum are removed before anybody can use them.
        checksum::remove_ignored(fresh.path()).map_err(io)?;
        Ok((fresh, commit))
    }

    pub(super) fn registry(&self) -> Option<&str> {
        self.environment.get(variables::KCL_REGISTRY).map(String::as_str)
    }
}

fn failure(package: &RemotePackage, why: impl Into<SharedError>) -> KclError {
    KclError::Package {
        name: package.name.clone(),
        why: why.into(),
    }
}

/// Returns the dependencies of a fetched package, as far as they are separate packages, with their entries in the same
/// lock. Dependencies in folders of the package are part of it.
fn dependencies(name: &str, folder: &Path, lock: &PackageLock) -> Result<Vec<RemotePackage>, KclError> {
    let Ok(text) = std::fs::read_to_string(folder.join("kcl.mod")) else {
        return Ok(Vec::new());
    };
    let module: toml::Table = text.parse().map_err(|_| KclError::Package {
        name: name.to_owned(),
        why: "its kcl.mod cannot be read".into(),
    })?;
    let Some(entries) = module.get("dependencies").and_then(toml::Value::as_table) else {
        return Ok(Vec::new());
    };
    Ok(entries
        .iter()
        .filter(|(_, entry)| entry.get("path").is_none())
        .map(|(declared, entry)| {
            let name = declared.replace('-', "_");
            RemotePackage {
                requirement: serde_json::to_string(entry).expect("TOML has a JSON form"),
                locked: lock.find(&name).unwrap_or_default(),
                declared: declared.clone(),
                name,
            }
        })
        .collect())
}
