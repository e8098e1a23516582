//! Encrypts Terraform's state before it is stored, and decrypts it.

use std::fmt;

use serde_json::{Value, json};

use super::error::TerraformError;
use konverge_base::error::UserError;

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

/// Returns a document in its stored form. Without a key that is clear text: the caller has already refused
/// sensitive values.
pub(super) fn seal(key: Option<&dyn StateEncryption>, document: &Value) -> Result<Value, TerraformError> {
    match key {
        Some(key) => key.seal(document).map_err(TerraformError::Sealer),
        None => Ok(json!({ CLEAR: document })),
    }
}

/// Returns a document from its stored form, the output of [`seal`].
pub(super) fn open(key: Option<&dyn StateEncryption>, stored: &Value) -> Result<Value, TerraformError> {
    match (stored.get(CLEAR), key) {
        (Some(clear), _) => Ok(clear.clone()),
        (None, Some(key)) => key.open(stored).map_err(TerraformError::Sealer),
        (None, None) => Err(TerraformError::KeyMissing),
    }
}
