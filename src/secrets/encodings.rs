//! Other encodings of a text: base64, hexadecimal, percent-encoding, JSON strings. A secret is found in each
//! of them, alone or inside a longer text that was encoded as a whole.

use std::borrow::Cow;

use base64::{
    Engine as _,
    alphabet::{STANDARD, URL_SAFE},
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose},
};
use percent_encoding::percent_decode_str;
use serde_json::Value;

/// A shorter run decodes to less than the shortest secret.
const SHORTEST_RUN: usize = 8;

/// The maximum nesting of encodings.
const DEPTH: u32 = 3;

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);

/// A text and its forms inside other texts that are readable without decoding. [`hide`] handles the other
/// encodings.
pub(super) fn forms(text: &str) -> Vec<String> {
    let mut forms = vec![text.to_owned(), general_purpose::STANDARD.encode(text)];
    // A JSON string, nested up to three times.
    let mut quoted = text.to_owned();
    for _ in 0..DEPTH {
        quoted = in_json(&quoted);
        // Go and Terraform write these as escapes too.
        let escaped = quoted
            .replace('<', "\\u003c")
            .replace('>', "\\u003e")
            .replace('&', "\\u0026");
        forms.extend([escaped, quoted.clone()]);
    }
    forms.sort();
    forms.dedup();
    forms
}

/// A text as written between the quotes of a JSON string.
pub(super) fn in_json(text: &str) -> String {
    let quoted = Value::String(text.to_owned()).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Replaces every encoded part that decodes to something with a secret by `mask`; `None` if there is none.
pub(super) fn hide(text: &str, mask: &str, holds: &dyn Fn(&str) -> bool) -> Option<String> {
    hide_below(text, mask, holds, DEPTH)
}

fn hide_below(text: &str, mask: &str, holds: &dyn Fn(&str) -> bool, depth: u32) -> Option<String> {
    let is_secret = |decoded: &str| {
        holds(decoded) || (depth > 1 && hide_below(decoded, mask, holds, depth - 1).is_some())
    };
    let mut hidden = String::new();
    let mut kept = 0;
    for (start, end) in runs(text) {
        let decoded = decodings(&text[start..end]);
        if decoded.iter().any(|decoded| is_secret(decoded)) {
            hidden.push_str(&text[kept..start]);
            hidden.push_str(mask);
            kept = end;
        }
    }
    (kept > 0).then(|| {
        hidden.push_str(&text[kept..]);
        hidden
    })
}

/// The parts of a text that may be encoded: without spaces, quotes, colons and other characters that end a
/// value.
fn runs(text: &str) -> Vec<(usize, usize)> {
    let is_in = |byte: u8| byte.is_ascii_alphanumeric() || b"+/_-%.~".contains(&byte);
    let bytes = text.as_bytes();
    let mut runs = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        while at < bytes.len() && is_in(bytes[at]) {
            at += 1;
        }
        let end = at;
        while at < bytes.len() && at < end + 2 && bytes[at] == b'=' {
            at += 1;
        }
        // An equals sign in the middle is not padding: `key=value`.
        if bytes.get(at).copied().is_some_and(is_in) {
            at = end + 1;
            if end - start >= SHORTEST_RUN {
                runs.push((start, end));
            }
            continue;
        }
        if end - start >= SHORTEST_RUN {
            runs.push((start, at));
        }
        at = at.max(start + 1);
    }
    runs
}

/// The possible decodings of a run.
fn decodings(run: &str) -> Vec<String> {
    let mut found = Vec::new();
    if run.contains('%') {
        found.extend(percent_decoded(run));
    }
    let hexadecimal = run.split(|c: char| !c.is_ascii_hexdigit());
    found.extend(hexadecimal.filter_map(hexadecimal_decoded));
    for (alphabet, signs) in [(&STANDARD, "+/="), (&URL_SAFE, "-_=")] {
        let engine = GeneralPurpose::new(alphabet, LENIENT);
        let parts = run.split(|c: char| !c.is_ascii_alphanumeric() && !signs.contains(c));
        for part in parts.filter(|part| part.len() >= SHORTEST_RUN) {
            let whole = part.trim_end_matches('=');
            // One character too many cannot be part of it.
            let whole = if whole.len() % 4 == 1 {
                &whole[..whole.len() - 1]
            } else {
                whole
            };
            let decoded = engine.decode(whole).ok();
            found.extend(decoded.and_then(|bytes| String::from_utf8(bytes).ok()));
        }
    }
    found
}

fn percent_decoded(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8();
    decoded.ok().map(Cow::into_owned)
}

