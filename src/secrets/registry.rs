//! The registry: the secrets of this run, and the masking of text and values.

use std::sync::{Arc, RwLock};

use serde_json::Value;
use zeroize::Zeroizing;

use super::encodings;
use crate::model::masked_value;

/// The minimum length of a value that is masked in running text: masking `true` or `80` would damage every
/// output and hide nothing.
const SHORTEST: usize = 6;

/// The minimum length of a masked line of a longer text: a short line such as `apiVersion: v1` stands in many
/// files.
const SHORTEST_LINE: usize = 16;

/// The maximum length of a word that is not treated as a secret: a user, a database, a region, an address.
const LONGEST_WORD: usize = 12;

/// Replaces a secret in running text.
pub(super) const MASK: &str = "***";

/// The key of the short hashes. The same key gives the same hash, so that previews of several runs can be
/// compared.
#[derive(Clone)]
pub struct HashKey(Zeroizing<[u8; 32]>);

impl HashKey {
    /// Derives a key from a text such as `KONVERGE_REVIEW_KEY`.
    pub fn derive(text: &str) -> Self {
        Self(Zeroizing::new(blake3::derive_key(
            "konverge 2026 review key",
            text.as_bytes(),
        )))
    }

    /// A random key: its hashes are comparable within this run only.
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

/// The registry of one run. Cheap to clone; shared by all rooms that print, store or post.
///
/// It has two kinds of text. The *run's own* credentials (tokens, keys) cannot be chosen by the author of a
/// pull request: they are masked in all output. *Values* of Secrets and of Terraform's sensitive attributes
/// can be arbitrary words, so they are masked in values and messages before rendering, and never in a
/// finished text: otherwise a Secret with the words of an alert or with a stack's name could hide those.
#[derive(Clone)]
pub struct Secrets {
    key: HashKey,
    known: Arc<RwLock<KnownSecrets>>,
}

/// Each list is sorted from the longest text to the shortest. Otherwise a part would be masked and the rest
/// of the whole would stay in clear text.
#[derive(Default)]
struct KnownSecrets {
    own: Vec<Zeroizing<String>>,
    values: Vec<Zeroizing<String>>,
}

impl KnownSecrets {
    fn add(list: &mut Vec<Zeroizing<String>>, secret: &str) {
        for form in forms(secret) {
            let place = list.binary_search_by(|k| form.len().cmp(&k.len()).then_with(|| (**k).cmp(&form)));
            if let Err(place) = place {
                list.insert(place, Zeroizing::new(form));
            }
        }
    }

    fn all(&self) -> impl Iterator<Item = &str> {
        // The run's own credentials first: they are always masked.
        self.own.iter().chain(&self.values).map(|known| known.as_str())
    }
}

/// The forms in which a secret may occur: unchanged, without a trailing newline, encoded, and line by line.
fn forms(secret: &str) -> impl Iterator<Item = String> {
    let trimmed = Some(secret.trim()).filter(|trimmed| trimmed.len() < secret.len());
    let whole = [Some(secret), trimmed]
        .into_iter()
        .flatten()
        .flat_map(encodings::forms);
    let lines = secret.lines().map(|line| line.trim().to_owned());
    whole
        .filter(|form| form.len() >= SHORTEST)
        .chain(lines.filter(|line| line.len() >= SHORTEST_LINE))
}

/// Returns true if a text is made of letters and small numbers between signs, such as `postgres`, `us-east-1`
/// or `10.0.0.1`.
fn is_word(text: &str) -> bool {
    text.len() <= LONGEST_WORD && is_made_of_words(text)
}

pub(super) fn is_made_of_words(text: &str) -> bool {
    let part = |part: &str| {
        let number = part.len() <= 3 && part.bytes().all(|b| b.is_ascii_digit());
        let rest = part.get(1..).unwrap_or_default();
        let letters =
            part.bytes().all(|b| b.is_ascii_alphabetic()) && rest.bytes().all(|b| b.is_ascii_lowercase());
        number || letters
    };
    text.split(['-', '_', '.', ':', '/', ' ']).all(part)
}

impl Secrets {
    pub fn new(key: HashKey) -> Self {
        Self {
            key,
            known: Arc::default(),
        }
    }

    /// The same registry with another key: both mask what either learns.
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

