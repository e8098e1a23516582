//! Finds secrets in encoded text: base64, hexadecimal, percent-encoding, escapes. The secret may be encoded alone or
//! as a part of a longer text.

use std::{borrow::Cow, ops::Range};

use base64::{
    Engine as _,
    alphabet::{STANDARD, URL_SAFE},
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose},
};
use percent_encoding::percent_decode_str;

use super::escapes::{self, Unescaped};

/// The minimum length of a run. A shorter one decodes to less than the shortest secret.
const SHORTEST_RUN: usize = 8;

/// The maximum nesting of encodings.
const DEPTH: u32 = 3;

/// The maximum nesting of backslashes. Each level doubles the length of an escaped backslash.
const BACKSLASHES: u32 = 16;

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);

/// Returns a text and its base64 form, because base64 may directly follow other letters, where [`hide`] does not decode
/// it. [`hide`] decodes the other encodings.
pub(super) fn forms(text: &str) -> Vec<String> {
    vec![text.to_owned(), general_purpose::STANDARD.encode(text)]
}

/// The secrets to find.
pub(super) struct Needles<'a> {
    /// Adds the ranges of the secrets that occur unencoded in a text.
    pub find: &'a dyn Fn(&str, &mut Vec<Range<usize>>),
    /// True if a secret has a character that the layout of YAML may change: a blank or a quote.
    pub have_layout: bool,
}

/// Returns true if the layout of YAML may change a text.
pub(super) fn has_layout(text: &str) -> bool {
    text.contains([' ', '\n', '\t', '\''])
}

/// Replaces each secret by `mask`, wherever it is encoded or escaped; `None` if there is none.
pub(super) fn hide(text: &str, mask: &str, needles: &Needles<'_>) -> Option<String> {
    replaced(text, mask, find_all(text, needles, DEPTH, BACKSLASHES))
}

/// Replaces one secret that may be short. Unlike [`hide`] it only removes escapes: decoded text would contain a short
/// secret by chance.
pub(super) fn hide_escaped(text: &str, mask: &str, secret: &str) -> Option<String> {
    let plain = escapes::layout(secret).map(|plain| plain.text);
    let find = |text: &str, found: &mut Vec<Range<usize>>| {
        push_matches(text, secret, found);
        plain.iter().for_each(|plain| push_matches(text, plain, found));
    };
    let needles = Needles {
        find: &find,
        have_layout: has_layout(secret),
    };
    replaced(text, mask, find_escaped(text, &needles, BACKSLASHES))
}

/// Adds the ranges at which a secret occurs in a text.
pub(super) fn push_matches(text: &str, secret: &str, found: &mut Vec<Range<usize>>) {
    found.extend(text.match_indices(secret).map(|(at, _)| at..at + secret.len()));
}

fn replaced(text: &str, mask: &str, found: Vec<Range<usize>>) -> Option<String> {
    let mut hidden = String::new();
    let mut kept = 0;
    for range in joined(found) {
        hidden.push_str(&text[kept..range.start]);
        hidden.push_str(mask);
        kept = range.end;
    }
    (kept > 0).then(|| hidden + &text[kept..])
}

/// Sorts the ranges, and merges those that overlap.
fn joined(mut found: Vec<Range<usize>>) -> Vec<Range<usize>> {
    found.sort_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<usize>> = Vec::new();
    for range in found {
        match joined.last_mut().filter(|last| range.start < last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => joined.push(range),
        }
    }
    joined
}

/// Returns the ranges of all secrets: unencoded, escaped, or inside an encoded text.
fn find_all(text: &str, needles: &Needles<'_>, depth: u32, backslashes: u32) -> Vec<Range<usize>> {
    let mut found = find_escaped(text, needles, backslashes);
    if depth == 0 {
        return found;
    }
    // Encoded text itself contains no backslash, but its slashes and equals signs may be escaped.
    let unescaped = escapes::backslashes(text).filter(|_| backslashes > 0);
    if let Some(unescaped) = unescaped {
        found.extend(find_in(&unescaped, |text| {
            find_all(text, needles, depth - 1, backslashes - 1)
        }));
    }
    // Only the text between the secrets found so far is decoded: they are hidden in any case.
    let in_clear = joined(found.clone());
    let ends = in_clear.iter().map(|range| range.start).chain([text.len()]);
    let starts = [0].into_iter().chain(in_clear.iter().map(|range| range.end));
    for (start, end) in starts.zip(ends) {
        let part = &text[start..end];
        for (from, to) in runs(part) {
            let decoded = decodings(&part[from..to]);
            let is_secret = |decoded: &String| !find_all(decoded, needles, depth - 1, BACKSLASHES).is_empty();
            if decoded.iter().any(is_secret) {
                found.push(start + from..start + to);
            }
        }
    }
    found
}

