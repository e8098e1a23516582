//! A file that SOPS encrypted: its values, the wrapped data key, and the MAC over all values. Unknown content
//! is an error.
//!
//! Each value is `ENC[AES256_GCM,data:…,iv:…,tag:…,type:…]`, with a nonce of 32 bytes and its path as
//! additional data. The MAC is SHA-512 over the clear values in the order of the file, itself encrypted as a
//! value.

use std::collections::BTreeMap;

use aes_gcm::{
    AesGcm, KeyInit as _,
    aead::{Aead as _, Payload, consts::U32},
    aes::Aes256,
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha512};
use zeroize::Zeroizing;

use super::{AzureKeyPlace, TransitKeyPlace};
use konverge_base::model::json_parts::each_text;

/// The maximum size of a file in bytes.
const LARGEST: usize = 1 << 20;

/// The prefix that SOPS adds to the MAC's input if the MAC covers only encrypted values.
const MAC_OF_ENCRYPTED_ONLY: [u8; 32] = [
    0x8a, 0x3f, 0xd2, 0xad, 0x54, 0xce, 0x66, 0x52, 0x7b, 0x10, 0x34, 0xf3, 0xd1, 0x47, 0xbe, 0x0b, 0x0b,
    0x97, 0x5b, 0x3b, 0xf4, 0x4f, 0x72, 0xc6, 0xfd, 0xad, 0xec, 0x81, 0x76, 0xf2, 0x7d, 0x69,
];

/// The key under which a file may state its own path. The MAC covers it, so a copy at another path is
/// detected.
pub(super) const OWN_PATH: &str = "konverge_path";

/// An encrypted file.
#[derive(Debug)]
pub(super) struct SopsFile {
    values: Map<String, Value>,
    metadata: Metadata,
}

/// The data key, wrapped for one of the recipients.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum SopsDataKey {
    /// An armoured age file.
    Age(String),
    /// A ciphertext of AWS KMS in base64.
    AwsKms {
        arn: String,
        context: Map<String, Value>,
        wrapped: String,
    },
    /// A ciphertext of Vault's transit engine.
    VaultTransit { place: TransitKeyPlace, wrapped: String },
    /// A ciphertext of Google Cloud KMS in base64.
    GoogleKms { name: String, wrapped: String },
    /// A data key that one version of a key in Azure Key Vault wrapped.
    AzureKeyVault {
        place: AzureKeyPlace,
        version: String,
        wrapped: String,
    },
    /// A recipient of an unsupported type, or with unsupported options.
    Unknown(String),
}

impl SopsDataKey {
    /// Returns true if the wrapped key has exactly the form that SOPS writes, by which copies are found.
    fn is_as_sops_writes_it(&self) -> bool {
        match self {
            Self::Age(armoured) => armoured_bytes(armoured).is_some(),
            Self::AwsKms { wrapped, .. } | Self::GoogleKms { wrapped, .. } => {
                STANDARD.decode(wrapped).is_ok()
            }
            Self::VaultTransit { wrapped, .. } => wrapped
                .rsplit(':')
                .next()
                .is_some_and(|text| STANDARD.decode(text).is_ok()),
            Self::AzureKeyVault { wrapped, .. } => URL_SAFE_NO_PAD.decode(wrapped).is_ok(),
            Self::Unknown(_) => true,
        }
    }
}

/// The member `sops` of a file.
#[derive(Debug, Deserialize)]
struct Metadata {
    age: Option<Vec<AgeEntry>>,
    kms: Option<Vec<KmsEntry>>,
    hc_vault: Option<Vec<VaultEntry>>,
    gcp_kms: Option<Vec<GoogleEntry>>,
    azure_kv: Option<Vec<AzureEntry>>,
    key_groups: Option<Vec<Value>>,
    shamir_threshold: Option<u64>,
    lastmodified: String,
    mac: String,
    unencrypted_suffix: Option<String>,
    encrypted_suffix: Option<String>,
    unencrypted_regex: Option<String>,
    encrypted_regex: Option<String>,
    unencrypted_comment_regex: Option<String>,
    encrypted_comment_regex: Option<String>,
    #[serde(default)]
    mac_only_encrypted: bool,
    /// Unsupported recipients (`pgp`, `hckms`, …), and the version of SOPS.
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Debug, Deserialize)]
struct AgeEntry {
    enc: String,
}

