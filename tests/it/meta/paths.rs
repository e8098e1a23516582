//! The pages for newcomers name files: each of them exists.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the project") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => files(&path, into),
            false => into.push(path),
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
