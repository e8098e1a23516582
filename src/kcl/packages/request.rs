//! [`PackageRequest`]: which packages a stack needs, and [`ResolvedPackage`]: where they are.

use std::{fmt, path::PathBuf};

use super::source::PackageSource;
use crate::model::{
    package_lock::{LockPlace, PackageLock},
    stack::RemotePackage,
};

/// The packages of a stack, and what its lock says about them and their dependencies.
#[derive(Debug, Clone, Copy)]
pub struct PackageRequest<'a> {
    pub wanted: &'a [RemotePackage],
    pub lock: &'a PackageLock,
    pub place: &'a LockPlace,
}

/// A package that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedPackage {
    /// The name in imports.
    pub name: String,
    pub folder: PathBuf,
    /// What this run found, if nothing pins the package.
    pub unlocked: Option<UnlockedPackage>,
}

/// The present content of a source that nothing pins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnlockedPackage {
    pub(super) source: PackageSource,
    /// The commit of a git repository.
    pub(super) commit: Option<String>,
    pub(super) checksum: String,
}

impl fmt::Display for UnlockedPackage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.commit {
            Some(commit) => write!(f, "{} is now the commit {commit}", self.source),
            None => write!(f, "{} now has the SHA-256 {}", self.source, self.checksum),
        }
    }
}
