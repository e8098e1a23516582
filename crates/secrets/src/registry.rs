//! The registry: the secrets of this run, and the masking of text and values.

use std::{
    collections::HashSet,
    sync::{Arc, RwLock},
};

use serde_json::Value;
use zeroize::Zeroizing;

use super::{
    encodings, escapes,
    masked_text::MASK,
    name_fields::{FieldKeys, names_in},
    token_patterns::without_secrets,
};
use konverge_base::model::{FieldPath, masked_value, spec::Resource};

/// The minimum length of a value that is masked in running text. Masking `true` or `80` would damage every
/// output and hide nothing.
const SHORTEST: usize = 6;

/// The minimum length of a single line that is masked, if the secret has several lines: a short line such as
/// `apiVersion: v1` occurs in many files.
const SHORTEST_LINE: usize = 16;

/// The maximum length of a word that is not treated as a secret, such as a user, a database, a region or an address.
const LONGEST_WORD: usize = 12;

/// The key of the short hashes. The same key gives the same hashes, so that previews of several runs can be
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

    /// Creates a random key. Its hashes are comparable within this run only.
    pub fn random() -> Self {
        let mut bytes = Zeroizing::new([0; 32]);
        bytes[..16].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        bytes[16..].copy_from_slice(uuid::Uuid::new_v4().as_bytes());
        Self(bytes)
    }

    /// Restores a key that was stored.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Returns the bytes to store.
    pub fn to_bytes(&self) -> [u8; 32] {
        *self.0
    }
}

/// The registry of one run. Cheap to clone; shared by all rooms that print, store or post.
///
/// It has two kinds of text. The *run's own* credentials (tokens, keys) cannot be chosen by the author of a
/// pull request: they are masked in all output. *Values* of Secrets and of Terraform's sensitive attributes
/// can be arbitrary words, so they are masked in values and messages before rendering, and never in a
/// finished text: otherwise an author could hide the words of a warning, or a stack's name, by putting them into a
/// Secret.
///
/// A value of a Secret may equal the name of an object, or a host. A field that is a name, a reference or a selector
/// shows such a value if the Spec has it in clear text in such a field. Values from a secret store, and Terraform's
/// sensitive values, are masked even there.
#[derive(Clone)]
pub struct Secrets {
    key: HashKey,
    known: Arc<RwLock<KnownSecrets>>,
}

#[derive(Default)]
struct KnownSecrets {
    own: KnownTexts,
    values: KnownTexts,
    /// The values that no Spec contains: from secret stores, and sensitive ones from Terraform.
    fetched: KnownTexts,
    /// The names, references and selectors of Specs.
    names: HashSet<String>,
}

/// The texts to mask, in order and without duplicates.
#[derive(Default)]
struct KnownTexts {
    texts: Vec<Zeroizing<String>>,
    /// True if the layout of YAML may change one of the texts.
    have_layout: bool,
}

impl KnownTexts {
    fn add(&mut self, secret: &str) {
        for form in forms(secret) {
            let place = self.texts.binary_search_by(|known| (**known).cmp(&form));
            if let Err(place) = place {
                self.have_layout |= encodings::has_layout(&form);
                self.texts.insert(place, Zeroizing::new(form));
            }
        }
    }
}

/// Returns the forms in which a secret may occur: unchanged, without a trailing newline, without the layout of YAML,
/// encoded, and line by line.
fn forms(secret: &str) -> impl Iterator<Item = String> {
    let plain = escapes::layout(secret.trim()).map(|plain| plain.text);
    let whole = [secret, secret.trim()]
        .map(str::to_owned)
        .into_iter()
        .chain(plain);
    let whole = whole.flat_map(|form| encodings::forms(&form));
    let lines = secret.lines().map(|line| line.trim().to_owned());
    whole
        .filter(|form| form.len() >= SHORTEST)
        .chain(lines.filter(|line| line.len() >= SHORTEST_LINE))
}

