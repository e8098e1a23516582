//! Keys: what seals documents and runtime data (age), and the key of the short hashes, which is made in the store.

use std::{
    io::{Read as _, Write as _},
    sync::Arc,
};

use age::secrecy::{ExposeSecret as _, SecretString};
use base64::Engine as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{StateError, States, envelope};
use crate::{secrets::HashKey, store::Key};

/// Work factor of a passphrase (2^n): about a tenth of a second, paid once per sealed document.
const SCRYPT_LOG_N: u8 = 15;

/// Seals and opens with one age identity or passphrase.
#[derive(Clone)]
pub struct Sealer(Arc<Secret>);

enum Secret {
    Identity(age::x25519::Identity),
    Passphrase(SecretString),
}

impl Sealer {
    /// From the text of `KONVERGE_STATE_KEY`: an age identity (`AGE-SECRET-KEY-1…`), else a passphrase.
    ///
    /// # Errors
    /// A damaged identity, or a passphrase of fewer than 12 characters.
    pub fn from_text(text: &str) -> Result<Self, StateError> {
        let text = text.trim();
        if text.to_ascii_uppercase().starts_with("AGE-SECRET-KEY-") {
            let identity = text
                .parse()
                .map_err(|why: &str| failed("KONVERGE_STATE_KEY", why))?;
            return Ok(Self(Arc::new(Secret::Identity(identity))));
        }
        if text.chars().count() < 12 {
            return Err(failed(
                "KONVERGE_STATE_KEY",
                "a passphrase needs at least 12 characters",
            ));
        }
        Ok(Self(Arc::new(Secret::Passphrase(SecretString::from(
            text.to_owned(),
        )))))
    }

    /// A new random identity.
    pub fn generate() -> Self {
        Self(Arc::new(Secret::Identity(age::x25519::Identity::generate())))
    }

    /// The text that [`Sealer::from_text`] reads.
    pub fn to_text(&self) -> String {
        match &*self.0 {
            Secret::Identity(identity) => identity.to_string().expose_secret().to_owned(),
            Secret::Passphrase(passphrase) => passphrase.expose_secret().to_owned(),
        }
    }

    /// Seals bytes.
    ///
    /// # Errors
    /// [`StateError::Sealed`] if the cipher fails, which it does not with a sound key.
    pub fn seal(&self, plain: &[u8]) -> Result<Vec<u8>, StateError> {
        let seal = |recipient: &dyn age::Recipient| -> Result<Vec<u8>, String> {
            let encryptor = age::Encryptor::with_recipients(std::iter::once(recipient))
                .map_err(|error| error.to_string())?;
            let mut cipher = Vec::new();
            let mut writer = encryptor
                .wrap_output(&mut cipher)
                .map_err(|error| error.to_string())?;
            writer.write_all(plain).map_err(|error| error.to_string())?;
            writer.finish().map_err(|error| error.to_string())?;
            Ok(cipher)
        };
        let cipher = match &*self.0 {
            Secret::Identity(identity) => seal(&identity.to_public()),
            Secret::Passphrase(passphrase) => {
                let mut recipient = age::scrypt::Recipient::new(passphrase.clone());
                recipient.set_work_factor(SCRYPT_LOG_N);
                seal(&recipient)
            }
        };
        cipher.map_err(|why| failed("encrypting", &why))
    }

    /// Opens what [`Sealer::seal`] made.
    ///
    /// # Errors
    /// [`StateError::Sealed`]: another key, or damaged.
    pub fn open(&self, cipher: &[u8]) -> Result<Vec<u8>, StateError> {
        let wrong = |error: &dyn std::fmt::Display| failed("decrypting", &error.to_string());
        let decryptor = age::Decryptor::new_buffered(cipher).map_err(|error| wrong(&error))?;
        let passphrase;
        let identity: &dyn age::Identity = match &*self.0 {
            Secret::Identity(identity) => identity,
            Secret::Passphrase(text) => {
                passphrase = age::scrypt::Identity::new(text.clone());
                &passphrase
            }
        };
        let mut reader = decryptor
            .decrypt(std::iter::once(identity))
            .map_err(|error| wrong(&error))?;
        let mut plain = Vec::new();
        reader.read_to_end(&mut plain).map_err(|error| wrong(&error))?;
        Ok(plain)
    }

