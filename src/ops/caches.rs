//! The caches of this machine: compiled values, fetched packages, and import index.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::RunContext;
use crate::{
    affected::{kept_files, prune_kept_files},
    error::{ErrorKind, UserError},
    kcl::{CacheUse, cache_use, clear_packages, packages_use, prune_cache},
};

/// Where this machine keeps what costs time to make again.
///
/// # Errors
/// There is no place for it.
pub(super) fn folder(run: &RunContext) -> Result<PathBuf, UserError> {
    run.xdg_folder("XDG_CACHE_HOME", ".cache")
}

/// Where it keeps that, if what lies there may be believed. In a repository's checkout whoever proposes a change could have put
/// it there.
pub(super) fn trusted_folder(run: &RunContext) -> Option<PathBuf> {
    let folder = folder(run).ok()?;
    let trusted = run.checkout().trust("the folder of the caches", &folder);
    trusted.is_ok().then_some(folder)
}

/// What one cache holds, or what was deleted of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheContents {
    /// In a word.
    pub what: &'static str,
    /// Where.
    pub folder: PathBuf,
    /// How many entries.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What there is.
///
/// # Errors
/// There is no place for caches, or it cannot be read.
pub fn show(run: &RunContext) -> Result<Vec<CacheContents>, UserError> {
    let [compiled, packages, learned] = folders(run)?;
    Ok(vec![
        cache_contents("compiled stacks", &compiled, cache_use(&compiled))?,
        cache_contents("packages", &packages, packages_use(&packages))?,
        cache_contents("import index", &learned, kept_files(&learned).map(sum))?,
    ])
}

/// Deletes compiled stacks, and import index, that were not used for so long; without an age
/// everything, packages too.
///
/// # Errors
/// There is no place for caches, or it cannot be written.
pub fn prune(run: &RunContext, unused_for: Option<Duration>) -> Result<Vec<CacheContents>, UserError> {
    let [compiled, packages, learned] = folders(run)?;
    let age = unused_for.unwrap_or_default();
    let forgotten = prune_kept_files(&learned, age).map(sum);
    let mut all = vec![
        cache_contents("compiled stacks", &compiled, prune_cache(&compiled, age))?,
        cache_contents("import index", &learned, forgotten)?,
    ];
    if unused_for.is_none() {
        all.push(cache_contents("packages", &packages, clear_packages(&packages))?);
    }
    Ok(all)
}

fn folders(run: &RunContext) -> Result<[PathBuf; 3], UserError> {
    let caches = folder(run)?;
    Ok(["compile", "packages", "affected"].map(|name| caches.join(name)))
}

fn sum((entries, bytes): (u64, u64)) -> CacheUse {
    CacheUse { entries, bytes }
}

fn cache_contents(
    what: &'static str,
    folder: &Path,
    counted: std::io::Result<CacheUse>,
) -> Result<CacheContents, UserError> {
    let counted = counted.map_err(|error| {
        UserError::new(ErrorKind::Config, error.to_string()).at(folder.display().to_string(), None, None)
    })?;
    Ok(CacheContents {
        what,
        folder: folder.to_owned(),
        entries: counted.entries,
        bytes: counted.bytes,
    })
}
