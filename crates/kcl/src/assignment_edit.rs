//! Edits the text of a KCL file: a value is replaced in place, or a line is added to the block of the attribute. All
//! other bytes stay. The core's parser then confirms that nothing else changed.
//!
//! The core's own `OverrideFile` is not used, because it prints the whole file from its syntax tree: it expands
//! `env.LOG_LEVEL = "debug"` to a block, and writes a value that is not KCL as a string.

use super::{
    AssignedValue, Assignment, AttributePath, KclError, ParsedFile, Pool, attribute_path::is_identifier,
    literal::quoted,
};
use konverge_base::model::RepoPath;

/// The indentation of an attribute in its block.
const INDENT: &str = "    ";

impl Pool {
    /// Returns true if a text is exactly one KCL literal.
    ///
    /// # Errors
    /// The connection to the worker is lost.
    pub async fn is_literal(&self, text: &str) -> Result<bool, KclError> {
        let path = RepoPath::root().child("value.k");
        // The value is parsed inside a block, as it will be in the file: there its further lines may have any
        // indentation.
        let program = format!("_konverge = {{\nvalue = {text}\n}}\n");
        match self.parse(&path, &program).await {
            Ok(parsed) => {
                let mut found = parsed.assignments.iter();
                let value = found.find(|found| found.path.keys() == ["_konverge", "value"]);
                // Without this check, a comment or another entry after the literal would get into the file as well.
                Ok(parsed.statements == 1
                    && value.is_some_and(|found| found.is_literal() && parsed.value_text(found) == text))
            }
            Err(KclError::Code(_)) => Ok(false),
            Err(other) => Err(other),
        }
    }
}

impl ParsedFile {
    /// Returns the text of a value as written in the file.
    pub fn value_text(&self, at: &Assignment) -> &str {
        self.text.get(at.span.clone()).unwrap_or_default()
    }

    /// Returns the text of the file with another value for one assignment.
    pub fn replace(&self, at: &Assignment, value: &str) -> String {
        let mut text = self.text.clone();
        text.replace_range(at.span.clone(), value);
        text
    }

    /// Returns the block to which a new attribute would be added: the innermost block that contains its path.
    pub fn block_for(&self, path: &AttributePath) -> Option<&Assignment> {
        let blocks = self.assignments.iter().filter(|found| {
            let above = found.path.keys();
            let sets_parts = !matches!(found.value, AssignedValue::Computed | AssignedValue::Conditional);
            sets_parts
                && found.braces.is_some()
                && above.len() < path.keys().len()
                && path.keys().starts_with(above)
        });
        blocks.max_by_key(|found| found.path.keys().len())
    }

    /// Returns the text of the file with an attribute added at the end of a block; `None` if the block or a key cannot
    /// be written.
    pub fn add(&self, block: &Assignment, path: &AttributePath, value: &str) -> Option<String> {
        let braces = block.braces.clone()?;
        let inside = self.text.get(braces.start + 1..braces.end.checked_sub(1)?)?;
        let entry = entry(&path.keys()[block.path.keys().len()..], value)?;
        let close = braces.end - 1;
        let mut text = self.text.clone();
        match inside.rfind('\n') {
            // The closing brace is on a line of its own, so the new line comes before it.
            Some(at) if inside[at + 1..].trim().is_empty() => {
                let line = braces.start + 1 + at + 1;
                let newline = if inside[..at].ends_with('\r') {
                    "\r\n"
                } else {
                    "\n"
                };
                let indent = format!("{}{INDENT}", &inside[at + 1..]);
                text.insert_str(line, &format!("{indent}{entry}{newline}"));
            }
            _ if inside.trim().is_empty() => text.replace_range(braces.start + 1..close, &entry),
            _ => {
                let end = braces.start + 1 + inside.trim_end().len();
                let comma = if inside.trim_end().ends_with(',') {
                    " "
                } else {
                    ", "
                };
                text.replace_range(end..close, &format!("{comma}{entry}"));
            }
        }
        Some(text)
    }