    /// Seals a runtime's own data into a value that may stand in a state or journal: `{"$age": base64}`.
    ///
    /// # Errors
    /// As [`Sealer::seal`].
    pub fn seal_value(&self, value: &Value) -> Result<Value, StateError> {
        let cipher = self.seal(value.to_string().as_bytes())?;
        Ok(json!({"$age": base64::engine::general_purpose::STANDARD.encode(cipher)}))
    }

    /// Opens what [`Sealer::seal_value`] made.
    ///
    /// # Errors
    /// As [`Sealer::open`]; a value that is not sealed.
    pub fn open_value(&self, value: &Value) -> Result<Value, StateError> {
        let cipher = value
            .get("$age")
            .and_then(Value::as_str)
            .and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok())
            .ok_or_else(|| failed("decrypting", "the value is not sealed"))?;
        let plain = self.open(&cipher)?;
        serde_json::from_slice(&plain).map_err(|error| failed("decrypting", &error.to_string()))
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer(..)")
    }
}

fn failed(what: &str, why: &str) -> StateError {
    StateError::Sealed {
        what: what.to_owned(),
        why: why.to_owned(),
    }
}

#[derive(Serialize, Deserialize)]
struct KeyDocument {
    key: String,
}

impl States {
    /// The key of the short hashes, made if there is none yet; for runs that may write.
    ///
    /// # Errors
    /// The store's, or a damaged document.
    pub async fn hash_key(&self) -> Result<HashKey, StateError> {
        if let Some(key) = self.existing_hash_key().await? {
            return Ok(key);
        }
        let fresh = HashKey::random();
        let body = KeyDocument {
            key: base64::engine::general_purpose::STANDARD.encode(fresh.to_bytes()),
        };
        let letter = self.letter("key", &body)?;
        match envelope::put(&*self.store, &hash_key_place(), &letter).await? {
            envelope::Put::Ours => Ok(fresh),
            envelope::Put::Theirs(bytes) => self.read_hash_key(&bytes),
        }
    }

    /// The key of the short hashes, if there is one; for runs that write nothing.
    ///
    /// # Errors
    /// The store's, or a damaged document.
    pub async fn existing_hash_key(&self) -> Result<Option<HashKey>, StateError> {
        let bytes = self.store.get(&hash_key_place()).await?;
        bytes.map(|bytes| self.read_hash_key(&bytes)).transpose()
    }

    fn read_hash_key(&self, bytes: &[u8]) -> Result<HashKey, StateError> {
        let place = hash_key_place();
        let (_, body): (_, KeyDocument) = self.envelopes.read("key", &place, bytes)?;
        base64::engine::general_purpose::STANDARD
            .decode(body.key)
            .ok()
            .and_then(|bytes| <[u8; 32]>::try_from(bytes).ok())
            .map(HashKey::from_bytes)
            .ok_or_else(|| StateError::Damaged {
                key: place.to_string(),
                why: "it does not hold 32 bytes".to_owned(),
            })
    }
}

fn hash_key_place() -> Key {
    Key::of(&["keys", "review"])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_identity_seals_for_itself_alone() {
        let ours = Sealer::generate();
        let value = json!({"password": "hunter222"});
        let sealed = ours.seal_value(&value).unwrap();
        assert!(!sealed.to_string().contains("hunter222"));
        let again = Sealer::from_text(&ours.to_text()).unwrap();
        assert_eq!(again.open_value(&sealed).unwrap(), value);
        assert!(Sealer::generate().open_value(&sealed).is_err());
    }

    #[test]
    fn short_passphrases_are_refused() {
        assert!(Sealer::from_text("short").is_err());
        assert!(Sealer::from_text("AGE-SECRET-KEY-1XYZ").is_err());
    }
}
