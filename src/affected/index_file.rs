//! The index's file: written whole and renamed into place, checked whole when it is read.

use std::{
    collections::HashMap,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Facts, Index, facts::take};
use crate::model::{Digest, source::BlobId};

/// The first bytes; the number changes with the format or with what the scanner finds.
const HEADER: &[u8] = b"konverge import index 1\n";
/// More than this is not an index of ours (bytes).
const MAX_SIZE: u64 = 1 << 30;

impl Index {
    /// Where the index of a repository lies: `$XDG_CACHE_HOME/konverge/affected/`, else below `$HOME/.cache`.
    /// `None` without a home, or where the repository itself could write it.
    pub fn location(repository: &Path) -> Option<PathBuf> {
        let absolute = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let cache =
            absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
        let repository = repository.canonicalize().ok()?;
        let real = cache.canonicalize().unwrap_or_else(|_| cache.clone());
        if real.starts_with(&repository) {
            return None;
        }
        let key = Digest::of_bytes(repository.as_os_str().as_encoded_bytes()).short();
        Some(
            cache
                .join("konverge")
                .join("affected")
                .join(format!("{key}.index")),
        )
    }

    /// Loads an index; what is missing, damaged or of another version is an empty one.
    pub fn load(path: &Path) -> Self {
        let sane = std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= MAX_SIZE);
        let bytes = if sane {
            std::fs::read(path).unwrap_or_default()
        } else {
            Vec::new()
        };
        parse(&bytes).map_or_else(Self::new, Self::with)
    }

    /// Writes the index if it has grown: beside its place first, then renamed, so that no reader ever sees half of
    /// one and of two writers the last wins.
    ///
    /// # Errors
    /// The folder can not be written. The answer never depends on this.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        if !self.has_grown() {
            return Ok(());
        }
        let Some(folder) = path.parent() else {
            return Ok(());
        };
        std::fs::create_dir_all(folder)?;
        let mut bytes = HEADER.to_vec();
        for (blob, facts) in self.sorted() {
            bytes.extend_from_slice(&blob.0);
            facts.write(&mut bytes);
        }
        let sum = Digest::of_bytes(&bytes);
        bytes.extend_from_slice(sum.as_bytes());
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(&bytes)?;
        file.persist(path).map_err(|error| error.error)?;
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Option<HashMap<BlobId, Arc<Facts>>> {
    let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
    if Digest::of_bytes(body).as_bytes() != sum {
        return None;
    }
    let mut rest = body.strip_prefix(HEADER)?;
    let mut facts = HashMap::new();
    while !rest.is_empty() {
        let id = take(&mut rest, 20)?.try_into().ok()?;
        facts.insert(BlobId(id), Arc::new(Facts::read(&mut rest)?));
    }
    Some(facts)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_damaged_index_is_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("x.index");
        assert!(Index::load(&path).is_empty());
        let index = Index::new();
        index.lock_for_test(BlobId([7; 20]), Facts::of(b"import a.b"));
        index.save(&path).unwrap();
        assert_eq!(Index::load(&path).len(), 1);
        let whole = std::fs::read(&path).unwrap();
        for end in 0..whole.len() {
            assert_eq!(parse(&whole[..end]), None, "cut at {end}");
        }
        for at in 0..whole.len() {
            let mut bent = whole.clone();
            bent[at] ^= 1;
            assert_eq!(parse(&bent), None, "bent at {at}");
        }
    }

    impl Index {
        fn lock_for_test(&self, blob: BlobId, facts: Facts) {
            struct One(Facts);
            impl crate::model::source::Source for One {
                fn files(&self) -> &crate::model::source::FileTree {
                    unreachable!("only contents are read")
                }
                fn read(&self, _: BlobId) -> Result<Arc<[u8]>, crate::model::source::SourceError> {
                    let imports = self.0.imports.iter().map(|(_, path)| format!("import {path}\n"));
                    Ok(imports.collect::<String>().into_bytes().into())
                }
                fn commit(&self) -> Option<&crate::model::CommitId> {
                    None
                }
            }
            self.facts(&One(facts), &[blob]).unwrap();
        }
    }
}
