//! Forged documents: an attacker who may write to the store, but holds no key, edits any field of a document of
//! Konverge and fixes its checksum.

use serde_json::{Map, Value};

/// An edited document.
pub struct Forgery {
    /// The edit: the JSON pointer of a field of the header or the body, and the change.
    pub edit: String,
    /// The document.
    pub bytes: Vec<u8>,
}

/// The three lines of a document.
pub struct DocumentLines {
    /// Format, checksum and marks.
    pub first: Value,
    /// Kind, repository, writer and time.
    pub header: Value,
    /// The content.
    pub body: Value,
}

impl DocumentLines {
    /// Splits a document into its lines.
    ///
    /// # Panics
    /// The bytes are no document of Konverge.
    pub fn parse(document: &[u8]) -> Self {
        let text = std::str::from_utf8(document).unwrap();
        let mut lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        let mut next = || lines.next().unwrap();
        Self {
            first: next(),
            header: next(),
            body: next(),
        }
    }

    /// Returns the kind of the document.
    pub fn kind(&self) -> &str {
        self.header["kind"].as_str().unwrap()
    }

    /// Returns the document with a correct checksum. The marks are unchanged.
    pub fn bytes(&self) -> Vec<u8> {
        let rest = format!("{}\n{}\n", self.header, self.body);
        let mut first = self.first.clone();
        first["checksum"] = blake3::hash(rest.as_bytes()).to_hex().to_string().into();
        format!("{first}\n{rest}").into_bytes()
    }

    /// Removes the marks.
    #[must_use]
    pub fn unmarked(mut self) -> Self {
        if let Some(first) = self.first.as_object_mut() {
            first.remove("marks");
        }
        self
    }
}

/// Returns a document as an attacker without a key could write it: once unchanged, and once for each edit of a field of
/// its header and body. The marks are removed; for one edit of each of the two lines there is also a version that keeps
/// them.
pub fn forgeries(document: &[u8]) -> Vec<Forgery> {
    let mut forged = Vec::new();
    let mut add = |edit: &str, lines: DocumentLines| {
        // Old marks are equally worthless after every edit, so two edits with marks are enough.
        let has_marks = lines.first.get("marks").is_some();
        if has_marks && matches!(edit, "header/time changed" | "body emptied") {
            forged.push(Forgery {
                edit: format!("{edit}, with the marks of before"),
                bytes: lines.bytes(),
            });
        }
        forged.push(Forgery {
            edit: edit.to_owned(),
            bytes: lines.unmarked().bytes(),
        });
    };
    let lines = || DocumentLines::parse(document);
    add("", lines());
    for (pointer, edit, header) in edits(&lines().header) {
        add(
            &format!("header{pointer} {edit}"),
            DocumentLines { header, ..lines() },
        );
    }
    for (pointer, edit, body) in edits(&lines().body) {
        add(
            &format!("body{pointer} {edit}"),
            DocumentLines { body, ..lines() },
        );
    }
    forged
}

/// Returns every edit of one field of a value: its JSON pointer, the change, and the edited value.
fn edits(value: &Value) -> Vec<(String, &'static str, Value)> {
    let mut found = Vec::new();
    collect(value, "", &mut |pointer, edit, change| {
        let mut edited = value.clone();
        if change(&mut edited) {
            found.push((pointer.to_owned(), edit, edited));
        }
    });
    found
}

type Visit<'a> = dyn FnMut(&str, &'static str, &dyn Fn(&mut Value) -> bool) + 'a;

fn collect(value: &Value, pointer: &str, visit: &mut Visit<'_>) {
    let set = |fresh: Value| {
        move |root: &mut Value| {
            let place = root.pointer_mut(pointer);
            place.map(|place| *place = fresh.clone()).is_some()
        }
    };
    match value {
        Value::Object(fields) => {
            if !fields.is_empty() {
                visit(pointer, "emptied", &set(Value::Object(Map::new())));
            }
            for (name, field) in fields {
                let below = format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"));
                visit(&below, "removed", &|root| {
                    let parent = root.pointer_mut(pointer).and_then(Value::as_object_mut);
                    parent.and_then(|parent| parent.remove(name)).is_some()
                });
                visit(&below, "renamed", &|root| {
                    let parent = root.pointer_mut(pointer).and_then(Value::as_object_mut);
                    let Some(parent) = parent else { return false };
                    let Some(field) = parent.remove(name) else {
                        return false;
                    };
                    parent.insert(other_text(name), field);
                    true
                });
                collect(field, &below, visit);
            }
        }
        Value::Array(items) => {
            if !items.is_empty() {
                visit(pointer, "emptied", &set(Value::Array(Vec::new())));
            }
            for (at, item) in items.iter().enumerate() {
                collect(item, &format!("{pointer}/{at}"), visit);
            }
        }
        Value::String(text) => visit(pointer, "changed", &set(other_text(text).into())),
        Value::Number(number) => {
            let other = number.as_u64().map_or(1, |number| number ^ 1);
            visit(pointer, "changed", &set(other.into()));
            visit(pointer, "raised", &set((other + 1000).into()));
        }
        Value::Bool(is_set) => visit(pointer, "turned", &set((!is_set).into())),
        Value::Null => visit(pointer, "filled", &set("forged".into())),
    }
}

/// Returns another text of the same form: a digest for a digest, and so on for times, names and enum values.
fn other_text(text: &str) -> String {
    const WORDS: [(&str, &str); 6] = [
        ("released", "held"),
        ("applied", "failed"),
        ("failed", "applied"),
        ("apply", "destroy"),
        ("live", "spec"),
        ("held", "released"),
    ];
    if let Some((_, other)) = WORDS.iter().find(|(word, _)| *word == text) {
        return (*other).to_owned();
    }
    // Change the last digit of hexadecimal texts and times, or the last letter of a name. `0` and `4` may end the
    // Base64 of a key.
    let at = text
        .char_indices()
        .rev()
        .find(|(_, character)| character.is_ascii_alphanumeric() && !matches!(character, 'Z' | 'z'));
    match at {
        Some((at, character)) => {
            let other = if character == '0' { '4' } else { '0' };
            format!("{}{other}{}", &text[..at], &text[at + 1..])
        }
        None => format!("{text}0"),
    }
}
