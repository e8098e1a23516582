//! How much of a package is fetched before its checksum is known: a server may be hostile, and so may be whoever chose
//! the package.

use std::time::Duration;

/// The bounds of one package. They are far above any package that is published, and far below what hurts a runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes over the network: an archive, or a pack of git.
    pub transferred: u64,
    /// Bytes of all files, unpacked.
    pub unpacked: u64,
    /// How many files.
    pub files: u64,
    /// The time for all of it.
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

/// Counts what is unpacked.
pub(super) struct Count {
    bounds: Bounds,
    bytes: u64,
    files: u64,
}

impl Count {
    pub(super) fn of(bounds: Bounds) -> Self {
        Self {
            bounds,
            bytes: 0,
            files: 0,
        }
    }

    /// Takes one more file.
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
