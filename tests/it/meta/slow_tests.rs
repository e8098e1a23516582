//! `scripts/slowest` lists the slowest tests, and fails for one that is slow without a reason.

use std::fs;

use regex::Regex;

use crate::{
    meta::{docs::root, paths::files},
    support::process::Konverge,
};

/// What Rust's test harness prints with the times of tests.
const RUN: &str = "
running 3 tests
test a::quick ... ok <0.012s>
test a::slow ... ok <21.500s>
test a::panics - should panic ... ok <3.000s>
test a::left_out ... ignored

test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 21.51s
";

#[test]
fn a_slow_test_needs_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let (output, reasons) = (folder.path().join("output"), folder.path().join("slow.txt"));
    fs::write(&output, RUN).unwrap();
    let list = || {
        Konverge::of(&root().join("scripts/slowest"), ["--count", "2", "--reasons"])
            .arg(&reasons)
            .arg("--read")
            .arg(&output)
            .run()
    };
    fs::write(&reasons, "# none\n").unwrap();
    let said = list().expect(1).stdout;
    assert_eq!(
        said,
        "   21.5 s  a::slow  NO REASON: make it faster, or say why in tests/slow.txt\n    3.0 s  a::panics\n"
    );
    fs::write(&reasons, "a::slow  200 kills\n").unwrap();
    assert_eq!(
        list().expect(0).stdout,
        "   21.5 s  a::slow  200 kills\n    3.0 s  a::panics\n"
    );
}

/// A reason is of a test that there is.
#[test]
fn every_slow_test_exists() {
    let list = fs::read_to_string(root().join("tests/slow.txt")).unwrap();
    let mut sources = Vec::new();
    for folder in ["src", "crates", "tests/it"] {
        files(&root().join(folder), &mut sources);
    }
    let sources: String = sources
        .iter()
        .filter(|file| file.extension().is_some_and(|end| end == "rs"))
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let (name, reason) = line
            .split_once("  ")
            .unwrap_or_else(|| panic!("no reason: {line}"));
        assert!(reason.len() > 10, "{line}");
        let function = name.rsplit("::").next().unwrap();
        // A table of tests has a name and the function.
        let defined = Regex::new(&format!(r"\bfn {function}\b|\b{function}: super::")).unwrap();
        assert!(defined.is_match(&sources), "there is no test {name}");
    }
}
