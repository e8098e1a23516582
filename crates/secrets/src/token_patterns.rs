//! Finds texts that are secret by their shape, wherever they occur: private keys, passwords in URLs, tokens of
//! well-known issuers.

use std::ops::Range;

use super::{masked_text::MASK, secret_names};

/// The prefixes of tokens of well-known issuers.
const TOKENS: [&str; 17] = [
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "xoxs-",
    "sk_live_",
    "rk_live_",
    "hvs.",
    "npm_",
    "AGE-SECRET-KEY-1",
    "AccountKey=",
];

/// The minimum length of a token. A shorter text is an abbreviated example.
const SHORTEST_TOKEN: usize = 20;

/// Returns the ranges of the secret parts of a text, in order and not nested.
pub(super) fn secret_parts(text: &str) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    if text.len() < 8 {
        return parts;
    }
    parts.extend(private_keys(text));
    parts.extend(passwords_in_addresses(text));
    if text.len() >= SHORTEST_TOKEN {
        parts.extend(tokens(text));
    }
    in_order(parts)
}

/// Masks the output of another program: texts that are secret by their shape, the text after `Bearer`,
/// and values after a name that says that they are secret (`password: …`, `--token=…`).
pub fn without_secrets(text: &str) -> String {
    let mut shown = String::new();
    let mut kept = 0;
    for part in secret_parts_of_output(text) {
        shown.push_str(&text[kept..part.start]);
        shown.push_str(MASK);
        kept = part.end;
    }
    shown.push_str(&text[kept..]);
    shown
}

fn secret_parts_of_output(text: &str) -> Vec<Range<usize>> {
    let mut parts = secret_parts(text);
    parts.extend(named_values(text));
    in_order(parts)
}

fn in_order(mut parts: Vec<Range<usize>>) -> Vec<Range<usize>> {
    parts.sort_by_key(|part| (part.start, std::cmp::Reverse(part.end)));
    let mut end = 0;
    parts.retain(|part| {
        let apart = part.start >= end && !part.is_empty();
        if apart {
            end = part.end;
        }
        apart
    });
    parts
}

/// Finds private keys, from `-----BEGIN … PRIVATE KEY-----` to their ends.
fn private_keys(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find("-----BEGIN ").map(|start| at + start) {
        let body = start + "-----BEGIN ".len();
        let Some(label) = text[body..].find("-----").map(|end| &text[body..body + end]) else {
            break;
        };
        let closing = format!("-----END {label}-----");
        let end = text[body..]
            .find(&closing)
            .map_or(text.len(), |end| body + end + closing.len());
        if label.contains("PRIVATE KEY") {
            found.push(start..end);
            at = end;
        } else {
            at = body;
        }
    }
    found
}

/// Finds the password of each `scheme://user:password@host`, except placeholders.
fn passwords_in_addresses(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find("://").map(|start| at + start + 3) {
        let is_end = |c: char| c.is_whitespace() || "/?#'\"`<>\\,;".contains(c);
        let end = text[start..].find(is_end).map_or(text.len(), |end| start + end);
        at = start;
        let Some((userinfo, _)) = text[start..end].rsplit_once('@') else {
            continue;
        };
        let Some((user, password)) = userinfo.split_once(':') else {
            continue;
        };
        if !password.is_empty() && !is_placeholder(password) {
            let from = start + user.len() + 1;
            found.push(from..from + password.len());
        }
    }
    found
}

/// Returns true if a value is a placeholder: a reference, a variable or a template.
pub(super) fn is_placeholder(value: &str) -> bool {
    let value = value.trim();
    ["$", "{", "<", "%", "ref+", "ref://", "*"]
        .iter()
        .any(|start| value.starts_with(start))
}

