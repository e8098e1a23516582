//! [`Facts`]: all that the analysis needs to know of a file's content, small enough to keep for every file.

use super::{Import, rules::reads_files, scan};

/// What a `.k` file's content says about other files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Its imports: leading dots and path, sorted, each once.
    pub imports: Vec<(u32, String)>,
    /// What it may read at run time.
    pub reads: Reads,
}

/// Files that a `.k` file may read at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reads {
    /// It imports no module that reads files.
    #[default]
    Nothing,
    /// Whatever the core lets it read.
    Anything,
}

impl Facts {
    /// Reads them off a content.
    pub fn of(bytes: &[u8]) -> Self {
        let found = scan(bytes);
        let reads = if found
            .iter()
            .any(|import| import.dots == 0 && reads_files(import.first()))
        {
            Reads::Anything
        } else {
            Reads::Nothing
        };
        let mut imports: Vec<_> = found
            .into_iter()
            .map(|Import { dots, path, .. }| (dots, path))
            .collect();
        imports.sort_unstable();
        imports.dedup();
        Self { imports, reads }
    }

    /// Appends the binary form: `reads`, then a count, then dots, length and text of each import (little endian).
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.reads == Reads::Anything));
        out.extend_from_slice(&(self.imports.len() as u32).to_le_bytes());
        for (dots, path) in &self.imports {
            out.extend_from_slice(&dots.to_le_bytes());
            out.extend_from_slice(&(path.len() as u32).to_le_bytes());
            out.extend_from_slice(path.as_bytes());
        }
    }

    /// Reads the binary form from the front of `bytes`; `None` if it is not one.
    pub(super) fn read(bytes: &mut &[u8]) -> Option<Self> {
        let reads = match take(bytes, 1)?[0] {
            0 => Reads::Nothing,
            1 => Reads::Anything,
            _ => return None,
        };
        let count = number(bytes)?;
        let mut imports = Vec::new();
        for _ in 0..count {
            let dots = number(bytes)?;
            let length = number(bytes)?;
            let path = std::str::from_utf8(take(bytes, length as usize)?).ok()?;
            imports.push((dots, path.to_owned()));
        }
        Some(Self { imports, reads })
    }
}

pub(super) fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (front, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(front)
}

pub(super) fn number(bytes: &mut &[u8]) -> Option<u32> {
    take(bytes, 4)?.try_into().ok().map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn binary_form_round_trips_and_refuses_truncation() {
        let facts = Facts::of(b"import b\nimport ..a\nimport file\nimport b");
        assert_eq!(
            facts.imports,
            [(0, "b".to_owned()), (0, "file".to_owned()), (2, "a".to_owned())]
        );
        assert_eq!(facts.reads, Reads::Anything);
        let mut bytes = Vec::new();
        facts.write(&mut bytes);
        assert_eq!(Facts::read(&mut bytes.as_slice()).unwrap(), facts);
        for end in 0..bytes.len() {
            assert_eq!(Facts::read(&mut &bytes[..end]), None, "{end}");
        }
    }
}
