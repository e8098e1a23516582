//! How Terraform's state is closed before it is handed to whoever stores it, and opened again.

use std::fmt;

use serde_json::{Value, json};

use super::error::TerraformError;
use crate::error::UserError;

/// Encrypts documents. `ops` gives the one that the state's own documents are encrypted with.
pub trait StateEncryption: Send + Sync {
    /// The document, encrypted.
    ///
    /// # Errors
    /// There is nothing to encrypt it to.
    fn seal(&self, document: &Value) -> Result<Value, UserError>;

    /// The document as it was before [`StateEncryption::seal`].
    ///
    /// # Errors
    /// It was encrypted with another key, or is damaged.
    fn open(&self, sealed: &Value) -> Result<Value, UserError>;
}

impl fmt::Debug for dyn StateEncryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal(..)")
    }
}

/// The mark of a document without sensitive values, kept as it is because there is no key.
const CLEAR: &str = "$clear";

/// The document as it may be stored. Without a key it stands in clear: the caller has refused sensitive values before.
pub(super) fn seal(key: Option<&dyn StateEncryption>, document: &Value) -> Result<Value, TerraformError> {
    match key {
        Some(key) => key.seal(document).map_err(TerraformError::Sealer),
        None => Ok(json!({ CLEAR: document })),
    }
}

/// The document as it was before [`seal`].
pub(super) fn open(key: Option<&dyn StateEncryption>, stored: &Value) -> Result<Value, TerraformError> {
    match (stored.get(CLEAR), key) {
        (Some(clear), _) => Ok(clear.clone()),
        (None, Some(key)) => key.open(stored).map_err(TerraformError::Sealer),
        (None, None) => Err(TerraformError::KeyMissing),
    }
}
