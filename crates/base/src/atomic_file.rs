//! Writes a file atomically: into a temporary file in the same folder, which is then renamed. If two processes write at
//! once, the last one wins. Only the current user may read the file.

use std::{
    io::{Result, Write as _},
    path::Path,
};

/// Writes a file whose loss does no harm, such as a cache entry. Missing folders are created.
///
/// # Errors
/// The file cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    write_and(path, bytes, |_| Ok(()))
}

/// Writes a file like [`write()`], and syncs it to the disk before the call returns.
///
/// # Errors
/// Errors of [`write()`].
pub fn write_durable(path: &Path, bytes: &[u8]) -> Result<()> {
    write_and(path, bytes, std::fs::File::sync_all)
}

fn write_and(path: &Path, bytes: &[u8], finish: impl Fn(&std::fs::File) -> Result<()>) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    // The temporary file is created with permissions for this user only, and keeps them when it is renamed.
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
