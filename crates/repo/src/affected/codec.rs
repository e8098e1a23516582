//! [`Encode`]: the binary format of caches. Numbers are little endian, and lists are prefixed with their
//! length. Each path is stored once and then referred to by its number. Decoding invalid input returns `None` and never
//! panics.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;

use konverge_base::model::{Digest, RepoPath, file_source::BlobId};

/// The output of an encoder.
#[derive(Default)]
pub(super) struct ByteWriter {
    body: Vec<u8>,
    paths: Vec<u8>,
    known: HashMap<RepoPath, u32>,
}

/// The input of a decoder.
pub(super) struct ByteReader<'a> {
    rest: &'a [u8],
    paths: Vec<RepoPath>,
}

/// A type with a binary encoding.
pub(super) trait Encode: Sized {
    /// Appends the encoding of the value.
    fn put(&self, out: &mut ByteWriter);
    /// Decodes a value from the start of the input.
    fn take(from: &mut ByteReader<'_>) -> Option<Self>;
}

/// Encodes a value, preceded by the table of its paths.
pub(super) fn bytes_of(value: &impl Encode) -> Vec<u8> {
    let mut out = ByteWriter::default();
    value.put(&mut out);
    let mut bytes = (out.known.len() as u32).to_le_bytes().to_vec();
    bytes.append(&mut out.paths);
    bytes.append(&mut out.body);
    bytes
}

/// Decodes a value. Returns `None` if it does not use all bytes.
pub(super) fn value_of<T: Encode>(bytes: &[u8]) -> Option<T> {
    let mut from = ByteReader {
        rest: bytes,
        paths: Vec::new(),
    };
    let count = u32::take(&mut from)?;
    for _ in 0..count {
        let path = RepoPath::from_kept(from.text()?);
        from.paths.push(path);
    }
    let value = T::take(&mut from)?;
    from.rest.is_empty().then_some(value)
}

impl<'a> ByteReader<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(front)
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = u32::take(self)?;
        std::str::from_utf8(self.bytes(length as usize)?).ok()
    }
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Encode for $type {
            fn put(&self, out: &mut ByteWriter) {
                out.body.extend_from_slice(&self.to_le_bytes());
            }
            fn take(from: &mut ByteReader<'_>) -> Option<Self> {
                from.bytes(size_of::<$type>())?.try_into().ok().map(<$type>::from_le_bytes)
            }
        }
    )*};
}
numbers!(u8, u32);

/// Implements [`Encode`] for a struct: its fields in order.
macro_rules! encode_fields {
    ($type:path: $($field:ident),*) => {
        impl $crate::affected::codec::Encode for $type {
            fn put(&self, out: &mut $crate::affected::codec::ByteWriter) {
                let Self { $($field),* } = self;
                $($crate::affected::codec::Encode::put($field, out);)*
            }
            fn take(from: &mut $crate::affected::codec::ByteReader<'_>) -> Option<Self> {
                $(let $field = $crate::affected::codec::Encode::take(from)?;)*
                Some(Self { $($field),* })
            }
        }
    };
}
pub(super) use encode_fields;

/// Implements [`Encode`] for an enum: the number of the variant, first those without data, then those with one value.
macro_rules! encode_cases {
    ($type:path: $($plain:ident),* $(; $($holding:ident),*)?) => {
        impl $crate::affected::codec::Encode for $type {
            fn put(&self, out: &mut $crate::affected::codec::ByteWriter) {
                let mut cases = 0_u8..;
                $(let case = cases.next();
                if matches!(self, Self::$plain) {
                    return case.unwrap_or_default().put(out);
                })*
                $($(let case = cases.next();
                if let Self::$holding(value) = self {
                    case.unwrap_or_default().put(out);
                    return value.put(out);
                })*)?
            }
            fn take(from: &mut $crate::affected::codec::ByteReader<'_>) -> Option<Self> {
                let (case, mut cases) = (u8::take(from)?, 0_u8..);
                $(if cases.next() == Some(case) {
                    return Some(Self::$plain);
                })*
                $($(if cases.next() == Some(case) {
                    return $crate::affected::codec::Encode::take(from).map(Self::$holding);
                })*)?
                None
            }
        }
    };
}
pub(super) use encode_cases;

