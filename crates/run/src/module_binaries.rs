//! The binaries of Kusion modules in a revision: files of the repository, and binaries that `kcl.mod.lock` pins.

use std::collections::{BTreeMap, HashSet};

use sha2::{Digest as _, Sha256};

use konverge_base::{
    error::UserError,
    model::{
        Digest, RepoPath,
        digest::DigestBuilder,
        file_source::{BlobId, FileKind, Source},
        package_lock::{LOCK_FILE, PackageLock},
        stack::Stack,
    },
};
use konverge_kcl::platform;
use konverge_repo::konfig::{DeclaredDependency, FileTreeView};

/// The prefix of the file name of every module binary.
const PREFIX: &str = "kusion-module-";

/// Returns true if a file name is that of a module's binary, `kusion-module-<name>_<version>`.
pub(crate) fn is_binary_of(file: &str, module: &str) -> bool {
    let named = file.strip_prefix(PREFIX).and_then(|rest| rest.rsplit_once('_'));
    named.is_some_and(|(name, version)| name.replace('-', "_") == module && !version.is_empty())
}

/// The binaries of a stack's modules, by the name of the dependency.
#[derive(Debug, Clone, Default)]
pub struct ModuleBinaries(BTreeMap<String, ModuleBinary>);

/// The binaries of one module, as the revision declares them. A package from outside contains its own binary, and
/// `kcl.mod.lock` pins the package as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModuleBinary {
    /// The binaries in the package's folder of the repository.
    pub files: Vec<(RepoPath, BlobId)>,
    /// The field `binaries` of the module in `kcl.mod.lock`: digests by platform, for example `linux-amd64`.
    pins: BTreeMap<String, String>,
}

impl ModuleBinary {
    /// Returns the digest that the binary for this platform must have, `sha256:…`.
    pub fn pin(&self) -> Option<&str> {
        let (system, architecture) = platform();
        self.pins
            .get(&format!("{system}-{architecture}"))
            .map(String::as_str)
    }
}

impl ModuleBinaries {
    pub fn read(
        tree: &FileTreeView,
        stack: &Stack,
        dependencies: &[DeclaredDependency],
    ) -> Result<Self, UserError> {
        let lock_file = stack.folder.child(LOCK_FILE);
        let lock = tree.read(&lock_file)?;
        // An invalid lock file is already reported with the packages.
        let lock = PackageLock::parse(lock.as_deref().unwrap_or_default()).unwrap_or_default();
        let mut found = BTreeMap::new();
        for dependency in dependencies {
            let name = &dependency.name;
            let packages = stack.compile.as_ref().map(|setup| setup.packages.as_slice());
            let mut packages = packages.unwrap_or_default().iter();
            let folder = packages
                .find(|(package, _)| package == name)
                .map(|(_, folder)| folder);
            let files = folder.map(|folder| {
                let real = tree
                    .resolve(folder)
                    .map_or_else(|| folder.clone(), |resolved| resolved.path);
                let children = tree.children(&real).into_iter();
                let binaries = children.filter_map(|(file, entry)| {
                    let entry = entry.filter(|entry| entry.kind == FileKind::File)?;
                    is_binary_of(&file, name).then(|| (real.child(&file), entry.blob))
                });
                binaries.collect()
            });
            let binary = ModuleBinary {
                files: files.unwrap_or_default(),
                pins: lock.binaries(name),
            };
            if binary != ModuleBinary::default() {
                found.insert(name.clone(), binary);
            }
        }
        Ok(Self(found))
    }

    pub fn find(&self, module: &str) -> ModuleBinary {
        self.0.get(module).cloned().unwrap_or_default()
    }

    /// Returns the paths of the binaries in the repository.
    pub fn files(&self) -> impl Iterator<Item = &RepoPath> {
        self.0
            .values()
            .flat_map(|binary| &binary.files)
            .map(|(file, _)| file)
    }

    /// Combines another digest with the digest of the binaries. Without binaries, the other digest is returned as it
    /// is.
    pub fn joined(&self, platform: Digest) -> Digest {
        if self.0.is_empty() {
            return platform;
        }
        let mut digest = DigestBuilder::new("kusion modules 1");
        digest.part(platform.as_bytes());
        for (name, binary) in &self.0 {
            digest.part(name.as_bytes());
            for (file, blob) in &binary.files {
                digest.part(file.as_str().as_bytes()).part(&blob.0);
            }
            digest.part(b"pins");
            for (platform, pin) in &binary.pins {
                digest.part(platform.as_bytes()).part(pin.as_bytes());
            }
        }
        digest.finish()
    }

    /// Adds the digests of all binaries: those in the repository, and the pinned ones.
    pub fn add_known(&self, source: &dyn Source, known: &mut HashSet<String>) -> Result<(), UserError> {
        for binary in self.0.values() {
            known.extend(binary.pins.values().cloned());
            for (_, blob) in &binary.files {
                let content = source.read(*blob)?;
                known.insert(digest_of(&content));
            }
        }
        Ok(())
    }
}

/// Returns the digest of a binary in the format of `kcl.mod.lock`.
pub(crate) fn digest_of(content: &[u8]) -> String {
    let hash = Sha256::digest(content);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_is_named_by_its_module_and_version() {
        assert!(is_binary_of("kusion-module-my-db_0.1.0", "my_db"));
        assert!(is_binary_of("kusion-module-my_db_0.1.0", "my_db"));
        for other in [
            "kusion-module-db_0.1.0",
            "kusion-module-my-db",
            "kusion-module-my-db_",
            "my-db_0.1.0",
            "kusion-module-my_db.sh",
        ] {
            assert!(!is_binary_of(other, "my_db"), "{other}");
        }
    }
}
