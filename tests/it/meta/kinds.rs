//! A kind is a group and a kind: no rule of the program compares the name of a kind of Kubernetes alone.

use std::{collections::BTreeSet, fs};

use regex::Regex;

use super::{docs::root, rooms::program_files};

/// Names that are not the kind of an object.
const OTHER_NAMES: [(&str, &str); 2] = [
    // A word of the workspace, from which the object is made.
    ("crates/kusion/src/native/service.rs", "Deployment"),
    // A subject of a binding, whose kind stands for its group.
    ("crates/stack-test-language/src/moving.rs", "ServiceAccount"),
];

/// The kinds that `GroupKind` has constants for.
fn kinds() -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("crates/base/src/model/group_kind.rs")).expect("a source file");
    let constant = Regex::new(r#"Self::new\([^,]+, "(\w+)"\)"#).expect("a pattern");
    constant
        .captures_iter(&text)
        .map(|found| found[1].to_owned())
        .collect()
}

/// What finds the names that a program compares with: `== "Job"`, `Some("Job")`, and the arms of a `match`.
struct Comparisons {
    operator: Regex,
    arm: Regex,
    word: Regex,
}

impl Comparisons {
    fn new() -> Self {
        let pattern = |text: &str| Regex::new(text).expect("a pattern");
        Self {
            operator: pattern(r#"(?-u)(?:[!=]=|Some\()\s*"(\w+)""#),
            arm: pattern(r#"(?m-u)^[ (]*"\w*"(?:\s*[|,]\s*"\w*")*\)?\s*(?:if\b[ -~]*)?=>"#),
            word: pattern(r#"(?-u)"(\w+)""#),
        }
    }

    fn find(&self, program: &str) -> Vec<String> {
        let operators = self.operator.captures_iter(program);
        let mut found: Vec<String> = operators.map(|found| found[1].to_owned()).collect();
        for arm in self.arm.find_iter(program) {
            let words = self.word.captures_iter(arm.as_str());
            found.extend(words.map(|found| found[1].to_owned()));
        }
        found
    }
}

#[test]
fn no_rule_compares_the_name_of_a_kind_alone() {
    let kinds = kinds();
    assert!(kinds.len() > 30, "only {} kinds were found", kinds.len());
    let comparisons = Comparisons::new();
    let mut bare = Vec::new();
    for file in program_files() {
        let text = fs::read_to_string(&file).expect("a source file");
        let program = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let name = file
            .strip_prefix(root())
            .expect("a file of the program")
            .display()
            .to_string();
        let alone = comparisons
            .find(program)
            .into_iter()
            .filter(|kind| kinds.contains(kind));
        let alone = alone.filter(|kind| !OTHER_NAMES.contains(&(name.as_str(), kind.as_str())));
        bare.extend(alone.map(|kind| format!("{name}: {kind}")));
    }
    assert!(
        bare.is_empty(),
        "compare with a constant of `GroupKind`:\n{}",
        bare.join("\n")
    );
}

#[test]
fn comparisons_are_found() {
    let comparisons = Comparisons::new();
    for (program, kind) in [
        (r#"if object["kind"] == "Job" {"#, true),
        (r#"kind.as_str() != Some("Job")"#, true),
        ("match kind {\n    \"CronJob\" | \"Job\" => 1,", true),
        ("match kind {\n    \"Job\" if ready => 1,", true),
        ("match (group, kind) {\n    (\"batch\", \"Job\") => 1,", true),
        (r#"json!({"kind": "Job"})"#, false),
        (r#"GroupKind::new("batch", "Job")"#, false),
    ] {
        assert_eq!(
            comparisons.find(program).iter().any(|found| found == "Job"),
            kind,
            "{program}"
        );
    }
}
