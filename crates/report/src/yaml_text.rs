//! Renders a JSON value as YAML-like lines for people, not for a parser. Secrets and unknown values are words that no
//! string in the value can imitate.

use serde_json::Value;

use super::escape;
use konverge_base::model::{masked_value, text::is_hidden};

/// The maximum number of characters of a value that is shown within a line.
const SHORT: usize = 60;

/// Returns a value that is short enough for a line; `None` if it is too long.
pub(crate) fn short_scalar(value: &Value) -> Option<String> {
    if value.is_array() || (value.is_object() && !is_mark(value)) {
        return None;
    }
    let text = scalar(value);
    (text.chars().count() <= SHORT).then_some(text)
}

/// Returns the old and the new value if both are short enough for a line. A missing value is `None`.
pub(crate) fn short_values(
    from: Option<&Value>,
    to: Option<&Value>,
) -> Option<(Option<String>, Option<String>)> {
    let side = |value: Option<&Value>| match value {
        None => Some(None),
        Some(value) => short_scalar(value).map(Some),
    };
    Some((side(from)?, side(to)?))
}

/// Returns the lines of a value.
pub fn lines(value: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    write_yaml(None, value, 0, &mut lines);
    lines
}

/// Appends the lines of a value, indented by `indent` spaces. `key` comes before the first line.
pub(crate) fn write_yaml(key: Option<&str>, value: &Value, indent: usize, out: &mut Vec<String>) {
    let pad = " ".repeat(indent);
    let head = key.map_or(String::new(), |key| format!("{}:", name(key)));
    match value {
        Value::Object(map) if !map.is_empty() && !is_mark(value) => {
            let inner = if key.is_some() {
                out.push(format!("{pad}{head}"));
                indent + 2
            } else {
                indent
            };
            for (key, value) in map {
                write_yaml(Some(key), value, inner, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            if key.is_some() {
                out.push(format!("{pad}{head}"));
            }
            for item in items {
                push_item(item, indent, out);
            }
        }
        Value::String(text) if text.contains('\n') => {
            out.push(if head.is_empty() {
                format!("{pad}|")
            } else {
                format!("{pad}{head} |")
            });
            for line in escape::lines(text) {
                out.push(format!("{pad}  {line}"));
            }
        }
        other => {
            let text = scalar(other);
            out.push(if head.is_empty() {
                format!("{pad}{text}")
            } else {
                format!("{pad}{head} {text}")
            });
        }
    }
}

fn push_item(item: &Value, indent: usize, out: &mut Vec<String>) {
    let at = out.len();
    write_yaml(None, item, indent + 2, out);
    let pad = " ".repeat(indent);
    if let Some(first) = out.get_mut(at) {
        let rest = first.get(indent + 2..).unwrap_or_default().to_owned();
        *first = format!("{pad}- {rest}");
    }
}

pub(crate) fn is_mark(value: &Value) -> bool {
    masked_value::is_unknown(value) || masked_value::is_secret(value)
}

/// Returns a value on one line: a marker as words, and a string in quotes if it would be ambiguous.
pub(crate) fn scalar(value: &Value) -> String {
    if let Some(text) = masked_value::as_unknown_output(value) {
        return escape::line(&format!("(known after apply of another stack: {text})"));
    }
    if masked_value::is_unknown(value) {
        return "(known after apply)".to_owned();
    }
    if let Some(hash) = masked_value::as_secret(value) {
        return format!(
            "(secret {})",
            escape::line(&hash.chars().take(8).collect::<String>())
        );
    }
    if let Some(mark) = masked_value::as_reference(value) {
        let version = mark.version.map(|version| format!(", version {version}"));
        let around = mark
            .text
            .map(|hash| format!(", in a text {}", hash.chars().take(8).collect::<String>()));
        let more: String = version.into_iter().chain(around).collect();
        return escape::line(&format!("(secret {}{more})", mark.reference));
    }
    match value {
        Value::String(text) => string(text),
        Value::Object(map) if map.is_empty() => "{}".to_owned(),
        Value::Array(items) if items.is_empty() => "[]".to_owned(),
        other => escape::line(&other.to_string()),
    }
}

/// Returns a key in the form of YAML.
pub(crate) fn name(key: &str) -> String {
    string(key)
}

fn string(text: &str) -> String {
    let plain = text
        .chars()
        .all(|c| (c.is_alphanumeric() || "_./:@%+=,$-".contains(c) || c == ' ') && !is_hidden(c))
        && text
            .chars()
            .next()
            .is_some_and(|c| c.is_alphabetic() || "/_$".contains(c))
        && !text.ends_with([':', ' '])
        && !text.contains(": ")
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "true" | "false" | "null" | "yes" | "no" | "on" | "off"
        );
    if plain {
        return text.to_owned();
    }
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in escape::line(text).chars() {
        if c == '"' {
            quoted.push('\\');
        }
        quoted.push(c);
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn text(value: &Value) -> String {
        let mut out = Vec::new();
        write_yaml(None, value, 0, &mut out);
        out.join("\n")
    }

    #[test]
    fn lays_out_like_yaml() {
        let value = json!({"spec": {"replicas": 2, "containers": [{"name": "web", "args": ["-v", "2"]}], "empty": {}},
            "text": "a\nb", "secret": {"$secret": "0123456789abcdef"}, "ip": {"$unknown": true}});
        assert_eq!(
            text(&value),
            "spec:\n  replicas: 2\n  containers:\n  - name: web\n    args:\n    - \"-v\"\n    - \"2\"\n  empty: {}\ntext: |\n  a\n  b\nsecret: (secret 01234567)\nip: (known after apply)"
        );
    }

    #[test]
    fn a_mark_is_cut_between_characters() {
        let mark = json!({"$secret": {"ref": "x", "text": "aééééééééé"}});
        assert_eq!(scalar(&mark), "(secret x, in a text aééééééé)");
    }

    #[test]
    fn a_string_never_looks_like_a_mark_or_another_type() {
        for (given, shown) in [
            ("(known after apply)", "\"(known after apply)\""),
            ("true", "\"true\""),
            ("12", "\"12\""),
            ("", "\"\""),
            ("a: b", "\"a: b\""),
            ("a\"b", "\"a\\\"b\""),
            // A letter that looks like nothing.
            ("a\u{3164}", "\"a\\u{3164}\""),
        ] {
            assert_eq!(scalar(&json!(given)), shown);
        }
    }

    #[test]
    fn nothing_of_a_long_line_is_left_out() {
        assert!(text(&json!(format!("{}end", "x".repeat(5000)))).ends_with("xxxend"));
    }
}
