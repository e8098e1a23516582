//! Finds the secret values of a resource: by shape (a Secret, also inside another object) and by name. Returns the
//! texts of these values.

use base64::Engine as _;
use serde_json::{Map, Value};

use super::{registry::is_made_of_words, secret_names};
use konverge_base::model::json_parts::each_text;

/// `kubectl apply`'s copy of the whole object, including Secret data (kubernetes/kubernetes#23564).
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns true if an annotation is `kubectl`'s copy of the whole object.
pub fn is_last_applied(annotation: &str) -> bool {
    annotation == LAST_APPLIED
}

/// Returns the secret texts of a Kubernetes object, as written and decoded; empty for most objects.
pub fn secret_texts(object: &Value) -> Vec<String> {
    let mut texts = Vec::new();
    gather(object, &mut texts);
    texts
}

/// Returns the texts of a Terraform resource that are secret by their names only. Texts made of words are left
/// out, because a reference to such a text must not mask another text.
pub fn named_texts(body: &Value) -> Vec<String> {
    let mut texts = Vec::new();
    each_named_text(body, &mut |text| {
        texts.extend((!is_made_of_words(text)).then(|| text.to_owned()))
    });
    texts
}

/// Visits the texts of fields whose name says that they are secret.
pub(super) fn each_named_text(value: &Value, visit: &mut dyn FnMut(&str)) {
    match value {
        Value::Object(map) => {
            for (key, member) in map {
                match member {
                    Value::String(text) if secret_names::is_secret_name(key) => visit(text),
                    other => each_named_text(other, visit),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| each_named_text(item, visit)),
        _ => {}
    }
}

fn gather(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, member) in map {
                if let Some(items) = items_of_secrets(map, key) {
                    let secrets = items.iter().filter_map(as_secret);
                    secrets.for_each(|secret| gather(&secret, texts));
                    continue;
                }
                match place_of(map, key) {
                    Some(_) => each_text(member, &mut |text| {
                        let decoded = (key == "data").then(|| decode(text)).flatten();
                        texts.extend(decoded);
                        texts.push(text.to_owned());
                    }),
                    None => gather(member, texts),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| gather(item, texts)),
        _ => {}
    }
}

/// Returns `key` if everything below it in this map is secret by its shape. A reference to a Secret (`{kind: Secret,
/// name: a}`) has no data.
pub(super) fn place_of<'a>(map: &Map<String, Value>, key: &'a str) -> Option<&'a str> {
    let is = |name: &str, text: &str| map.get(name).and_then(Value::as_str) == Some(text);
    let secret = match key {
        "stringData" => true,
        "data" => is("kind", "Secret"),
        // An AWS SSM parameter that is stored encrypted.
        "value" => is("type", "SecureString"),
        _ => is_last_applied(key),
    };
    secret.then_some(key)
}

/// Returns the items of a list of Secrets. The API server omits their kind.
pub(super) fn items_of_secrets<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a [Value]> {
    let is_list = key == "items" && map.get("kind").and_then(Value::as_str) == Some("SecretList");
    map.get(key)
        .filter(|_| is_list)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
}

/// Returns an item of a list of Secrets with its kind added. `None` if the item is not an object.
pub(super) fn as_secret(item: &Value) -> Option<Value> {
    let mut secret = item.as_object()?.clone();
    secret.entry("kind").or_insert_with(|| "Secret".into());
    Some(Value::Object(secret))
}

pub(super) fn decode(text: &str) -> Option<String> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).ok()?;
    String::from_utf8(bytes).ok()
}

/// Returns true if a text is a valid name of a Kubernetes object.
pub(super) fn is_object_name(text: &str) -> bool {
    let is_part =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    text.len() <= 253 && text.starts_with(|c: char| c.is_ascii_lowercase()) && text.bytes().all(is_part)
}

