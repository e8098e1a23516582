//! [`ResolvedPackage`]: the folder of a package, with the content that was found if no lock pins it.

use std::{fmt, path::PathBuf};

use super::source::PackageSource;

/// A package that is available in a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedPackage {
    /// The name in imports.
    pub name: String,
    /// The folder with the package.
    pub folder: PathBuf,
    /// The content that this run found, if no lock pins the package.
    pub unlocked: Option<UnlockedPackage>,
}

/// The current content of a package that no lock pins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnlockedPackage {
    pub(super) source: PackageSource,
    /// The commit, if the package is from a git repository.
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
