//! [`DeclaredDependency`]: a direct dependency in a `kcl.mod`, and its source.

use std::fmt;

use super::kcl_mod::KclMod;
use konverge_base::secrets::without_credentials;

/// One entry of `[dependencies]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeclaredDependency {
    /// The name in imports, with `-` written as `_`.
    pub name: String,
    /// The source of the package.
    pub source: DependencySource,
}

/// The source of a dependency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DependencySource {
    /// A package in a registry.
    Oci {
        /// The address of the package.
        url: String,
        /// The tag; `None` for the newest one.
        tag: Option<String>,
    },
    /// A package in a git repository.
    Git {
        /// Address of the repository.
        url: String,
        /// The tag, branch or commit; `None` for the default branch.
        version: Option<String>,
    },
    /// A package in a folder of the repository.
    Path(String),
    /// A package in the default registry, by its version alone.
    Version(Option<String>),
}

/// The error for a `kcl.mod` that is not TOML.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KclModError(String);

/// Reads the direct dependencies of a `kcl.mod`, in the order of the file.
///
/// # Errors
/// The content is not TOML.
pub fn declared_dependencies(kcl_mod: &[u8]) -> Result<Vec<DeclaredDependency>, KclModError> {
    let module = KclMod::parse(kcl_mod).map_err(KclModError)?;
    let declared = module.dependencies.into_iter().map(|(name, dependency)| {
        let text = |key: &str| dependency.entry[key].as_str().map(str::to_owned);
        let version = || ["tag", "commit", "branch", "version"].into_iter().find_map(text);
        let source = match (text("oci"), text("git"), dependency.path.clone()) {
            (_, _, Some(path)) => DependencySource::Path(path),
            (Some(url), ..) => DependencySource::Oci { url, tag: version() },
            (_, Some(url), _) => DependencySource::Git {
                url,
                version: version(),
            },
            _ => DependencySource::Version(dependency.entry.as_str().map(str::to_owned).or_else(version)),
        };
        DeclaredDependency { name, source }
    });
    Ok(declared.collect())
}

impl DeclaredDependency {
    /// Returns the version, as written.
    pub fn version(&self) -> Option<&str> {
        match &self.source {
            DependencySource::Oci { tag: version, .. }
            | DependencySource::Git { version, .. }
            | DependencySource::Version(version) => version.as_deref(),
            DependencySource::Path(_) => None,
        }
    }
}

impl fmt::Display for DeclaredDependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            DependencySource::Oci { url, .. } | DependencySource::Git { url, .. } => {
                f.write_str(&without_credentials(url))?;
            }
            DependencySource::Path(path) => f.write_str(path)?,
            DependencySource::Version(_) => f.write_str(&self.name)?,
        }
        match self.version() {
            Some(version) => write!(f, " {version}"),
            None => Ok(()),
        }
    }
}
