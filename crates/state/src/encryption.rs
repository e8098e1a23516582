//! The age keys that encrypt documents and runtime data.

use std::{
    io::{Read as _, Write as _},
    sync::Arc,
};

use age::secrecy::{ExposeSecret as _, SecretString};
use base64::Engine as _;
use serde_json::{Value, json};

use super::{StateError, document_mark::DocumentMark, key_service::DataKeys};
use crate::store::Key;
use konverge_base::{error::SharedError, variables};

/// The scrypt work factor of a passphrase (2^n): about a tenth of a second for each encrypted document.
const SCRYPT_LOG_N: u8 = 15;

/// The prefix of an age identity.
const IDENTITY_PREFIX: &str = "AGE-SECRET-KEY-";

/// The environment variable with the keys that decrypt documents.
pub const IDENTITY_VARIABLE: &str = variables::KONVERGE_AGE_IDENTITY;

/// Encrypts to age recipients, and decrypts with age identities or a passphrase.
#[derive(Clone)]
pub struct Sealer(Arc<Inner>);

#[derive(Default)]
struct Inner {
    recipients: Vec<age::x25519::Recipient>,
    /// The identities of the run; the first one is current, the others only decrypt.
    identities: Vec<age::x25519::Identity>,
    passphrase: Option<SecretString>,
    /// The data keys, wrapped by key services; the newest first.
    data_keys: Vec<age::x25519::Identity>,
    /// The recipients of data keys that were not unwrapped, but that an identity of this run can recognize.
    known_data_keys: Vec<String>,
}

impl Inner {
    fn parse(recipients: &[String], identity: Option<&str>) -> Result<Self, StateError> {
        let recipients = recipients
            .iter()
            .map(|text| text.trim().parse())
            .collect::<Result<Vec<_>, &str>>()
            .map_err(|why| key_error("state.encrypt_to", why))?;
        let (identities, passphrase) = parse_secret(identity.unwrap_or_default())?;
        Ok(Self {
            recipients,
            identities,
            passphrase,
            ..Self::default()
        })
    }

    fn is_empty(&self) -> bool {
        self.recipients.is_empty() && self.identities.is_empty() && self.passphrase.is_none()
    }
}

/// Parses `KONVERGE_AGE_IDENTITY`: one age identity a line, or else a passphrase. Comments are allowed.
fn parse_secret(text: &str) -> Result<(Vec<age::x25519::Identity>, Option<SecretString>), StateError> {
    let text = text.trim();
    let lines = text.lines().map(str::trim);
    let lines: Vec<_> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    // One line with an identity is enough, so that a mistake in another line does not turn the keys into a
    // passphrase.
    let is_identity = lines
        .iter()
        .any(|line| line.to_ascii_uppercase().starts_with(IDENTITY_PREFIX));
    if is_identity {
        let identities = lines.into_iter().map(str::parse);
        let identities = identities.collect::<Result<_, &str>>();
        let identities = identities.map_err(|why| key_error(IDENTITY_VARIABLE, why))?;
        return Ok((identities, None));
    }
    if text.is_empty() {
        return Ok((Vec::new(), None));
    }
    if text.chars().count() < 12 {
        return Err(key_error(
            IDENTITY_VARIABLE,
            "it is neither an age identity (AGE-SECRET-KEY-1…) on each line nor a passphrase of at least 12 characters",
        ));
    }
    Ok((Vec::new(), Some(SecretString::from(text.to_owned()))))
}

impl Sealer {
    /// Builds a sealer from `state.encrypt_to` (`age1…`) and the text of `KONVERGE_AGE_IDENTITY`: age
    /// identities (`AGE-SECRET-KEY-1…`), one a line, or else a passphrase.
    ///
    /// Without recipients, data is encrypted to the identities or the passphrase themselves. Without an
    /// identity nothing can be decrypted. Returns `None` without recipients and identity.
    ///
    /// # Errors
    /// An invalid recipient or identity, or a passphrase of fewer than 12 characters.
    pub fn new(recipients: &[String], identity: Option<&str>) -> Result<Option<Self>, StateError> {
        Self::with_known_data_keys(recipients, identity, Vec::new())
    }

    /// Builds a sealer with data keys. Data is encrypted to the recipients and to the newest data key, never
    /// to the identity alone.
    ///
    /// # Errors
    /// Errors of [`Sealer::new`].
    pub fn with_data_keys(
        recipients: &[String],
        identity: Option<&str>,
        keys: &DataKeys,
    ) -> Result<Self, StateError> {
        let mut inner = Inner::parse(recipients, identity)?;
        inner.data_keys = keys.identities().cloned().collect();
        Ok(Self(Arc::new(inner)))
    }

