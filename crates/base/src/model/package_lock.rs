//! [`PackageLock`]: the entries of a `kcl.mod.lock`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The name of the file.
pub const LOCK_FILE: &str = "kcl.mod.lock";

/// The entry of one package.
#[derive(Debug, Clone, PartialEq, Eq, Default, Hash, Serialize, Deserialize)]
pub struct LockedPackage {
    /// `sum`: the checksum over the contents of the package's files.
    pub checksum: Option<String>,
    /// `git_commit`, which Konverge writes beside a tag or a branch, or `commit`. The id may be abbreviated.
    pub commit: Option<String>,
    /// `git_tag`, `branch` or `oci_tag`: the reference that the checksum and the commit belong to.
    pub reference: Option<String>,
    /// `version`: the version of the package, as in its own `kcl.mod`.
    pub version: Option<String>,
    /// The address: `url` of a git repository, or `reg` and `repo` of a registry.
    pub address: Option<String>,
}

impl LockedPackage {
    /// Returns the commit, if its id is not abbreviated.
    pub fn whole_commit(&self) -> Option<&str> {
        self.commit.as_deref().filter(|id| is_whole_commit(id))
    }

    /// Returns true if the entry determines the content of the package.
    pub fn is_pinned(&self) -> bool {
        self.checksum.is_some() || self.whole_commit().is_some()
    }

    fn read(entry: &toml::Table) -> Self {
        let text = |key: &str| {
            let text = entry.get(key)?.as_str()?;
            (!text.is_empty()).then(|| text.to_owned())
        };
        let registry = || Some(format!("{}/{}", text("reg")?, text("repo")?));
        Self {
            checksum: text("sum"),
            commit: text("git_commit").or_else(|| text("commit")),
            reference: ["git_tag", "branch", "oci_tag"].into_iter().find_map(text),
            version: text("version"),
            address: text("url").or_else(registry),
        }
    }
}

/// Returns true for a commit id that is not abbreviated, SHA-1 or SHA-256.
pub fn is_whole_commit(id: &str) -> bool {
    matches!(id.len(), 40 | 64) && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The error for a lock that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackageLockError {
    /// The lock is not UTF-8.
    #[error("it is not UTF-8: {0}")]
    NotText(#[from] std::str::Utf8Error),
    /// The lock is not TOML.
    #[error("{0}")]
    NotToml(String),
}

/// The entries of a lock, by the names of imports (`-` is `_`).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PackageLock {
    entries: BTreeMap<String, toml::Table>,
}

impl PackageLock {
    /// Parses a `kcl.mod.lock`. An empty file is a lock without entries.
    ///
    /// # Errors
    /// The content is not UTF-8, or not TOML.
    pub fn parse(content: &[u8]) -> Result<Self, PackageLockError> {
        let text = std::str::from_utf8(content)?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut root: toml::Table = text
            .parse()
            .map_err(|error: toml::de::Error| PackageLockError::NotToml(error.message().to_owned()))?;
        let Some(toml::Value::Table(found)) = root.remove("dependencies") else {
            return Ok(Self::default());
        };
        let entries = found.into_iter().filter_map(|(name, entry)| match entry {
            toml::Value::Table(entry) => Some((name.replace('-', "_"), entry)),
            _ => None,
        });
        Ok(Self {
            entries: entries.collect(),
        })
    }

    /// Returns the entry of a package, by its name in imports.
    pub fn find(&self, name: &str) -> Option<LockedPackage> {
        self.entries.get(name).map(LockedPackage::read)
    }

    /// Returns every entry.
    pub fn packages(&self) -> impl Iterator<Item = (&str, LockedPackage)> {
        let entries = self.entries.iter();
        entries.map(|(name, entry)| (name.as_str(), LockedPackage::read(entry)))
    }

    /// Returns the digests of a module's binaries by platform (`binaries` of its entry).
    pub fn binaries(&self, name: &str) -> BTreeMap<String, String> {
        let binaries = self.entries.get(name).and_then(|entry| entry.get("binaries"));
        let binaries = binaries.and_then(toml::Value::as_table).into_iter().flatten();
        let texts =
            binaries.filter_map(|(platform, digest)| Some((platform.clone(), digest.as_str()?.to_owned())));
        texts.collect()
    }

    /// Adds the entries of another lock for packages that this lock does not pin.
    pub fn add_missing(&mut self, other: Self) {
        for (name, entry) in other.entries {
            if !self.find(&name).is_some_and(|own| own.is_pinned()) {
                self.entries.insert(name, entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "b2297e75c9887963ceb0540f40a1bc8f88c2bd6f";

    fn only(entry: &str) -> LockedPackage {
        let lock = PackageLock::parse(format!("[dependencies]\n  [dependencies.my-lib]\n{entry}").as_bytes());
        lock.unwrap().find("my_lib").unwrap()
    }

    /// The entries of published locks: with and without `sum`, of a tag, a branch, a commit and a registry.
    #[test]
    fn entries_of_todays_tools_are_read() {
        let named = "name = \"my-lib\"\nfull_name = \"my-lib_0.2.0\"\nversion = \"0.2.0\"\n";
        let bare = only(named);
        assert!(
            !bare.is_pinned() && bare.version.as_deref() == Some("0.2.0"),
            "{bare:?}"
        );
        let empty = only(&format!("{named}sum = \"\"\n"));
        assert_eq!(empty, bare);
        let registry = only(&format!(
            "{named}sum = \"x\"\nreg = \"ghcr.io\"\nrepo = \"kcl-lang/k8s\"\noci_tag = \"1.31.2\"\n"
        ));
        assert_eq!(registry.checksum.as_deref(), Some("x"));
        assert_eq!(registry.address.as_deref(), Some("ghcr.io/kcl-lang/k8s"));
        assert_eq!(registry.reference.as_deref(), Some("1.31.2"));
        let tag = only(&format!("{named}url = \"https://h/x\"\ngit_tag = \"v1\"\n"));
        assert!(
            !tag.is_pinned() && tag.reference.as_deref() == Some("v1"),
            "{tag:?}"
        );
        let short = only("url = \"https://h/x\"\ncommit = \"ade147b\"\n");
        assert!(
            !short.is_pinned() && short.commit.as_deref() == Some("ade147b"),
            "{short:?}"
        );
        let whole = only(&format!("commit = \"{COMMIT}\"\n"));
        assert!(whole.is_pinned());
        let ours = only(&format!(
            "branch = \"main\"\ncommit = \"ade147b\"\ngit_commit = \"{COMMIT}\"\n"
        ));
        assert_eq!(ours.whole_commit(), Some(COMMIT));
        assert_eq!(PackageLock::parse(b"").unwrap(), PackageLock::default());
        assert!(PackageLock::parse(b"<<<<<<< HEAD\n").is_err());
    }

    #[test]
    fn another_lock_adds_what_this_one_does_not_pin() {
        let lock = |text: &str| PackageLock::parse(text.as_bytes()).unwrap();
        let mut own = lock("[dependencies.a]\nsum = \"1\"\n[dependencies.b]\nname = \"b\"\n");
        own.add_missing(lock(
            "[dependencies.a]\nsum = \"2\"\n[dependencies.b]\nsum = \"2\"\n[dependencies.c]\nsum = \"2\"\n",
        ));
        let sums: Vec<_> = own.packages().filter_map(|(_, entry)| entry.checksum).collect();
        assert_eq!(sums, ["1", "2", "2"]);
    }
}
