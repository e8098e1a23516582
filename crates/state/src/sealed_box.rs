//! [`SealedBox`]: bytes that only holders of the age identity can read or write.
//!
//! age alone does not authenticate: its recipients are in `konverge.yaml`, and everybody who knows a
//! recipient can encrypt to it. So a keyed hash precedes the bytes, whose key is derived from the identity.

use super::{
    StateError,
    encryption::{Sealer, key_error},
};

/// The context of the key derivation. Another purpose must use another context.
const PURPOSE: &str = "konverge 2026-11 vault: what was written by a holder of the age identity";

/// The length of the hash in bytes.
const MARK: usize = 32;

/// Encrypts and authenticates bytes.
#[derive(Clone)]
pub struct SealedBox {
    sealer: Sealer,
    /// The keys of the hash, one for each identity. The first one is used for new hashes.
    keys: Vec<[u8; MARK]>,
}

impl SealedBox {
    /// Builds a box from the text of `KONVERGE_AGE_IDENTITY`. Returns `None` without an identity, and for a
    /// passphrase, whose key derivation takes a tenth of a second each time.
    ///
    /// # Errors
    /// The identity is invalid.
    pub fn from_identity(identity: Option<&str>) -> Result<Option<Self>, StateError> {
        let Some(sealer) = Sealer::new(&[], identity)? else {
            return Ok(None);
        };
        let identities = sealer.age_identities();
        let keys = identities.iter();
        let keys: Vec<_> = keys
            .map(|identity| blake3::derive_key(PURPOSE, identity.as_bytes()))
            .collect();
        Ok((!keys.is_empty()).then_some(Self { sealer, keys }))
    }

    /// Encrypts bytes under a name.
    ///
    /// # Errors
    /// Errors of [`Sealer::seal`].
    pub fn seal(&self, name: &str, plain: &[u8]) -> Result<Vec<u8>, StateError> {
        let Some(key) = self.keys.first() else {
            return Err(key_error("encrypting", "this run has no age identity"));
        };
        let mut whole = mark_of(key, name, plain).as_bytes().to_vec();
        whole.extend_from_slice(plain);
        self.sealer.seal(&whole)
    }

    /// Decrypts and verifies bytes that were encrypted under that name.
    ///
    /// # Errors
    /// The data is damaged, was encrypted under another name, or was written without the identity.
    pub fn open(&self, name: &str, shut: &[u8]) -> Result<Vec<u8>, StateError> {
        let mut whole = self.sealer.open(shut)?;
        let foreign = || key_error("decrypting", "it was not written by a holder of the identity");
        let mark: [u8; MARK] = whole
            .get(..MARK)
            .and_then(|mark| mark.try_into().ok())
            .ok_or_else(foreign)?;
        whole.drain(..MARK);
        // The comparison takes constant time, because it compares `blake3` hashes.
        let mark = blake3::Hash::from_bytes(mark);
        if self.keys.iter().any(|key| mark_of(key, name, &whole) == mark) {
            Ok(whole)
        } else {
            Err(foreign())
        }
    }
}

fn mark_of(key: &[u8; MARK], name: &str, plain: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&(name.len() as u64).to_le_bytes());
    hasher.update(name.as_bytes());
    hasher.update(plain);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vault(sealer: &Sealer) -> SealedBox {
        SealedBox::from_identity(sealer.identity().as_deref())
            .unwrap()
            .unwrap()
    }

    #[test]
    fn holders_of_the_identity_read_what_they_wrote_under_that_name() {
        let sealer = Sealer::generate();
        let shut = vault(&sealer).seal("a", b"hunter2").unwrap();
        assert!(!shut.windows(7).any(|part| part == b"hunter2"));
        assert_eq!(vault(&sealer).open("a", &shut).unwrap(), b"hunter2");
        assert!(vault(&sealer).open("b", &shut).is_err());
        assert!(vault(&Sealer::generate()).open("a", &shut).is_err());
        for end in 0..shut.len() {
            assert!(vault(&sealer).open("a", &shut[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn who_knows_the_recipient_alone_can_not_write() {
        let sealer = Sealer::generate();
        // The public `state.encrypt_to` is enough to encrypt.
        for forged in [b"evil".to_vec(), [&[0; MARK], b"evil".as_slice()].concat()] {
            let forged = sealer.seal(&forged).unwrap();
            let error = vault(&sealer).open("a", &forged).unwrap_err();
            assert!(
                konverge_base::error::chain(&error).contains("not written by a holder"),
                "{error}"
            );
        }
    }

    #[test]
    fn nothing_and_a_passphrase_make_no_vault() {
        assert!(SealedBox::from_identity(None).unwrap().is_none());
        assert!(
            SealedBox::from_identity(Some("correct horse battery"))
                .unwrap()
                .is_none()
        );
        assert!(SealedBox::from_identity(Some("AGE-SECRET-KEY-1XYZ")).is_err());
    }
}
