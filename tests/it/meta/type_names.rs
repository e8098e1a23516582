//! One word, one type: no two types that other files can use share a name.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use super::rooms::source_files;

/// The arguments of each command are read in its file only.
const BY_FILE: [&str; 1] = ["Args"];

/// The type that a line declares for other files: `pub struct Name`, `pub(super) enum Name<'a>`.
fn declared(line: &str) -> Option<&str> {
    let rest = line.trim_start().strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(')')?.1,
        None => rest,
    };
    let (keyword, rest) = rest.trim_start().split_once(' ')?;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    ["struct", "enum", "trait", "type"]
        .contains(&keyword)
        .then_some(name)
        .filter(|name| !name.is_empty())
}

#[test]
fn no_two_types_share_a_name() {
    let files = source_files();
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a source file");
        for name in text.lines().filter_map(declared) {
            places
                .entry(name.to_owned())
                .or_default()
                .insert(file.display().to_string());
        }
    }
    assert!(places.len() > 500, "only {} types were found", places.len());
    let twice: Vec<_> = places
        .iter()
        .filter(|(name, files)| files.len() > 1 && !BY_FILE.contains(&name.as_str()))
        .map(|(name, files)| format!("{name}: {files:?}"))
        .collect();
    assert!(twice.is_empty(), "give each its own name:\n{}", twice.join("\n"));
}

#[test]
fn declarations_are_read_with_their_scope() {
    for (line, name) in [
        ("pub struct Plan {", Some("Plan")),
        ("    pub(super) enum Step<'a> {", Some("Step")),
        ("pub(in crate::ops) trait Gate: Send {", Some("Gate")),
        ("pub type Answer = u8;", Some("Answer")),
        ("struct Hidden;", None),
        ("pub fn plan() {", None),
        ("pub use plan::Plan;", None),
        ("/// pub struct Plan", None),
    ] {
        assert_eq!(declared(line), name, "{line}");
    }
}
