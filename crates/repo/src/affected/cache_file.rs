//! Reads and writes cache files. Each has a checksum, which is verified when the file is read.

use std::{
    io::ErrorKind,
    path::Path,
    time::{Duration, SystemTime},
};

use konverge_base::{atomic_file, model::Digest};
use serde::{Serialize, de::DeserializeOwned};

/// The maximum size in bytes. A larger file was not written by Konverge and is ignored.
const MAX_SIZE: u64 = 1 << 30;

/// Returns the value between the header and the checksum; `None` for a missing, damaged or incompatible file.
pub(super) fn read<T: DeserializeOwned>(path: &Path, header: &[u8]) -> Option<T> {
    let metadata = std::fs::metadata(path)
        .ok()
        .filter(|metadata| metadata.is_file())?;
    if metadata.len() > MAX_SIZE {
        return None;
    }
    value(body(&std::fs::read(path).ok()?, header)?)
}

/// Writes header, value and checksum.
pub(super) fn write(path: &Path, header: &[u8], value: &impl Serialize) -> std::io::Result<()> {
    let mut bytes = postcard::to_extend(value, header.to_vec()).map_err(std::io::Error::other)?;
    let sum = Digest::of_bytes(&bytes);
    bytes.extend_from_slice(sum.as_bytes());
    atomic_file::write(path, &bytes)
}

/// Decodes a value. Returns `None` if it does not use all bytes.
fn value<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(value)
}

/// Returns the number of cache files in a folder, and their total size in bytes.
///
/// # Errors
/// The folder cannot be listed.
pub fn count_cache_files(folder: &Path) -> std::io::Result<(u64, u64)> {
    each(folder, |_, _| Ok(true))
}

/// Deletes the files that were not written for this long, because their repositories are probably gone. Returns their
/// number and total size in bytes.
///
/// # Errors
/// The folder cannot be listed, or a file cannot be deleted.
pub fn prune_cache_files(folder: &Path, unwritten_for: Duration) -> std::io::Result<(u64, u64)> {
    let now = SystemTime::now();
    each(folder, |path, metadata| {
        let old = now.duration_since(metadata.modified()?).unwrap_or_default() >= unwritten_for;
        if old {
            // Another process may have deleted the file in the meantime.
            unless_gone(std::fs::remove_file(path))?;
        }
        Ok(old)
    })
}

fn each(
    folder: &Path,
    counts: impl Fn(&Path, &std::fs::Metadata) -> std::io::Result<bool>,
) -> std::io::Result<(u64, u64)> {
    let mut sum = (0, 0);
    for entry in unless_gone(std::fs::read_dir(folder))?.into_iter().flatten() {
        let entry = entry?;
        let Some(metadata) = unless_gone(entry.metadata())? else {
            continue;
        };
        if metadata.is_file() && counts(&entry.path(), &metadata)? {
            sum = (sum.0 + 1, sum.1 + metadata.len());
        }
    }
    Ok(sum)
}