#[derive(Debug, Deserialize)]
struct KmsEntry {
    arn: String,
    role: Option<String>,
    context: Option<Map<String, Value>>,
    enc: String,
}

#[derive(Debug, Deserialize)]
struct VaultEntry {
    engine_path: String,
    key_name: String,
    enc: String,
}

#[derive(Debug, Deserialize)]
struct GoogleEntry {
    resource_id: String,
    enc: String,
}

#[derive(Debug, Deserialize)]
struct AzureEntry {
    #[serde(alias = "vaultUrl")]
    vault_url: String,
    #[serde(alias = "key")]
    name: String,
    #[serde(default)]
    version: String,
    enc: String,
}

impl SopsFile {
    /// Parses a YAML or JSON file. The error says why SOPS did not encrypt it.
    pub(super) fn parse(path: &str, bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() > LARGEST {
            return Err("it has more than 1 MiB".to_owned());
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())?;
        let document = if path.ends_with(".json") {
            serde_json::from_str(text).map_err(|_| "it is not JSON".to_owned())?
        } else {
            let documents = konverge_base::yaml::documents(text).map_err(|_| "it is not YAML".to_owned())?;
            let [document] =
                <[Value; 1]>::try_from(documents).map_err(|_| "it is not one YAML document".to_owned())?;
            document
        };
        let Value::Object(mut values) = document else {
            return Err("it is not a map".to_owned());
        };
        let Some(metadata) = values.shift_remove("sops") else {
            return Err("it is not encrypted by SOPS: it has no `sops`".to_owned());
        };
        let metadata: Metadata = serde_json::from_value(metadata)
            .map_err(|error| format!("its `sops` is not understood: {error}"))?;
        if metadata.shamir_threshold.is_some_and(|threshold| threshold > 0)
            || metadata
                .key_groups
                .as_ref()
                .is_some_and(|groups| !groups.is_empty())
        {
            return Err("its data key is split over key groups, which is not supported".to_owned());
        }
        let by_comment = [
            &metadata.unencrypted_comment_regex,
            &metadata.encrypted_comment_regex,
        ];
        if by_comment.into_iter().any(|regex| !is_unset(regex)) {
            return Err("its comments decide which values are encrypted, which is not supported".to_owned());
        }
        Ok(Self { values, metadata })
    }

    /// Returns true if the file states its own path.
    pub(super) fn has_own_path(&self) -> bool {
        self.values.contains_key(OWN_PATH)
    }

    /// Returns the encrypted values and the MAC, each with ciphertext, nonce and tag, as SOPS writes them.
    pub(super) fn sealed_values(&self) -> Vec<String> {
        let mut found = Vec::new();
        for value in self.values.values() {
            each_text(value, &mut |text| found.extend(sealed_text(text)));
        }
        found.extend(sealed_text(&self.metadata.mac));
        found
    }

    /// Returns the wrapped data key of each recipient.
    pub(super) fn wrapped_keys(&self) -> Vec<SopsDataKey> {
        let metadata = &self.metadata;
        let age = metadata.age.iter().flatten();
        let mut keys: Vec<_> = age.map(|entry| SopsDataKey::Age(entry.enc.clone())).collect();
        keys.extend(metadata.kms.iter().flatten().map(|entry| match &entry.role {
            Some(role) if !role.is_empty() => SopsDataKey::Unknown(format!("{} with a role", entry.arn)),
            _ => SopsDataKey::AwsKms {
                arn: entry.arn.clone(),
                context: entry.context.clone().unwrap_or_default(),
                wrapped: entry.enc.clone(),
            },
        }));
        let vault = metadata.hc_vault.iter().flatten();
        keys.extend(vault.map(|entry| SopsDataKey::VaultTransit {
            place: TransitKeyPlace {
                mount: entry.engine_path.trim_matches('/').to_owned(),
                key: entry.key_name.clone(),
            },
            wrapped: entry.enc.clone(),
        }));
        let google = metadata.gcp_kms.iter().flatten();
        keys.extend(google.map(|entry| SopsDataKey::GoogleKms {
            name: entry.resource_id.clone(),
            wrapped: entry.enc.clone(),
        }));
        let azure = metadata.azure_kv.iter().flatten();
        keys.extend(azure.map(|entry| SopsDataKey::AzureKeyVault {
            place: AzureKeyPlace {
                vault: entry.vault_url.trim_end_matches('/').to_owned(),
                name: entry.name.clone(),
            },
            version: entry.version.clone(),
            wrapped: entry.enc.clone(),
        }));
        for key in &mut keys {
            if !key.is_as_sops_writes_it() {
                *key = SopsDataKey::Unknown("a key that is not in base64 as SOPS writes it".to_owned());
            }
        }
        let is_list = |value: &Value| value.as_array().is_some_and(|list| !list.is_empty());
        let others = metadata.others.iter().filter(|(_, value)| is_list(value));
        keys.extend(others.map(|(kind, _)| SopsDataKey::Unknown(kind.clone())));
        keys
    }

