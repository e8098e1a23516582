//! What comes from outside (a fork's pull request) chooses no package: the branch that it goes to has each of them
//! already, from the same place and with the same checksum. And they are fetched as anybody could: without a credential
//! of ours, over TLS. Else a stranger's `kcl.mod` would read what the runner's user can reach.

use std::collections::{BTreeMap, HashSet};

use super::{locked_package, oci, source::PackageSource};
use crate::{kcl::KclError, model::stack::RemotePackage};

/// What git needs of our environment to find a host.
const NEEDED: [&str; 9] = [
    "PATH",
    "GIT_SSL_CAINFO",
    "SSL_CERT_FILE",
    "http_proxy",
    "https_proxy",
    "HTTPS_PROXY",
    "no_proxy",
    "NO_PROXY",
    "LANG",
];

/// What it needs besides to prove who asks.
const PROVING: [&str; 7] = [
    "HOME",
    "XDG_CONFIG_HOME",
    "SSH_AUTH_SOCK",
    "GIT_SSH_COMMAND",
    "GIT_ASKPASS",
    "GIT_CONFIG_GLOBAL",
    "GIT_CONFIG_COUNT",
];

/// The beginnings of the variables that say what configuration `GIT_CONFIG_COUNT` counts (git-config(1)): git refuses to
/// start if one of them is missing.
const COUNTED: [&str; 2] = ["GIT_CONFIG_KEY_", "GIT_CONFIG_VALUE_"];

/// What keeps git from finding a credential by itself. Without `HOME` it would look up whose process it is.
const NOBODY: [(&str, &str); 3] = [
    ("HOME", "/nonexistent"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ALLOW_PROTOCOL", "https"),
];

/// Whose code asks for packages.
#[derive(Debug, Clone)]
pub enum PackageTrust {
    /// This repository's own people: fetched is what they lock, with the credentials that there are.
    Own,
    /// A stranger: fetched is what the branch has as well, without any.
    Outside(KnownPackages),
}

/// The packages of a revision that is trusted.
#[derive(Debug, Clone, Default)]
pub struct KnownPackages {
    wanted: HashSet<RemotePackage>,
    /// Names and checksums of its locks: what packages ask for themselves.
    locked: HashSet<(String, String)>,
}

impl KnownPackages {
    /// Adds what a stack is compiled with.
    pub fn add_wanted(&mut self, wanted: &[RemotePackage]) {
        self.wanted.extend(wanted.iter().cloned());
    }

    /// Adds what a `kcl.mod.lock` pins.
    pub fn add_lock(&mut self, text: &str) {
        let lock: toml::Table = text.parse().unwrap_or_default();
        let entries = lock.get("dependencies").and_then(toml::Value::as_table);
        for (name, entry) in entries.into_iter().flatten() {
            self.locked.extend(checksum(entry).map(|sum| (name.clone(), sum)));
        }
    }

    fn admits(&self, package: &RemotePackage) -> bool {
        self.wanted.contains(package)
    }

    /// What a lock says of a name, it has to say as the trusted one does.
    fn admits_lock(&self, name: &str, lock: &toml::Table) -> bool {
        locked_package(lock, name).is_none_or(|(original, entry)| {
            checksum(entry).is_some_and(|sum| self.locked.contains(&(original, sum)))
        })
    }
}

fn checksum(entry: &toml::Value) -> Option<String> {
    Some(entry.get("sum")?.as_str()?.to_owned())
}

impl PackageTrust {
    /// Refuses what a stranger brings: a package of its own choice.
    pub(super) fn check_wanted(&self, wanted: &[RemotePackage]) -> Result<(), KclError> {
        let Self::Outside(known) = self else {
            return Ok(());
        };
        match wanted.iter().find(|package| !known.admits(package)) {
            Some(package) => Err(KclError::UnknownPackage(package.name.clone())),
            None => Ok(()),
        }
    }

    /// The same for what a lock says of a package, its own or one that another package asks for.
    pub(super) fn check_locked(&self, name: &str, lock: &toml::Table) -> Result<(), KclError> {
        match self {
            Self::Outside(known) if !known.admits_lock(name, lock) => {
                Err(KclError::UnknownPackage(name.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a place that is only there for those who are somebody: this machine, its network, an SSH key's owner.
    pub(super) fn check_place(&self, place: &PackageSource) -> Result<(), String> {
        let open = match place {
            PackageSource::Git { url, .. } => url.starts_with("https://"),
            PackageSource::Oci { repository, .. } => {
                !oci::is_local(repository.split('/').next().unwrap_or_default())
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

    /// What git's environment is made of.
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
