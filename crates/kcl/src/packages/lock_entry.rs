//! [`LockEntry`]: an entry of `kcl.mod.lock`. Its keys are written in the order of kpm.

use std::{fmt, io};

use super::{
    checksum,
    resolved_package::ResolvedPackage,
    source::{GitRevision, PackageSource},
};
use konverge_base::model::{package_lock::is_whole_commit, stack::RemotePackage};

/// The keys of an entry that Konverge writes. It leaves other keys unchanged.
pub(super) const KEYS: [&str; 13] = [
    "name",
    "full_name",
    "version",
    "sum",
    "url",
    "branch",
    "commit",
    "git_tag",
    "git_commit",
    "package",
    "reg",
    "repo",
    "oci_tag",
];

/// A package in the repository. The lock lists such a package, but does not pin it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathEntry {
    /// The name in `kcl.mod`.
    pub declared: String,
    /// The name in the package's own `kcl.mod`.
    pub name: Option<String>,
    /// The version in the package's own `kcl.mod`.
    pub version: Option<String>,
}

/// An entry of the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LockEntry {
    /// The key in `[dependencies.KEY]`.
    pub key: String,
    /// The keys with their values, in the order of [`KEYS`].
    pub fields: Vec<(&'static str, String)>,
}

impl LockEntry {
    /// Creates the entry of a fetched package.
    ///
    /// # Errors
    /// The folder of the package cannot be read.
    pub(super) fn new(
        package: &RemotePackage,
        source: &PackageSource,
        resolved: &ResolvedPackage,
    ) -> io::Result<Self> {
        let module = std::fs::read_to_string(resolved.folder.join("kcl.mod")).unwrap_or_default();
        let module: toml::Table = module.parse().unwrap_or_default();
        let own = |key: &str| Some(module.get("package")?.get(key)?.as_str()?.to_owned());
        let mut entry = Self::named(&package.declared, own("name"), own("version"));
        let (checksum, commit) = match &resolved.unlocked {
            Some(found) => (found.checksum.clone(), found.commit.as_deref()),
            None => {
                let commit = source.whole_commit().or(package.locked.whole_commit());
                (checksum::compute(&resolved.folder)?, commit)
            }
        };
        entry.add("sum", &checksum);
        match source {
            PackageSource::Git { url, at, package } => {
                entry.add("url", url);
                // kpm accepts only one of branch, commit and tag in an entry. So the commit of a tag is written with
                // another key, which the official tools ignore.
                match at {
                    GitRevision::Branch(name) => entry.add("branch", name),
                    GitRevision::Commit(id) => entry.add("commit", id),
                    GitRevision::Tag(name) => entry.add("git_tag", name),
                }
                let is_named = matches!(at, GitRevision::Commit(id) if is_whole_commit(id));
                if let Some(commit) = commit.filter(|_| !is_named) {
                    entry.add("git_commit", commit);
                }
                if let Some(package) = package {
                    entry.add("package", package);
                }
            }
            PackageSource::Oci { repository, tag } => {
                let (registry, name) = repository.split_once('/').unwrap_or(("", repository));
                entry.add("reg", registry);
                entry.add("repo", name);
                entry.add("oci_tag", tag);
            }
        }
        Ok(entry)
    }

    /// Creates the entry of a package in the repository.
    pub(super) fn of_path(package: &PathEntry) -> Self {
        Self::named(&package.declared, package.name.clone(), package.version.clone())
    }

    fn named(key: &str, name: Option<String>, version: Option<String>) -> Self {
        let mut entry = Self {
            key: key.to_owned(),
            fields: Vec::new(),
        };
        entry.add("name", key);
        if let Some(version) = version {
            let name = name.as_deref().unwrap_or(key);
            entry.add("full_name", &format!("{name}_{version}"));
            entry.add("version", &version);
        }
        entry
    }

    fn add(&mut self, key: &'static str, value: &str) {
        if !value.is_empty() {
            self.fields.push((key, value.to_owned()));
        }
    }

    fn get(&self, key: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(known, _)| *known == key);
        found.map(|(_, value)| value.as_str())
    }
}

impl fmt::Display for LockEntry {
    /// Formats the pin of the entry: `0.2.0: commit b2297e75…`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = ["git_tag", "branch", "oci_tag"]
            .into_iter()
            .find_map(|key| self.get(key));
        if let Some(asked) = asked {
            write!(f, "{asked}: ")?;
        }
        match self.get("git_commit").or(self.get("commit")) {
            Some(commit) => write!(f, "commit {commit}"),
            None => write!(f, "sum {}", self.get("sum").unwrap_or_default()),
        }
    }
}
