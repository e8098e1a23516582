//! Turns texts of the program into one line of Markdown.

use serde_json::Value;

/// Returns the description in a schema; empty if there is none.
pub(super) fn value_text(value: &Value) -> String {
    value["description"]
        .as_str()
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Returns the text of a help or doc comment as one line of Markdown. Special characters are escaped, except in code.
pub(super) fn line_of(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut escaped = String::new();
    for (number, part) in text.split('`').enumerate() {
        match number % 2 {
            0 => escaped.push_str(&part.replace('<', "&lt;").replace('*', "\\*")),
            _ => escaped.push_str(&format!("`{part}`")),
        }
    }
    escaped
}

/// Returns a text as a sentence: one line of Markdown with a full stop at its end.
pub(super) fn sentence(text: &str) -> String {
    let text = line_of(text);
    if text.ends_with(['.', ':']) || text.is_empty() {
        text
    } else {
        text + "."
    }
}
