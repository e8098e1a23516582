//! A secret as its store returns it, and the selection of the value that a reference names.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use zeroize::{Zeroize as _, Zeroizing};

use super::{SecretProblem, http::unexpected};
use konverge_base::model::json_parts::each_text_mut;
use konverge_secrets::SecretValue;

/// A secret that was read.
pub struct FetchedSecret {
    /// The value, or the fields, of the secret.
    pub document: SecretDocument,
    /// Its version, if the store has versions.
    pub version: Option<String>,
}

impl FetchedSecret {
    /// Returns a secret of one value.
    pub(super) fn whole(value: SecretValue, version: Option<String>) -> Self {
        let document = SecretDocument::Whole(value);
        Self { document, version }
    }

    /// Returns a secret with the fields of a JSON object.
    pub(super) fn fields(fields: serde_json::Map<String, Value>, version: Option<String>) -> Self {
        let fields = fields.into_iter();
        let document = SecretDocument::Fields(fields.map(|(key, value)| (key, from_json(value))).collect());
        Self { document, version }
    }
}

/// The content of a secret.
pub enum SecretDocument {
    /// One value, which may be a JSON document.
    Whole(SecretValue),
    /// Values by key. A value that is not a string is JSON.
    Fields(BTreeMap<String, SecretValue>),
}

impl SecretDocument {
    /// Returns the value at the path of keys.
    ///
    /// # Errors
    /// There is no such value, or it is empty.
    pub fn select(&self, keys: &[String]) -> Result<SecretValue, SecretProblem> {
        let (value, rest) = match (self, keys) {
            (Self::Whole(value), keys) => (value, keys),
            (Self::Fields(fields), []) => {
                return Err(SecretProblem::KeyNeeded(fields.keys().cloned().collect()));
            }
            (Self::Fields(fields), [first, rest @ ..]) => match fields.get(first) {
                Some(value) => (value, rest),
                None => return Err(SecretProblem::NoKey(first.clone())),
            },
        };
        let found = match rest {
            [] => SecretValue::new(value.expose().to_vec()),
            keys => inside(value, keys)?,
        };
        if found.is_empty() {
            Err(SecretProblem::Empty)
        } else {
            Ok(found)
        }
    }

    /// Returns all values as bytes, from which a hash is computed that changes with the content.
    pub fn expose_all(&self) -> Zeroizing<Vec<u8>> {
        let mut all = Zeroizing::new(Vec::new());
        match self {
            Self::Whole(value) => all.extend_from_slice(value.expose()),
            Self::Fields(fields) => {
                for (key, value) in fields {
                    for part in [key.as_bytes(), value.expose()] {
                        all.extend_from_slice(&(part.len() as u64).to_le_bytes());
                        all.extend_from_slice(part);
                    }
                }
            }
        }
        all
    }
}

/// Returns the value at the path of keys in a JSON document.
fn inside(document: &SecretValue, keys: &[String]) -> Result<SecretValue, SecretProblem> {
    let mut whole: Value = serde_json::from_slice(document.expose()).map_err(|_| SecretProblem::NotJson)?;
    let found = keys.iter().try_fold(&mut whole, |value, key| {
        value
            .get_mut(key)
            .ok_or_else(|| SecretProblem::NoKey(key.clone()))
    });
    let found = found.map(|value| from_json(value.take()));
    zeroize_json(&mut whole);
    found
}

fn from_json(mut value: Value) -> SecretValue {
    match &mut value {
        Value::String(text) => SecretValue::from(std::mem::take(text)),
        Value::Null => SecretValue::new(Vec::new()),
        other => {
            let text = other.to_string();
            zeroize_json(other);
            SecretValue::from(text)
        }
    }
}

/// Returns the text in a field of a response.
pub(super) fn text_in(answer: &Value, field: &str) -> Result<String, SecretProblem> {
    let text = answer[field].as_str().map(str::to_owned);
    text.ok_or_else(|| unexpected(format!("the answer has no `{field}`")))
}

/// Decodes the base64 secret in a field of a response, and overwrites the response's texts.
pub(super) fn secret_in(mut answer: Value, field: &str) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
    let secret = answer[field].as_str().and_then(|text| STANDARD.decode(text).ok());
    let secret = secret.map(Zeroizing::new);
    zeroize_json(&mut answer);
    secret.ok_or_else(|| unexpected(format!("the answer has no `{field}` in base64")))
}

