//! Environment variables that the code reads are described on their page, and the page names none that it does not read.

use std::{collections::BTreeSet, fs};

use regex::Regex;

use super::{docs::root, rooms::program_files};

/// The variables in the program's code, without its tests, that a pattern finds.
fn variables(pattern: &str) -> BTreeSet<String> {
    let pattern = Regex::new(pattern).unwrap();
    let mut found = BTreeSet::new();
    for file in program_files() {
        let text = fs::read_to_string(&file).unwrap();
        let program = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        found.extend(pattern.captures_iter(program).map(|name| name[1].to_owned()));
    }
    found
}

#[test]
fn variables_that_are_read_are_described() {
    let page = fs::read_to_string(root().join("docs/reference/environment.md")).unwrap();
    let own = variables(r#""(KONVERGE_[A-Z_]*[A-Z])""#);
    let others = variables(r#"\b(?:variable|var|var_os)\(\[?"([A-Z][A-Z0-9_]+)""#);
    assert!(own.len() > 20 && others.len() > 40, "{own:?} {others:?}");
    let missing: Vec<_> = own
        .union(&others)
        .filter(|name| !page.contains(&format!("`{name}`")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/reference/environment.md lacks {missing:?}"
    );
    let named = Regex::new("`(KONVERGE_[A-Z_]+)`").unwrap();
    let unread: Vec<_> = named
        .captures_iter(&page)
        .map(|name| name[1].to_owned())
        .filter(|name| !own.contains(name))
        .collect();
    assert!(unread.is_empty(), "the code does not read {unread:?}");
}
