//! The pages for newcomers name files: each of them exists.

use std::{
    fs,
    path::{Path, PathBuf},
};

use regex::Regex;

use super::rooms::source_files;

/// All files below a folder.
pub(super) fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the project") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(&path, into)
        } else {
            into.push(path)
        }
    }
}

#[test]
fn every_file_that_a_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut known = Vec::new();
    for top in ["src", "crates", "tests/it", "benches"] {
        files(&root.join(top), &mut known);
    }
    let (mut named, mut missing) = (0, Vec::new());
    for page in [
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "docs/design/find-your-way.md",
        "docs/design/first-change.md",
    ] {
        let text = fs::read_to_string(root.join(page)).expect("a page");
        for code in text
            .split('`')
            .skip(1)
            .step_by(2)
            .filter(|code| code.ends_with(".rs"))
        {
            named += 1;
            // A page may leave out the folder that the sentence is about.
            if !known.iter().any(|file| file.ends_with(code)) {
                missing.push(format!("{page}: `{code}`"));
            }
        }
    }
    assert!(named > 60, "only {named} files are named");
    assert!(
        missing.is_empty(),
        "these files do not exist:\n{}",
        missing.join("\n")
    );
}

#[test]
fn twenty_questions_have_an_answer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/design/find-your-way.md")).expect("the page");
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains('?'));
    let answers: Vec<_> = rows.filter_map(|row| row.rsplit('`').nth(1)).collect();
    assert!(answers.len() >= 20, "{answers:?}");
    for answer in answers {
        assert!(root.join(answer).is_file(), "`{answer}` does not exist");
    }
}

/// The sources of a crate by its name, or of `ops` and `cli`.
fn place_of(first: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = [
        root.join("crates").join(first).join("src"),
        root.join("src").join(first),
    ];
    places.into_iter().find(|place| place.is_dir())
}

#[test]
fn every_module_that_a_comment_names_exists() {
    let named = Regex::new("`([a-z_]+)::([a-z_]+)(?:::[A-Za-z_:]+)?`").unwrap();
    let mut missing = Vec::new();
    let mut read = 0;
    for file in source_files() {
        let text = fs::read_to_string(&file).expect("a source file");
        let comments = text.lines().filter(|line| line.trim_start().starts_with("//"));
        for found in comments.flat_map(|line| named.captures_iter(line)) {
            let Some(place) = place_of(&found[1]) else {
                continue;
            };
            read += 1;
            let module = &found[2];
            let files = [place.join(format!("{module}.rs")), place.join(module)];
            let door = fs::read_to_string(place.join("lib.rs")).unwrap_or_default();
            if !files.iter().any(|path| path.exists()) && !door.contains(module) {
                missing.push(format!("{}: {}", file.display(), &found[0]));
            }
        }
    }
    assert!(read > 5, "only {read} modules are named");
    assert!(
        missing.is_empty(),
        "these modules do not exist:\n{}",
        missing.join("\n")
    );
}

/// A crate that nobody finds in the page of first changes is one that nobody changes first.
#[test]
fn every_crate_has_a_first_change() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/design/first-change.md")).expect("the page");
    for entry in fs::read_dir(root.join("crates")).expect("the crates") {
        let name = entry.expect("an entry").file_name();
        let row = format!("| `{}` |", name.display());
        assert!(
            text.contains(&row),
            "docs/design/first-change.md has no row {row}"
        );
    }
}