/// Converts the error of a missing file to `None`.
fn unless_gone<T>(result: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

fn body<'a>(bytes: &'a [u8], header: &[u8]) -> Option<&'a [u8]> {
    let (front, sum) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
    let body = front.strip_prefix(header)?;
    (Digest::of_bytes(front).as_bytes() == sum).then_some(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affected::RuntimeReads;
    use konverge_base::model::{
        RepoPath,
        affected::InputKind,
        package_lock::LockedPackage,
        stack::{CompileSetup, Stack},
    };
    use serde_json::json;

    #[test]
    fn what_was_not_written_for_long_is_pruned() {
        let folder = tempfile::tempdir().unwrap();
        let day = Duration::from_secs(24 * 3600);
        for name in ["old", "new"] {
            write(&folder.path().join(name), b"header", &()).unwrap();
        }
        let old = std::fs::File::options()
            .append(true)
            .open(folder.path().join("old"));
        old.unwrap().set_modified(SystemTime::now() - 40 * day).unwrap();
        assert_eq!(count_cache_files(folder.path()).unwrap(), (2, 76));
        assert_eq!(prune_cache_files(folder.path(), 30 * day).unwrap(), (1, 38));
        assert!(folder.path().join("new").exists());
        assert!(
            count_cache_files(&folder.path().join("new")).is_err(),
            "it is not a folder"
        );
        std::fs::create_dir(folder.path().join("folder")).unwrap();
        assert_eq!(count_cache_files(folder.path()).unwrap(), (1, 38));
        assert_eq!(prune_cache_files(folder.path(), Duration::ZERO).unwrap(), (1, 38));
        assert_eq!(count_cache_files(&folder.path().join("none")).unwrap(), (0, 0));
    }

    #[test]
    fn a_damaged_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("x");
        assert_eq!(read::<String>(&path, b"header"), None);
        write(&path, b"header", &"the body").unwrap();
        assert_eq!(read::<String>(&path, b"header").as_deref(), Some("the body"));
        assert_eq!(read::<String>(&path, b"Header"), None);
        let whole = std::fs::read(&path).unwrap();
        for end in 0..whole.len() {
            assert_eq!(body(&whole[..end], b"header"), None, "cut at {end}");
        }
        for at in 0..whole.len() {
            let mut bent = whole.clone();
            bent[at] ^= 1;
            assert_eq!(body(&bent, b"header"), None, "bent at {at}");
        }
    }

    #[test]
    fn what_is_written_is_read_and_nothing_less() {
        let path = |text: &str| RepoPath::normalize(text).unwrap();
        let setup = CompileSetup {
            work_dir: path("a/b"),
            module_root: Some(path("")),
            options: vec![
                (
                    "a".to_owned(),
                    json!({"z": [1, -1, 0.1, 1e300, true, null], "a": "ü"}),
                ),
                ("b".to_owned(), json!(u64::MAX)),
                ("c".to_owned(), json!(i64::MIN)),
            ],
            settings_files: vec![path("a/b"), path("a/b")],
            ..CompileSetup::default()
        };
        let sum = Digest::of_bytes(b"a");
        let bytes = postcard::to_stdvec(&(&setup, sum)).unwrap();
        let read = |bytes: &[u8]| value::<(CompileSetup, Digest)>(bytes);
        let back = read(&bytes).unwrap();
        assert_eq!(back, (setup.clone(), sum));
        assert_eq!(back.0.options[0].1.to_string(), setup.options[0].1.to_string());
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), None, "cut at {end}");
        }
        assert_eq!(read(&[bytes.as_slice(), b"x"].concat()), None);
    }

    /// The order in the source is the format. Whoever changes it increases the numbers in the headers.
    #[test]
    fn the_order_of_fields_and_variants_is_as_in_the_caches() {
        let digits = |bytes: Vec<u8>| {
            let digits = bytes.into_iter().filter(u8::is_ascii_digit);
            String::from_utf8(digits.collect()).unwrap()
        };
        let text = |digit: &str| Some(digit.to_owned());
        let package = LockedPackage {
            checksum: text("1"),
            commit: text("2"),
            reference: text("3"),
            version: text("4"),
            address: text("5"),
        };
        assert_eq!(digits(postcard::to_stdvec(&package).unwrap()), "12345");
        let path = |text: &str| RepoPath::normalize(text).unwrap();
        let stack = Stack {
            names: "a/2".parse().unwrap(),
            earlier_names: Some("a/3".parse().unwrap()),
            project_folder: path("5"),
            manifest: path("6"),
            kubeconfig: text("7"),
            ..Stack::new("a/1".parse().unwrap(), path("4"))
        };
        assert_eq!(digits(postcard::to_stdvec(&stack).unwrap()), "1234567");
        let kinds = [
            InputKind::Import,
            InputKind::Entry,
            InputKind::Settings,
            InputKind::Options,
            InputKind::Project,
            InputKind::Stack,
            InputKind::Module,
            InputKind::Data,
            InputKind::Crd,
            InputKind::Config,
            InputKind::Compiler,
            InputKind::Moved,
            InputKind::Unresolved,
            InputKind::Workspace,
            InputKind::Test,
            InputKind::Output,
        ];
        assert_eq!(postcard::to_stdvec(&kinds).unwrap(), (0..16).collect::<Vec<u8>>());
    }

    #[test]
    fn a_wrong_length_or_case_is_none() {
        let long = postcard::to_stdvec(&u64::MAX).unwrap();
        assert_eq!(value::<String>(&long), None);
        assert_eq!(value::<Vec<Digest>>(&long), None);
        let unknown = postcard::to_stdvec(&(3_u32, Vec::<String>::new())).unwrap();
        assert_eq!(value::<RuntimeReads>(&unknown), None);
        let named = RuntimeReads::Named(vec!["a".to_owned(), "b".to_owned()]);
        for reads in [RuntimeReads::Nothing, named, RuntimeReads::Anything] {
            let bytes = postcard::to_stdvec(&reads).unwrap();
            assert_eq!(value::<RuntimeReads>(&bytes), Some(reads));
        }
    }
}
