//! The value of a secret from a store. It has no `Debug`, `Display`, `Serialize` or `Clone`, so that no log,
//! message, state or cache can hold it by accident; its bytes are overwritten when it is dropped.

use zeroize::Zeroizing;

/// A secret value.
pub struct SecretValue(Zeroizing<Vec<u8>>);

impl SecretValue {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Returns true if the value has no bytes. Callers treat that as missing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes, for the request that writes them. Review each new caller: the type no longer protects the value.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// The value as text, if it is UTF-8.
    pub fn expose_text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

impl From<String> for SecretValue {
    fn from(text: String) -> Self {
        Self::new(text.into_bytes())
    }
}