/// Returns the ranges of the secrets that are unencoded or escaped.
fn find_escaped(text: &str, needles: &Needles<'_>, backslashes: u32) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    (needles.find)(text, &mut found);
    let unescaped = escapes::backslashes(text).filter(|_| backslashes > 0);
    if let Some(unescaped) = unescaped {
        found.extend(find_in(&unescaped, |text| {
            find_escaped(text, needles, backslashes - 1)
        }));
    }
    if needles.have_layout
        && let Some(plain) = escapes::layout(text)
    {
        found.extend(find_in(&plain, |text| {
            let mut found = Vec::new();
            (needles.find)(text, &mut found);
            found
        }));
    }
    found
}

fn find_in(unescaped: &Unescaped, find: impl Fn(&str) -> Vec<Range<usize>>) -> Vec<Range<usize>> {
    let found = find(&unescaped.text);
    found.iter().map(|range| unescaped.source(range)).collect()
}

/// Returns the parts of a text that may be encoded. Spaces, quotes, colons and other characters that end a
/// value separate them.
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
        // An equals sign in the middle, as in `key=value`, is not padding.
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

/// Returns the possible decodings of a part of a text.
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
            // The length of base64 without padding is never 1 modulo 4, so the last character does not belong to it.
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
    // A byte has two digits, so a single last digit does not belong to the run.
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

    fn hidden_all(text: &str, mask: &str, secrets: &[&str]) -> Option<String> {
        let find = |text: &str, found: &mut Vec<Range<usize>>| {
            secrets
                .iter()
                .for_each(|secret| push_matches(text, secret, found));
        };
        let needles = Needles {
            find: &find,
            have_layout: true,
        };
        hide(text, mask, &needles)
    }

    fn hidden(text: &str) -> Option<String> {
        hidden_all(text, "***", &[SECRET])
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
    fn a_text_has_its_form_in_base64() {
        assert_eq!(forms("plain"), ["plain", "cGxhaW4="]);
    }

    /// A text as written between the quotes of a JSON string.
    fn in_json(text: &str) -> String {
        let quoted = serde_json::Value::String(text.to_owned()).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    }

    #[test]
    fn a_secret_is_found_behind_any_number_of_escapes() {
        let mut escaped = SECRET.to_owned();
        for level in 0..8 {
            let text = format!("a {escaped} b");
            assert_eq!(hidden(&text).as_deref(), Some("a *** b"), "{level}: {text}");
            assert_eq!(
                hide_escaped(&text, "***", SECRET).as_deref(),
                Some("a *** b"),
                "{level}"
            );
            escaped = in_json(&escaped);
        }
        for text in [
            r#"x p\u0022ss \u003cw\u003eord\/9 y"#,
            r#"x p\x22ss <w>\U0000006frd/9 y"#,
            "x p\"ss\n    <w>ord/9 y",
        ] {
            assert_eq!(hidden(text).as_deref(), Some("x *** y"), "{text}");
        }
    }

    #[test]
    fn an_encoded_secret_is_found_behind_escapes_and_an_escaped_one_in_an_encoding() {
        let encoded = general_purpose::STANDARD.encode(format!("???>>>:{SECRET}?"));
        assert!(encoded.contains('/'), "{encoded}");
        let by_php = encoded.replace('/', r"\/").replace('=', r"\u003d");
        assert_eq!(hidden(&format!("\"{by_php}\"")).as_deref(), Some("\"***\""));
        let escaped = general_purpose::STANDARD.encode(in_json(&in_json(SECRET)));
        assert_eq!(hidden(&format!("a {escaped} b")).as_deref(), Some("a *** b"));
    }

    #[test]
    fn secrets_that_overlap_are_masked_as_one() {
        let secrets = ["abcd", "cdef", "xy"];
        assert_eq!(
            hidden_all("-abcdef-xyxy-", "*", &secrets).as_deref(),
            Some("-*-**-")
        );
        assert_eq!(hidden_all("nothing", "*", &secrets), None);
    }

    /// An encoding is looked for beside a secret that stands in clear, not across it.
    #[test]
    fn what_stands_beside_a_secret_stays() {
        let text = "user%20s3cret%20more";
        assert_eq!(
            hidden_all(text, "*", &["s3cret"]).as_deref(),
            Some("user%20*%20more")
        );
    }
}
