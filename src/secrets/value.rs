//! The value of a secret from a store. It has no `Debug`, `Display`, `Serialize` or `Clone`, so that no log,
//! message, state or cache can hold it by accident; its bytes are overwritten when it is dropped.

use zeroize::Zeroizing;

/// A secret value.
pub struct SecretValue(Zeroizing<Vec<u8>>);

impl SecretValue {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// A value that nobody can guess: as many letters and digits as Kusion makes.
    pub fn generate() -> Self {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
        let mut value = Zeroizing::new(Vec::with_capacity(Self::GENERATED));
        while value.len() < Self::GENERATED {
            let random = uuid::Uuid::new_v4();
            // Two bytes hold the version and the variant, which are not random. A byte above the last multiple of the
            // number of letters would make some of them likelier.
            let bytes = random.as_bytes().iter().enumerate();
            let bytes =
                bytes.filter(|(at, byte)| !matches!(at, 6 | 8) && usize::from(**byte) < 4 * LETTERS.len());
            let room = Self::GENERATED - value.len();
            value.extend(
                bytes
                    .map(|(_, byte)| LETTERS[usize::from(*byte) % LETTERS.len()])
                    .take(room),
            );
        }
        Self(value)
    }

    const GENERATED: usize = 54;

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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn generated_values_differ_and_are_text() {
        let (one, other) = (SecretValue::generate(), SecretValue::generate());
        let text = one.expose_text().unwrap();
        assert!(text.len() == 54 && text.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert!(one.expose() != other.expose());
    }
}
