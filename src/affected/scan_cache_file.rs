//! The file of the scan cache.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{FileScan, ScanCache, cache_file, codec};
use crate::model::{Digest, file_source::BlobId};

/// The header. The number changes with the format or with what the scanner finds, at the latest with the next
/// version.
const HEADER: &[u8] = concat!("konverge import index 3 ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();

impl ScanCache {
    /// The path of a repository's scan cache among the caches of this machine.
    pub fn location(caches: &Path, repository: &Path) -> Option<PathBuf> {
        let repository = repository.canonicalize().ok()?;
        let key = Digest::of_bytes(repository.as_os_str().as_encoded_bytes()).short();
        Some(caches.join("affected").join(format!("{key}.index")))
    }

    /// The cache of a file, which is read only when that is worth it. A missing, damaged or incompatible file
    /// gives an empty cache.
    pub fn load(path: &Path) -> Self {
        Self::open(path.to_owned())
    }

    /// Writes the cache if it has grown.
    ///
    /// # Errors
    /// The folder cannot be written. Results never depend on this.
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        if !self.has_grown() {
            return Ok(());
        }
        self.is_saved();
        cache_file::write(path, HEADER, &codec::bytes_of(&self.sorted_entries()))
    }
}

/// Reads the content of a cache file.
pub(super) fn read(path: &Path) -> HashMap<BlobId, Arc<FileScan>> {
    let bytes = cache_file::read(path, HEADER);
    let all = bytes.and_then(|bytes| codec::value_of::<Vec<(BlobId, Arc<FileScan>)>>(&bytes));
    all.unwrap_or_default().into_iter().collect()
}
