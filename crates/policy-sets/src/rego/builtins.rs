//! Functions of OPA that the engine lacks: `json.patch`, `yaml.unmarshal`, keyed hashes, `net.cidr_merge`, and
//! decoding of JSON web tokens. Where the result might differ from OPA's, the function fails, and then the rule
//! denies.

use std::{collections::BTreeSet, net::IpAddr, sync::LazyLock};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac, digest::Digest};
use ipnet::IpNet;
use regex::Regex;
use regorus::{Engine, Value as RegoValue};
use serde_json::{Value, json};

use super::{
    differences::{RegoDifference, RegoResult, extend},
    functions::items,
    json_patch,
    value::{from_json, rego_value},
};

type Hash = fn(&[u8]) -> String;
/// A hash function with a key (HMAC).
type KeyedHash = fn(&str, &str) -> Result<Vec<u8>, RegoDifference>;

/// Adds the functions to an engine.
pub(super) fn add(engine: &mut Engine) {
    extend(engine, "json.patch", 2, |arguments| {
        let (mut document, patches) = (as_json(arguments, 0)?, as_json(arguments, 1)?);
        for patch in patches.as_array().ok_or("the patches are a list")? {
            json_patch::apply(&mut document, patch)?;
        }
        Ok(rego_value(&document))
    });
    extend(engine, "json.unmarshal", 1, json_of);
    extend(engine, "json.is_valid", 1, |arguments| {
        Ok(RegoValue::from(json_of(arguments).is_ok()))
    });
    extend(engine, "yaml.unmarshal", 1, |arguments| {
        yaml_of(arguments).map(|value| rego_value(&value))
    });
    extend(engine, "yaml.is_valid", 1, |arguments| {
        yaml_of(arguments).map(|_| RegoValue::from(true))
    });
    let hashes: [(&'static str, Hash); 3] = [
        ("crypto.md5", |of| hex::encode(md5::Md5::digest(of))),
        ("crypto.sha1", |of| hex::encode(sha1::Sha1::digest(of))),
        ("crypto.sha256", |of| hex::encode(sha2::Sha256::digest(of))),
    ];
    for (name, hash) in hashes {
        extend(engine, name, 1, move |arguments| {
            Ok(RegoValue::from(hash(text(arguments, 0)?.as_bytes())))
        });
    }
    let with_key: [(&'static str, KeyedHash); 4] = [
        ("crypto.hmac.md5", keyed::<Hmac<md5::Md5>>),
        ("crypto.hmac.sha1", keyed::<Hmac<sha1::Sha1>>),
        ("crypto.hmac.sha256", keyed::<Hmac<sha2::Sha256>>),
        ("crypto.hmac.sha512", keyed::<Hmac<sha2::Sha512>>),
    ];
    for (name, hash) in with_key {
        extend(engine, name, 2, move |arguments| {
            let hash = hash(text(arguments, 1)?, text(arguments, 0)?)?;
            Ok(RegoValue::from(hex::encode(hash)))
        });
    }
    extend(engine, "crypto.hmac.equal", 2, |arguments| {
        Ok(RegoValue::from(text(arguments, 0)? == text(arguments, 1)?))
    });
    extend(engine, "net.cidr_merge", 1, |arguments| {
        let networks = arguments.first().and_then(items);
        let networks = networks.ok_or("it needs a list or a set")?;
        let networks = networks.map(|item| {
            let network = item.as_string().ok().and_then(|text| network(text));
            network.ok_or_else(|| format!("{item} is not a network"))
        });
        let networks: Vec<_> = networks.collect::<Result<_, _>>()?;
        let merged = IpNet::aggregate(&networks).into_iter();
        let merged: BTreeSet<_> = merged.map(|one| RegoValue::from(one.to_string())).collect();
        Ok(RegoValue::from(merged))
    });
    extend(engine, "io.jwt.decode", 1, |arguments| {
        let token = SignedToken::read(text(arguments, 0)?)?;
        Ok(rego_value(&json!([
            token.header,
            token.payload,
            hex::encode(token.signature)
        ])))
    });
    let signed: [(&'static str, KeyedHash); 3] = [
        ("io.jwt.verify_hs256", keyed::<Hmac<sha2::Sha256>>),
        ("io.jwt.verify_hs384", keyed::<Hmac<sha2::Sha384>>),
        ("io.jwt.verify_hs512", keyed::<Hmac<sha2::Sha512>>),
    ];
    for (name, hash) in signed {
        extend(engine, name, 2, move |arguments| {
            let token = SignedToken::read(text(arguments, 0)?)?;
            let hash = hash(text(arguments, 1)?, token.signed)?;
            Ok(RegoValue::from(hash == token.signature))
        });
    }
}

fn json_of(arguments: &[RegoValue]) -> RegoResult {
    Ok(from_json(text(arguments, 0)?).map_err(|error| error.to_string())?)
}

fn text(arguments: &[RegoValue], at: usize) -> Result<&str, RegoDifference> {
    match arguments.get(at) {
        Some(RegoValue::String(text)) => Ok(text),
        _ => Err("it needs a string".into()),
    }
}

/// Converts an argument to JSON. Fails if JSON cannot hold it exactly: a set, or a number that would be rounded.
fn as_json(arguments: &[RegoValue], at: usize) -> Result<Value, RegoDifference> {
    let value = arguments.get(at).unwrap_or(&RegoValue::Undefined);
    let json = serde_json::to_value(value).ok();
    let json = json.filter(|json| rego_value(json) == *value);
    Ok(json.ok_or("its argument must be JSON: no sets, and no numbers that would be rounded")?)
}

/// Matches the plain YAML words that are booleans here and for `kubectl`, but strings for OPA.
static BOOLEANS: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?im)(^|[\s\[{,:])(yes|no|on|off|y|n)[ \t\r]*($|[,\]}:#])").ok());

/// Parses a YAML text. A text that is invalid here may be valid in OPA, which lets a later key win over an earlier
/// one and reads only the first document.
fn yaml_of(arguments: &[RegoValue]) -> Result<Value, RegoDifference> {
    let text = text(arguments, 0)?;
    if BOOLEANS.as_ref().is_none_or(|words| words.is_match(text)) {
        let why = "one of the words yes, no, on, off, y and n is a boolean or a text: put it in quotes";
        return Err(why.into());
    }
    // Go's parser rejects half of a surrogate pair.
    if ["\\x", "\\u", "\\U"].iter().any(|escape| text.contains(escape)) {
        return Err("it has an escape by code point (`\\x41`): write the character itself".into());
    }
    let documents = konverge_base::yaml::documents(text).map_err(|error| error.to_string())?;
    let [document] = <[Value; 1]>::try_from(documents).map_err(|_| "it needs one document")?;
    Ok(document)
}

/// Parses a network. OPA gives an address without a prefix length that of its historic class.
fn network(text: &str) -> Option<IpNet> {
    let network: IpNet = text.parse().ok()?;
    let is_mapped = matches!(network.addr(), IpAddr::V6(address) if address.to_ipv4_mapped().is_some());
    (!is_mapped).then(|| network.trunc())
}

fn keyed<M: Mac + KeyInit>(key: &str, of: &str) -> Result<Vec<u8>, RegoDifference> {
    let mac = <M as KeyInit>::new_from_slice(key.as_bytes());
    let mut mac = mac.map_err(|error| error.to_string())?;
    mac.update(of.as_bytes());
    Ok(mac.finalize().into_bytes().to_vec())
}

/// A signed JSON web token.
struct SignedToken<'t> {
    header: Value,
    payload: Value,
    signature: Vec<u8>,
    /// The part of the token that is signed.
    signed: &'t str,
}

impl<'t> SignedToken<'t> {
    fn read(text: &'t str) -> Result<Self, &'static str> {
        let read = || {
            let (signed, signature) = text.rsplit_once('.')?;
            let (header, payload) = signed.split_once('.')?;
            let bytes = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
            let object = |part: &str| {
                let value: Option<Value> = serde_json::from_slice(&bytes(part)?).ok();
                value.filter(Value::is_object)
            };
            let header = object(header)?;
            // OPA reads encrypted and nested tokens differently, so they are refused.
            let is_plain = header.get("enc").is_none() && header.get("cty").is_none();
            is_plain.then_some(())?;
            Some(Self {
                header,
                payload: object(payload)?,
                signature: bytes(signature)?,
                signed,
            })
        };
        read().ok_or("it needs a signed JWT of two JSON objects")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(expression: &str) -> Result<String, String> {
        let mut engine = Engine::new();
        engine.set_strict_builtin_errors(true);
        add(&mut engine);
        let rule = format!("package a\nx := {expression}\n");
        let added = engine.add_policy("a.rego".to_owned(), rule);
        added.map_err(|error| error.to_string())?;
        let value = engine.eval_rule("data.a.x".to_owned());
        value
            .map(|value| value.to_string())
            .map_err(|error| error.to_string())
    }

    const TOKEN: &str = "eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ";

    /// What conftest says of each is asked by `tests/it/policy/opa_table.rs`.
    #[test]
    fn what_would_be_read_in_another_way_has_no_answer() {
        for (expression, why) in [
            ("json.patch({1}, [])", "no sets"),
            ("json.patch({\"a\": {1}}, [])", "no sets"),
            ("json.patch({}, {})", "a list"),
            ("yaml.unmarshal(\"a: 1\\na: 2\")", "duplicate"),
            ("yaml.unmarshal(\"a: 1\\n---\\nb: 1\")", "one document"),
            ("yaml.is_valid(\"[\")", "yaml.is_valid"),
            ("crypto.sha256(1)", "needs a string"),
            ("yaml.unmarshal(\"a: yes\")", "in quotes"),
            ("yaml.unmarshal(\"{\\\"a\\\":Off}\")", "in quotes"),
            ("yaml.unmarshal(\"- [1, n]\")", "in quotes"),
            ("yaml.unmarshal(\"y: 1\")", "in quotes"),
            ("net.cidr_merge([\"::1\"])", "not a network"),
            ("net.cidr_merge([\"10.0.0.1\"])", "not a network"),
            ("net.cidr_merge([\"::ffff:10.0.0.1/128\"])", "not a network"),
            ("net.cidr_merge(1)", "a list or a set"),
            ("io.jwt.decode(\"a.b.c\")", "a signed JWT"),
            // Its header says `{"enc":"x"}`.
            ("io.jwt.decode(\"eyJlbmMiOiJ4In0.e30.\")", "a signed JWT"),
        ] {
            let refused = answer(expression).unwrap_err();
            assert!(refused.contains(why), "{expression}: {refused}");
        }
    }

    #[test]
    fn words_within_texts_are_no_booleans() {
        let text = r#"yaml.unmarshal("a: turn it on now\nb: 'yes'\nc: no-one")"#;
        assert_eq!(
            answer(text).unwrap(),
            r#"{"a":"turn it on now","b":"yes","c":"no-one"}"#
        );
    }

    #[test]
    fn a_token_is_verified_by_its_own_key_alone() {
        let hash = keyed::<Hmac<sha2::Sha256>>("key", TOKEN).unwrap();
        let signed = format!("{TOKEN}.{}", URL_SAFE_NO_PAD.encode(hash));
        let verify = |token: &str, key: &str| answer(&format!("io.jwt.verify_hs256(\"{token}\", \"{key}\")"));
        assert_eq!(verify(&signed, "key").unwrap(), "true");
        assert_eq!(verify(&signed, "other").unwrap(), "false");
        assert_eq!(verify(&format!("{TOKEN}."), "key").unwrap(), "false");
        assert!(verify(TOKEN, "key").is_err());
    }
}