    /// Decrypts all values. The MAC must match: a value that was moved, added or removed is an error.
    pub(super) fn decrypt(self, data_key: &[u8]) -> Result<Map<String, Value>, String> {
        let Self { mut values, metadata } = self;
        let mut reader = Reader {
            cipher: AesGcm::new_from_slice(data_key)
                .map_err(|_| "its data key has the wrong length".to_owned())?,
            rules: Rules::of(&metadata)?,
            mac_of_encrypted_only: metadata.mac_only_encrypted,
            mac: Sha512::new(),
        };
        if metadata.mac_only_encrypted {
            reader.mac.update(MAC_OF_ENCRYPTED_ONLY);
            if values.contains_key(OWN_PATH) && !reader.rules.is_encrypted(&[OWN_PATH.to_owned()]) {
                return Err(format!("its MAC does not cover `{OWN_PATH}`"));
            }
        }
        reader.map(&mut values, &mut Vec::new())?;
        let written = reader.value(&metadata.mac, &metadata.lastmodified)?;
        let computed = hex::encode_upper(reader.mac.finalize());
        match written {
            Clear::Value(Value::String(mac)) if mac == computed => Ok(values),
            _ => Err("its MAC does not match its values: it was changed by hand".to_owned()),
        }
    }
}

fn is_unset(text: &Option<String>) -> bool {
    text.as_ref().is_none_or(String::is_empty)
}

/// The rules by which SOPS decides from the names on a value's path if it is encrypted.
struct Rules {
    unencrypted_suffix: Option<String>,
    encrypted_suffix: Option<String>,
    unencrypted_regex: Option<Regex>,
    encrypted_regex: Option<Regex>,
}

impl Rules {
    fn of(metadata: &Metadata) -> Result<Self, String> {
        let suffix = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let regex = |text: &Option<String>| {
            let given = suffix(text).map(|text| Regex::new(&text));
            given
                .transpose()
                .map_err(|_| "its regular expression is not understood".to_owned())
        };
        Ok(Self {
            unencrypted_suffix: suffix(&metadata.unencrypted_suffix),
            encrypted_suffix: suffix(&metadata.encrypted_suffix),
            unencrypted_regex: regex(&metadata.unencrypted_regex)?,
            encrypted_regex: regex(&metadata.encrypted_regex)?,
        })
    }

    /// Returns true if SOPS encrypts the value at this path. As in SOPS, a later rule overrides an earlier
    /// one.
    fn is_encrypted(&self, path: &[String]) -> bool {
        let ends = |suffix: &String| path.iter().any(|name| name.ends_with(suffix.as_str()));
        let matches = |regex: &Regex| path.iter().any(|name| regex.is_match(name));
        let mut is_encrypted = !self.unencrypted_suffix.as_ref().is_some_and(ends);
        is_encrypted = self.encrypted_suffix.as_ref().map_or(is_encrypted, ends);
        is_encrypted &= !self.unencrypted_regex.as_ref().is_some_and(matches);
        self.encrypted_regex.as_ref().map_or(is_encrypted, matches)
    }
}

/// A decrypted value.
enum Clear {
    Value(Value),
    /// A comment, which is not covered by the MAC.
    Comment,
}

/// Decrypts the values in the order of the file, which the MAC depends on.
struct Reader {
    cipher: AesGcm<Aes256, U32>,
    rules: Rules,
    mac_of_encrypted_only: bool,
    mac: Sha512,
}

