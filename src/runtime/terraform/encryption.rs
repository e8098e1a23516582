//! The key under which Terraform's state is kept: age, X25519.

use std::fmt;

use age::x25519;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::error::TerraformError;

/// The mark of an encrypted document: base64 of an age file.
const SEALED: &str = "$age";
/// The mark of a document without sensitive values, kept as it is because there is no key.
const CLEAR: &str = "$clear";

/// Encrypts to its recipients, decrypts with its identities.
#[derive(Clone)]
pub struct StateKey {
    identities: Vec<x25519::Identity>,
    recipients: Vec<x25519::Recipient>,
}

impl StateKey {
    /// Reads a key file's text: one `AGE-SECRET-KEY-1…` or `age1…` a line, `#` starts a comment. Each secret key is
    /// also a recipient. Several secret keys let a key be changed: documents are written to all, read with any.
    ///
    /// # Errors
    /// A line is neither, or there is no secret key.
    pub fn parse(text: &str) -> Result<Self, TerraformError> {
        let mut key = Self {
            identities: Vec::new(),
            recipients: Vec::new(),
        };
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: &str| TerraformError::StateKey(format!("line {}: {why}", number + 1));
            if line.starts_with("AGE-SECRET-KEY-1") {
                let identity: x25519::Identity = line.parse().map_err(wrong)?;
                key.recipients.push(identity.to_public());
                key.identities.push(identity);
            } else {
                key.recipients.push(line.parse().map_err(wrong)?);
            }
        }
        if key.identities.is_empty() {
            return Err(TerraformError::StateKey(
                "it holds no secret key (`AGE-SECRET-KEY-1…`)".to_owned(),
            ));
        }
        Ok(key)
    }

    /// A new key of its own, for tests and trials.
    pub fn generate() -> Self {
        let identity = x25519::Identity::generate();
        Self {
            recipients: vec![identity.to_public()],
            identities: vec![identity],
        }
    }

    fn encrypt(&self, clear: &[u8]) -> Result<Vec<u8>, TerraformError> {
        let failed =
            |error: &dyn fmt::Display| TerraformError::Damaged(format!("can not be encrypted: {error}"));
        let recipients = self.recipients.iter().map(|r| r as &dyn age::Recipient);
        let encryptor = age::Encryptor::with_recipients(recipients).map_err(|e| failed(&e))?;
        let mut sealed = Vec::with_capacity(clear.len() + 512);
        let mut writer = encryptor.wrap_output(&mut sealed).map_err(|e| failed(&e))?;
        std::io::Write::write_all(&mut writer, clear).map_err(|e| failed(&e))?;
        writer.finish().map_err(|e| failed(&e))?;
        Ok(sealed)
    }

    fn decrypt(&self, sealed: &[u8]) -> Result<Vec<u8>, age::DecryptError> {
        let identities = self.identities.iter().map(|i| i as &dyn age::Identity);
        let mut reader = age::Decryptor::new_buffered(sealed)?.decrypt(identities)?;
        let mut clear = Vec::new();
        std::io::Read::read_to_end(&mut reader, &mut clear)?;
        Ok(clear)
    }
}

impl fmt::Debug for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StateKey(..)")
    }
}

/// The document as it may be stored. Without a key it stands in clear: the caller has refused sensitive values before.
pub(super) fn seal(key: Option<&StateKey>, document: &Value) -> Result<Value, TerraformError> {
    let Some(key) = key else {
        return Ok(json!({ CLEAR: document }));
    };
    let sealed = key.encrypt(document.to_string().as_bytes())?;
    Ok(json!({ SEALED: STANDARD.encode(sealed) }))
}

/// The document as it was before [`seal`].
pub(super) fn open(key: Option<&StateKey>, stored: &Value) -> Result<Value, TerraformError> {
    if let Some(clear) = stored.get(CLEAR) {
        return Ok(clear.clone());
    }
    let damaged = |why: String| TerraformError::Damaged(why);
    let sealed = stored
        .get(SEALED)
        .and_then(Value::as_str)
        .ok_or_else(|| damaged("is not a document of ours".to_owned()))?;
    let key = key.ok_or(TerraformError::KeyMissing)?;
    let sealed = STANDARD.decode(sealed).map_err(|e| damaged(e.to_string()))?;
    let clear = key.decrypt(&sealed).map_err(|error| match error {
        age::DecryptError::NoMatchingKeys => TerraformError::KeyWrong,
        other => damaged(other.to_string()),
    })?;
    serde_json::from_slice(&clear).map_err(|e| damaged(e.to_string()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_sealed_opens_with_the_key_alone() {
        let key = StateKey::generate();
        let document = json!({"password": "hunter2222"});
        let stored = seal(Some(&key), &document).unwrap();
        assert!(!stored.to_string().contains("hunter2222"));
        assert_eq!(open(Some(&key), &stored).unwrap(), document);
        assert!(matches!(open(None, &stored), Err(TerraformError::KeyMissing)));
        assert!(matches!(
            open(Some(&StateKey::generate()), &stored),
            Err(TerraformError::KeyWrong)
        ));
    }

    #[test]
    fn a_key_is_read_from_text() {
        use age::secrecy::ExposeSecret as _;
        let (old, new) = (x25519::Identity::generate(), x25519::Identity::generate());
        let text = |i: &x25519::Identity| i.to_string().expose_secret().to_owned();
        let both = StateKey::parse(&format!("# new\n{}\n\n{}\n", text(&new), text(&old))).unwrap();
        let only_old = StateKey::parse(&text(&old)).unwrap();
        let sealed = seal(Some(&only_old), &json!(1)).unwrap();
        assert_eq!(open(Some(&both), &sealed).unwrap(), json!(1));
        assert!(StateKey::parse("hunter2").is_err());
        assert!(
            StateKey::parse(&new.to_public().to_string()).is_err(),
            "no secret key"
        );
    }
}
