//! The caches of this machine: compiled values, fetched packages, and the analysis of repositories.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use nix::unistd::{AccessFlags, access};

use crate::RunContext;
use konverge_base::{
    error::{ErrorKind, UserError},
    variables,
};
use konverge_kcl::{CacheUse, cache_use, clear_packages, packages_use, prune_cache};
use konverge_repo::affected::{count_cache_files, prune_cache_files};

/// Returns the cache folder of this machine.
///
/// # Errors
/// No environment variable names a folder for caches.
pub fn folder(run: &RunContext) -> Result<PathBuf, UserError> {
    run.xdg_folder(variables::XDG_CACHE_HOME, ".cache")
}

/// Returns the cache folder if its content can be trusted: it must not be in the checkout, where the author of a change
/// could have put files.
pub fn trusted_folder(run: &RunContext) -> Option<PathBuf> {
    let folder = folder(run).ok()?;
    let trusted = run.checkout().trust("the folder of the caches", &folder);
    trusted.is_ok().then_some(folder)
}

/// Returns true if a file can be written at a path. The folders of the path may be missing.
pub(crate) fn is_writable(path: &Path) -> bool {
    let folder = path.ancestors().skip(1).find(|above| above.exists());
    folder.is_some_and(|folder| folder.is_dir() && access(folder, AccessFlags::W_OK).is_ok())
}

/// The content of one cache, or the part of it that was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheContents {
    /// The kind of cache.
    pub what: &'static str,
    /// The folder of the cache.
    pub folder: PathBuf,
    /// The number of entries.
    pub entries: u64,
    /// The size of the entries in bytes.
    pub bytes: u64,
}

/// Returns the content of each cache.
///
/// # Errors
/// There is no cache folder, or it cannot be read.
pub fn show(run: &RunContext) -> Result<Vec<CacheContents>, UserError> {
    let [compiled, packages, learned] = folders(run)?;
    Ok(vec![
        cache_contents("compiled stacks", &compiled, cache_use(&compiled))?,
        cache_contents("packages", &packages, packages_use(&packages))?,
        cache_contents(
            "import index",
            &learned,
            count_cache_files(&learned).map(|(entries, bytes)| CacheUse { entries, bytes }),
        )?,
    ])
}

/// Deletes compiled stacks and analyses that were not used for `unused_for`. Without this duration, deletes everything,
/// including packages.
///
/// # Errors
/// There is no cache folder, or it cannot be written.
pub fn prune(run: &RunContext, unused_for: Option<Duration>) -> Result<Vec<CacheContents>, UserError> {
    let [compiled, packages, learned] = folders(run)?;
    let age = unused_for.unwrap_or_default();
    let forgotten = prune_cache_files(&learned, age).map(|(entries, bytes)| CacheUse { entries, bytes });
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

fn cache_contents(
    what: &'static str,
    folder: &Path,
    counted: std::io::Result<CacheUse>,
) -> Result<CacheContents, UserError> {
    let counted = counted.map_err(|error| {
        UserError::from_error(ErrorKind::Config, error).at(folder.display().to_string(), None, None)
    })?;
    Ok(CacheContents {
        what,
        folder: folder.to_owned(),
        entries: counted.entries,
        bytes: counted.bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_writable_if_its_nearest_folder_is() {
        let folder = tempfile::tempdir().unwrap();
        assert!(is_writable(&folder.path().join("new/file")));
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert!(!is_writable(&folder.path().join("file/below/file")));
    }
}
