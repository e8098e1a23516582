//! Copies of files that SOPS encrypted. A file is not bound to its path, and the keys of the job open each copy: so a
//! stack reads no file that has a data key in common with one that it may not read.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock},
};

use crate::{
    config::{SecretStoreKind, SecretsConfig},
    error::{ErrorKind, UserError},
    model::{
        RepoPath,
        file_source::{FileKind, Source, SourceError},
    },
    policy::{self, SecretReader},
    secret_stores::SopsFileMark,
    secrets::{SecretReference, StoreName},
};

/// What every file of SOPS has, whatever its format.
const WORD: &[u8] = b"sops";

/// The files of a revision that SOPS may have encrypted.
#[derive(Default)]
pub(super) struct SopsCopies {
    source: Option<Arc<dyn Source>>,
    encrypted: OnceLock<Result<Vec<EncryptedFile>, SourceError>>,
    /// By path: the other files with a data key of the file.
    copies: Mutex<BTreeMap<RepoPath, Vec<RepoPath>>>,
}

type EncryptedFile = (RepoPath, Arc<[u8]>);

impl SopsCopies {
    pub fn new(source: Option<Arc<dyn Source>>) -> Self {
        Self {
            source,
            ..Self::default()
        }
    }

    /// Checks the references to files of SOPS.
    ///
    /// # Errors
    /// The file of a reference has the data key of a file that the stack may not read; the files cannot be read.
    pub fn check<'r>(
        &self,
        config: &SecretsConfig,
        reader: SecretReader<'_>,
        references: impl IntoIterator<Item = &'r SecretReference>,
    ) -> Result<(), UserError> {
        for reference in references {
            let StoreName::Word(store) = &reference.store else {
                continue;
            };
            let of_sops = config
                .stores
                .get(store)
                .is_some_and(|store| store.kind == SecretStoreKind::Sops);
            let Some(path) = RepoPath::normalize(&reference.path).filter(|_| of_sops) else {
                continue;
            };
            let copies = self.of(&path)?;
            let foreign = copies
                .iter()
                .find(|copy| !policy::may_read_file(config, reader, copy));
            if let Some(foreign) = foreign {
                return Err(UserError::new(
                    ErrorKind::Secret,
                    format!(
                        "`{reference}`: `{path}` has the data key of `{foreign}`, which stack `{}` may not read",
                        reader.stack
                    ),
                )
                .hint(format!(
                    "if `{path}` is a file of its own, give it a data key of its own: `sops rotate --in-place FILE`"
                )));
            }
        }
        Ok(())
    }

    /// The other files that have a data key of a file.
    fn of(&self, path: &RepoPath) -> Result<Vec<RepoPath>, UserError> {
        let mut known = self.copies.lock().expect("no panic while the lock is held");
        if let Some(copies) = known.get(path) {
            return Ok(copies.clone());
        }
        let encrypted = self.encrypted.get_or_init(|| self.read_all());
        let encrypted = encrypted.as_ref().map_err(|error| {
            UserError::new(
                ErrorKind::Secret,
                format!("the files that SOPS encrypted cannot be compared: {error}"),
            )
        })?;
        let own = encrypted.iter().find(|(of, _)| of == path);
        let mark = own.and_then(|(path, bytes)| SopsFileMark::of(path.as_str(), bytes));
        let copies = encrypted
            .iter()
            .filter(|(other, bytes)| other != path && mark.as_ref().is_some_and(|mark| mark.is_in(bytes)))
            .map(|(other, _)| other.clone());
        let copies: Vec<_> = copies.collect();
        known.insert(path.clone(), copies.clone());
        Ok(copies)
    }

    fn read_all(&self) -> Result<Vec<EncryptedFile>, SourceError> {
        let Some(source) = &self.source else {
            return Ok(Vec::new());
        };
        let files = source.files().iter().filter(|(path, entry)| {
            // KCL has no file of SOPS, and most files are KCL.
            entry.kind == FileKind::File && !path.as_str().ends_with(".k")
        });
        let mut encrypted = Vec::new();
        for (path, entry) in files {
            let bytes = source.read(entry.blob)?;
            if bytes.windows(WORD.len()).any(|window| window == WORD) {
                encrypted.push((path.clone(), bytes));
            }
        }
        Ok(encrypted)
    }
}
