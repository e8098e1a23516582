//! Texts of the program as one line of Markdown.

use serde_json::Value;

/// The description of a schema.
pub(super) fn value_text(value: &Value) -> String {
    value["description"]
        .as_str()
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// A text of a help or a doc comment in one line of Markdown: a sign that Markdown obeys is one only in code.
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

/// A text as a sentence.
pub(super) fn sentence(text: &str) -> String {
    let text = line_of(text);
    if text.ends_with(['.', ':']) || text.is_empty() {
        text
    } else {
        text + "."
    }
}
