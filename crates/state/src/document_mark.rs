//! Marks of documents, used if states are encrypted. A mark proves that the writer holds a key.
//!
//! age alone does not authenticate: everybody who knows the public recipients can encrypt to them. So the
//! writer of a document adds a keyed hash for each recipient. The hash's key is the shared secret of the
//! writer's and the reader's X25519 keys, for which one of the two private keys is needed. A reader accepts
//! the marks of recipients in `state.encrypt_to`, of data keys and of its own identities.

use age::secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use x25519_dalek::{PublicKey, StaticSecret};
use zeroize::Zeroizing;

use crate::store::Key;

/// The context of the key derivation. Another purpose must use another context.
const PURPOSE: &str = "konverge 2026-11 document: who wrote it holds a key of state.encrypt_to";

/// A keyed hash over a document and its key in the store, by a writer for one reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DocumentMark {
    /// The age recipient of the writer.
    pub by: String,
    /// The age recipient of the reader.
    #[serde(rename = "for")]
    pub reader: String,
    hash: String,
}

impl DocumentMark {
    /// Creates a mark; `None` if the reader is not an age recipient.
    pub(crate) fn new(
        writer: &age::x25519::Identity,
        reader: &str,
        place: &Key,
        bytes: &[u8],
    ) -> Option<Self> {
        let by = writer.to_public().to_string();
        let key = common_key(writer, reader, &by, reader)?;
        Some(Self {
            hash: hash(&key, place, bytes).to_hex().to_string(),
            by,
            reader: reader.to_owned(),
        })
    }

    /// Returns true if the named writer, or the reader itself, made the mark: both know its key.
    pub(crate) fn is_valid(&self, reader: &age::x25519::Identity, place: &Key, bytes: &[u8]) -> bool {
        let written = blake3::Hash::from_hex(&self.hash).ok();
        let key = common_key(reader, &self.by, &self.by, &self.reader);
        // The comparison takes constant time, because it compares `blake3` hashes.
        written.is_some_and(|written| key.is_some_and(|key| hash(&key, place, bytes) == written))
    }
}

fn hash(key: &[u8; 32], place: &Key, bytes: &[u8]) -> blake3::Hash {
    let place = place.as_str();
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&(place.len() as u64).to_le_bytes());
    hasher.update(place.as_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// Derives the shared key of a private key's holder and another recipient, for marks from `by` to `reader`.
fn common_key(
    own: &age::x25519::Identity,
    other: &str,
    by: &str,
    reader: &str,
) -> Option<Zeroizing<[u8; 32]>> {
    let secret = own.to_string();
    let secret = StaticSecret::from(*key_bytes(secret.expose_secret(), "age-secret-key-")?);
    let common = secret.diffie_hellman(&PublicKey::from(*key_bytes(other, "age")?));
    // A public key of low order has the same shared secret with every other key, so it is refused.
    if !common.was_contributory() {
        return None;
    }
    let mut material = Zeroizing::new(common.as_bytes().to_vec());
    for name in [by, reader] {
        material.extend_from_slice(name.as_bytes());
        material.push(0);
    }
    Some(Zeroizing::new(blake3::derive_key(PURPOSE, &material)))
}

/// Decodes the bytes of an age key, which is written in Bech32.
fn key_bytes(text: &str, kind: &str) -> Option<Zeroizing<[u8; 32]>> {
    let (found, bytes) = bech32::decode(text).ok()?;
    let bytes = Zeroizing::new(bytes);
    let is_kind = found.as_str().eq_ignore_ascii_case(kind);
    let bytes = is_kind.then(|| <[u8; 32]>::try_from(bytes.as_slice()).ok())?;
    bytes.map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public(identity: &age::x25519::Identity) -> String {
        identity.to_public().to_string()
    }

    #[test]
    fn a_mark_is_made_and_checked_with_either_private_key_alone() {
        let [writer, reader, other] = std::array::from_fn(|_| age::x25519::Identity::generate());
        let place = Key::from_components(&["stacks", "a", "state", "1"]);
        let mark = DocumentMark::new(&writer, &public(&reader), &place, b"text").unwrap();
        for holder in [&writer, &reader] {
            // The writer's own check is the reader's with the names exchanged, which nobody needs: it has a mark of its
            // own.
            assert_eq!(
                mark.is_valid(holder, &place, b"text"),
                std::ptr::eq(holder, &reader)
            );
        }
        assert!(!mark.is_valid(&other, &place, b"text"));
        assert!(!mark.is_valid(&reader, &place, b"Text"));
        let elsewhere = Key::from_components(&["stacks", "b", "state", "1"]);
        assert!(!mark.is_valid(&reader, &elsewhere, b"text"));
        // Somebody else cannot speak for the writer.
        let theirs = DocumentMark::new(&other, &public(&reader), &place, b"text").unwrap();
        let forged = DocumentMark {
            by: public(&writer),
            ..theirs
        };
        assert!(!forged.is_valid(&reader, &place, b"text"));
    }

    #[test]
    fn what_is_not_a_recipient_or_of_low_order_has_no_key_in_common() {
        let writer = age::x25519::Identity::generate();
        let place = Key::from_components(&["k"]);
        let low = bech32::encode::<bech32::Bech32>(bech32::Hrp::parse("age").unwrap(), &[0; 32]).unwrap();
        for reader in ["passphrase", "age1nonsense", &low] {
            assert_eq!(DocumentMark::new(&writer, reader, &place, b"x"), None, "{reader}");
        }
    }
}