fn hexadecimal_decoded(digits: &str) -> Option<String> {
    if digits.len() < SHORTEST_RUN {
        return None;
    }
    // A last digit without a partner is not a byte.
    let whole = &digits[..digits.len() / 2 * 2];
    String::from_utf8(hex::decode(whole).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent_encoded(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("%{byte:02X}")).collect()
    }

    const SECRET: &str = "p\"ss <w>ord/9";

    fn hidden(text: &str) -> Option<String> {
        hide(text, "***", &|decoded| decoded.contains(SECRET))
    }

    #[test]
    fn a_secret_is_found_within_what_was_encoded_as_a_whole() {
        let whole = format!("admin:{SECRET}");
        let base64 = general_purpose::STANDARD.encode(&whole);
        let twice = general_purpose::URL_SAFE_NO_PAD.encode(format!("{{\"auth\":\"{base64}\"}}"));
        let hexadecimal = hex::encode_upper(&whole);
        let percent = percent_encoded(whole.as_bytes());
        for encoded in [&base64, &twice, &hexadecimal, &percent, &percent.to_lowercase()] {
            assert_eq!(
                hidden(&format!("Basic {encoded} end")).as_deref(),
                Some("Basic *** end"),
                "{encoded}"
            );
        }
        assert_eq!(hidden(&format!("auth={base64}")).as_deref(), Some("auth=***"));
        // A letter behind it that is not part of it.
        let unpadded = general_purpose::STANDARD.encode(format!("admins:{SECRET}"));
        assert!(hidden(&format!("{unpadded}x")).is_some(), "{unpadded}x");
        // Half of a byte behind it.
        assert!(hidden(&format!("{hexadecimal}0")).is_some(), "{hexadecimal}0");
    }

    #[test]
    fn a_base64_run_with_one_character_too_many_is_decoded() {
        let whole = general_purpose::STANDARD.encode("correct horse battery");
        let run = format!("{whole}x");
        assert_eq!(run.len() % 4, 1);
        assert!(decodings(&run).contains(&"correct horse battery".to_owned()));
    }

    #[test]
    fn other_texts_stay() {
        for text in [
            "",
            "registry.example.com/shop/api@sha256:0123456789abcdef0123456789abcdef",
            "appops/orders-database-main/dev",
            "a=b&c=d%20e",
            "YWJjZGVmZ2hpamtsbW5vcA==",
        ] {
            assert_eq!(hidden(text), None, "{text}");
        }
    }

    #[test]
    fn a_run_ends_at_a_space_and_at_an_equals_sign_between_words() {
        for (text, expected) in [
            ("abcdefgh", &["abcdefgh"] as &[&str]),
            ("abcdefg", &[]),
            ("words are all short here", &[]),
            ("abcdefgh==", &["abcdefgh=="]),
            ("abcdefgh=== x", &["abcdefgh=="]),
            ("abcdefgh==ijklmnop", &["abcdefgh", "ijklmnop"]),
            ("longer-key=value", &["longer-key"]),
            ("a b c d key=value-long", &["value-long"]),
            ("a \"+/_-%.~x\" b", &["+/_-%.~x"]),
            ("=", &[]),
        ] {
            let found: Vec<_> = runs(text)
                .into_iter()
                .map(|(start, end)| &text[start..end])
                .collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn three_encodings_in_each_other_are_decoded_and_not_four() {
        let encode = |text: &str| general_purpose::STANDARD.encode(text);
        let thrice = encode(&encode(&encode(SECRET)));
        assert_eq!(
            hidden(&format!("a {thrice} b {thrice}")).as_deref(),
            Some("a *** b ***")
        );
        assert_eq!(hidden(&encode(&thrice)), None);
    }

    #[test]
    fn each_alphabet_and_length_is_decoded() {
        for (digits, text) in [
            ("61626364", Some("abcd")),
            ("616263646", Some("abcd")),
            ("6162636", None),
            ("ff626364", None),
        ] {
            assert_eq!(hexadecimal_decoded(digits).as_deref(), text, "{digits}");
        }
        for (text, decoded) in [("a%20b+c", Some("a b c")), ("%ff", None)] {
            assert_eq!(percent_decoded(text).as_deref(), decoded, "{text}");
        }
        for (run, decoded) in [
            ("YWJjZGU", &[] as &[&str]),
            ("YWJjZGVm", &["abcdef", "abcdef"]),
            ("Pz8/Pj4+", &["???>>>"]),
            ("Pz8_Pj4-", &["???>>>"]),
            ("a%20b+c", &["a b c"]),
        ] {
            assert_eq!(decodings(run), decoded, "{run}");
        }
    }

    #[test]
    fn a_text_has_its_forms_in_base64_and_json() {
        assert_eq!(forms("plain"), ["cGxhaW4=", "plain"]);
        assert_eq!(forms("<>&"), ["<>&", "PD4m", "\\u003c\\u003e\\u0026"]);
        assert_eq!(forms("\""), ["\"", "Ig==", r#"\""#, r#"\\\""#, r#"\\\\\\\""#]);
        assert_eq!(in_json("a\"b"), "a\\\"b");
    }
}
