//! Messages that the docs explain are messages that the program prints: each stands in the sources word for word.

use std::fs;

use super::{docs::root, rooms::program_files};

/// Pages whose tables have messages in the first column, and the heads of these tables.
const PAGES: [(&str, &[&str]); 2] = [
    ("docs/troubleshooting.md", &["message"]),
    ("docs/guides/sres.md", &["it says"]),
];

/// What the diagnoses print: their lines are results, not messages that a reader looks up.
const DIAGNOSES: [&str; 2] = ["src/commands/doctor", "crates/run/src/state/doctor.rs"];

/// Each line of a file with its number. A text that a backslash continues is one line, and so is a comment.
pub(super) fn joined_lines(text: &str) -> Vec<(usize, String)> {
    let comment = |line: &str| {
        let line = line.trim_start();
        ["///", "//!", "//"]
            .into_iter()
            .find(|mark| line.starts_with(mark))
    };
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut before: Option<&str> = None;
    for (number, line) in text.lines().enumerate() {
        let marks = (before.and_then(comment), comment(line));
        match (lines.last_mut(), before, marks) {
            (Some((_, last)), Some(before), _) if before.ends_with('\\') => {
                last.pop();
                last.push_str(line.trim_start());
            }
            (Some((_, last)), _, (Some(mark), Some(own))) if mark == own => {
                last.push(' ');
                last.push_str(line.trim_start().trim_start_matches(mark).trim_start());
            }
            _ => lines.push((number + 1, line.to_owned())),
        }
        before = Some(line);
    }
    lines
}

/// The lines of the program: without its comments, its unit tests and its diagnoses.
fn program_lines() -> Vec<String> {
    let mut lines = Vec::new();
    for file in program_files() {
        let below = file.strip_prefix(root()).unwrap();
        if DIAGNOSES.iter().any(|diagnosis| below.starts_with(diagnosis)) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let program = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let joined = joined_lines(program).into_iter().map(|(_, line)| line);
        lines.extend(joined.filter(|line| !line.trim_start().starts_with("//")));
    }
    lines
}

/// True if a line has all parts in their order.
fn has_all(line: &str, parts: &[&str]) -> bool {
    let mut rest = line;
    parts.iter().all(|part| match rest.split_once(part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// The messages in the first column of a page's tables with one of these heads.
fn messages(page: &str, heads: &[&str]) -> Vec<String> {
    let mut messages = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        let Some(row) = line.strip_prefix("| ") else {
            inside &= line.starts_with('|');
            continue;
        };
        let first = row.split(" |").next().unwrap_or_default();
        inside |= heads.contains(&first);
        if inside {
            messages.extend(first.split('`').skip(1).step_by(2).map(str::to_owned));
        }
    }
    messages
}

#[test]
fn messages_that_are_explained_are_printed() {
    let printed = program_lines();
    let (mut unknown, mut seen) = (Vec::new(), 0);
    for (name, heads) in PAGES {
        let page = fs::read_to_string(root().join(name)).unwrap();
        for message in messages(&page, heads) {
            seen += 1;
            // An ellipsis stands for what differs from time to time.
            let parts: Vec<_> = message
                .split('…')
                .map(str::trim)
                .filter(|part| part.len() > 5)
                .collect();
            if !printed.iter().any(|line| has_all(line, &parts)) {
                unknown.push(format!(
                    "{name}: `{message}`: no message of the program has {parts:?}"
                ));
            }
        }
    }
    assert!(seen > 50, "only {seen} messages were found in the pages");
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

#[test]
fn a_message_is_one_text_of_the_program() {
    let lines = joined_lines("let a = \"one \\\n    two\";\n// three\n// four\n/// five\n");
    let found: Vec<_> = lines
        .iter()
        .map(|(number, line)| (*number, line.as_str()))
        .collect();
    assert_eq!(
        found,
        [(1, "let a = \"one two\";"), (3, "// three four"), (5, "/// five")]
    );
    assert!(has_all(
        "stack `{}` is held by {}, lease {}",
        &["is held by", "lease"]
    ));
    assert!(!has_all("lease {} is held by {}", &["is held by", "lease"]));
}
