//! Keys: the age key that encrypts documents and runtime data, and the key of the short hashes, which is
//! created in the store.

use std::{
    io::{Read as _, Write as _},
    sync::Arc,
};

use age::secrecy::{ExposeSecret as _, SecretString};
use base64::Engine as _;
use serde_json::{Value, json};

use super::{StateError, key_service::DataKeys};

/// The scrypt work factor of a passphrase (2^n): about a tenth of a second, once per encrypted document.
const SCRYPT_LOG_N: u8 = 15;

/// The environment variable with the key that decrypts documents.
pub const IDENTITY_VARIABLE: &str = "KONVERGE_AGE_IDENTITY";

/// Encrypts to age recipients, and decrypts with an age identity or a passphrase.
#[derive(Clone)]
pub struct Sealer(Arc<Inner>);

struct Inner {
    recipients: Vec<age::x25519::Recipient>,
    secret: Option<KeyBytes>,
    /// The keys that key services wrap, the newest first.
    data_keys: Vec<age::x25519::Identity>,
}

enum KeyBytes {
    Identity(Box<age::x25519::Identity>),
    Passphrase(SecretString),
}

impl Inner {
    fn parse(recipients: &[String], identity: Option<&str>) -> Result<Self, StateError> {
        let recipients = recipients
            .iter()
            .map(|text| text.trim().parse())
            .collect::<Result<Vec<_>, &str>>()
            .map_err(|why| key_error("state.encrypt_to", why))?;
        let secret = match identity.map(str::trim).filter(|text| !text.is_empty()) {
            None => None,
            Some(text) if text.to_ascii_uppercase().starts_with("AGE-SECRET-KEY-") => {
                let identity = text
                    .parse()
                    .map_err(|why: &str| key_error(IDENTITY_VARIABLE, why))?;
                Some(KeyBytes::Identity(Box::new(identity)))
            }
            Some(text) if text.chars().count() < 12 => {
                return Err(key_error(
                    IDENTITY_VARIABLE,
                    "it is neither an age identity (AGE-SECRET-KEY-1…) nor a passphrase of at least 12 characters",
                ));
            }
            Some(text) => Some(KeyBytes::Passphrase(SecretString::from(text.to_owned()))),
        };
        Ok(Self {
            recipients,
            secret,
            data_keys: Vec::new(),
        })
    }
}

impl Sealer {
    /// Builds a sealer from `state.encrypt_to` (`age1…`) and the text of `KONVERGE_AGE_IDENTITY`: an age
    /// identity (`AGE-SECRET-KEY-1…`) or else a passphrase.
    ///
    /// Without recipients, data is encrypted to the identity or passphrase itself. Without an identity
    /// nothing can be decrypted. Returns `None` if there is neither.
    ///
    /// # Errors
    /// A damaged recipient or identity, or a passphrase of fewer than 12 characters.
    pub fn new(recipients: &[String], identity: Option<&str>) -> Result<Option<Self>, StateError> {
        let inner = Inner::parse(recipients, identity)?;
        let is_empty = inner.recipients.is_empty() && inner.secret.is_none();
        Ok((!is_empty).then(|| Self(Arc::new(inner))))
    }

    /// The same with data keys: data is encrypted to the recipients and to the newest of them, and never to the
    /// identity alone.
    ///
    /// # Errors
    /// As [`Sealer::new`].
    pub fn with_data_keys(
        recipients: &[String],
        identity: Option<&str>,
        keys: &DataKeys,
    ) -> Result<Self, StateError> {
        let mut inner = Inner::parse(recipients, identity)?;
        inner.data_keys = keys.identities().cloned().collect();
        Ok(Self(Arc::new(inner)))
    }

    /// A new random identity.
    pub fn generate() -> Self {
        Self(Arc::new(Inner {
            recipients: Vec::new(),
            secret: Some(KeyBytes::Identity(Box::new(age::x25519::Identity::generate()))),
            data_keys: Vec::new(),
        }))
    }

    /// Who can decrypt what this run encrypts: age recipients, or the word `passphrase`.
    pub fn recipients(&self) -> Vec<String> {
        let inner = &*self.0;
        let data_key = inner.data_keys.first().map(age::x25519::Identity::to_public);
        let recipients = inner.recipients.iter().cloned().chain(data_key);
        let mut names: Vec<_> = recipients.map(|recipient| recipient.to_string()).collect();
        if names.is_empty() {
            names.extend(inner.secret.as_ref().map(|secret| match secret {
                KeyBytes::Identity(identity) => identity.to_public().to_string(),
                KeyBytes::Passphrase(_) => "passphrase".to_owned(),
            }));
        }
        names.sort_unstable();
        names
    }

    /// The text of the identity or passphrase, if there is one.
    pub fn identity(&self) -> Option<String> {
        self.0.secret.as_ref().map(|secret| match secret {
            KeyBytes::Identity(identity) => identity.to_string().expose_secret().to_owned(),
            KeyBytes::Passphrase(passphrase) => passphrase.expose_secret().to_owned(),
        })
    }