impl Reader {
    fn map(&mut self, map: &mut Map<String, Value>, path: &mut Vec<String>) -> Result<(), String> {
        for (key, value) in map {
            path.push(key.clone());
            self.member(value, path)?;
            path.pop();
        }
        Ok(())
    }

    /// Replaces an encrypted value with its clear text. Returns false for a comment.
    fn member(&mut self, value: &mut Value, path: &mut Vec<String>) -> Result<bool, String> {
        match value {
            Value::Null => return Ok(true),
            Value::Object(map) => return self.map(map, path).map(|()| true),
            Value::Array(items) => {
                let mut kept = Vec::with_capacity(items.len());
                for mut item in std::mem::take(items) {
                    if self.member(&mut item, path)? {
                        kept.push(item);
                    }
                }
                *items = kept;
                return Ok(true);
            }
            _ => {}
        }
        let is_encrypted = self.rules.is_encrypted(path);
        if is_encrypted {
            let Value::String(text) = &*value else {
                return Err(format!("`{}` is not encrypted", path.join(".")));
            };
            let clear = self.value(text, &format!("{}:", path.join(":")));
            match clear.map_err(|why| format!("`{}`: {why}", path.join(".")))? {
                Clear::Comment => return Ok(false),
                Clear::Value(clear) => *value = clear,
            }
        }
        if is_encrypted || !self.mac_of_encrypted_only {
            match &*value {
                Value::String(text) => self.mac.update(text),
                Value::Bool(true) => self.mac.update("True"),
                Value::Bool(false) => self.mac.update("False"),
                Value::Number(number) => self.mac.update(plain_number(number)),
                _ => {}
            }
        }
        Ok(true)
    }

    fn value(&self, text: &str, path: &str) -> Result<Clear, String> {
        if text.is_empty() {
            return Ok(Clear::Value(Value::from("")));
        }
        let (mut sealed, nonce, kind) = parts(text).ok_or("it is not a value that SOPS encrypted")?;
        let payload = Payload {
            msg: &sealed,
            aad: path.as_bytes(),
        };
        let nonce: [u8; 32] = nonce
            .try_into()
            .map_err(|_| "its nonce does not have 32 bytes".to_owned())?;
        let opened = self.cipher.decrypt(&nonce.into(), payload);
        let opened = opened
            .map_err(|_| "it was encrypted for another place in the file, or by another key".to_owned())?;
        sealed.clear();
        let clear = String::from_utf8(opened).map_err(|_| "it is not UTF-8".to_owned())?;
        let wrong = || format!("its value does not have the type `{}`", kind.escape_debug());
        Ok(Clear::Value(match kind {
            "str" | "bytes" | "time" => Value::String(clear),
            "int" => clear.parse::<i64>().map_err(|_| wrong())?.into(),
            "float" => {
                let float = clear.parse::<f64>().map_err(|_| wrong())?;
                // SOPS writes 1500, not 1500.0.
                let whole = format!("{float}").parse::<i64>();
                whole.map_or(float.into(), Value::from)
            }
            "bool" => match clear.to_ascii_lowercase().as_str() {
                "true" => Value::Bool(true),
                "false" => Value::Bool(false),
                _ => return Err(wrong()),
            },
            "comment" => return Ok(Clear::Comment),
            _ => return Err(wrong()),
        }))
    }
}

/// Returns the ciphertext with its tag, the nonce and the type of an encrypted value.
fn parts(text: &str) -> Option<(Vec<u8>, Vec<u8>, &str)> {
    let rest = text.strip_prefix("ENC[AES256_GCM,data:")?.strip_suffix(']')?;
    let (data, rest) = rest.split_once(",iv:")?;
    let (nonce, rest) = rest.split_once(",tag:")?;
    let (tag, kind) = rest.split_once(",type:")?;
    let mut sealed = STANDARD.decode(data).ok()?;
    sealed.extend(STANDARD.decode(tag).ok()?);
    Some((sealed, STANDARD.decode(nonce).ok()?, kind))
}

/// Returns an encrypted value without its type.
fn sealed_text(text: &str) -> Option<String> {
    parts(text)?;
    let (sealed, _) = text.strip_prefix("ENC[AES256_GCM,")?.rsplit_once(",type:")?;
    Some(sealed.to_owned())
}

