//! Formats values as KCL literals.

use serde_json::Value;

use super::attribute_path::is_identifier;

/// Returns the literal of a value. `None` if no literal is correct in every core: for an integer of more than 64
/// bits, and for a string with `${` and characters that a raw string cannot contain.
pub fn literal(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) if number.is_u64() && !number.is_i64() => return None,
        Value::Number(number) => number.to_string(),
        Value::String(text) => quoted(text)?,
        Value::Array(items) => {
            let items: Option<Vec<_>> = items.iter().map(literal).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Object(entries) => {
            let entry = |(key, value): (&String, &Value)| {
                let key = if is_identifier(key) {
                    key.clone()
                } else {
                    quoted(key)?
                };
                Some(format!("{key} = {}", literal(value)?))
            };
            let entries: Option<Vec<_>> = entries.iter().map(entry).collect();
            format!("{{{}}}", entries?.join(", "))
        }
    })
}

/// Returns a string in quotes. A string with `${` becomes a raw string, because cores differ in how `${` is escaped.
pub(super) fn quoted(text: &str) -> Option<String> {
    if text.contains("${") {
        let needs_escape = |c: char| c == '"' || c == '\\' || c.is_control();
        return (!text.contains(needs_escape)).then(|| format!("r\"{text}\""));
    }
    let mut literal = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => literal.push_str("\\\""),
            '\\' => literal.push_str("\\\\"),
            '\n' => literal.push_str("\\n"),
            '\t' => literal.push_str("\\t"),
            '\r' => literal.push_str("\\r"),
            letter if letter.is_control() => literal.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => literal.push(letter),
        }
    }
    literal.push('"');
    Some(literal)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_written_as_kcl() {
        for (value, text) in [
            (json!(null), "None"),
            (json!(true), "True"),
            (json!(-3), "-3"),
            (json!(1.5), "1.5"),
            (json!("a\"\\\n$x"), r#""a\"\\\n$x""#),
            (json!("a ${b}"), "r\"a ${b}\""),
            (json!(["a", 1]), "[\"a\", 1]"),
            (json!({"a": {"b-c": false}}), "{a = {\"b-c\" = False}}"),
        ] {
            assert_eq!(literal(&value).as_deref(), Some(text));
        }
        for value in [json!(u64::MAX), json!("\"${b}"), json!([{"a": "\n${b}"}])] {
            assert_eq!(literal(&value), None);
        }
    }
}
