//! The registry: what is secret in this run, and the masking of text and values.

use std::sync::{Arc, RwLock};

use base64::Engine as _;
use serde_json::Value;
use zeroize::Zeroizing;

use crate::model::value;

/// Shorter values are not masked in running text: masking `true` or `80` would wreck every output and hide nothing.
const SHORTEST: usize = 6;

/// What stands for a secret in running text.
const MASK: &str = "***";

/// The key of the short hashes. The same key gives the same hash, so previews of several runs can be compared.
#[derive(Clone)]
pub struct HashKey(Zeroizing<[u8; 32]>);

impl HashKey {
    /// A key derived from a text such as `KONVERGE_REVIEW_KEY`.
    pub fn derived(text: &str) -> Self {
        Self(Zeroizing::new(blake3::derive_key(
            "konverge 2026 review key",
            text.as_bytes(),
        )))
    }

    /// A key of random bytes: hashes hold within this run only.
    pub fn random() -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        bytes[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        bytes[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        Self(bytes)
    }

    /// A key that was kept in the store.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes to keep in the store.
    pub fn to_bytes(&self) -> [u8; 32] {
        *self.0
    }
}

/// The registry of one run; cheap to clone, shared by all rooms that print, store or post.
#[derive(Clone)]
pub struct Secrets {
    key: HashKey,
    known: Arc<RwLock<Vec<Zeroizing<String>>>>,
}

impl Secrets {
    /// An empty registry.
    pub fn new(key: HashKey) -> Self {
        Self {
            key,
            known: Arc::default(),
        }
    }

    /// The same registry under another key: what is learned by one is masked by both.
    #[must_use]
    pub fn with_key(&self, key: HashKey) -> Self {
        Self {
            key,
            known: Arc::clone(&self.known),
        }
    }

    /// The keyed short hash of a secret: 16 hexadecimal digits.
    pub fn hash(&self, secret: &[u8]) -> String {
        blake3::keyed_hash(&self.key.0, secret).to_hex()[..16].to_owned()
    }

    /// The mark that stands for a secret value, which is learned on the way.
    pub fn mark(&self, secret: &Value) -> Value {
        if value::as_secret(secret).is_some() || value::is_unknown(secret) {
            return secret.clone();
        }
        match secret {
            Value::String(text) => {
                self.learn(text);
                value::secret(&self.hash(text.as_bytes()))
            }
            other => value::secret(&self.hash(crate::model::digest::canonical_json(other).as_bytes())),
        }
    }

    /// Remembers a secret text, with the forms it may turn up in: base64, and as it stands inside a JSON string.
    pub fn learn(&self, secret: &str) {
        let mut forms = vec![
            secret.to_owned(),
            base64::engine::general_purpose::STANDARD.encode(secret),
        ];
        let quoted = Value::String(secret.to_owned()).to_string();
        forms.push(quoted[1..quoted.len() - 1].to_owned());
        forms.extend(secret.lines().map(|line| line.trim().to_owned()));
        let mut known = self.known.write().expect("no panic while the lock is held");
        for form in forms.into_iter().filter(|form| form.len() >= SHORTEST) {
            // The longest first, or a part would be masked and the rest of the whole left in clear.
            let place = known.binary_search_by(|k| form.len().cmp(&k.len()).then_with(|| (**k).cmp(&form)));
            if let Err(place) = place {
                known.insert(place, Zeroizing::new(form));
            }
        }
    }

    /// The text with every known secret replaced.
    pub fn mask(&self, text: &str) -> String {
        let known = self.known.read().expect("no panic while the lock is held");
        let mut masked = text.to_owned();
        for secret in known.iter() {
            if masked.contains(secret.as_str()) {
                masked = masked.replace(secret.as_str(), MASK);
            }
        }
        masked
    }

    /// The value with every known secret replaced in its strings and keys.
    #[must_use]
    pub fn mask_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.mask(text)),
            Value::Array(items) => items.iter().map(|item| self.mask_value(item)).collect(),
            Value::Object(map) => Value::Object(
                map.iter()
                    .map(|(key, value)| (self.mask(key), self.mask_value(value)))
                    .collect(),
            ),
            other => other.clone(),
        }
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_form_is_masked() {
        let secrets = Secrets::new(HashKey::derived("k"));
        secrets.learn("p\"ss word");
        let base64 = base64::engine::general_purpose::STANDARD.encode("p\"ss word");
        let text = format!("a p\"ss word b {base64} c {}", json!({"x": "p\"ss word"}));
        assert_eq!(secrets.mask(&text), r#"a *** b *** c {"x":"***"}"#);
    }

    #[test]
    fn a_part_never_uncovers_the_whole() {
        let secrets = Secrets::new(HashKey::derived("k"));
        secrets.learn("secret");
        secrets.learn("secret-and-more");
        assert_eq!(secrets.mask("secret-and-more"), "***");
    }

    #[test]
    fn hashes_tell_changed_from_same_and_depend_on_the_key() {
        let one = Secrets::new(HashKey::derived("one"));
        let two = Secrets::new(HashKey::derived("two"));
        assert_eq!(one.mark(&json!("abc")), one.mark(&json!("abc")));
        assert_ne!(one.mark(&json!("abc")), one.mark(&json!("abd")));
        assert_ne!(one.mark(&json!("abc")), two.mark(&json!("abc")));
    }
}
