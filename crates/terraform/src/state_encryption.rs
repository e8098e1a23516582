//! Encrypts Terraform's state before it is stored, and decrypts it.

use std::fmt;

use serde_json::{Value, json};

use super::error::TerraformError;
use konverge_base::error::{ErrorKind, UserError};

/// Encrypts documents. The implementation in `run::infrastructure` is that of the state's own documents.
pub trait StateEncryption: Send + Sync {
    /// Encrypts a document.
    ///
    /// # Errors
    /// No recipient is configured.
    fn seal(&self, document: &Value) -> Result<Value, UserError>;

    /// Decrypts the output of [`StateEncryption::seal`].
    ///
    /// # Errors
    /// The document was encrypted for another key, or is damaged.
    fn open(&self, sealed: &Value) -> Result<Value, UserError>;
}

impl fmt::Debug for dyn StateEncryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(..)")
    }
}

/// Marks a document without sensitive values that is stored in clear text because there is no key.
const CLEAR: &str = "$clear";

/// The context of an error of the encryption.
const NOT_OPENED: &str = "Terraform's state cannot be opened";

/// Returns a document in its stored form. Without a key that is clear text: the caller has already refused
/// sensitive values.
pub(super) fn seal(key: Option<&dyn StateEncryption>, document: &Value) -> Result<Value, TerraformError> {
    match key {
        Some(key) => Ok(key
            .seal(document)
            .map_err(|failure| failure.context(NOT_OPENED))?),
        None => Ok(json!({ CLEAR: document })),
    }
}

/// Returns a document from its stored form, the output of [`seal`].
pub(super) fn open(key: Option<&dyn StateEncryption>, stored: &Value) -> Result<Value, TerraformError> {
    match (stored.get(CLEAR), key) {
        (Some(clear), _) => Ok(clear.clone()),
        (None, Some(key)) => Ok(key.open(stored).map_err(|failure| failure.context(NOT_OPENED))?),
        (None, None) => Err(UserError::new(
            ErrorKind::Secret,
            "Terraform's state is encrypted, but this run has no key to decrypt it",
        )
        .hint("set `KONVERGE_AGE_IDENTITY` to the key with which the state was encrypted")
        .into()),
    }
}