    /// Returns true if `edited` sets the same attributes to the same values, except that it sets `path` exactly once,
    /// to `value`.
    pub fn differs_only_at(&self, edited: &Self, path: &AttributePath, value: &str) -> bool {
        let beside = |file: &Self| -> Vec<(AttributePath, String)> {
            let all = file
                .assignments
                .iter()
                .filter(|found| !overlap(&found.path, path));
            all.map(|found| (found.path.clone(), file.value_text(found).to_owned()))
                .collect()
        };
        let mut set = edited.assignments.iter().filter(|found| found.path == *path);
        let is_set = set.next().is_some_and(|found| edited.value_text(found) == value);
        is_set && set.next().is_none() && beside(self) == beside(edited)
    }
}

/// Returns true if the paths are equal, or one of them is inside the other.
fn overlap(one: &AttributePath, other: &AttributePath) -> bool {
    one.keys().starts_with(other.keys()) || other.keys().starts_with(one.keys())
}

/// Returns the line `a.b = value`. A key in quotes cannot be joined by a dot, so the keys after it are put in braces.
fn entry(keys: &[String], value: &str) -> Option<String> {
    let plain = keys.iter().take_while(|key| is_identifier(key)).count();
    let (plain, rest) = keys.split_at(plain);
    let dotted = plain.join(".");
    match (plain, rest) {
        (_, []) => Some(format!("{dotted} = {value}")),
        ([], [key]) => Some(format!("{} = {value}", quoted(key)?)),
        ([], [key, rest @ ..]) => Some(format!("{}: {{{}}}", quoted(key)?, entry(rest, value)?)),
        (_, rest) => Some(format!("{dotted}: {{{}}}", entry(rest, value)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str, blocks: &[(&str, &str)]) -> ParsedFile {
        let assignments = blocks.iter().map(|(path, block)| {
            let start = text.find(block).unwrap();
            Assignment {
                path: path.parse().unwrap(),
                line: 1,
                value: AssignedValue::Block,
                span: start..start + block.len(),
                braces: Some(start..start + block.len()),
            }
        });
        ParsedFile {
            text: text.to_owned(),
            assignments: assignments.collect(),
            statements: 1,
        }
    }

    #[test]
    fn an_attribute_is_added_in_the_form_of_its_block() {
        for (text, path, added) in [
            (
                "s: S {\n    a = 1\n}\n",
                "s.b.c",
                "s: S {\n    a = 1\n    b.c = 2\n}\n",
            ),
            (
                "s: S {\r\n    a = 1\r\n}\r\n",
                "s.b",
                "s: S {\r\n    a = 1\r\n    b = 2\r\n}\r\n",
            ),
            ("s: S {}", "s.\"b-c\"", "s: S {\"b-c\" = 2}"),
            (
                "s: S {a = 1}",
                "s.b.\"c d\".e",
                "s: S {a = 1, b: {\"c d\": {e = 2}}}",
            ),
            ("s: S {a = 1, }", "s.b", "s: S {a = 1, b = 2}"),
        ] {
            let block = &text[text.find('{').unwrap()..=text.rfind('}').unwrap()];
            let parsed = file(text, &[("s", block)]);
            let path = path.parse().unwrap();
            let block = parsed.block_for(&path).unwrap();
            assert_eq!(parsed.add(block, &path, "2").as_deref(), Some(added));
        }
    }

    #[test]
    fn the_innermost_block_is_taken() {
        let parsed = file(
            "s: {a: {b: {}}}",
            &[("s", "{a: {b: {}}}"), ("s.a", "{b: {}}"), ("s.a.b", "{}")],
        );
        let block = |path: &str| {
            parsed
                .block_for(&path.parse().unwrap())
                .map(|found| found.path.to_string())
        };
        assert_eq!(block("s.a.c").as_deref(), Some("s.a"));
        assert_eq!(block("s.a.b.c").as_deref(), Some("s.a.b"));
        assert_eq!(block("t.a"), None);
    }
}
