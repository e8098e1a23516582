//! The body of a server-side apply. The server reads it as YAML, and not every JSON text means the same there.

use serde_json::Value;

/// Returns an object as JSON that a reader of YAML takes for the same object.
///
/// Keys and values alike: the characters that YAML folds as line breaks, skips or refuses are written as escapes. All
/// of them lie in the basic plane. Characters above it stay as they are, because YAML does not join escaped surrogates.
pub(crate) fn apply_body(object: &Value) -> Vec<u8> {
    let text = object.to_string();
    if text.chars().all(|c| !is_special_in_yaml(c)) {
        return text.into_bytes();
    }
    let mut escaped = String::with_capacity(text.len() + 64);
    // In JSON these characters can only stand inside strings, so each may be escaped.
    for c in text.chars() {
        if is_special_in_yaml(c) {
            escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            escaped.push(c);
        }
    }
    escaped.into_bytes()
}

/// Returns true for what JSON writes as it is and YAML does not read as it is: control characters from DEL on, with the
/// line break U+0085; the line breaks U+2028 and U+2029; the byte order mark; and what is no character.
fn is_special_in_yaml(c: char) -> bool {
    matches!(
        c,
        '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_yaml_would_change_is_escaped_in_keys_and_values() {
        let object = json!({"k\u{85}": "a\u{7f}\u{2028}b", "plain": "ä\u{1f600}\u{1fffe}"});
        let body = String::from_utf8(apply_body(&object)).unwrap();
        assert_eq!(
            body,
            "{\"k\\u0085\":\"a\\u007f\\u2028b\",\"plain\":\"ä\u{1f600}\u{1fffe}\"}"
        );
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), object);
    }
}
