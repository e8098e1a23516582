//! Writes a file atomically: into a temporary file in the same folder, which is then renamed. The
//! last of two writers wins. Only this user may read the file.

use std::{
    io::{Result, Write as _},
    path::Path,
};

/// Writes a file that may be lost: a cache. Missing folders are created.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    write_and(path, bytes, |_| Ok(()))
}

/// Writes a file like [`write()`], but one that must not be lost: it is on the disk when this returns.
///
/// # Errors
/// Errors of [`write()`].
pub fn write_durable(path: &Path, bytes: &[u8]) -> Result<()> {
    write_and(path, bytes, std::fs::File::sync_all)
}

fn write_and(path: &Path, bytes: &[u8], finish: impl Fn(&std::fs::File) -> Result<()>) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    // A temporary file is made for this user only, and keeps that when it is renamed.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    finish(file.as_file())?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_read_by_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/file");
        write(&path, b"first").unwrap();
        write_durable(&path, b"second").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert!(write(&folder.path().join("new/file/below"), b"").is_err());
    }
}
