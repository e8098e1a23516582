//! The body of a server-side apply. The server parses it as YAML, in which some JSON texts have another
//! meaning.

use serde_json::Value;

/// Serializes an object as JSON that a YAML parser reads as the same object.
///
/// In keys and values, the characters that YAML folds as line breaks, skips or refuses are escaped. All of
/// these are in the Basic Multilingual Plane. Characters above it are not escaped, because YAML does not join
/// escaped surrogates.
pub(crate) fn apply_body(object: &Value) -> Vec<u8> {
    let text = object.to_string();
    if text.chars().all(|c| !is_special_in_yaml(c)) {
        return text.into_bytes();
    }
    let mut escaped = String::with_capacity(text.len() + 64);
    // In JSON, these characters occur only inside strings, so each may be escaped.
    for c in text.chars() {
        if is_special_in_yaml(c) {
            escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            escaped.push(c);
        }
    }
    escaped.into_bytes()
}

/// Returns true for a character that JSON does not escape and YAML does not read unchanged: control
/// characters from DEL on, including the line break U+0085; the line breaks U+2028 and U+2029; the byte order
/// mark; and noncharacters.
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
