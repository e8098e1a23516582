//! [`ResolvedPackage`]: the folder of a package, and the content that was found if nothing pins it.

use std::{fmt, path::PathBuf};

use super::source::PackageSource;

/// A package that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedPackage {
    /// The name in imports.
    pub name: String,
    /// The folder that holds the package.
    pub folder: PathBuf,
    /// Content that this run found, if nothing pins the package.
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