    /// The marker of a secret value. The value is learned as well.
    pub fn mark(&self, secret: &Value) -> Value {
        if masked_value::is_secret(secret) || masked_value::is_unknown(secret) {
            return secret.clone();
        }
        self.learn_texts(secret);
        self.marked(secret)
    }

    fn learn_texts(&self, secret: &Value) {
        match secret {
            Value::String(text) => self.learn_value(text),
            Value::Array(items) => items.iter().for_each(|item| self.learn_texts(item)),
            Value::Object(map) => map.values().for_each(|member| self.learn_texts(member)),
            _ => {}
        }
    }

    /// Learns a credential of the run itself: it is masked in all output.
    pub fn learn(&self, secret: &str) {
        let mut known = self.known.write().expect("no panic while the lock is held");
        KnownSecrets::add(&mut known.own, secret);
    }

    /// As [`Secrets::learn`], but ignores a text that is a plain word.
    pub fn learn_unless_word(&self, secret: &str) {
        if !is_word(secret) {
            self.learn(secret);
        }
    }

    /// Learns the value of a secret place: it is masked in values and messages. A plain word is ignored.
    pub fn learn_value(&self, secret: &str) {
        if !is_word(secret) {
            let mut known = self.known.write().expect("no panic while the lock is held");
            KnownSecrets::add(&mut known.values, secret);
        }
    }

    /// Learns the value of a place that is secret by its name only. Such a value is often the name of another
    /// object, which must stay readable elsewhere: texts made of words are ignored.
    pub(super) fn learn_named(&self, text: &str) {
        if !is_made_of_words(text) {
            self.learn_value(text);
        }
    }

    /// Masks every known secret in a message, also where it is encoded inside something longer.
    pub fn mask(&self, text: &str) -> String {
        let known = self.known.read().expect("no panic while the lock is held");
        replace_known(text, || known.all())
    }

    /// Masks the run's own credentials in a finished text, such as a comment or a document. Its parts must be
    /// masked before: an escaped or truncated secret would not be recognized.
    pub fn mask_finished(&self, text: &str) -> String {
        let known = self.known.read().expect("no panic while the lock is held");
        replace_known(text, || known.own.iter().map(|known| known.as_str()))
    }

    /// Masks every known secret in the strings of a value. A string that is exactly a secret becomes its
    /// marker, so that equal secrets can be recognized. Keys are identifiers and stay.
    #[must_use]
    pub fn mask_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let masked = self.mask(text);
                match masked == MASK && text != MASK {
                    true => self.marked(value),
                    false => Value::String(masked),
                }
            }
            Value::Array(items) => items.iter().map(|item| self.mask_value(item)).collect(),
            Value::Object(_) if masked_value::is_secret(value) => value.clone(),
            Value::Object(map) => Value::Object(
                map.iter()
                    .map(|(key, value)| (key.clone(), self.mask_value(value)))
                    .collect(),
            ),
            other => other.clone(),
        }
    }

    /// The marker of a value, without learning it.
    #[must_use]
    pub fn marked(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => masked_value::secret(&self.hash(text.as_bytes())),
            other => masked_value::secret(&self.hash(crate::model::digest::canonical_json(other).as_bytes())),
        }
    }
}

