//! Writes objects as YAML that all parsers read in the same way.

use serde_json::{Map, Value};

use konverge_base::{model::json_parts::any_part, yaml};

/// Returns the text at a path of an object; empty if there is none.
pub(crate) fn text<'a>(body: &'a Map<String, Value>, path: &[&str]) -> &'a str {
    let (first, rest) = path.split_first().expect("a path has a key");
    let value = body.get(*first);
    let value = rest.iter().try_fold(value, |value, key| Some(value?.get(*key)));
    value.flatten().and_then(Value::as_str).unwrap_or_default()
}

/// Writes an object with sorted keys, so that the text does not depend on the order in which a program produced
/// them.
pub(crate) fn object_text(body: &Map<String, Value>) -> String {
    document_text(&Value::Object(body.clone()))
}

/// Writes a document as YAML with sorted keys, so that the text does not depend on the order of its keys.
pub(crate) fn document_text(document: &Value) -> String {
    let sorted = sorted(document);
    // Block scalars are easy to read and compare. But parsers of block scalars change tabs, trailing spaces and
    // foreign line breaks, so texts with these are quoted.
    if is_tame(&sorted) {
        yaml::to_string(&sorted)
    } else {
        yaml::to_quoted_string(&sorted)
    }
}

/// Writes several documents as one text.
pub(crate) fn documents_text(documents: &[Value]) -> String {
    let texts: Vec<_> = documents.iter().map(document_text).collect();
    texts.join("---\n")
}

/// Sorts the keys of a map and of all maps inside it.
pub(crate) fn sorted_map(map: &Map<String, Value>) -> Map<String, Value> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| key.as_str());
    let entries = entries.into_iter();
    entries.map(|(key, value)| (key.clone(), sorted(value))).collect()
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(sorted_map(map)),
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

/// Returns true if no text in the value needs quotes because of its characters.
fn is_tame(value: &Value) -> bool {
    !any_part(value, |part| match part {
        Value::String(text) => !is_tame_text(text),
        Value::Object(map) => !map.keys().all(|key| is_tame_text(key)),
        _ => false,
    })
}

fn is_tame_text(text: &str) -> bool {
    const BREAKS: [char; 4] = ['\u{85}', '\u{2028}', '\u{2029}', '\u{feff}'];
    let is_plain = |c: char| c == '\n' || !(c.is_control() || BREAKS.contains(&c));
    let body = text.strip_suffix('\n').unwrap_or(text);
    text.chars().all(is_plain)
        && !text.starts_with(char::is_whitespace)
        && !body.ends_with(char::is_whitespace)
        && !body
            .lines()
            .any(|line| line.ends_with(' ') || line.starts_with("---"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_is_a_block_only_if_every_reader_reads_it_back() {
        let text = |data: &str| object_text(json!({"data": {"a": data}}).as_object().unwrap());
        assert!(text("one\ntwo\n").contains("|\n"));
        for data in [
            "a\tb\n", "a\r\nb\n", "a\n\n", " a\nb\n", "a \nb\n", "---\na\n", "\u{85}\n",
        ] {
            let written = text(data);
            assert!(
                written.contains("a\":") || !written.contains("|"),
                "{data:?} as {written}"
            );
            assert_eq!(
                yaml::from_str::<Value>(&written).unwrap()["data"]["a"],
                data,
                "{written}"
            );
        }
    }

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let one = json!({"b": 1, "a": {"d": 1, "c": [{"f": 1, "e": 2}]}});
        let two = json!({"a": {"c": [{"e": 2, "f": 1}], "d": 1}, "b": 1});
        assert_eq!(document_text(&one), document_text(&two));
    }
}
