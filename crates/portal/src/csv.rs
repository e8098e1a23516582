//! The audit as CSV (RFC 4180), for a spreadsheet: no cell is a formula, whoever wrote it.

use konverge_report::escape;

use super::AuditDocument;

/// The columns.
const COLUMNS: [&str; 16] = [
    "id",
    "time",
    "operation",
    "stack",
    "folder",
    "outcome",
    "reason",
    "digest",
    "serial",
    "lease",
    "person",
    "subject",
    "issuer",
    "address",
    "forwarded_for",
    "error",
];

/// The entries of an audit, the newest first, then what cannot be read of it: those rows have an error alone.
pub fn audit_csv(audit: &AuditDocument) -> String {
    let mut text = row(&COLUMNS.map(str::to_owned));
    for entry in &audit.entries {
        let (input, person) = (&entry.input, &entry.person);
        let or_empty = |value: &Option<String>| value.clone().unwrap_or_default();
        text.push_str(&row(&[
            entry.id.clone(),
            entry.time.to_string(),
            entry.operation.key().to_owned(),
            entry.stack.as_ref().map(ToString::to_string).unwrap_or_default(),
            entry.folder.as_ref().map(ToString::to_string).unwrap_or_default(),
            entry.outcome.key().to_owned(),
            or_empty(&input.reason),
            or_empty(&input.digest),
            input.serial.map(|serial| serial.to_string()).unwrap_or_default(),
            or_empty(&input.lease),
            person.name.clone(),
            person.subject.clone(),
            person.issuer.clone(),
            entry.address.clone(),
            or_empty(&entry.forwarded_for),
            or_empty(&entry.error),
        ]));
    }
    for notice in &audit.notices {
        let mut cells = [const { String::new() }; COLUMNS.len()];
        if let Some(error) = cells.last_mut() {
            error.clone_from(notice);
        }
        text.push_str(&row(&cells));
    }
    text
}

fn row(cells: &[String; COLUMNS.len()]) -> String {
    let cells: Vec<_> = cells.iter().map(|text| cell(text)).collect();
    format!("{}\r\n", cells.join(","))
}

/// A cell in quotes, in one line, with its hidden characters visible. What a spreadsheet would compute gets an apostrophe
/// before it; a fullwidth sign is one to some of them.
fn cell(text: &str) -> String {
    let text = escape::line(text);
    let begins = text.trim_start().chars().next();
    let is_formula = begins.is_some_and(|first| "=+-@|%＝＋－＠".contains(first));
    let sign = if is_formula { "'" } else { "" };
    format!("\"{sign}{}\"", text.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_cell_is_a_formula_and_each_is_one_cell() {
        for (text, expected) in [
            ("plain", "\"plain\""),
            ("a,\"b\"", "\"a,\"\"b\"\"\""),
            (
                "=HYPERLINK(\"https://evil\")",
                "\"'=HYPERLINK(\"\"https://evil\"\")\"",
            ),
            ("+1", "\"'+1\""),
            ("-1+cmd|' /C calc'!A0", "\"'-1+cmd|' /C calc'!A0\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("  =1", "\"'  =1\""),
            ("＝1", "\"'＝1\""),
            ("", "\"\""),
        ] {
            assert_eq!(cell(text), expected);
        }
        for hostile in ["a\r\nb", "\t=1", "\u{feff}=1", "\u{202e}x", "\u{1b}[31m"] {
            let cell = cell(hostile);
            assert!(!cell.chars().any(char::is_control), "{cell:?}");
            assert!(!cell.contains(['\u{202e}', '\u{feff}']), "{cell:?}");
            assert!(!cell.starts_with("\"=") && !cell.starts_with("\" ="), "{cell:?}");
        }
    }
}
