//! The limits for fetching a package. They are needed because its checksum is not known yet: the server, or the person
//! who chose the package, may be hostile.

use std::time::Duration;

/// The limits of one package. They are far above any published package, and far below what would harm a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The maximum number of bytes over the network (an archive, or a git pack).
    pub transferred: u64,
    /// The maximum number of bytes of all unpacked files.
    pub unpacked: u64,
    /// The maximum number of files.
    pub files: u64,
    /// The maximum total time.
    pub time: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            transferred: 256 << 20,
            unpacked: 512 << 20,
            files: 50_000,
            time: Duration::from_secs(300),
        }
    }
}

/// Counts the unpacked files and bytes.
pub(super) struct Count {
    bounds: Bounds,
    bytes: u64,
    files: u64,
}

impl Count {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            bytes: 0,
            files: 0,
        }
    }

    /// Counts one more file. Returns an error above a limit.
    pub(super) fn add(&mut self, bytes: u64) -> Result<(), String> {
        self.bytes = self.bytes.saturating_add(bytes);
        self.files += 1;
        if self.bytes > self.bounds.unpacked {
            return Err(format!("its files hold more than {} bytes", self.bounds.unpacked));
        }
        if self.files > self.bounds.files {
            return Err(format!("it holds more than {} files", self.bounds.files));
        }
        Ok(())
    }
}
