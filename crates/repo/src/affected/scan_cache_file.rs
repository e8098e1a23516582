//! The file of the scan cache.

use std::{collections::HashMap, path::Path, sync::Arc};

use super::{FileScan, cache_file, codec};
use konverge_base::model::file_source::BlobId;

/// The header. Its number changes with the format or with the results of the scanner, and the package version is part
/// of it, so each release starts with a new cache.
const HEADER: &[u8] = concat!("konverge import index 4 ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();

/// Reads the content of a cache file.
pub(super) fn read(path: &Path) -> HashMap<BlobId, Arc<FileScan>> {
    let bytes = cache_file::read(path, HEADER);
    let all = bytes.and_then(|bytes| codec::value_of::<Vec<(BlobId, Arc<FileScan>)>>(&bytes));
    all.unwrap_or_default().into_iter().collect()
}

/// Writes entries, sorted by content id, into the file at a path.
pub(super) fn write(path: &Path, entries: &Vec<(BlobId, Arc<FileScan>)>) -> std::io::Result<()> {
    cache_file::write(path, HEADER, &codec::bytes_of(entries))
}
