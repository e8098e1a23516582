//! Renders the difference of two texts of several lines, line by line.

use serde_json::Value;
use similar::TextDiff;

use super::{escape, yaml_text};

/// The maximum length of differing parts that are compared line by line, because the time grows with the product of
/// both lengths.
const LONGEST_TEXT: usize = 2_000;

/// The mark of a change that forces a replacement.
pub(super) const FORCES: &str = "# forces replacement";

/// Adds the lines of the difference of two texts, under a key if there is one.
pub(super) fn render(
    key: Option<&str>,
    from: &str,
    to: &str,
    depth: usize,
    around: usize,
    out: &mut Vec<String>,
) {
    let pad = "  ".repeat(depth);
    out.push(match key {
        Some(key) => format!(" {pad}{}: |", yaml_text::name(key)),
        None => format!(" {pad}|"),
    });
    if from.lines().count().max(to.lines().count()) > LONGEST_TEXT {
        return long_text(from, to, &pad, around, out);
    }
    let diff = TextDiff::from_lines(from, to);
    for (index, hunk) in diff.grouped_ops(around).iter().enumerate() {
        if index > 0 {
            out.push(format!(" {pad}  …"));
        }
        for change in hunk.iter().flat_map(|op| diff.iter_changes(op)) {
            let line = text_line(change.value().trim_end_matches(['\n', '\r']));
            out.push(format!("{}{pad}  {line}", change.tag()));
        }
    }
}

/// Formats a line of a text.
fn text_line(line: &str) -> String {
    if line.contains(FORCES) {
        yaml_text::scalar(&Value::String(line.to_owned()))
    } else {
        escape::line(line)
    }
}

/// Renders the difference of texts that are too long to compare: all lines from the first to the last different one.
fn long_text(from: &str, to: &str, pad: &str, around: usize, out: &mut Vec<String>) {
    let (from, to): (Vec<_>, Vec<_>) = (from.split('\n').collect(), to.split('\n').collect());
    let before = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let rest = from[before..].iter().rev().zip(to[before..].iter().rev());
    let after = rest.take_while(|(a, b)| a == b).count();
    let mut lines = |sign: char, lines: &[&str]| {
        out.extend(
            lines
                .iter()
                .map(|line| format!("{sign}{pad}  {}", text_line(line))),
        );
    };
    lines(' ', &from[before.saturating_sub(around)..before]);
    lines('-', &from[before..from.len() - after]);
    lines('+', &to[before..to.len() - after]);
    let end = from.len() - after;
    lines(' ', &from[end..from.len().min(end + around)]);
}
