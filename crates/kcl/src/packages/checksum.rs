//! Computes the checksum of `kcl.mod.lock`: SHA-256 over the contents of all files of the package in walking order, in
//! base64, as the official tools do (kpm's `HashDir`). As in kpm, file names are not part of the checksum.

use std::{
    io,
    path::{Path, PathBuf},
};

use base64::Engine;
use sha2::{Digest, Sha256};

/// A file whose path contains one of these texts is skipped. No checksum covers such a file, so it is deleted before
/// the package is used.
const IGNORED: [&str; 2] = [".git", ".tar"];

fn is_ignored(relative: &str) -> bool {
    IGNORED.iter().any(|part| relative.contains(part))
}

/// Deletes the files of a fetched package that its checksum does not cover.
pub(super) fn remove_ignored(folder: &Path) -> io::Result<()> {
    walk(folder, folder, &mut |path, relative| {
        if is_ignored(relative) {
            std::fs::remove_file(path)
        } else {
            Ok(())
        }
    })
}

/// Returns true if a package has files that its checksum does not cover.
pub(super) fn has_ignored(folder: &Path) -> io::Result<bool> {
    let mut found = false;
    walk(folder, folder, &mut |_, relative| {
        found |= is_ignored(relative);
        Ok(())
    })?;
    Ok(found)
}

/// Returns the checksum of the package in a folder.
pub(super) fn compute(folder: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    walk(folder, folder, &mut |path, relative| {
        if !is_ignored(relative) {
            hasher.update(std::fs::read(path)?);
        }
        Ok(())
    })?;
    Ok(base64::engine::general_purpose::STANDARD.encode(hasher.finalize()))
}

/// Returns every regular file below a folder, sorted by name within each folder, as kpm walks them.
pub(super) fn walk(
    root: &Path,
    folder: &Path,
    seen: &mut dyn FnMut(&Path, &str) -> io::Result<()>,
) -> io::Result<()> {
    let mut entries: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    entries.sort_by(|a, b| a.file_name().cmp(&b.file_name()));
    for path in entries {
        let kind = std::fs::symlink_metadata(&path)?;
        if kind.is_dir() {
            walk(root, &path, seen)?;
        } else if kind.is_file() {
            let relative = path.strip_prefix(root).unwrap_or(&path);
            seen(&path, &relative.to_string_lossy())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_hash_of_the_contents_in_walking_order() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        for (name, text) in [
            ("b.k", "3"),
            ("a/z.k", "1"),
            ("a.k", "2"),
            (".git/x", "9"),
            ("p.tar", "9"),
        ] {
            write(name, text);
        }
        // echo -n 123 | sha256sum | xxd -r -p | base64
        assert_eq!(
            compute(folder.path()).unwrap(),
            "pmWkWSBCL51Bfkhn79xPuKBKHz//H6B+mY6G9/eieuM="
        );
        // A file that the checksum does not cover is not used.
        assert!(has_ignored(folder.path()).unwrap());
        remove_ignored(folder.path()).unwrap();
        assert!(!has_ignored(folder.path()).unwrap());
        assert!(!folder.path().join("p.tar").exists() && !folder.path().join(".git/x").exists());
        assert!(folder.path().join("a/z.k").exists());
    }
}
