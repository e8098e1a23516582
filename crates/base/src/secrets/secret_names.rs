//! Decides by a name whether its value is a secret. The name may be of an attribute, of a map key or of an environment
//! variable.

/// The final words of a name whose value is a secret.
const NOUNS: [&str; 22] = [
    "password",
    "passwords",
    "passwd",
    "pass",
    "pwd",
    "passphrase",
    "passcode",
    "secret",
    "secrets",
    "token",
    "tokens",
    "credential",
    "credentials",
    "jwt",
    "dsn",
    "htpasswd",
    "dockerconfigjson",
    "dockercfg",
    "apikey",
    "accesskey",
    "secretkey",
    "privatekey",
];

/// The words before `_key` that make the value a secret. After other words `…_key` is a name or a public value.
const KEYS: [&str; 26] = [
    "private",
    "secret",
    "access",
    "api",
    "auth",
    "account",
    "storage",
    "encryption",
    "signing",
    "master",
    "shared",
    "subscription",
    "license",
    "service",
    "session",
    "client",
    "consumer",
    "webhook",
    "hmac",
    "jwt",
    "deploy",
    "admin",
    "cookie",
    "integration",
    "application",
    "app",
];

/// Final words that describe the form of a value, not its meaning: `private_key_pem`, `secret_string`.
const FORMS: [&str; 21] = [
    "pem",
    "der",
    "pkcs1",
    "pkcs8",
    "openssh",
    "base64",
    "b64",
    "encoded",
    "value",
    "text",
    "plain",
    "plaintext",
    "content",
    "contents",
    "data",
    "string",
    "binary",
    "json",
    "raw",
    "wo",
    "bytes",
];

/// The final words of a name that starts with `sensitive` or `secure` and holds a secret. [`FORMS`] count as well.
const CONTENTS: [&str; 11] = [
    "values",
    "variables",
    "parameters",
    "settings",
    "attributes",
    "body",
    "config",
    "input",
    "inputs",
    "output",
    "outputs",
];

/// The words before `tokens` that make it a count, as in `max_tokens`.
const COUNTS: [&str; 6] = ["max", "min", "num", "number", "total", "count"];

/// The words before `secret` that make it a value. After other words it may be the name of a Kubernetes Secret.
const OWNERS: [&str; 17] = [
    "client",
    "app",
    "application",
    "shared",
    "webhook",
    "hmac",
    "jwt",
    "signing",
    "cookie",
    "session",
    "api",
    "access",
    "oauth",
    "oidc",
    "consumer",
    "bot",
    "user",
];

/// The kind of value that a name suggests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameClass {
    Nothing,
    /// A password, which may also be a number.
    Password,
    /// A token, a key or another credential.
    Secret,
    /// A secret, or the name of an object that contains it.
    SecretOrName,
}

/// Returns true if a name says that its value is a secret.
pub fn is_secret_name(name: &str) -> bool {
    says(name) != NameClass::Nothing
}

/// Classifies a name by its last words: `db_password` is a password, `password_policy` is not.
pub(super) fn says(name: &str) -> NameClass {
    if !may_say(name) {
        return NameClass::Nothing;
    }
    let all = split_words(name);
    if is_called_sensitive(&all) {
        return NameClass::Secret;
    }
    let mut words: &[String] = &all;
    while let Some((last, rest)) = words.split_last() {
        let before = rest.last().map_or("", String::as_str);
        match last.trim_end_matches(|c: char| c.is_ascii_digit()) {
            "string" | "strings" if before == "connection" => return NameClass::Secret,
            "base" if before == "key" && rest.iter().any(|word| word == "secret") => {
                return NameClass::Secret;
            }
            "tokens" if COUNTS.contains(&before) => return NameClass::Nothing,
            "pass" if rest.is_empty() => return NameClass::Nothing,
            "password" | "passwords" | "passwd" | "pass" | "pwd" | "passphrase" | "passcode" => {
                return NameClass::Password;
            }
            "secret" | "secrets" | "credential" | "credentials" if !OWNERS.contains(&before) => {
                return NameClass::SecretOrName;
            }
            "key" | "keys" if KEYS.contains(&before) => return NameClass::Secret,
            noun if NOUNS.contains(&noun) => return NameClass::Secret,
            // A number at the end, as in `token_2`, is ignored.
            "" => words = rest,
            form if FORMS.contains(&form) || FORMS.contains(&last.as_str()) => words = rest,
            _ => return NameClass::Nothing,
        }
    }
    NameClass::Nothing
}

/// Returns true for `sensitive_content`, `secure_environment_variables`, and the `set_sensitive` of a Helm release.
fn is_called_sensitive(words: &[String]) -> bool {
    match words {
        [set, sensitive] if set == "set" && sensitive == "sensitive" => true,
        [first, .., last] if matches!(first.as_str(), "sensitive" | "secure") => {
            FORMS.contains(&last.as_str()) || CONTENTS.contains(&last.as_str())
        }
        _ => false,
    }
}

