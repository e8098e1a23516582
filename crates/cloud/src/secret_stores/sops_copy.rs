//! Finds files of SOPS that are copies of each other. SOPS does not bind a file to its path. A copy has the
//! same encrypted values and the same wrapped data key, unless somebody wrapped that key again without
//! reading it, which KMS and Vault allow.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::sops_file::{SopsDataKey, SopsFile, armoured_bytes};
use konverge_base::model::json_parts::each_text;

/// The parts of a SOPS file by which its copies are recognized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SopsFileMark {
    /// The wrapped data keys, as SOPS writes them.
    keys: Vec<String>,
    /// The encrypted values.
    values: BTreeSet<String>,
}

/// The part that two files have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SopsCommon {
    /// The key that encrypts the values.
    DataKey,
    /// An encrypted value.
    Value,
}

/// A file of any format, in which the parts of [`SopsFileMark`] are searched.
#[derive(Debug)]
pub struct SopsText {
    /// The text without the white space and line breaks that YAML, JSON, INI or a dotenv file may put into a
    /// long value.
    text: String,
    values: BTreeSet<String>,
}

impl SopsFileMark {
    /// Reads the parts of a file that its copies have too. `None` if SOPS did not encrypt the file, or if it
    /// names its own path, which is checked when it is decrypted.
    pub fn read(path: &str, bytes: &[u8]) -> Option<Self> {
        let file = SopsFile::parse(path, bytes).ok()?;
        if file.has_own_path() {
            return None;
        }
        let keys = file.wrapped_keys();
        Some(Self {
            keys: keys.iter().filter_map(key_text).collect(),
            values: file.sealed_values().into_iter().collect(),
        })
    }

    /// Returns the part that the file has in common with another one.
    pub fn in_common(&self, other: &SopsText) -> Option<SopsCommon> {
        if self.keys.iter().any(|key| other.text.contains(key)) {
            return Some(SopsCommon::DataKey);
        }
        let has_value = !self.values.is_disjoint(&other.values);
        has_value.then_some(SopsCommon::Value)
    }
}

impl SopsText {
    /// Reads a file. The result is without keys and values if SOPS did not encrypt the file.
    pub fn read(bytes: &[u8]) -> Self {
        let written = String::from_utf8_lossy(bytes);
        let mut text = joined(&written);
        // JSON and YAML can escape characters, so the decoded texts are searched, too.
        for document in konverge_base::yaml::documents(&written).unwrap_or_default() {
            each_text(&document, &mut |written| {
                text.push('\n');
                text.push_str(&joined(written));
            });
        }
        let values = text.split("ENC[AES256_GCM,").skip(1);
        let values = values.filter_map(|rest| Some(rest.split_once(",type:")?.0.to_owned()));
        Self {
            values: values.collect(),
            text,
        }
    }
}

/// Removes white space and its escapes from a text.
fn joined(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' => {
                rest.next_if(|next| matches!(next, 'n' | 'r' | 't'));
            }
            c if c.is_whitespace() => {}
            c => kept.push(c),
        }
    }
    kept
}

/// Returns a wrapped key without white space, to search for it in a [`SopsText`].
fn key_text(key: &SopsDataKey) -> Option<String> {
    match key {
        SopsDataKey::Age(armoured) => Some(STANDARD.encode(armoured_bytes(armoured)?)),
        SopsDataKey::AwsKms { wrapped, .. }
        | SopsDataKey::GoogleKms { wrapped, .. }
        | SopsDataKey::AzureKeyVault { wrapped, .. } => Some(wrapped.clone()),
        SopsDataKey::VaultTransit { wrapped, .. } => wrapped.rsplit(':').next().map(str::to_owned),
        SopsDataKey::Unknown(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AQICAHhleGFtcGxla2V5AQ==";
    const VALUE: &str = "data:aGVs,iv:bG8=,tag:dGFn";

    fn mark() -> SopsFileMark {
        SopsFileMark {
            keys: vec![KEY.to_owned()],
            values: [VALUE.to_owned()].into(),
        }
    }

    fn common(text: &str) -> Option<SopsCommon> {
        mark().in_common(&SopsText::read(text.as_bytes()))
    }

    #[test]
    fn a_copy_is_found_however_it_is_written() {
        let (begin, end) = KEY.split_at(10);
        for copy in [
            format!("sops:\n  kms:\n    - enc: {KEY}\n"),
            format!("enc: |-\n    {begin}\n    {end}\n"),
            format!("enc: \"{begin}\\\n  {end}\"\n"),
            format!("{{\"enc\": \"{begin}\\n{end}\"}}"),
            format!("sops_kms__list_0__map_enc={begin}\\n{end}\n"),
            // An escaped character of JSON and YAML.
            format!("{{\"enc\": \"\\u0041{}\"}}", &KEY[1..]),
            format!("not: [YAML: {KEY}"),
        ] {
            assert_eq!(common(&copy), Some(SopsCommon::DataKey), "{copy}");
        }
    }

    /// A key service wraps the same key again, and the values stay.
    #[test]
    fn a_copy_whose_key_was_wrapped_again_is_found_by_a_value() {
        let copy = |value: &str| format!("other: ENC[AES256_GCM,{value},type:str]\n");
        assert_eq!(common(&copy(VALUE)), Some(SopsCommon::Value));
        let (begin, end) = VALUE.split_at(9);
        assert_eq!(
            common(&copy(&format!("{begin}\n   {end}"))),
            Some(SopsCommon::Value)
        );
        assert_eq!(common(&copy("data:b3RoZXI=,iv:bG8=,tag:dGFn")), None);
        assert_eq!(common(VALUE), None, "it is no encrypted value");
    }

    #[test]
    fn another_file_has_nothing_in_common() {
        assert_eq!(common(""), None);
        assert_eq!(common("enc: AQICAHhvdGhlcmtleQ==\n"), None);
        let nothing = SopsFileMark {
            keys: Vec::new(),
            values: BTreeSet::new(),
        };
        assert_eq!(nothing.in_common(&SopsText::read(KEY.as_bytes())), None);
        assert_eq!(SopsFileMark::read("a.yaml", b"a: 1\n"), None);
    }

    #[test]
    fn a_key_of_vault_is_the_same_under_each_version_of_its_key() {
        let key = |wrapped: &str| {
            key_text(&SopsDataKey::VaultTransit {
                place: crate::secret_stores::TransitKeyPlace {
                    mount: "transit".to_owned(),
                    key: "team".to_owned(),
                },
                wrapped: wrapped.to_owned(),
            })
        };
        assert_eq!(key("vault:v1:AAAA"), Some("AAAA".to_owned()));
        assert_eq!(key("vault:v12:AAAA"), key("vault:v1:AAAA"));
        assert_eq!(key_text(&SopsDataKey::Unknown("pgp".to_owned())), None);
    }
}
