//! Files in memory. The clear text of a Terraform state, plan or module is never written to a disk, and
//! disappears with this process even if it is killed.

use std::{
    fs::File,
    io,
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::PathBuf,
};

/// An anonymous file of this process. Child processes of the same user open it by [`MemoryFile::path`].
#[derive(Debug)]
pub(super) struct MemoryFile {
    file: File,
}

/// The length of a file and the time of its last write in seconds and nanoseconds, by which a write is
/// noticed.
pub(super) type Stamp = (u64, i64, i64);

impl MemoryFile {
    /// Creates a file with this content. The `name` is visible only in `/proc`.
    pub(super) fn new(name: &str, content: &[u8]) -> io::Result<Self> {
        let file = anonymous(name)?;
        file.write_all_at(content, 0)?;
        Ok(Self { file })
    }

    /// Returns the path for other processes of the same user. It is valid as long as this value lives.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// Returns the content of the file, which may be incomplete while another process writes.
    pub(super) fn read(&self) -> io::Result<Vec<u8>> {
        let mut content = vec![0; usize::try_from(self.file.metadata()?.len()).unwrap_or(usize::MAX)];
        let mut at = 0;
        while at < content.len() {
            match self.file.read_at(&mut content[at..], at as u64)? {
                0 => break,
                read => at += read,
            }
        }
        content.truncate(at);
        Ok(content)
    }

    /// Returns the stamp of the last write.
    pub(super) fn stamp(&self) -> io::Result<Stamp> {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = self.file.metadata()?;
        Ok((metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
    }
}

#[cfg(target_os = "linux")]
fn anonymous(name: &str) -> io::Result<File> {
    use nix::sys::memfd::{MFdFlags, memfd_create};
    Ok(File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?))
}

#[cfg(not(target_os = "linux"))]
fn anonymous(_: &str) -> io::Result<File> {
    Err(io::Error::new(
        io::ErrorKind::Unsupported,
        "this system has no files in memory, and a state in clear text is not written to a disk; run it on Linux, \
         or compare Specs alone: `konverge preview --live never`",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_openers_see_the_content_and_their_writes_are_seen() {
        let memory = MemoryFile::new("test", b"before").unwrap();
        assert_eq!(std::fs::read(memory.path()).unwrap(), b"before");
        std::fs::write(memory.path(), b"then").unwrap();
        assert_eq!(memory.read().unwrap(), b"then");
        assert_eq!(memory.stamp().unwrap().0, 4);
    }
}