impl Encode for bool {
    fn put(&self, out: &mut ByteWriter) {
        u8::from(*self).put(out);
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        match u8::take(from)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Encode for String {
    fn put(&self, out: &mut ByteWriter) {
        (self.len() as u32).put(out);
        out.body.extend_from_slice(self.as_bytes());
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        from.text().map(str::to_owned)
    }
}

impl Encode for RepoPath {
    fn put(&self, out: &mut ByteWriter) {
        let number = match out.known.get(self) {
            Some(number) => *number,
            None => {
                let number = out.known.len() as u32;
                out.paths
                    .extend_from_slice(&(self.as_str().len() as u32).to_le_bytes());
                out.paths.extend_from_slice(self.as_str().as_bytes());
                out.known.insert(self.clone(), number);
                number
            }
        };
        number.put(out);
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        let number = u32::take(from)?;
        from.paths.get(number as usize).cloned()
    }
}

impl Encode for BlobId {
    fn put(&self, out: &mut ByteWriter) {
        out.body.extend_from_slice(&self.0);
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        from.bytes(20)?.try_into().ok().map(BlobId)
    }
}

impl Encode for Digest {
    fn put(&self, out: &mut ByteWriter) {
        out.body.extend_from_slice(self.as_bytes());
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        from.bytes(32)?.try_into().ok().map(Digest::from_bytes)
    }
}

impl Encode for usize {
    fn put(&self, out: &mut ByteWriter) {
        (*self as u32).put(out);
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        u32::take(from)?.try_into().ok()
    }
}

impl<T: Encode> Encode for Option<T> {
    fn put(&self, out: &mut ByteWriter) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        if bool::take(from)? {
            T::take(from).map(Some)
        } else {
            Some(None)
        }
    }
}

impl<T: Encode, E: Encode> Encode for Result<T, E> {
    fn put(&self, out: &mut ByteWriter) {
        self.is_ok().put(out);
        match self {
            Ok(value) => value.put(out),
            Err(error) => error.put(out),
        }
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        if bool::take(from)? {
            T::take(from).map(Ok)
        } else {
            E::take(from).map(Err)
        }
    }
}

impl<T: Encode> Encode for Vec<T> {
    fn put(&self, out: &mut ByteWriter) {
        (self.len() as u32).put(out);
        self.iter().for_each(|value| value.put(out));
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        let count = u32::take(from)? as usize;
        // A damaged list may claim any length, so no more memory is reserved than the rest of the input can hold.
        let mut values = Vec::with_capacity(count.min(from.rest.len()));
        for _ in 0..count {
            values.push(T::take(from)?);
        }
        Some(values)
    }
}

impl<T: Encode> Encode for Arc<T> {
    fn put(&self, out: &mut ByteWriter) {
        T::put(self, out);
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        T::take(from).map(Arc::new)
    }
}

impl<A: Encode, B: Encode> Encode for (A, B) {
    fn put(&self, out: &mut ByteWriter) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        Some((A::take(from)?, B::take(from)?))
    }
}

impl<A: Encode, B: Encode, C: Encode> Encode for (A, B, C) {
    fn put(&self, out: &mut ByteWriter) {
        self.0.put(out);
        self.1.put(out);
        self.2.put(out);
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        Some((A::take(from)?, B::take(from)?, C::take(from)?))
    }
}

/// Encodes a JSON value as text, because there are few such values.
impl Encode for Value {
    fn put(&self, out: &mut ByteWriter) {
        self.to_string().put(out);
    }
    fn take(from: &mut ByteReader<'_>) -> Option<Self> {
        serde_json::from_str(from.text()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_is_read_and_nothing_less() {
        let path = |text: &str| RepoPath::normalize(text).unwrap();
        let value = vec![
            (
                path("a/b"),
                json!({"z": [1, -1, 0.1, 1e300, true, null], "a": "ü"}),
            ),
            (path("a/b"), json!(u64::MAX)),
            (path(""), json!(i64::MIN)),
        ];
        let bytes = bytes_of(&value);
        let back: Vec<(RepoPath, Value)> = value_of(&bytes).unwrap();
        assert_eq!(back, value);
        assert_eq!(back[0].1.to_string(), value[0].1.to_string());
        for end in 0..bytes.len() {
            assert_eq!(
                value_of::<Vec<(RepoPath, Value)>>(&bytes[..end]),
                None,
                "cut at {end}"
            );
        }
        let longer = [bytes.as_slice(), b"x"].concat();
        assert_eq!(value_of::<Vec<(RepoPath, Value)>>(&longer), None);
    }
}
