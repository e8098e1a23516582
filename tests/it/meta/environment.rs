//! Environment variables stand in one list, `crates/base/src/variables.rs`: no other file spells a name, and each has
//! its line in the reference.

use std::{collections::BTreeSet, fs};

use konverge_base::variables::SECTIONS;
use regex::Regex;

use super::rooms::program_files;

const LIST: &str = "crates/base/src/variables.rs";

/// Names that are also keys of a Kusion workspace, or a placeholder in a hint.
const KEYS: [&str; 3] = [
    "crates/run/src/module_runner.rs",
    "crates/kusion/src/context_keys.rs",
    "crates/kusion/src/import.rs",
];

fn listed() -> Vec<&'static str> {
    let variables = SECTIONS.iter().flat_map(|section| section.variables);
    variables.flat_map(|(names, _)| *names).copied().collect()
}

#[test]
fn each_variable_of_the_list_is_described_once() {
    let text = fs::read_to_string(super::docs::root().join(LIST)).unwrap();
    let constant = Regex::new(r"pub const [A-Z0-9_]+: &str = \x22([A-Z0-9_]+)\x22;").unwrap();
    let constants: Vec<_> = constant
        .captures_iter(&text)
        .map(|found| found[1].to_owned())
        .collect();
    assert!(constants.len() > 100, "{constants:?}");
    let described = listed();
    assert_eq!(described.len(), constants.len());
    assert_eq!(
        BTreeSet::from_iter(described),
        constants.iter().map(String::as_str).collect()
    );
}

#[test]
fn no_other_file_spells_the_name_of_a_variable() {
    let known = BTreeSet::from_iter(listed());
    let literal = Regex::new(r"\x22([A-Z][A-Z0-9_]+)\x22").unwrap();
    let read = Regex::new(r"\b(?:variable|var|var_os)\(\[?\x22").unwrap();
    let mut found = Vec::new();
    for file in program_files() {
        let place = file
            .strip_prefix(super::docs::root())
            .unwrap()
            .display()
            .to_string();
        if place == LIST || KEYS.contains(&place.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let program = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let spelled = literal.captures_iter(program).map(|name| name[1].to_owned());
        found.extend(
            spelled
                .filter(|name| {
                    known.contains(name.as_str()) || name.starts_with("KONVERGE_") && !name.ends_with('_')
                })
                .map(|name| format!("{place}: {name}")),
        );
        found.extend(
            read.find_iter(program)
                .map(|_| format!("{place}: a variable that is not in the list")),
        );
    }
    assert!(found.is_empty(), "{found:#?}");
}
