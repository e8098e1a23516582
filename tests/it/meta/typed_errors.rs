//! Decisions rest on the typed errors of the rooms. What an error says, and its kind, are for people and scripts.

use std::{fs, path::Path};

use super::{
    rooms::{code, program_files, source_files},
    signatures::signatures,
};

/// Where an error is shown: its kind becomes an exit code, a word or a status.
const SURFACES: [&str; 3] = ["crates/base/src/error.rs", "src/cli/", "crates/report/src/"];

/// Puts a resource's name before a message unless it is there: nothing but the text changes.
const ONLY_TEXT: &str = "match failure.message.contains(&format!(\"`{id}`\")) {";

/// The comparison of an error's kind or text in a line of code, if it has one.
fn decision(line: &str) -> Option<&'static str> {
    let line = line.trim();
    // The kind of an error of the operating system is typed.
    let line = line.replace("io::ErrorKind::", "").replace(".kind()", "");
    let kind = line.split("ErrorKind::").nth(1).is_some_and(|after| {
        let before = line.split("ErrorKind::").next().unwrap_or_default();
        let name_ends = after.trim_start_matches(char::is_alphanumeric).trim_start();
        before.ends_with("== ")
            || before.ends_with("!= ")
            || before.ends_with("| ")
            || name_ends.starts_with("=>")
            || name_ends.starts_with("| ")
            || name_ends.starts_with("if ")
    });
    let asks = [".starts_with(", ".contains(", ".ends_with(", ".as_str()", " == "];
    let of_error = ["failure.message", "refusal.message"].iter().any(|error| {
        let rest = line.split(error).nth(1);
        rest.is_some_and(|rest| asks.iter().any(|ask| rest.starts_with(ask)))
    });
    let matched = [
        "match failure.kind {",
        "match refusal.kind {",
        "match failure.message",
    ];
    match (
        kind || matched[..2].iter().any(|words| line.contains(words)),
        of_error,
    ) {
        _ if line == ONLY_TEXT => None,
        (true, _) => Some("the kind"),
        (_, true) => Some("the text"),
        _ => None,
    }
}

/// The error type of each `Result` in a signature.
fn error_types(signature: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in signature.match_indices("Result<") {
        let (mut depth, mut start) = (0_u32, None);
        for (offset, letter) in signature[at + "Result<".len()..].char_indices() {
            let here = at + "Result<".len() + offset;
            match letter {
                '<' | '(' | '[' => depth += 1,
                ',' if depth == 0 => start = Some(here + 1),
                '>' | ')' | ']' if depth == 0 => {
                    found.extend(start.map(|start| signature[start..here].trim().to_owned()));
                    break;
                }
                '>' if signature[..here].ends_with('-') => {}
                '>' | ')' | ']' => depth -= 1,
                _ => {}
            }
        }
    }
    found
}

#[test]
fn no_decision_rests_on_the_kind_or_the_text_of_an_error() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut read = 0;
    for file in program_files() {
        let name = file
            .strip_prefix(root)
            .expect("a file of the package")
            .display()
            .to_string();
        if SURFACES.iter().any(|surface| name.starts_with(surface)) {
            continue;
        }
        let text = fs::read_to_string(&file).expect("a source file");
        if text.contains("use std::{\n    io::{self, ErrorKind") || text.contains("io::ErrorKind,") {
            continue;
        }
        read += 1;
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            if let Some(what) = decision(line) {
                found.push(format!("{name}:{}: {what}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(read > 300, "only {read} files were read");
    assert!(
        found.is_empty(),
        "keep the typed error with `caused_by` and ask for it with `room_error`:\n{}",
        found.join("\n")
    );
}

#[test]
fn comparisons_are_found() {
    for line in [
        "Err(failure) if failure.kind == ErrorKind::Spec || failure.kind == ErrorKind::Config => {",
        "    failure.kind != ErrorKind::Terraform",
        "ErrorKind::Store => RetryDecision::Retry,",
        "    ErrorKind::Unreviewed | ErrorKind::Policy => StackResult::Stopped,",
        "let result = match failure.kind {",
        "Some(variable) if failure.message.starts_with(\"the kubeconfig is\") => {",
    ] {
        assert!(decision(line).is_some(), "{line}");
    }
    for line in [
        "UserError::new(ErrorKind::Spec, message)",
        "Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),",
        "failure.kind = ErrorKind::Config;",
        "Self::Damaged(_) => ErrorKind::State,",
        ONLY_TEXT,
    ] {
        assert_eq!(decision(line), None, "{line}");
    }
}

#[test]
fn no_public_function_of_a_crate_gives_a_text_as_its_error() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let files = source_files();
    let files = files
        .iter()
        .filter(|file| file.starts_with(&crates) && !file.starts_with(crates.join("testkit")));
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for file in files {
        for signature in signatures(&code(file)).iter().filter(|one| one.is_public) {
            let types = error_types(signature.text);
            seen += types.len();
            if types.iter().any(|name| name == "String") {
                wrong.push(format!("{}:{}", file.display(), signature.line));
            }
        }
    }
    assert!(seen > 300, "{seen}");
    assert!(
        wrong.is_empty(),
        "give these an error type:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_error_of_a_nested_result_is_found() {
    let types = |text| error_types(text);
    assert_eq!(
        types("fn a() -> Result<BTreeMap<String, String>, Error>"),
        ["Error"]
    );
    assert_eq!(
        types("fn a() -> Result<Vec<(A, Result<(), String>)>, Error>"),
        ["Error", "String"]
    );
    assert_eq!(types("fn a() -> io::Result<()>"), [""; 0]);
    assert_eq!(
        types("fn a(f: impl Fn(&A) -> Result<(), String>) -> Result<B, String>"),
        ["String", "String"]
    );
}
