//! Finds copies of SOPS files that a stack may not read. An encrypted file is not bound to its path, and the keys of
//! the job decrypt each copy. So a stack may not read a file that shares a data key or an encrypted value with a
//! forbidden file. Earlier commits count too, because a pull request could copy a file and change or delete the
//! original.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::{Arc, Mutex, OnceLock},
};

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        CommitId, RepoPath,
        file_source::{FileKind, Source, SourceError},
    },
};
use konverge_cloud::secret_stores::{SopsCommon, SopsFileMark, SopsText};
use konverge_config::{SecretStoreKind, SecretsConfig};
use konverge_policy::{self as policy, SecretReader};
use konverge_secrets::{SecretReference, StoreName};

/// The word that every SOPS file contains in any format.
const WORD: &[u8] = b"sops";

/// The files of a revision, and of the commits before it, that SOPS may have encrypted.
#[derive(Default)]
pub(crate) struct SopsCopies {
    source: Option<Arc<dyn Source>>,
    encrypted: OnceLock<Result<Vec<EncryptedFile>, SourceError>>,
    /// The other files that share a data key or a value with a file, by the path of that file.
    copies: Mutex<BTreeMap<RepoPath, Vec<Found>>>,
}

type EncryptedFile = (FileVersion, Arc<SopsText>);

/// A file of the revision, or, with a commit, an earlier version that was changed or deleted since.
#[derive(Clone)]
struct FileVersion {
    path: RepoPath,
    commit: Option<CommitId>,
}