/// Overwrites the texts of a JSON value.
pub(super) fn zeroize_json(value: &mut Value) {
    each_text_mut(value, &mut |text| text.zeroize());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn select(document: &SecretDocument, keys: &[&str]) -> Result<String, SecretProblem> {
        let keys: Vec<_> = keys.iter().map(|key| (*key).to_owned()).collect();
        let found = document.select(&keys);
        found.map(|value| value.expose_text().unwrap().to_owned())
    }

    #[test]
    fn keys_lead_to_a_value_inside() {
        let fields = json!({"password": "p", "port": 5432, "tls": {"key": "k"}, "none": null, "empty": ""});
        let fields = FetchedSecret::fields(fields.as_object().unwrap().clone(), None).document;
        assert_eq!(select(&fields, &["password"]), Ok("p".to_owned()));
        assert_eq!(select(&fields, &["port"]), Ok("5432".to_owned()));
        assert_eq!(select(&fields, &["tls", "key"]), Ok("k".to_owned()));
        assert_eq!(
            select(&fields, &["gone"]),
            Err(SecretProblem::NoKey("gone".to_owned()))
        );
        assert_eq!(
            select(&fields, &["tls", "gone"]),
            Err(SecretProblem::NoKey("gone".to_owned()))
        );
        assert_eq!(select(&fields, &["password", "x"]), Err(SecretProblem::NotJson));
        assert_eq!(select(&fields, &["none"]), Err(SecretProblem::Empty));
        assert_eq!(select(&fields, &["empty"]), Err(SecretProblem::Empty));
        let Err(SecretProblem::KeyNeeded(keys)) = select(&fields, &[]) else {
            panic!("a key is needed")
        };
        assert_eq!(keys, ["empty", "none", "password", "port", "tls"]);
        let whole = SecretDocument::Whole(SecretValue::from(r#"{"a":{"b":"c"}}"#.to_owned()));
        assert_eq!(select(&whole, &["a", "b"]), Ok("c".to_owned()));
        assert_eq!(select(&whole, &[]), Ok(r#"{"a":{"b":"c"}}"#.to_owned()));
    }

    /// Its hash is what a plan says of a secret.
    #[test]
    fn what_is_hashed_differs_whenever_a_key_or_a_value_does() {
        let all = |fields: Value| {
            let fields = FetchedSecret::fields(fields.as_object().unwrap().clone(), None).document;
            fields.expose_all().to_vec()
        };
        let different = [
            all(json!({})),
            all(json!({"a": "bc"})),
            all(json!({"ab": "c"})),
            all(json!({"abc": ""})),
            all(json!({"a": "b", "c": ""})),
            all(json!({"a": "", "b": "c"})),
        ];
        for (at, one) in different.iter().enumerate() {
            assert!(different[at + 1..].iter().all(|other| other != one), "{at}");
        }
        assert_eq!(all(json!({"a": "1", "b": "2"})), all(json!({"b": "2", "a": "1"})));
        let whole = SecretDocument::Whole(SecretValue::from("abc".to_owned()));
        assert_eq!(whole.expose_all().as_slice(), b"abc");
    }

    #[test]
    fn a_secret_of_an_answer_is_base64_or_an_error_without_it() {
        let secret = |value: Value| secret_in(json!({ "Plaintext": value }), "Plaintext");
        assert_eq!(secret(json!("a2V5")).unwrap().as_slice(), b"key");
        for wrong in [json!("s3cret!"), json!(7), json!(null), json!({"a": "a2V5"})] {
            let problem = secret(wrong).unwrap_err();
            assert_eq!(problem, unexpected("the answer has no `Plaintext` in base64"));
        }
        assert_eq!(text_in(&json!({"a": "b"}), "a"), Ok("b".to_owned()));
        assert!(text_in(&json!({"a": 1}), "a").is_err());
    }

    #[test]
    fn every_text_of_an_answer_is_overwritten() {
        let mut answer = json!({"a": "s3cret", "list": ["s3cret", {"b": "s3cret"}], "number": 1});
        zeroize_json(&mut answer);
        assert_eq!(answer, json!({"a": "", "list": ["", {"b": ""}], "number": 1}));
    }
}