fn replace_known<'a, I: Iterator<Item = &'a str>>(text: &str, known: impl Fn() -> I) -> String {
    let mut masked = text.to_owned();
    if known().next().is_none() {
        return masked;
    }
    for secret in known() {
        if masked.contains(secret) {
            masked = masked.replace(secret, MASK);
        }
    }
    let holds = |decoded: &str| known().any(|secret| decoded.contains(secret));
    encodings::hide(&masked, MASK, &holds).unwrap_or(masked)
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
    fn what_is_masked_stays_as_it_is_and_lists_are_masked_item_by_item() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let once = crate::secrets::mask_provider(&secrets, &json!({"password": "Kusion123456"}));
        assert!(once["password"].get("$secret").is_some(), "{once}");
        assert_eq!(crate::secrets::mask_provider(&secrets, &once), once);
        let object = json!({"kind": "Secret", "stringData": {"a": ["hunter6666", "x1y2z3w4"]}});
        let masked = crate::secrets::mask_object(&secrets, object.as_object().expect("an object"));
        assert!(
            masked["stringData"]["a"][1].get("$secret").is_some(),
            "{masked:?}"
        );
    }

    #[test]
    fn a_marker_stays_the_same_whatever_its_hash_contains() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let marker = secrets.marked(&json!("hunter2222"));
        let hash = masked_value::as_secret(&marker).expect("it is a marker");
        secrets.learn(&hash[..hash.len() - 1]);
        assert_ne!(secrets.mask(hash), hash);
        assert_eq!(
            secrets.mask_value(&json!({"a": [marker]})),
            json!({"a": [marker]})
        );
    }

    #[test]
    fn every_form_is_masked() {
        use base64::Engine as _;
        let secrets = Secrets::new(HashKey::derive("k"));
        let secret = "p\"ss <word>";
        secrets.learn(secret);
        let base64 = base64::engine::general_purpose::STANDARD.encode(secret);
        let hexadecimal = hex::encode(secret);
        let json = json!({"x": secret}).to_string();
        let json_in_json = json!({"y": json}).to_string();
        let by_go = json.replace('<', "\\u003c").replace('>', "\\u003e");
        let text =
            format!("{secret}, {base64}, {hexadecimal}, p%22ss%20%3Cword%3E, p%22ss+%3cword%3e, {by_go}");
        assert_eq!(secrets.mask(&text), r#"***, ***, ***, ***, ***, {"x":"***"}"#);
        assert_eq!(secrets.mask(&json_in_json), r#"{"y":"{\"x\":\"***\"}"}"#);
        assert_eq!(secrets.mask_finished(&text), secrets.mask(&text));
    }

    #[test]
    fn a_part_never_uncovers_the_whole() {
        let secrets = Secrets::new(HashKey::derive("k"));
        secrets.learn("secret");
        secrets.learn("secret-and-more");
        assert_eq!(secrets.mask("secret-and-more"), "***");
    }

    #[test]
    fn a_value_is_masked_in_messages_and_values_and_a_credential_everywhere() {
        let secrets = Secrets::new(HashKey::derive("k"));
        secrets.learn("token-1234");
        let mark = secrets.mark(&json!("shop:v7x9"));
        assert_eq!(secrets.mask("shop:v7x9 token-1234"), "*** ***");
        assert_eq!(secrets.mask_finished("shop:v7x9 token-1234"), "shop:v7x9 ***");
        let value = json!({"shop:v7x9": ["shop:v7x9", "a shop:v7x9 b", "***", 7, mark]});
        let masked = json!({"shop:v7x9": [mark, "a *** b", "***", 7, mark]});
        assert_eq!(secrets.mask_value(&value), masked);
    }

    #[test]
    fn words_and_short_lines_are_no_secrets() {
        let secrets = Secrets::new(HashKey::derive("k"));
        let file = "apiVersion: v1\nkind: Config\nclusters:\ntoken: a-very-long-one\n";
        for text in ["postgres", "Production", "us-east-1", "10.0.12.3", file] {
            secrets.mark(&json!(text));
            assert!(text == file || secrets.mask(text) == text, "{text}");
        }
        for secret in ["hunter22", "paSSword", "correcthorsebattery", "Tr&il'<9x>zQ"] {
            secrets.mark(&json!(secret));
            assert_eq!(secrets.mask(secret), "***");
        }
        assert_eq!(secrets.mask("kind: Config"), "kind: Config");
        assert_eq!(secrets.mask("a token: a-very-long-one"), "a ***");
        secrets.mark(&json!("s3cret-of-a-file\n"));
        assert_eq!(secrets.mask("is s3cret-of-a-file."), "is ***.");
        // The user of the program decides what a credential is.
        secrets.learn("postgres");
        assert_eq!(secrets.mask_finished("postgres"), "***");
    }

    #[test]
    fn hashes_tell_changed_from_same_and_depend_on_the_key() {
        let one = Secrets::new(HashKey::derive("one"));
        let two = Secrets::new(HashKey::derive("two"));
        assert_eq!(one.mark(&json!("abc")), one.mark(&json!("abc")));
        assert_ne!(one.mark(&json!("abc")), one.mark(&json!("abd")));
        assert_ne!(one.mark(&json!("abc")), two.mark(&json!("abc")));
    }

    #[test]
    fn a_text_of_mixed_letters_is_no_word() {
        for word in ["postgres", "Postgres", "us-east-1", "10.0.0.1"] {
            assert!(is_made_of_words(word), "{word}");
        }
        for text in ["qXzWvT", "x1y2z3w4", "1234", "9aaaa"] {
            assert!(!is_made_of_words(text), "{text}");
        }
    }
}