/// Returns true if a text consists of letters and small numbers between punctuation, such as `postgres`, `us-east-1`
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
    /// Creates an empty registry, whose markers use `key`.
    pub fn new(key: HashKey) -> Self {
        Self {
            key,
            known: Arc::default(),
        }
    }

    /// Returns a registry with another key that shares the learned secrets with this one.
    #[must_use]
    pub fn with_key(&self, key: HashKey) -> Self {
        Self {
            key,
            known: Arc::clone(&self.known),
        }
    }

    /// Returns the keyed short hash of a secret: 16 hexadecimal digits.
    pub fn hash(&self, secret: &[u8]) -> String {
        blake3::keyed_hash(&self.key.0, secret).to_hex()[..16].to_owned()
    }

    /// Returns the marker of a secret value. The registry learns the value as well.
    pub fn mark(&self, secret: &Value) -> Value {
        if masked_value::is_opaque(secret) {
            return secret.clone();
        }
        each_text(secret, &mut |text| self.learn_value(text));
        self.marked(secret)
    }

    /// Returns the marker of a value that no Spec has: from a secret store, or a sensitive one of Terraform. All texts
    /// in the value are learned, so that they are masked wherever they occur.
    pub fn mark_fetched(&self, secret: &Value) -> Value {
        each_text(secret, &mut |text| self.learn_fetched(text));
        self.mark(secret)
    }

    /// Learns a credential of the run itself: it is masked in all output.
    pub fn learn(&self, secret: &str) {
        let mut known = self.known.write().expect("no panic while the lock is held");
        known.own.add(secret);
    }

    /// Learns a credential like [`Secrets::learn`], unless it is a plain word.
    pub fn learn_unless_word(&self, secret: &str) {
        if !is_word(secret) {
            self.learn(secret);
        }
    }

    /// Learns a value that is secret by its location: it is masked in values and messages. A plain word is ignored.
    pub fn learn_value(&self, secret: &str) {
        if !is_word(secret) {
            let mut known = self.known.write().expect("no panic while the lock is held");
            known.values.add(secret);
        }
    }

    /// Learns a value that no Spec contains: from a secret store, or a sensitive one of Terraform. It is masked in
    /// names too.
    pub fn learn_fetched(&self, secret: &str) {
        if !is_word(secret) {
            let mut known = self.known.write().expect("no panic while the lock is held");
            known.values.add(secret);
            known.fetched.add(secret);
        }
    }

    /// Learns the names, references and selectors of a Spec, which the repository contains in clear text.
    pub fn learn_names(&self, resources: &[Resource]) {
        let mut known = self.known.write().expect("no panic while the lock is held");
        let root = FieldKeys::default();
        for resource in resources {
            let mut names = Vec::new();
            for (key, value) in &resource.attributes {
                names_in(value, &root.child(key), &mut names);
            }
            known.names.extend(names.into_iter().map(str::to_owned));
        }
    }

    /// Learns a value that is secret by its name only. Such a value is often the name of another object, which must
    /// stay readable elsewhere, so a text made of words is ignored.
    pub(super) fn learn_named(&self, text: &str) {
        if !is_made_of_words(text) {
            self.learn_value(text);
        }
    }

    /// Masks every known secret in a message, even if it is encoded or inside a longer encoded text.
    pub fn mask(&self, text: &str) -> String {
        let known = self.known.read().expect("no panic while the lock is held");
        replace_known(text, &[&known.own, &known.values])
    }

    /// Masks a message of another program: every known secret, and what looks like a secret.
    pub fn mask_foreign(&self, text: &str) -> String {
        self.mask(&without_secrets(text))
    }

    /// Masks the run's own credentials in a finished text, such as a comment or a document. The parts of the text must
    /// be masked before: an escaped or truncated secret is not recognized here.
    pub fn mask_finished(&self, text: &str) -> String {
        let known = self.known.read().expect("no panic while the lock is held");
        replace_known(text, &[&known.own])
    }

    /// Masks every known secret in the strings of a resource or of a part of it. A string that is exactly a secret
    /// becomes its marker, so that equal secrets can be recognized. Keys stay, and so do names that the Spec has in
    /// clear text.
    #[must_use]
    pub fn mask_value(&self, value: &Value) -> Value {
        self.mask_field(&FieldKeys::default(), value)
    }

    /// Masks a value like [`Secrets::mask_value`]; `path` is the path of the value in its resource (RFC 6901).
    #[must_use]
    pub fn mask_value_at(&self, path: &FieldPath, value: &Value) -> Value {
        self.mask_field(&FieldKeys::of_path(path), value)
    }

    fn mask_field(&self, path: &FieldKeys<'_>, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                let masked = self.mask(text);
                // The Spec has this name in clear text, so it stays readable although a Secret has the same value.
                if masked != *text && self.is_shown_name(path, text) {
                    value.clone()
                } else if masked == MASK && text != MASK {
                    self.marked(value)
                } else {
                    Value::String(masked)
                }
            }
            Value::Array(items) => items.iter().map(|item| self.mask_field(path, item)).collect(),
            Value::Object(_) if masked_value::is_secret(value) => value.clone(),
            Value::Object(map) => Value::Object(
                map.iter()
                    .map(|(key, value)| (key.clone(), self.mask_field(&path.child(key), value)))
                    .collect(),
            ),
            other => other.clone(),
        }
    }

    /// Returns true if a text at a path is masked, so that a reviewer cannot see it.
    pub fn hides(&self, path: &FieldPath, text: &str) -> bool {
        self.mask(text) != text && !self.is_shown_name(&FieldKeys::of_path(path), text)
    }

    /// Returns true if a field is a name, a reference or a selector, and the Spec has its value in such a field.
    /// Credentials of the run and fetched values are never shown.
    fn is_shown_name(&self, path: &FieldKeys<'_>, text: &str) -> bool {
        if !path.is_name() {
            return false;
        }
        let known = self.known.read().expect("no panic while the lock is held");
        // A credential of the run and a fetched value are masked in names, too.
        known.names.contains(text) && replace_known(text, &[&known.own, &known.fetched]) == text
    }

    /// Returns the marker of a value, without learning it.
    #[must_use]
    pub fn marked(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => masked_value::secret(&self.hash(text.as_bytes())),
            other => masked_value::secret(
                &self.hash(konverge_base::model::digest::canonical_json(other).as_bytes()),
            ),
        }
    }
}

/// Visits the texts in a value.
fn each_text(value: &Value, visit: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => visit(text),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, visit)),
        Value::Object(map) => map.values().for_each(|member| each_text(member, visit)),
        _ => {}
    }
}

fn replace_known(text: &str, known: &[&KnownTexts]) -> String {
    let texts = || known.iter().flat_map(|known| &known.texts);
    if texts().next().is_none() {
        return text.to_owned();
    }
    let find = |text: &str, found: &mut Vec<_>| {
        texts().for_each(|secret| encodings::push_matches(text, secret, found));
    };
    let needles = encodings::Needles {
        find: &find,
        have_layout: known.iter().any(|known| known.have_layout),
    };
    encodings::hide(text, MASK, &needles).unwrap_or_else(|| text.to_owned())
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(..)")
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
