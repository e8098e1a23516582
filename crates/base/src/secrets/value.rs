//! The value of a secret from a store. It implements no `Debug`, `Display`, `Serialize` or `Clone`, so that no log,
//! message, state or cache can contain it by accident; its bytes are overwritten when it is dropped.

use zeroize::Zeroizing;

/// A secret value.
pub struct SecretValue(Zeroizing<Vec<u8>>);

impl SecretValue {
    /// Creates a value from bytes, which are overwritten when it is dropped.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Generates a random value, with as many letters and digits as Kusion generates.
    pub fn generate() -> Self {
        let mut value = Zeroizing::new(Vec::with_capacity(Self::GENERATED));
        while value.len() < Self::GENERATED {
            let random = uuid::Uuid::new_v4();
            let room = Self::GENERATED - value.len();
            value.extend(letters(random.as_bytes()).take(room));
        }
        Self(value)
    }

    const GENERATED: usize = 54;

    /// Returns true if the value has no bytes. Callers treat an empty value as missing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the bytes, for the request that writes them. Review each new caller: the type no longer protects the
    /// value.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Returns the value as text, if it is UTF-8.
    pub fn expose_text(&self) -> Option<&str> {
        std::str::from_utf8(&self.0).ok()
    }
}

/// Returns the letters and digits for the bytes of a random UUID.
fn letters(random: &[u8; 16]) -> impl Iterator<Item = u8> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    // Two bytes of a UUID contain its version and variant, which are not random, so they are skipped. A byte above the
    // last multiple of the alphabet's length is skipped as well, because it would make some letters likelier than
    // others.
    let bytes = random.iter().enumerate();
    let bytes = bytes.filter(|(at, byte)| !matches!(at, 6 | 8) && usize::from(**byte) < 4 * LETTERS.len());
    bytes.map(|(_, byte)| LETTERS[usize::from(*byte) % LETTERS.len()])
}

impl From<String> for SecretValue {
    fn from(text: String) -> Self {
        Self::new(text.into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_values_differ_and_are_text() {
        let (one, other) = (SecretValue::generate(), SecretValue::generate());
        let text = one.expose_text().unwrap();
        assert!(text.len() == 54 && text.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert!(one.expose() != other.expose());
    }

    #[test]
    fn each_random_byte_is_one_letter_with_the_same_probability() {
        let counted: [u8; 16] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        for (random, text) in [
            (counted, "abcdefhjklmnop"),
            ([61; 16], "99999999999999"),
            ([62; 16], "aaaaaaaaaaaaaa"),
            ([247; 16], "99999999999999"),
            ([248; 16], ""),
            ([255; 16], ""),
        ] {
            let letters: Vec<_> = letters(&random).collect();
            assert_eq!(letters, text.as_bytes(), "{}", random[0]);
        }
    }

    #[test]
    fn a_value_gives_its_bytes_and_a_text_only_if_it_is_one() {
        let text = SecretValue::from("hunter2".to_owned());
        assert_eq!(
            (text.expose(), text.expose_text()),
            (b"hunter2".as_slice(), Some("hunter2"))
        );
        assert!(!text.is_empty());
        assert_eq!(SecretValue::new(vec![0xff]).expose_text(), None);
        assert!(SecretValue::new(Vec::new()).is_empty());
    }
}