    /// The text of the age identity; `None` for a passphrase.
    pub(super) fn age_identity(&self) -> Option<String> {
        match self.0.secret {
            Some(KeyBytes::Identity(_)) => self.identity(),
            _ => None,
        }
    }

    /// Encrypts bytes.
    ///
    /// # Errors
    /// [`StateError::Sealed`] if the cipher fails, which does not happen with a valid key.
    pub fn seal(&self, plain: &[u8]) -> Result<Vec<u8>, StateError> {
        let mut recipients: Vec<Box<dyn age::Recipient>> = Vec::new();
        for recipient in &self.0.recipients {
            recipients.push(Box::new(recipient.clone()));
        }
        if let Some(key) = self.0.data_keys.first() {
            recipients.push(Box::new(key.to_public()));
        }
        match &self.0.secret {
            _ if !recipients.is_empty() => {}
            Some(KeyBytes::Identity(identity)) => recipients.push(Box::new(identity.to_public())),
            Some(KeyBytes::Passphrase(passphrase)) => {
                let mut recipient = age::scrypt::Recipient::new(passphrase.clone());
                recipient.set_work_factor(SCRYPT_LOG_N);
                recipients.push(Box::new(recipient));
            }
            None => {}
        }
        let seal = || -> std::io::Result<Vec<u8>> {
            let encryptor = age::Encryptor::with_recipients(recipients.iter().map(|recipient| &**recipient))
                .map_err(std::io::Error::other)?;
            let mut cipher = Vec::new();
            let mut writer = encryptor.wrap_output(&mut cipher)?;
            writer.write_all(plain)?;
            writer.finish()?;
            Ok(cipher)
        };
        seal().map_err(|error| key_error("encrypting", &error.to_string()))
    }

    /// Decrypts the output of [`Sealer::seal`].
    ///
    /// # Errors
    /// [`StateError::Sealed`]: no key, a different key, or damaged data.
    pub fn open(&self, cipher: &[u8]) -> Result<Vec<u8>, StateError> {
        let wrong = |error: &dyn std::fmt::Display| key_error("decrypting", &error.to_string());
        let decryptor = age::Decryptor::new_buffered(cipher).map_err(|error| wrong(&error))?;
        let mut identities: Vec<Box<dyn age::Identity>> = Vec::new();
        for key in &self.0.data_keys {
            identities.push(Box::new(key.clone()));
        }
        match &self.0.secret {
            Some(KeyBytes::Identity(identity)) => identities.push(identity.clone()),
            Some(KeyBytes::Passphrase(text)) => {
                let mut identity = age::scrypt::Identity::new(text.clone());
                // By default age derives the maximum from this machine's speed: a slow one would refuse what a fast
                // one wrote.
                identity.set_max_work_factor(SCRYPT_LOG_N);
                identities.push(Box::new(identity));
            }
            None if identities.is_empty() => {
                return Err(key_error("decrypting", "there is no identity in this run"));
            }
            None => {}
        }
        let mut reader = decryptor
            .decrypt(identities.iter().map(|identity| &**identity))
            .map_err(|error| wrong(&error))?;
        let mut plain = Vec::new();
        reader.read_to_end(&mut plain).map_err(|error| wrong(&error))?;
        Ok(plain)
    }

    /// Encrypts a runtime's own data into a value for a state or journal: `{"$age": base64}`.
    ///
    /// # Errors
    /// As [`Sealer::seal`].
    pub fn seal_value(&self, value: &Value) -> Result<Value, StateError> {
        let cipher = self.seal(value.to_string().as_bytes())?;
        Ok(json!({"$age": base64::engine::general_purpose::STANDARD.encode(cipher)}))
    }

    /// Decrypts every encrypted value in a document, and encrypts it anew.
    ///
    /// # Errors
    /// As [`Sealer::open_value`].
    pub(super) fn reseal_values(&self, document: &mut Value) -> Result<(), StateError> {
        match document {
            Value::Object(fields) if fields.contains_key("$age") => {
                *document = self.seal_value(&self.open_value(document)?)?;
                Ok(())
            }
            Value::Object(fields) => fields
                .values_mut()
                .try_for_each(|field| self.reseal_values(field)),
            Value::Array(items) => items.iter_mut().try_for_each(|item| self.reseal_values(item)),
            _ => Ok(()),
        }
    }

    /// Decrypts the output of [`Sealer::seal_value`].
    ///
    /// # Errors
    /// As [`Sealer::open`]; a value that is not encrypted.
    pub fn open_value(&self, value: &Value) -> Result<Value, StateError> {
        let cipher = value
            .get("$age")
            .and_then(Value::as_str)
            .and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok())
            .ok_or_else(|| key_error("decrypting", "the value is not sealed"))?;
        let plain = self.open(&cipher)?;
        serde_json::from_slice(&plain).map_err(|error| key_error("decrypting", &error.to_string()))
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer(..)")
    }
}

pub(super) fn key_error(what: &str, why: &str) -> StateError {
    StateError::Sealed {
        what: what.to_owned(),
        why: why.to_owned(),
    }
}

#[cfg(test)]
mod tests;
