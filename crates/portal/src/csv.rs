//! The audit log as CSV (RFC 4180) for a spreadsheet. No cell can become a formula, whoever wrote its text.

use konverge_report::escape;

use super::AuditDocument;

/// The header row.
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

/// Writes the entries of an audit log, the newest first. Entries that cannot be read follow as rows with only an
/// error.
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

/// Writes a cell: quoted, on one line, with hidden characters made visible. A text that a spreadsheet would
/// evaluate gets a leading apostrophe; some spreadsheets also evaluate full-width signs.
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
