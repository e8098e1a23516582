//! The rooms' imports against the tables of ARCHITECTURE.md: an edge that is not listed fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use super::import_graph::ModuleGraph;

const OPEN_TO_ALL: [&str; 13] = [
    "atomic_file",
    "error",
    "interrupt",
    "yaml",
    "cel_bounds",
    "cel_counting",
    "cel_expression",
    "cel_value",
    "retry",
    "checkout",
    "process",
    "secrets",
    "model",
];

/// Rooms on the left may use only what is listed, not even the rooms open to all.
const STRICT: [&str; 13] = [
    "atomic_file",
    "error",
    "interrupt",
    "yaml",
    "cel_bounds",
    "cel_counting",
    "cel_expression",
    "cel_value",
    "retry",
    "checkout",
    "process",
    "model",
    "secrets",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The rows of the table under a heading: first cell → the comma-separated second.
fn table(heading: &str) -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let section = text
        .split(&format!("## {heading}\n"))
        .nth(1)
        .expect("the section is there");
    let section = section
        .split("\n## ")
        .next()
        .expect("split gives one part at least");
    section
        .lines()
        .filter(|line| line.starts_with('|') && !line.starts_with("|---"))
        .skip(1)
        .map(|line| {
            let mut cells = line.trim_matches('|').split('|').map(str::trim);
            let room = cells.next().expect("a first cell").to_owned();
            let uses = cells
                .next()
                .unwrap_or_default()
                .split(',')
                .map(|s| s.trim().to_owned());
            (room, uses.filter(|s| !s.is_empty()).collect())
        })
        .collect()
}

pub(super) fn rust_files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of src") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            into.push(path);
        }
    }
}

/// The room of a source file: its first folder, or its own name at the top.
fn room_of(path: &Path) -> String {
    let relative = path.strip_prefix(root().join("src")).expect("below src");
    let first = relative
        .components()
        .next()
        .expect("a component")
        .as_os_str()
        .to_string_lossy();
    first.trim_end_matches(".rs").to_owned()
}

/// The code without line comments: a doc link names rooms too, and is no import.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a source file");
    text.lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The rooms that stand behind `crate::` in a text: `crate::a::b`, `crate::{a, b::{c, d}}`.
fn uses(text: &str) -> BTreeSet<String> {
    let ident = |s: &str| {
        s.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect::<String>()
    };
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        if !rest.starts_with('{') {
            found.insert(ident(rest));
            continue;
        }
        let mut depth = 0;
        let mut expecting = false;
        for (index, c) in rest.char_indices() {
            match c {
                '{' => {
                    depth += 1;
                    expecting = depth == 1;
                }
                '}' => {
                    depth -= 1;
                    if depth == 0 {
                        break;
                    }
                }
                ',' => expecting = depth == 1,
                c if c.is_whitespace() => {}
                _ if expecting => {
                    found.insert(ident(&rest[index..]));
                    expecting = false;
                }
                _ => {}
            }
        }
    }
    found.remove("");
    found
}

#[test]
fn every_import_is_in_the_table() {
    let allowed = table("Directions");
    let mut files = Vec::new();
    rust_files(&root().join("src"), &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let room = room_of(&file);
        if room == "lib" || room == "main" {
            continue;
        }
        let Some(listed) = allowed.get(&room) else {
            wrong.push(format!(
                "{}: the room `{room}` is not in ARCHITECTURE.md",
                file.display()
            ));
            continue;
        };
        for used in uses(&code(&file)) {
            let open = OPEN_TO_ALL.contains(&used.as_str()) && !STRICT.contains(&room.as_str());
            if used != room && !open && !listed.contains(&used) {
                wrong.push(format!("{}: `{room}` must not use `{used}`", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn foreign_crates_stay_behind_their_doors() {
    let doors = table("Foreign crates");
    let mut files = Vec::new();
    rust_files(&root().join("src"), &mut files);
    let mut wrong = Vec::new();
    for file in files {
        let relative = file
            .strip_prefix(root().join("src"))
            .expect("below src")
            .to_string_lossy()
            .into_owned();
        let text = code(&file);
        for (name, places) in &doors {
            let used = [
                format!("use {name}::"),
                format!(" {name}::"),
                format!("({name}::"),
                format!("<{name}::"),
            ]
            .iter()
            .any(|pattern| text.contains(pattern.as_str()));
            if used && !places.iter().any(|place| relative.starts_with(place.as_str())) {
                wrong.push(format!("src/{relative}: `{name}` belongs to {places:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_file_is_too_long_to_tell_one_story() {
    let mut files = Vec::new();
    rust_files(&root().join("src"), &mut files);
    let long: Vec<_> = files
        .iter()
        .map(|file| {
            (
                fs::read_to_string(file).expect("a source file").lines().count(),
                file,
            )
        })
        .filter(|(lines, _)| *lines > 600)
        .collect();
    assert!(long.is_empty(), "over 600 lines: {long:?}");
}

/// The lines of each function of a source, by name: from `fn` to the closing brace with the same indentation.
fn function_lengths(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<_> = text.lines().collect();
    let mut lengths = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let Some(name) = code.split_once("fn ").map(|(_, rest)| rest) else {
            continue;
        };
        let is_declared = code.starts_with("fn ") || code.starts_with("pub") || code.starts_with("async fn ");
        let closing = format!("{}}}", &line[..line.len() - code.len()]);
        let last = lines.iter().skip(at).position(|other| **other == closing);
        if let Some(last) = last.filter(|_| is_declared) {
            lengths.push((last + 1, name.split(['(', '<']).next().unwrap_or(name).to_owned()));
        }
    }
    lengths
}

#[test]
fn no_function_is_too_long_to_be_read_at_once() {
    assert_eq!(
        function_lengths("impl A {\n    pub fn a<T>() {\n        b()\n    }\n}\nfn c() {\n}"),
        [(3, "a".to_owned()), (2, "c".to_owned())]
    );
    let mut files = Vec::new();
    rust_files(&root().join("src"), &mut files);
    let mut long = Vec::new();
    for file in files.iter().filter(|file| !file.ends_with("tests.rs")) {
        let text = fs::read_to_string(file).expect("a source file");
        let code = text.split("\n#[cfg(test)]").next().unwrap_or_default();
        let lengths = function_lengths(code)
            .into_iter()
            .filter(|(lines, _)| *lines > 175);
        long.extend(lengths.map(|(lines, name)| format!("{name} in {}: {lines}", file.display())));
    }
    assert!(long.is_empty(), "over 175 lines: {}", long.join("\n"));
}

#[test]
fn the_reader_of_imports_reads_groups() {
    let found = uses(
        "use crate::{\n error::Failure,\n model::{Digest, path::RepoPath},\n};\nlet x = crate::yaml::to_string(&v);",
    );
    assert_eq!(found.into_iter().collect::<Vec<_>>(), ["error", "model", "yaml"]);
}

#[test]
fn no_two_files_of_a_room_import_each_other() {
    let circles = ModuleGraph::read(&root().join("src")).circles();
    let mut wrong = Vec::new();
    for (circle, edges) in &circles {
        let names: Vec<_> = circle.iter().map(String::as_str).collect();
        wrong.push(format!(
            "these files import each other: {}\n    {}\n  hint: move what they share into a file of its own, or pass it in",
            names.join(", "),
            edges.join("\n    ")
        ));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
