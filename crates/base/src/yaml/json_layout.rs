//! Converts the documents of a YAML text to JSON with the same line numbers. A parser that knows only JSON then reports
//! lines that are correct for the YAML text.

use serde_json::Value;
use serde_saphyr::{Location, Spanned};

use super::{
    ScalarRules, YamlError,
    node::{self, Node},
    options_for_nodes,
};

/// A document of a YAML text, or an item of a document that is a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonDocument {
    /// The line of the text where it begins, from 1.
    pub line: u32,
    /// The document as JSON. Each key and each value is on its line of the YAML text, and at its column if there is
    /// room.
    pub json: String,
}

/// Returns the non-empty documents of a text; for a document that is a list, its items. Aliases and `<<` are replaced
/// by the content that they refer to. Scalars are read by the rules of the tool that gets the JSON.
///
/// # Errors
/// The text is not YAML, or has a key or a number that JSON does not have.
pub fn json_documents(text: &str, rules: ScalarRules) -> Result<Vec<JsonDocument>, YamlError> {
    let mut documents: Vec<Spanned<Node>> =
        serde_saphyr::from_multiple_with_options(text, options_for_nodes())?;
    for document in &mut documents {
        node::read_scalars(document, text, rules)?;
    }
    let documents = documents.into_iter();
    let documents = documents.filter(|document| !matches!(document.value, Node::Scalar(Value::Null)));
    let parts = documents.flat_map(|document| match document.value {
        Node::List(items) => items,
        _ => vec![document],
    });
    Ok(parts
        .map(|document| {
            let line = u32::try_from(document.referenced.line())
                .unwrap_or(u32::MAX)
                .max(1);
            let mut layout = JsonLayout {
                json: String::new(),
                line: 1,
                column: 1,
            };
            layout.write(document);
            JsonDocument {
                line,
                json: layout.json,
            }
        })
        .collect())
}

/// The JSON text that is written so far, and its current position.
struct JsonLayout {
    json: String,
    line: u64,
    column: u64,
}

impl JsonLayout {
    fn push(&mut self, text: &str) {
        self.json.push_str(text);
        self.column += text.chars().count() as u64;
    }

    /// Moves to a position, unless the text is already past it: an alias refers to content before it.
    fn go_to(&mut self, place: Location) {
        while self.line < place.line() {
            self.json.push('\n');
            (self.line, self.column) = (self.line + 1, 1);
        }
        while self.line == place.line() && self.column < place.column() {
            self.push(" ");
        }
    }

    fn write(&mut self, node: Spanned<Node>) {
        self.go_to(node.referenced);
        match node.value {
            Node::Scalar(value) => self.push(&value.to_string()),
            Node::List(items) => {
                self.push("[");
                for (number, item) in items.into_iter().enumerate() {
                    self.push(if number == 0 { "" } else { "," });
                    self.write(item);
                }
                self.push("]");
            }
            Node::Map(mut entries) => {
                // Entries that `<<` merges may come from lines before the entries above them.
                entries.sort_by_key(|(key, _)| (key.referenced.line(), key.referenced.column()));
                self.push("{");
                for (number, (key, value)) in entries.into_iter().enumerate() {
                    self.push(if number == 0 { "" } else { "," });
                    self.go_to(key.referenced);
                    self.push(&Value::String(key.value.unwrap_or_default()).to_string());
                    self.push(":");
                    self.write(value);
                }
                self.push("}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jsons(text: &str) -> Vec<(u32, String)> {
        let documents = json_documents(text, ScalarRules::KclData).unwrap().into_iter();
        documents.map(|document| (document.line, document.json)).collect()
    }

    #[test]
    fn every_key_and_value_keeps_its_line_and_column() {
        let text = "# a comment\n\nname: abc\nports:\n- number: 80\n  open: true\n\ntext: |\n  one\n  two\nlast: [ 1,\n  2 ]\n";
        let expected = "\n\n{\"name\":\"abc\",\n\"ports\":\n  [{\"number\":80,\n  \"open\":true}],\n\n\"text\":\n  \"one\\ntwo\\n\",\n\n\"last\":[1,\n  2]}";
        assert_eq!(jsons(text), [(3, expected.to_owned())]);
    }

    #[test]
    fn each_document_keeps_the_lines_of_the_text() {
        let text = "a: 1\n---\n# nothing\n---\nb: 2\n---\n- c: 3\n- [{}]\n";
        let expected = [
            (1, "{\"a\":1}"),
            (5, "\n\n\n\n{\"b\":2}"),
            (7, "\n\n\n\n\n\n  {\"c\":3}"),
            (8, "\n\n\n\n\n\n\n  [{}]"),
        ];
        assert_eq!(jsons(text), expected.map(|(line, json)| (line, json.to_owned())));
        assert_eq!(jsons("# nothing\n"), []);
        assert_eq!(jsons("[]"), []);
    }

    #[test]
    fn aliases_and_merges_stand_where_they_are_written() {
        let text = "base: &b {x: 1,\n  y: 2}\nown:\n  z: 3\n  <<: *b\n  last: *b\n";
        let json = &jsons(text)[0].1;
        let value: Value = serde_json::from_str(json).unwrap();
        assert_eq!(
            value["own"],
            serde_json::json!({"z": 3, "x": 1, "y": 2, "last": {"x": 1, "y": 2}})
        );
        let line = |part: &str| json.lines().position(|line| line.contains(part)).unwrap() + 1;
        assert_eq!((line("\"z\""), line("\"last\"")), (4, 6));
        assert_eq!(json.lines().nth(4).unwrap().trim(), "\"x\":1,\"y\":2,");
    }

    #[test]
    fn scalars_are_what_the_core_reads_in_data() {
        let text =
            "a: 0123\nb: 1.0\nc: 1e3\nd: off\n'1': x\n'q\"': \"t\\tü\"\n? e\n: !!str 7\nf: ~\ng: !!int 8\n";
        let value: Value = serde_json::from_str(&jsons(text)[0].1).unwrap();
        let expected = serde_json::json!(
            {"a": 123, "b": 1.0, "c": 1e3, "d": "off", "1": "x", "q\"": "t\tü", "e": "7", "f": null, "g": 8}
        );
        assert_eq!(value, expected);
    }

    #[test]
    fn what_json_does_not_have_is_refused_at_its_line() {
        for text in [
            "a: 1\nb: .inf\n",
            "a: 1\n? [b]\n: 2\n",
            "a: 1\n~: 2\n",
            "a: 1\n200: ok\n",
            "a: 1\ntrue: 2\n",
            "a: 1\na: 2\n",
            "a: 1\nb: [\n",
        ] {
            let error = json_documents(text, ScalarRules::KclData).unwrap_err();
            assert!(error.line >= Some(2), "{text}: {error:?}");
            assert!(!error.message.contains("Option"), "{text}: {error:?}");
        }
    }
}