fn tokens(text: &str) -> Vec<Range<usize>> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-.=+/".contains(c);
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find(is_part).map(|start| at + start) {
        let end = text[start..]
            .find(|c| !is_part(c))
            .map_or(text.len(), |end| start + end);
        let word = &text[start..end];
        at = end;
        if word.len() < SHORTEST_TOKEN {
            continue;
        }
        // A token may also follow a name, as in `token=ghp_…`.
        let begins = |from: usize| TOKENS.iter().any(|token| word[from..].starts_with(token));
        let behind = word.find('=').map(|sign| sign + 1);
        let starts = || [Some(0), behind].into_iter().flatten();
        let from = starts().find(|from| begins(*from));
        let from = from.or_else(|| starts().find(|from| is_jwt(&word[*from..])));
        found.extend(from.map(|from| start + from..end));
    }
    found
}

/// Returns true for a JSON Web Token: three parts in base64, and the first one is a JSON object.
fn is_jwt(word: &str) -> bool {
    let parts: Vec<&str> = word.split('.').collect();
    let is_long = |part: &&str| part.len() >= 8;
    word.starts_with("eyJ") && parts.len() == 3 && parts[..2].iter().all(is_long)
}

/// Finds the values after `Bearer` or `Basic`, and after a name that says that its value is secret.
fn named_values(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let is_end = |c: char| c.is_whitespace() || "'\"`,;&)}]".contains(c);
    let value_from = |at: usize| -> Range<usize> {
        let open = text[at..].find(|c: char| !(c.is_whitespace() || "'\"\\".contains(c)));
        let start = open.map_or(text.len(), |open| at + open);
        let end = text[start..].find(is_end).map_or(text.len(), |end| start + end);
        start..end
    };
    for scheme in ["Bearer ", "bearer ", "Basic ", "basic "] {
        found.extend(
            text.match_indices(scheme)
                .map(|(at, _)| value_from(at + scheme.len())),
        );
    }
    for (at, sign) in text.char_indices().filter(|(_, c)| matches!(c, ':' | '=')) {
        let before = text[..at].trim_end_matches(['"', '\'', '\\', ' ']);
        let is_name = |c: char| c.is_alphanumeric() || "_-.".contains(c);
        let name = before.rsplit(|c| !is_name(c)).next().unwrap_or_default();
        let is_address = sign == ':' && text[at..].starts_with("://");
        if !is_address && secret_names::is_secret_name(name) {
            found.push(value_from(at + 1));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(text: &str, parts: &[Range<usize>]) -> String {
        let mut out = String::new();
        let mut at = 0;
        for part in parts {
            out.push_str(&text[at..part.start]);
            out.push('#');
            at = part.end;
        }
        out + &text[at..]
    }

    #[test]
    fn shapes_are_seen_wherever_they_stand() {
        let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----";
        let token = format!("ghp_{}", "a1".repeat(18));
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln";
        for (text, shown) in [
            (format!("a\n{key}\nb"), "a\n#\nb"),
            (format!("say it: token={token} x"), "say it: token=# x"),
            (
                "postgres://shop:s3cr@t/9@db".to_owned(),
                "postgres://shop:#@t/9@db",
            ),
            (
                "postgres://shop:s3cret@db:5432/x?y".to_owned(),
                "postgres://shop:#@db:5432/x?y",
            ),
            (
                "https://me:${TOKEN}@host/".to_owned(),
                "https://me:${TOKEN}@host/",
            ),
            ("https://host:8443/a@b".to_owned(), "https://host:8443/a@b"),
            ("a://b:c@".to_owned(), "a://b:#@"),
            (format!("token={token};"), "token=#;"),
            (format!("\"{jwt}\""), "\"#\""),
            (
                "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----".to_owned(),
                "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----",
            ),
        ] {
            assert_eq!(hidden(&text, &secret_parts(&text)), shown);
        }
    }

    #[test]
    fn what_a_program_says_behind_a_name_is_hidden() {
        for (text, shown) in [
            (
                "login failed: token=abc, user=me",
                "login failed: token=#, user=me",
            ),
            ("{\"password\": \"abc\"}", "{\"password\": \"#\"}"),
            ("Authorization: Bearer abc.def", "Authorization: Bearer #"),
            ("a secret was not found", "a secret was not found"),
            ("--client-secret=x1 --region=y", "--client-secret=# --region=y"),
        ] {
            assert_eq!(hidden(text, &secret_parts_of_output(text)), shown);
        }
    }

    #[test]
    fn the_scheme_of_an_address_is_no_name_of_a_secret() {
        assert!(named_values("see token://host/path").is_empty());
        assert_eq!(hidden("token: abc", &named_values("token: abc")), "token: #");
        assert_eq!(hidden("token=//abc", &named_values("token=//abc")), "token=#");
    }

    #[test]
    fn parts_are_in_order_and_neither_nested_nor_empty() {
        for (parts, expected) in [
            (vec![5..9, 2..4, 0..2, 0..3, 3..3], vec![0..3, 5..9]),
            (vec![3..5, 0..3], vec![0..3, 3..5]),
        ] {
            assert_eq!(in_order(parts), expected);
        }
    }

    #[test]
    fn a_token_has_a_minimum_length_and_a_known_shape() {
        let part = "x1".repeat(8);
        for (text, shown) in [
            (format!("ghp_{part}"), "#".to_owned()),
            (
                format!("say ghp_{}", &part[1..]),
                format!("say ghp_{}", &part[1..]),
            ),
            (format!("word_{part}"), format!("word_{part}")),
            (format!("AccountKey={part}"), "#".to_owned()),
            (format!("a ghp_{part} b glpat-{part}"), "a # b #".to_owned()),
            ("id=eyJhbGci.eyJzdWIi.c2".to_owned(), "id=#".to_owned()),
            ("eyJhbGci.eyJzdWIi.c2".to_owned(), "#".to_owned()),
            ("a://:b@".to_owned(), "a://:b@".to_owned()),
        ] {
            assert_eq!(hidden(&text, &secret_parts(&text)), shown, "{text}");
        }
        for other in [
            "eyJhbGc.eyJzdWIiaaa.c2ln",
            "eyJhbGciaaa.eyJzdWI.c2ln",
            "abJhbGci.eyJzdWIi.c2ln",
            "eyJhbGci.eyJzdWIi.c2ln.x",
            "eyJhbGciOiJI.eyJzdWIiOiJ",
        ] {
            assert!(secret_parts(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn every_private_key_is_hidden_and_a_certificate_is_not() {
        let key = "-----BEGIN PRIVATE KEY-----\nMI\n-----END PRIVATE KEY-----";
        let certificate = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----";
        for (text, shown) in [
            (
                format!("{certificate}\n{key}\nz{key}"),
                format!("{certificate}\n#\nz#"),
            ),
            (
                "a -----BEGIN EC PRIVATE KEY-----\nMI".to_owned(),
                "a #".to_owned(),
            ),
            (
                "a -----BEGIN PRIVATE KEY".to_owned(),
                "a -----BEGIN PRIVATE KEY".to_owned(),
            ),
        ] {
            assert_eq!(hidden(&text, &secret_parts(&text)), shown);
        }
    }

    #[test]
    fn the_password_of_every_address_is_hidden() {
        for (text, shown) in [
            ("a://b:c1@d, e://f:g2:h@i", "a://b:#@d, e://f:#@i"),
            ("https://me@host/", "https://me@host/"),
            ("https://me:@host/", "https://me:@host/"),
            ("https://host/", "https://host/"),
        ] {
            assert_eq!(hidden(text, &secret_parts(text)), shown);
        }
        for value in ["$x", "{x}", "<x>", "%x", "ref+x", "ref://x", "*", " $x"] {
            assert!(is_placeholder(value), "{value}");
        }
        for value in ["x$", "ref", ""] {
            assert!(!is_placeholder(value), "{value}");
        }
    }

    #[test]
    fn the_output_of_a_program_is_shown_without_secrets() {
        for (text, shown) in [
            ("password: hunter2 ok", "password: *** ok"),
            (
                "see Bearer abc.def now, basic abc;",
                "see Bearer *** now, basic ***;",
            ),
            ("token='a' (secret=b)", "token='***' (secret=***)"),
            ("{\\\"my-token\\\": \\\"a\\\"}", "{\\\"my-token\\\": \\\"***\"}"),
            ("password=", "password="),
            ("all is well: a=b", "all is well: a=b"),
        ] {
            assert_eq!(without_secrets(text), shown, "{text}");
        }
    }
}
