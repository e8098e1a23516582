//! Files of the cache: written whole and renamed into place, so that no reader ever sees half of one and of two writers
//! the last wins; checked whole when they are read.

use std::{io::Write, path::Path};

use crate::model::Digest;

/// More than this is no file of ours (bytes).
const MAX_SIZE: u64 = 1 << 30;

/// What stands between the header and the checksum; `None` for what is missing, damaged or of another format.
pub(super) fn read(path: &Path, header: &[u8]) -> Option<Vec<u8>> {
    let sane = std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= MAX_SIZE);
    let mut bytes = sane.then(|| std::fs::read(path).ok())??;
    let body = body(&bytes, header)?;
    let range = header.len()..header.len() + body.len();
    bytes.truncate(range.end);
    bytes.drain(..range.start);
    Some(bytes)
}

/// Writes header, body and checksum.
pub(super) fn write(path: &Path, header: &[u8], body: &[u8]) -> std::io::Result<()> {
    let Some(folder) = path.parent() else {
        return Ok(());
    };
    std::fs::create_dir_all(folder)?;
    let bytes = sealed(header, body);
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&bytes)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

fn sealed(header: &[u8], body: &[u8]) -> Vec<u8> {
    let mut bytes = [header, body].concat();
    let sum = Digest::of_bytes(&bytes);
    bytes.extend_from_slice(sum.as_bytes());
    bytes
}

fn body<'a>(bytes: &'a [u8], header: &[u8]) -> Option<&'a [u8]> {
    let (front, sum) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
    let body = front.strip_prefix(header)?;
    (Digest::of_bytes(front).as_bytes() == sum).then_some(body)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_damaged_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep").join("x");
        assert_eq!(read(&path, b"header"), None);
        write(&path, b"header", b"the body").unwrap();
        assert_eq!(read(&path, b"header").as_deref(), Some(&b"the body"[..]));
        assert_eq!(read(&path, b"Header"), None);
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
}