impl std::fmt::Display for FileVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}`", self.path)?;
        match &self.commit {
            Some(commit) => write!(f, " of commit {}", commit.short()),
            None => Ok(()),
        }
    }
}

type Found = (FileVersion, SopsCommon);

impl SopsCopies {
    pub(crate) fn new(source: Option<Arc<dyn Source>>) -> Self {
        Self {
            source,
            ..Self::default()
        }
    }

    /// Checks that no reference leads to a copy of a forbidden SOPS file.
    ///
    /// # Errors
    /// The referenced file shares a data key or a value with a file that the stack may not read; the files or the
    /// earlier commits cannot be read.
    pub(crate) fn check<'r>(
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
            let copies = self.copies_of(&path)?;
            let foreign = copies
                .iter()
                .find(|(version, _)| !policy::may_read_file(config, reader, &version.path));
            if let Some((version, common)) = foreign {
                let what = match common {
                    SopsCommon::DataKey => format!("has the same data key as {version}"),
                    SopsCommon::Value => format!("has the same encrypted value as {version}"),
                };
                return Err(UserError::new(
                    ErrorKind::Secret,
                    format!(
                        "`{reference}`: `{path}` {what}, which stack `{}` may not read",
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

    /// Returns the other files that share a data key or a value with a file.
    fn copies_of(&self, path: &RepoPath) -> Result<Vec<Found>, UserError> {
        let mut known = self.copies.lock().expect("no panic while the lock is held");
        if let Some(copies) = known.get(path) {
            return Ok(copies.clone());
        }
        let copies = self.find(path).map_err(|error| {
            let what = format!("`{path}` cannot be compared with the other files that SOPS encrypted");
            UserError::from_error(ErrorKind::Secret, error).context(what)
            .hint("fetch all earlier commits (`fetch-depth: 0`, or `git fetch --unshallow`): they show whether the stack reads a copy of a file that it may not read")
            .hint(format!("or add the value `konverge_path: {path}` with `sops edit`: a file that contains its own path is not compared"))
        })?;
        known.insert(path.clone(), copies.clone());
        Ok(copies)
    }

    fn find(&self, path: &RepoPath) -> Result<Vec<Found>, SourceError> {
        let Some(source) = &self.source else {
            return Ok(Vec::new());
        };
        let own = source.read_path(path)?;
        let Some(mark) = own.and_then(|bytes| SopsFileMark::read(path.as_str(), &bytes)) else {
            return Ok(Vec::new());
        };
        let encrypted = self.encrypted.get_or_init(|| read_all(source.as_ref()));
        let others = encrypted.as_ref().map_err(Clone::clone)?.iter();
        let others = others.filter(|(version, _)| version.path != *path);
        let copies = others.filter_map(|(version, text)| Some((version.clone(), mark.in_common(text)?)));
        Ok(copies.collect())
    }
}

fn read_all(source: &dyn Source) -> Result<Vec<(FileVersion, Arc<SopsText>)>, SourceError> {
    let now = source.files().iter();
    let now = now.filter(|(_, entry)| entry.kind == FileKind::File);
    let now = now.map(|(path, entry)| (path.clone(), None, entry.blob));
    let before = source.earlier_files()?.into_iter();
    let before = before.map(|file| (file.path, Some(file.commit), file.blob));
    let mut read = HashMap::new();
    let mut encrypted = Vec::new();
    for (path, commit, blob) in now.chain(before) {
        // KCL files are skipped, because they are no SOPS files and most files are KCL.
        if path.as_str().ends_with(".k") {
            continue;
        }
        let text = match read.entry(blob) {
            Entry::Occupied(text) => text.into_mut(),
            Entry::Vacant(empty) => {
                let bytes = source.read(blob)?;
                let has_word = bytes.windows(WORD.len()).any(|window| window == WORD);
                empty.insert(has_word.then(|| Arc::new(SopsText::read(&bytes))))
            }
        };
        if let Some(text) = text {
            encrypted.push((FileVersion { path, commit }, Arc::clone(text)));
        }
    }
    Ok(encrypted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{Files, id, stack};
    use konverge_config::Config;
    use konverge_secrets::SecretTemplate;

    fn fixture(name: &str) -> String {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/sops");
        std::fs::read_to_string(folder.join(name)).unwrap()
    }

    /// May stack `shop/prod`, which reads `secrets/shop/*`, read `secrets/shop/db.yaml` among these files?
    fn check(files: Files) -> Result<(), UserError> {
        let config = "version: 1\nsecrets: {stores: {files: {kind: sops, allow: [{stacks: 'appops/shop/*', paths: 'secrets/shop/*'}]}}}\n";
        let config = Config::parse(config).unwrap().secrets;
        let template = SecretTemplate::parse("ref+files://secrets/shop/db.yaml#/password");
        let template = template.unwrap().unwrap();
        let reference = template.whole().unwrap();
        let (stack, folder) = (id("shop/prod"), stack("shop/prod").folder);
        let reader = SecretReader {
            stack: &stack,
            folder: &folder,
        };
        SopsCopies::new(Some(Arc::new(files))).check(&config, reader, [reference])
    }

    #[test]
    fn a_copy_of_a_file_that_the_stack_may_not_read_is_refused_wherever_the_original_is() {
        let text = fixture("db-1.yaml");
        let own = ("secrets/shop/db.yaml", text.as_str());
        check(Files::new(&[own])).unwrap();
        let copied = check(Files::new(&[own, ("secrets/pay/db.yaml", &text)])).unwrap_err();
        assert_eq!(copied.kind, ErrorKind::Secret);
        assert!(copied.message.contains("has the same data key as "), "{copied}");
        assert!(copied.message.contains("secrets/pay/db.yaml"), "{copied}");
        // Somebody changed or deleted the original since.
        let earlier = check(Files::new(&[own]).with_earlier("secrets/pay/db.yaml", &text)).unwrap_err();
        assert!(
            earlier.message.contains("which stack `shop/prod` may not read"),
            "{earlier}"
        );
        // Its name does not say that SOPS encrypted it.
        let renamed = check(Files::new(&[own, ("docs/notes.txt", &text)])).unwrap_err();
        assert!(renamed.message.contains("docs/notes.txt"), "{renamed}");
    }

    #[test]
    fn a_file_of_its_own_and_a_copy_that_the_stack_may_read_are_no_foreign_copy() {
        let (one, other) = (fixture("db-1.yaml"), fixture("all.yaml"));
        let own = ("secrets/shop/db.yaml", one.as_str());
        check(Files::new(&[own, ("secrets/shop/copy.yaml", &one)])).unwrap();
        check(Files::new(&[own, ("secrets/pay/db.yaml", &other)])).unwrap();
        check(Files::new(&[])).unwrap();
    }

    /// It states its own path, which is checked when it is decrypted.
    #[test]
    fn a_file_with_its_own_path_is_not_compared() {
        let text = fixture("own.yaml");
        let files = [
            ("secrets/shop/db.yaml", text.as_str()),
            ("secrets/pay/db.yaml", &text),
        ];
        check(Files::new(&files)).unwrap();
    }
}