/// Returns true if a key inside a map of secrets only names or describes the secret.
pub(super) fn says_what_it_is(key: &str) -> bool {
    const ABOUT: [&str; 14] = [
        "name",
        "id",
        "arn",
        "path",
        "ref",
        "from",
        "type",
        "version",
        "url",
        "key",
        "kind",
        "namespace",
        "user",
        "username",
    ];
    let last = key
        .rsplit(|c: char| !c.is_ascii_alphanumeric())
        .next()
        .unwrap_or_default();
    let last = last.to_ascii_lowercase();
    ABOUT.iter().any(|word| last.ends_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_texts_of_a_secret_are_as_written_and_decoded() {
        let given =
            json!({"kind": "Secret", "data": {"a": "aHVudGVyMjIy"}, "stringData": {"b": "hunter333"}});
        assert_eq!(secret_texts(&given), ["hunter222", "aHVudGVyMjIy", "hunter333"]);
        let body = json!({"password": "Kusion123456", "user": "root", "nested": [{"token": "hunter4444"}]});
        assert_eq!(named_texts(&body), ["Kusion123456", "hunter4444"]);
    }

    #[test]
    fn a_name_of_an_object_is_no_password() {
        assert!(is_object_name("grafana-admin.v2") && !is_object_name("Kusion123456"));
        assert!(!is_object_name("9lives") && !is_object_name(&"a".repeat(254)));
    }

    #[test]
    fn a_key_that_ends_in_a_describing_word_says_what_the_secret_is() {
        for key in [
            "name",
            "secretName",
            "role-arn",
            "database.Username",
            "KEY",
            "valid_from",
            "path",
        ] {
            assert!(says_what_it_is(key), "{key}");
        }
        for key in ["admin", "password", "name-of-all", "name_", "", "names"] {
            assert!(!says_what_it_is(key), "{key}");
        }
    }

    #[test]
    fn a_place_is_secret_by_its_key_and_the_kind_beside_it() {
        for (map, key, is_secret) in [
            (json!({"kind": "Secret"}), "data", true),
            (json!({"kind": "ConfigMap"}), "data", false),
            (json!({}), "data", false),
            (json!({"kind": "Secret"}), "type", false),
            (json!({}), "stringData", true),
            (json!({"type": "SecureString"}), "value", true),
            (json!({"type": "String"}), "value", false),
            (json!({}), LAST_APPLIED, true),
            (json!({}), "kubectl.kubernetes.io/restartedAt", false),
        ] {
            let place = map.as_object().and_then(|map| place_of(map, key));
            assert_eq!(place, is_secret.then_some(key), "{map} {key}");
        }
        assert!(is_last_applied(LAST_APPLIED) && !is_last_applied("a"));
    }

    #[test]
    fn an_object_name_has_small_letters_digits_dashes_and_dots() {
        for name in ["a", "a-1.b", &"a".repeat(253)] {
            assert!(is_object_name(name), "{name}");
        }
        for text in ["", "-a", "a_b", "aB", "a b"] {
            assert!(!is_object_name(text), "{text}");
        }
    }

    #[test]
    fn all_texts_below_a_secret_place_are_found_and_no_others() {
        let list = json!({"kind": "List", "user": "root", "items": [
            {"stringData": {"a": ["aHVudGVyMjIy", {"b": "hunter333"}], "n": 5}},
            {"kind": "ConfigMap", "data": {"a": "shown"}}]});
        assert_eq!(secret_texts(&list), ["aHVudGVyMjIy", "hunter333"]);
        let secrets = json!({"kind": "SecretList", "items": [
            "text", {"data": {"a": "aHVudGVyMjIy"}}, {"kind": "ConfigMap", "data": {"a": "shown"}}]});
        assert_eq!(secret_texts(&secrets), ["hunter222", "aHVudGVyMjIy"]);
        let body = json!({"password": "made of words", "token": ["x"], "a": [{"api_key": "x1y2z3w4"}], "b": "x1y2z3w5"});
        assert_eq!(named_texts(&body), ["x1y2z3w4"]);
    }
}
