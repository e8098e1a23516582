//! [`Digest`]: a BLAKE3 hash of the meaning of data (canonical JSON, sorted parts), never of a text that
//! can be formatted in several ways.

use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// 256 bits of BLAKE3, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, derive_more::Debug, derive_more::Display)]
#[debug("{self}")]
#[display("{}", blake3::Hash::from_bytes(*_0).to_hex())]
pub struct Digest([u8; 32]);

impl Digest {
    /// Returns the digest of bytes. Use [`DigestBuilder`] for several parts.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Returns the digest of a JSON value by its meaning: keys are sorted, white space is ignored. The order of lists
    /// matters, and `1` and `1.0` differ.
    pub fn of_json(value: &Value) -> Self {
        let mut text = Vec::new();
        write_canonical(value, &mut text);
        Self::of_bytes(&text)
    }

    /// Returns the digest of a map; equal to [`Digest::of_json`] of the same map.
    pub fn of_map(map: &Map<String, Value>) -> Self {
        let mut text = Vec::new();
        write_map(map, &mut text);
        Self::of_bytes(&text)
    }

    /// Returns the digest of a set: the order of the parts does not matter.
    pub fn of_set(parts: impl IntoIterator<Item = Digest>) -> Self {
        let mut parts: Vec<_> = parts.into_iter().collect();
        parts.sort_unstable();
        let mut hasher = blake3::Hasher::new();
        for part in &parts {
            hasher.update(&part.0);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// Returns the 32 bytes of the hash.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the first 12 hexadecimal digits, for display.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }
}

/// Computes a digest of several parts. Each part is prefixed by its length, so that different lists of parts
/// never give the same digest.
#[derive(Default)]
pub struct DigestBuilder(blake3::Hasher);

impl DigestBuilder {
    /// Starts a digest with a domain, so that digests for different purposes differ.
    pub fn new(domain: &str) -> Self {
        let mut builder = Self::default();
        builder.part(domain.as_bytes());
        builder
    }

    /// Adds one part with its length.
    pub fn part(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.update(&(bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
        self
    }

    /// Returns the digest of all parts so far.
    pub fn finish(&self) -> Digest {
        Digest(*self.0.finalize().as_bytes())
    }
}

/// Returns the canonical JSON text of a value: keys sorted by code point, no white space.
pub fn canonical_json(value: &Value) -> String {
    let mut bytes = Vec::new();
    write_canonical(value, &mut bytes);
    String::from_utf8(bytes).expect("serde_json writes UTF-8")
}

fn write_canonical(value: &Value, text: &mut Vec<u8>) {
    match value {
        Value::Object(map) => write_map(map, text),
        Value::Array(items) => {
            text.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(b',');
                }
                write_canonical(item, text);
            }
            text.push(b']');
        }
        scalar => write_scalar(scalar, text),
    }
}

fn write_map(map: &Map<String, Value>, text: &mut Vec<u8>) {
    let mut pairs: Vec<_> = map.iter().collect();
    pairs.sort_unstable_by_key(|(key, _)| *key);
    text.push(b'{');
    for (index, (key, value)) in pairs.into_iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        write_scalar(key, text);
        text.push(b':');
        write_canonical(value, text);
    }
    text.push(b'}');
}

fn write_scalar(scalar: &impl Serialize, text: &mut Vec<u8>) {
    serde_json::to_writer(text, scalar).expect("a scalar is JSON, and memory takes all");
}

/// The error for a text that is not a digest of 64 hexadecimal digits.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a digest (64 hexadecimal digits)")]
pub struct InvalidDigest(String);

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        blake3::Hash::from_hex(text)
            .map(|hash| Self(*hash.as_bytes()))
            .map_err(|_| InvalidDigest(text.to_owned()))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            self.0.serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return Deserialize::deserialize(deserializer).map(Self);
        }
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn key_order_does_not_matter_but_list_order_does() {
        assert_eq!(
            Digest::of_json(&json!({"a": 1, "b": 2})),
            Digest::of_json(&json!({"b": 2, "a": 1}))
        );
        assert_ne!(Digest::of_json(&json!([1, 2])), Digest::of_json(&json!([2, 1])));
        assert_ne!(Digest::of_json(&json!("1")), Digest::of_json(&json!(1)));
    }

    #[test]
    fn parts_do_not_run_into_each_other() {
        let digest = |parts: &[&str]| {
            let mut builder = DigestBuilder::new("test");
            for part in parts {
                builder.part(part.as_bytes());
            }
            builder.finish()
        };
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
    }

    #[test]
    fn text_form_round_trips() {
        let digest = Digest::of_bytes(b"x");
        assert_eq!(digest.to_string().parse::<Digest>().ok(), Some(digest));
    }
}
