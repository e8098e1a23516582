//! Messages that the docs explain are messages that the program prints: each stands in the sources word for word.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::docs::root;

/// Pages whose tables have messages in the first column, and the heads of these tables.
const PAGES: [(&str, &[&str]); 2] = [
    ("docs/troubleshooting.md", &["message"]),
    ("docs/guides/sres.md", &["it says"]),
];

fn sources(folder: &Path, into: &mut String) {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            // A long text is continued on the next line.
            let text = fs::read_to_string(&path).unwrap();
            let mut continued = false;
            for line in text.lines() {
                let line = if continued { line.trim_start() } else { line };
                continued = line.ends_with('\\');
                into.push_str(line.trim_end_matches('\\'));
                if !continued {
                    into.push('\n');
                }
            }
        }
    }
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
    let mut printed = String::new();
    sources(&root().join("src"), &mut printed);
    let (mut unknown, mut seen) = (Vec::new(), 0);
    for (name, heads) in PAGES {
        let page = fs::read_to_string(root().join(name)).unwrap();
        for message in messages(&page, heads) {
            seen += 1;
            // An ellipsis stands for what differs from time to time.
            let parts = message.split('…').map(str::trim).filter(|part| part.len() > 5);
            let missing: Vec<_> = parts.filter(|part| !printed.contains(part)).collect();
            if !missing.is_empty() {
                unknown.push(format!("{name}: `{message}`: {missing:?} is not in src/"));
            }
        }
    }
    assert!(seen > 50, "only {seen} messages were found in the pages");
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

/// What `{:?}` prints is for who reads the code: quotes, variants and fields of Rust. No text is made of it but keys.
#[test]
fn no_text_shows_rusts_insides() {
    const KEYS: [&str; 1] = ["src/kcl/packages/mod.rs"];
    let mut found = Vec::new();
    let mut folders = vec![root().join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            if path.extension().is_none_or(|end| end != "rs")
                || path.ends_with("tests.rs")
                || KEYS.contains(&name.as_str())
            {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            let program = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            for (number, line) in program.lines().enumerate() {
                let code = line.trim_start();
                if !code.starts_with("//") && (code.contains(":?}") || code.contains(":#?}")) {
                    found.push(format!("{name}:{}: {code}", number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