/// Formats a number without an exponent, as SOPS hashes it.
fn plain_number(number: &serde_json::Number) -> String {
    match (number.as_i64(), number.as_f64()) {
        (None, Some(float)) if !number.is_u64() => format!("{float}"),
        _ => number.to_string(),
    }
}

/// Decodes an armored age file.
pub(super) fn armoured_bytes(armoured: &str) -> Option<Vec<u8>> {
    let body: String = armoured
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("-----"))
        .collect();
    STANDARD.decode(body).ok()
}

/// Decrypts the data key in an armored age file.
pub(super) fn open_age(armoured: &str, identities: &[age::x25519::Identity]) -> Option<Zeroizing<Vec<u8>>> {
    let sealed = armoured_bytes(armoured)?;
    let decryptor = age::Decryptor::new_buffered(sealed.as_slice()).ok()?;
    let identities = identities.iter().map(|identity| identity as &dyn age::Identity);
    let mut opened = decryptor.decrypt(identities).ok()?;
    let mut key = Zeroizing::new(Vec::new());
    std::io::Read::read_to_end(&mut opened, &mut key).ok()?;
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn file(metadata: &Value) -> Result<SopsFile, String> {
        let mut sops = json!({"lastmodified": "2026-11-23T03:51:47Z", "mac": ""});
        for (key, value) in metadata.as_object().unwrap() {
            sops[key] = value.clone();
        }
        SopsFile::parse("a.json", json!({"a": "b", "sops": sops}).to_string().as_bytes())
    }

    /// The table is that of `store.go` of SOPS: a later rule goes before an earlier one.
    #[test]
    fn the_rules_of_a_file_say_which_values_are_encrypted() {
        for (metadata, encrypted, clear) in [
            (json!({}), vec!["password", "a.b_unencrypted"], vec![]),
            (
                json!({"unencrypted_suffix": "_unencrypted"}),
                vec!["password"],
                vec!["a_unencrypted", "a_unencrypted.password"],
            ),
            (
                json!({"encrypted_suffix": "_secret"}),
                vec!["a_secret", "a_secret.b"],
                vec!["a", "a_secrets"],
            ),
            (
                json!({"encrypted_suffix": "_secret", "unencrypted_regex": "^public"}),
                vec!["a_secret"],
                vec!["public_secret", "public.a_secret"],
            ),
            (
                json!({"unencrypted_suffix": "_x", "encrypted_regex": "^(data|stringData)$"}),
                vec!["data.password", "data.a_x"],
                vec!["metadata.name", "kind"],
            ),
            // SOPS writes an empty text for a rule that is not set.
            (
                json!({"encrypted_suffix": "", "encrypted_regex": ""}),
                vec!["a"],
                vec![],
            ),
        ] {
            let rules = Rules::of(&file(&metadata).unwrap().metadata).unwrap();
            let is_encrypted = |path: &str| {
                let path: Vec<_> = path.split('.').map(str::to_owned).collect();
                rules.is_encrypted(&path)
            };
            assert!(encrypted.iter().all(|path| is_encrypted(path)), "{metadata}");
            assert!(!clear.iter().any(|path| is_encrypted(path)), "{metadata}");
        }
        let wrong = file(&json!({"encrypted_regex": "("})).unwrap();
        assert!(
            Rules::of(&wrong.metadata).is_err(),
            "a rule that is not understood"
        );
    }

    #[test]
    fn a_recipient_with_an_option_that_is_not_supported_is_not_used() {
        let kms = |role: Value| json!({"kms": [{"arn": "arn:a", "enc": "AAAA", "role": role}]});
        let keys = |metadata: Value| file(&metadata).unwrap().wrapped_keys();
        let known = SopsDataKey::AwsKms {
            arn: "arn:a".to_owned(),
            context: Map::new(),
            wrapped: "AAAA".to_owned(),
        };
        assert_eq!(keys(kms(json!(null))), std::slice::from_ref(&known));
        assert_eq!(keys(kms(json!(""))), [known]);
        let unknown = |text: &str| [SopsDataKey::Unknown(text.to_owned())];
        assert_eq!(keys(kms(json!("arn:role"))), unknown("arn:a with a role"));
        assert_eq!(
            keys(json!({"pgp": [{"fp": "1"}], "hckms": [], "version": "3.13.3"})),
            unknown("pgp")
        );
        assert_eq!(keys(json!({"kms": null, "age": null})), []);
    }

    /// By its text a copy is found, so that a text that SOPS does not write is no key.
    #[test]
    fn a_wrapped_key_that_is_written_otherwise_is_not_used() {
        let is_known = |metadata: Value| {
            let keys = file(&metadata).unwrap().wrapped_keys();
            !matches!(keys[..], [SopsDataKey::Unknown(_)])
        };
        let google = |enc: &str| json!({"gcp_kms": [{"resource_id": "p", "enc": enc}]});
        let vault = |enc: &str| json!({"hc_vault": [{"engine_path": "t", "key_name": "k", "enc": enc}]});
        let azure = |enc: &str| json!({"azure_kv": [{"vault_url": "https://a", "name": "k", "version": "1", "enc": enc}]});
        assert!(is_known(google("aGVs")) && is_known(vault("vault:v1:aGVs")) && is_known(azure("aGVs")));
        for changed in ["aG Vs", "aGVs\n", "aGVs=", "aG+_"] {
            assert!(!is_known(google(changed)), "{changed}");
            assert!(!is_known(vault(&format!("vault:v1:{changed}"))), "{changed}");
            assert!(!is_known(azure(changed)), "{changed}");
        }
    }

    #[test]
    fn a_file_that_sops_did_not_encrypt_says_why() {
        let refused = |path, bytes: &[u8]| SopsFile::parse(path, bytes).unwrap_err();
        let large = vec![b' '; LARGEST + 1];
        for (path, bytes, why) in [
            ("a.yaml", large.as_slice(), "it has more than 1 MiB"),
            ("a.yaml", b"\xff", "it is not UTF-8"),
            ("a.json", b"{", "it is not JSON"),
            ("a.yaml", b"a: 1\n---\nb: 2\n", "it is not one YAML document"),
            ("a.yaml", b"- a\n", "it is not a map"),
            (
                "a.yaml",
                b"a: 1\n",
                "it is not encrypted by SOPS: it has no `sops`",
            ),
        ] {
            assert_eq!(refused(path, bytes), why, "{path}");
        }
        for (metadata, why) in [
            (json!({"mac": 1}), "its `sops` is not understood"),
            (json!({"key_groups": [{}]}), "split over key groups"),
            (json!({"shamir_threshold": 2}), "split over key groups"),
            (json!({"unencrypted_comment_regex": "x"}), "its comments decide"),
        ] {
            let said = file(&metadata).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        assert!(file(&json!({"key_groups": [], "shamir_threshold": 0})).is_ok());
    }

    #[test]
    fn a_value_that_lacks_a_part_is_no_encrypted_value() {
        let whole = "ENC[AES256_GCM,data:aGVs,iv:bG8=,tag:dGFn,type:str]";
        let (sealed, nonce, kind) = parts(whole).unwrap();
        assert_eq!(
            (sealed.as_slice(), nonce.as_slice(), kind),
            (&b"heltag"[..], &b"lo"[..], "str")
        );
        let inner = "data:aGVs,iv:bG8=,tag:dGFn";
        assert_eq!(sealed_text(whole).as_deref(), Some(inner));
        for broken in [
            "",
            "plain",
            "ENC[AES256_GCM,data:aGVs,iv:bG8=,tag:dGFn]",
            "ENC[AES256_GCM,data:aGVs,iv:bG8=,type:str]",
            "ENC[AES256_GCM,data:a!,iv:bG8=,tag:dGFn,type:str]",
            "ENC[AES256_GCM,data:aGVs,iv:bG8=,tag:dGFn,type:str] ",
        ] {
            assert!(
                parts(broken).is_none() && sealed_text(broken).is_none(),
                "{broken}"
            );
        }
    }

    #[test]
    fn a_number_is_hashed_as_sops_writes_it() {
        for (number, text) in [
            ("1", "1"),
            ("-7", "-7"),
            ("18446744073709551615", "18446744073709551615"),
            ("1.5", "1.5"),
            ("1e21", "1000000000000000000000"),
            ("1e-7", "0.0000001"),
        ] {
            assert_eq!(
                plain_number(&serde_json::from_str(number).unwrap()),
                text,
                "{number}"
            );
        }
    }
}
