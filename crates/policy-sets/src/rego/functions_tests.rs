use super::*;
use serde_json::{Value, json};

fn arguments(values: Value) -> Vec<RegoValue> {
    let values = RegoValue::from(values);
    values.as_array().unwrap().to_vec()
}

#[test]
fn a_quoted_verb_becomes_a_quoted_text() {
    for (format, values, expected_format, expected_values) in [
        ("%q", json!(["a\"b"]), "%s", json!(["\"a\\\"b\""])),
        ("%s %q", json!(["a", "b"]), "%s %s", json!(["a", "\"b\""])),
        ("%q %s", json!(["a", "b"]), "%s %s", json!(["\"a\"", "b"])),
        ("%% %q", json!(["a"]), "%% %s", json!(["\"a\""])),
        ("%5.1f%q", json!([1, "a"]), "%5.1f%s", json!([1, "\"a\""])),
        ("%10q", json!(["a"]), "%10s", json!(["\"a\""])),
        ("%q", json!([7]), "%s", json!(["\"7\""])),
        ("q %s q", json!(["a"]), "q %s q", json!(["a"])),
        ("%q", json!([]), "%s", json!([])),
    ] {
        let found = with_quotes(arguments(json!([format, values])));
        assert_eq!(
            found,
            arguments(json!([expected_format, expected_values])),
            "{format}"
        );
    }
    for other in [json!(["%q"]), json!([1, ["a"]]), json!(["%q", "a"])] {
        assert_eq!(with_quotes(arguments(other.clone())), arguments(other));
    }
}
