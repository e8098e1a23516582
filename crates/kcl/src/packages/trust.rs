//! The trust in code that requests packages. Code from outside (a pull request from a fork) cannot choose packages: its
//! target branch must already have each of them, from the same source and with the same checksum. They are fetched over
//! TLS and without the credentials of this process. Otherwise the `kcl.mod` of a fork could read what only the runner's
//! user can reach.

use std::collections::{BTreeMap, HashSet};

use super::source::PackageSource;
use crate::KclError;
use konverge_base::model::{
    package_lock::{LockedPackage, PackageLock},
    stack::RemotePackage,
};
use konverge_base::variables;

/// The environment variables that git needs to reach a host.
const NEEDED: [&str; 9] = [
    variables::PATH,
    "GIT_SSL_CAINFO",
    variables::SSL_CERT_FILE,
    "http_proxy",
    "https_proxy",
    variables::HTTPS_PROXY,
    "no_proxy",
    variables::NO_PROXY,
    "LANG",
];

/// The environment variables that git also needs to authenticate.
const PROVING: [&str; 7] = [
    variables::HOME,
    "XDG_CONFIG_HOME",
    "SSH_AUTH_SOCK",
    "GIT_SSH_COMMAND",
    "GIT_ASKPASS",
    "GIT_CONFIG_GLOBAL",
    variables::GIT_CONFIG_COUNT,
];

/// The prefixes of the variables that `GIT_CONFIG_COUNT` counts (git-config(1)): git refuses to start if one
/// of them is missing.
const COUNTED: [&str; 2] = ["GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_"];

/// Variables that keep git from finding credentials by itself. Without `HOME`, git would look up the user of the
/// process.
const NOBODY: [(&str, &str); 3] = [
    (variables::HOME, "/nonexistent"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ALLOW_PROTOCOL", "https"),
];

/// The trust in the code that requests packages.
#[derive(Debug, Clone)]
pub enum PackageTrust {
    /// Code of this repository: the locked packages are fetched with the available credentials.
    Own,
    /// Code from outside: only packages that the target branch also has are fetched, without credentials.
    Outside(KnownPackages),
}

/// The packages of a trusted revision.
#[derive(Debug, Clone, Default)]
pub struct KnownPackages {
    wanted: HashSet<RemotePackage>,
    /// The names and pins in the locks of the revision, which cover the dependencies of packages.
    locked: HashSet<(String, Pins)>,
}

/// The checksum and the commit.
type Pins = (Option<String>, Option<String>);

impl KnownPackages {
    /// Adds the packages that a stack requires.
    pub fn add_wanted(&mut self, wanted: &[RemotePackage]) {
        self.wanted.extend(wanted.iter().cloned());
    }

    /// Adds the packages that a lock pins.
    pub fn add_lock(&mut self, lock: &PackageLock) {
        let packages = lock.packages();
        self.locked
            .extend(packages.map(|(name, locked)| (name.to_owned(), pins(locked))));
    }

    fn admits(&self, package: &RemotePackage) -> bool {
        self.wanted.contains(package)
    }

    /// Returns true if a lock pins a package as the trusted revision does, or does not pin it. An unpinned package is
    /// later fetched only if the package that requires it, which the trusted revision has too, names a commit.
    fn admits_lock(&self, name: &str, lock: &PackageLock) -> bool {
        let Some(locked) = lock.find(name).filter(LockedPackage::is_pinned) else {
            return true;
        };
        self.locked.contains(&(name.to_owned(), pins(locked)))
    }
}

fn pins(locked: LockedPackage) -> Pins {
    (locked.checksum, locked.commit)
}

impl PackageTrust {
    /// Returns an error if code from outside requires a package that the trusted revision does not have.
    pub(super) fn check_wanted(&self, wanted: &[RemotePackage]) -> Result<(), KclError> {
        let Self::Outside(known) = self else {
            return Ok(());
        };
        match wanted.iter().find(|package| !known.admits(package)) {
            Some(package) => Err(KclError::UnknownPackage(package.name.clone())),
            None => Ok(()),
        }
    }

    /// Returns an error if code from outside has a lock entry, for a package or its dependency, that the trusted
    /// revision does not have.
    pub(super) fn check_locked(&self, name: &str, lock: &PackageLock) -> Result<(), KclError> {
        match self {
            Self::Outside(known) if !known.admits_lock(name, lock) => {
                Err(KclError::UnknownPackage(name.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Returns an error for a source whose access depends on the network position or identity of the runner: this
    /// machine, its network, an SSH key.
    pub(super) fn check_place(&self, place: &PackageSource) -> Result<(), String> {
        let open = match place {
            // `git://` is allowed, because it is fetched over TLS.
            PackageSource::Git { url, .. } => url.starts_with("https://") || url.starts_with("git://"),
            PackageSource::Oci { repository, .. } => {
                !konverge_cloud::is_local_registry(repository.split('/').next().unwrap_or_default())
            }
        };
        if open || matches!(self, Self::Own) {
            return Ok(());
        }
        Err(
            "for a pull request from outside packages are fetched over TLS alone (git over https, OCI registries elsewhere)"
                .to_owned(),
        )
    }

    /// Returns the environment for git, which depends on the trust.
    pub(super) fn variables(&self, own: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let proves =
            |name: &str| PROVING.contains(&name) || COUNTED.iter().any(|start| name.starts_with(start));
        let is_kept = |name: &str| NEEDED.contains(&name) || (matches!(self, Self::Own) && proves(name));
        let mut variables: BTreeMap<String, String> = own
            .iter()
            .filter(|(name, _)| is_kept(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if let Self::Outside(_) = self {
            variables.extend(NOBODY.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn git_gets_all_of_its_configuration_or_none() {
        let own: BTreeMap<String, String> = [
            ("GIT_CONFIG_COUNT", "2"),
            ("GIT_CONFIG_KEY_1", "http.proxy"),
            ("GIT_CONFIG_VALUE_1", "http://proxy"),
            ("AWS_SECRET_ACCESS_KEY", "s3cret"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        let names = |asker: &PackageTrust| asker.variables(&own).into_keys().collect::<Vec<_>>();
        assert_eq!(
            names(&PackageTrust::Own),
            ["GIT_CONFIG_COUNT", "GIT_CONFIG_KEY_1", "GIT_CONFIG_VALUE_1"]
        );
        assert_eq!(
            names(&PackageTrust::Outside(KnownPackages::default())),
            ["GIT_ALLOW_PROTOCOL", "GIT_CONFIG_GLOBAL", "HOME"]
        );
    }
}