/// Returns true if a name may contain one of the words. This quick check rules out most names.
fn may_say(name: &str) -> bool {
    const HINTS: [&[u8]; 12] = [
        b"pass",
        b"pwd",
        b"secret",
        b"token",
        b"cred",
        b"key",
        b"jwt",
        b"dsn",
        b"docker",
        b"connection",
        b"sensitive",
        b"secure",
    ];
    let name = name.as_bytes();
    let holds = |hint: &[u8]| {
        name.windows(hint.len())
            .any(|part| part.eq_ignore_ascii_case(hint))
    };
    HINTS.into_iter().any(holds)
}

/// Returns the words of `snake_case`, `kebab-case`, `dotted.names`, `camelCase` and `HTTPToken`, in lower case.
fn split_words(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word = String::new();
    let chars: Vec<char> = name.chars().collect();
    for (at, c) in chars.iter().enumerate() {
        let after_small = at > 0 && (chars[at - 1].is_lowercase() || chars[at - 1].is_ascii_digit());
        let before_small = chars.get(at + 1).is_some_and(|next| next.is_lowercase());
        let after_capital = at > 0 && chars[at - 1].is_uppercase();
        let starts = c.is_uppercase() && (after_small || (after_capital && before_small));
        if !c.is_alphanumeric() || starts {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_decide() {
        for secret in [
            "password",
            "account_password",
            "masterUserPassword",
            "DB_PASS",
            "MYSQL_PWD",
            "token",
            "authToken",
            "GITHUB_TOKEN",
            "TOKEN_2",
            "client_secret",
            "secret",
            "secret_string",
            "secretKey",
            "private_key",
            "private_key_pem",
            "tls.privateKey",
            "access_key",
            "AccessKey",
            "api-key",
            "apiKey",
            "credentials",
            "storage_account_access_key",
            "primary_connection_string",
            "secret_key_base",
            ".dockerconfigjson",
            "password1",
            "password_wo",
            "sensitive_content",
            "sensitiveContentBase64",
            "sensitive_body",
            "set_sensitive",
            "secure_environment_variables",
        ] {
            assert!(is_secret_name(secret), "{secret}");
        }
        for plain in [
            "name",
            "passwordPolicy",
            "password_length",
            "secret_name",
            "secretName",
            "secretKeyRef",
            "secret_id",
            "secretRef",
            "token_ttl",
            "tokenEndpoint",
            "max_tokens",
            "kms_key",
            "public_key",
            "partition_key",
            "key",
            "access_key_id",
            "automount",
            "compass",
            "bypass_mode",
            "monkey",
            "data",
            "connection",
            "authorization",
            "sensitive",
            "case_sensitive",
            "sensitive_fields",
            "secure_boot",
            "securityContext",
            "",
        ] {
            assert!(!is_secret_name(plain), "{plain}");
        }
    }

    #[test]
    fn a_name_says_what_kind_of_secret_it_holds() {
        for (name, class) in [
            ("db_password", NameClass::Password),
            ("DB_PASS", NameClass::Password),
            ("passphrase", NameClass::Password),
            ("password_2", NameClass::Password),
            ("pass", NameClass::Nothing),
            ("client_secret", NameClass::Secret),
            ("user_credentials", NameClass::Secret),
            ("db_secret", NameClass::SecretOrName),
            ("credentials", NameClass::SecretOrName),
            ("secret_string", NameClass::SecretOrName),
            ("secret_base64", NameClass::SecretOrName),
            ("connection_string", NameClass::Secret),
            ("connectionStrings", NameClass::Secret),
            ("key_string", NameClass::Nothing),
            ("secret_key_base", NameClass::Secret),
            ("secret_base", NameClass::Nothing),
            ("private_key_base", NameClass::Nothing),
            ("max_tokens", NameClass::Nothing),
            ("auth_tokens", NameClass::Secret),
            ("api_keys", NameClass::Secret),
            ("public_keys", NameClass::Nothing),
            ("private_key_pkcs8", NameClass::Secret),
            ("private_key_pem2", NameClass::Secret),
            ("key_2", NameClass::Nothing),
            ("2", NameClass::Nothing),
            ("jwt", NameClass::Secret),
            ("dsn", NameClass::Secret),
            ("PWD", NameClass::Password),
            ("db_dsns", NameClass::Nothing),
            ("text", NameClass::Nothing),
        ] {
            assert_eq!(says(name), class, "{name}");
        }
    }

    #[test]
    fn capitals_and_signs_separate_words() {
        for (name, words) in [
            ("HTTPToken", &["http", "token"] as &[&str]),
            ("dbPassword", &["db", "password"]),
            ("db2Password", &["db2", "password"]),
            ("aBC", &["a", "bc"]),
            ("AB", &["ab"]),
            ("Ab", &["ab"]),
            ("_tls.private-key_", &["tls", "private", "key"]),
            ("中Ab", &["中ab"]),
            ("", &[]),
        ] {
            assert_eq!(split_words(name), words, "{name}");
        }
    }

    #[test]
    fn a_name_without_a_known_word_is_not_split() {
        for (name, may) in [
            ("jwt", true),
            ("DSN", true),
            ("connection", true),
            ("myKeys", true),
            ("ke", false),
            ("region", false),
            ("", false),
        ] {
            assert_eq!(may_say(name), may, "{name}");
        }
    }
}