    /// Creates a sealer with a new random identity.
    pub fn generate() -> Self {
        Self(Arc::new(Inner {
            identities: vec![age::x25519::Identity::generate()],
            ..Inner::default()
        }))
    }

    /// Builds a sealer that also accepts documents by holders of these data keys, which it cannot decrypt
    /// with.
    ///
    /// # Errors
    /// Errors of [`Sealer::new`].
    pub fn with_known_data_keys(
        recipients: &[String],
        identity: Option<&str>,
        known: Vec<String>,
    ) -> Result<Option<Self>, StateError> {
        let mut inner = Inner::parse(recipients, identity)?;
        inner.known_data_keys = known;
        Ok((!inner.is_empty()).then(|| Self(Arc::new(inner))))
    }

    /// Lists the recipients of this run's data: age recipients, or the word `passphrase`.
    pub fn recipients(&self) -> Vec<String> {
        let mut names: Vec<_> = self.reader_keys().iter().map(ToString::to_string).collect();
        if names.is_empty() {
            names.extend(self.0.passphrase.as_ref().map(|_| "passphrase".to_owned()));
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns the keys to which values are encrypted: those of the configuration and the data key, or else this
    /// run's own.
    fn reader_keys(&self) -> Vec<age::x25519::Recipient> {
        let inner = &*self.0;
        let mut keys = inner.recipients.clone();
        // Earlier data keys need not be recipients, because the newest one contains them.
        keys.extend(inner.data_keys.first().map(age::x25519::Identity::to_public));
        if keys.is_empty() {
            keys.extend(inner.identities.iter().map(age::x25519::Identity::to_public));
        }
        keys
    }

    /// Returns the text of the identities or of the passphrase, if there is one.
    pub fn identity(&self) -> Option<String> {
        let inner = &*self.0;
        if let Some(passphrase) = &inner.passphrase {
            return Some(passphrase.expose_secret().to_owned());
        }
        let texts: Vec<_> = inner.identities.iter().map(secret_text).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }

    /// Returns the texts of the age identities, the current one first.
    pub(super) fn age_identities(&self) -> Vec<String> {
        self.0.identities.iter().map(secret_text).collect()
    }

    /// Returns true if the run has a private age key.
    pub(super) fn has_age_key(&self) -> bool {
        !self.0.identities.is_empty() || !self.0.data_keys.is_empty()
    }

    /// Returns true if this run can mark documents: one of its private keys is that of a recipient.
    pub fn can_mark(&self) -> bool {
        let readers = self.recipients();
        self.own_keys().any(|key| readers.contains(&public(key)))
    }

    /// Returns the private keys that may mark: the newest data key, and the identities of the run.
    fn own_keys(&self) -> impl Iterator<Item = &age::x25519::Identity> {
        self.0.data_keys.first().into_iter().chain(&self.0.identities)
    }

    /// Returns the identities of the run that are recipients too.
    pub(super) fn listed_identities(&self) -> Vec<&age::x25519::Identity> {
        let names: Vec<_> = self.0.recipients.iter().map(ToString::to_string).collect();
        let identities = self.0.identities.iter();
        identities
            .filter(|identity| names.contains(&public(identity)))
            .collect()
    }

    /// Marks a document for each recipient, with each private key of this run that belongs to a recipient.
    ///
    /// # Errors
    /// [`StateError::Sealed`] if there is no such key.
    pub(super) fn mark(&self, place: &Key, bytes: &[u8]) -> Result<Vec<DocumentMark>, StateError> {
        let readers = self.recipients();
        let writers = self.own_keys().filter(|key| readers.contains(&public(key)));
        let marks = writers.flat_map(|writer| {
            let marks = readers
                .iter()
                .map(|reader| DocumentMark::new(writer, reader, place, bytes));
            marks.flatten().collect::<Vec<_>>()
        });
        let marks: Vec<_> = marks.collect();
        if marks.is_empty() {
            Err(key_error(
                "a document",
                "no key of this run belongs to a recipient, so nobody could check who wrote the document",
            ))
        } else {
            Ok(marks)
        }
    }

    /// Checks that the holder of a recipient's key marked a document. The error says why that is not proven.
    pub(super) fn check_marks(
        &self,
        place: &Key,
        bytes: &[u8],
        marks: &[DocumentMark],
    ) -> Result<(), String> {
        let inner = &*self.0;
        if marks.is_empty() {
            return Err("it is not marked by its writer".to_owned());
        }
        let own: Vec<_> = inner.data_keys.iter().chain(&inner.identities).collect();
        let is_accepted = |name: &String| {
            let mut recipients = inner.recipients.iter();
            recipients.any(|recipient| recipient.to_string() == *name)
                || own.iter().any(|key| public(key) == *name)
                || inner.known_data_keys.contains(name)
        };
        // The mark must be by a writer whom this run accepts, and for a key that this run has.
        let is_valid = |mark: &DocumentMark| {
            let mut readers = own.iter().filter(|key| public(key) == mark.reader);
            is_accepted(&mark.by) && readers.any(|reader| mark.is_valid(reader, place, bytes))
        };
        if marks.iter().any(is_valid) {
            Ok(())
        } else {
            Err("its mark is of no key that this run accepts".to_owned())
        }
    }

    /// Encrypts bytes.
    ///
    /// # Errors
    /// [`StateError::Sealed`] if the cipher fails, which does not happen with a valid key.
    pub fn seal(&self, plain: &[u8]) -> Result<Vec<u8>, StateError> {
        let keys = self.reader_keys();
        let passphrase = self.0.passphrase.as_ref().filter(|_| keys.is_empty());
        let passphrase = passphrase.map(|text| {
            let mut recipient = age::scrypt::Recipient::new(text.clone());
            recipient.set_work_factor(SCRYPT_LOG_N);
            recipient
        });
        let passphrase = passphrase
            .iter()
            .map(|recipient| recipient as &dyn age::Recipient);
        let recipients = keys
            .iter()
            .map(|key| key as &dyn age::Recipient)
            .chain(passphrase);
        let seal = || -> std::io::Result<Vec<u8>> {
            let encryptor = age::Encryptor::with_recipients(recipients).map_err(std::io::Error::other)?;
            let mut cipher = Vec::new();
            let mut writer = encryptor.wrap_output(&mut cipher)?;
            writer.write_all(plain)?;
            writer.finish()?;
            Ok(cipher)
        };
        seal().map_err(|error| key_error("encrypting", error))
    }

    /// Decrypts the output of [`Sealer::seal`].
    ///
    /// # Errors
    /// [`StateError::Sealed`] if the run has no key or another one, or if the data is damaged.
    pub fn open(&self, cipher: &[u8]) -> Result<Vec<u8>, StateError> {
        let wrong = |error: age::DecryptError| key_error("decrypting", error);
        let decryptor = age::Decryptor::new_buffered(cipher).map_err(wrong)?;
        let mut identities: Vec<Box<dyn age::Identity>> = Vec::new();
        for key in self.0.data_keys.iter().chain(&self.0.identities) {
            identities.push(Box::new(key.clone()));
        }
        if let Some(text) = &self.0.passphrase {
            let mut identity = age::scrypt::Identity::new(text.clone());
            // By default, age derives the maximum from the speed of this machine, so a slow one would refuse
            // what a fast one wrote.
            identity.set_max_work_factor(SCRYPT_LOG_N);
            identities.push(Box::new(identity));
        }
        if identities.is_empty() {
            return Err(key_error("decrypting", "this run has no age identity"));
        }
        let mut reader = decryptor
            .decrypt(identities.iter().map(|identity| &**identity))
            .map_err(wrong)?;
        let mut plain = Vec::new();
        reader
            .read_to_end(&mut plain)
            .map_err(|error| key_error("decrypting", error))?;
        Ok(plain)
    }

    /// Encrypts a runtime's data to a value for a state or journal: `{"$age": base64}`.
    ///
    /// # Errors
    /// Errors of [`Sealer::seal`].
    pub fn seal_value(&self, value: &Value) -> Result<Value, StateError> {
        let cipher = self.seal(value.to_string().as_bytes())?;
        Ok(json!({"$age": base64::engine::general_purpose::STANDARD.encode(cipher)}))
    }

    /// Decrypts every encrypted value in a document and encrypts it to this run's recipients.
    ///
    /// # Errors
    /// Errors of [`Sealer::open_value`].
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
    /// Errors of [`Sealer::open`], or the value is not encrypted.
    pub fn open_value(&self, value: &Value) -> Result<Value, StateError> {
        let cipher = value
            .get("$age")
            .and_then(Value::as_str)
            .and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok())
            .ok_or_else(|| key_error("decrypting", "the value is not sealed"))?;
        let plain = self.open(&cipher)?;
        serde_json::from_slice(&plain).map_err(|error| key_error("decrypting", error))
    }
}

impl std::fmt::Debug for Sealer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer(..)")
    }
}

pub(super) fn public(identity: &age::x25519::Identity) -> String {
    identity.to_public().to_string()
}

fn secret_text(identity: &age::x25519::Identity) -> String {
    identity.to_string().expose_secret().to_owned()
}

pub(super) fn key_error(what: &str, why: impl Into<SharedError>) -> StateError {
    StateError::Sealed {
        what: what.to_owned(),
        why: why.into(),
    }
}

#[cfg(test)]
#[path = "encryption_tests.rs"]
mod tests;
