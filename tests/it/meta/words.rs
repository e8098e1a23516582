//! Plain words: phrases that readers did not understand do not come back, in code, docs and what the commands print.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::messages::joined_lines;

/// A phrase that nobody may write any more, and what to write instead.
const PHRASES: [(&str, &str); 66] = [
    ("always encrypted", "encrypted where there is a key"),
    ("can not", "cannot"),
    ("is no job of", "is not a job of"),
    ("is no length of time", "invalid duration"),
    ("made anew", "recreated"),
    ("made again because", "must be replaced"),
    ("deleted and made again", "replaced (deleted, then recreated)"),
    ("nobody has checked", "not validated"),
    ("is lost for good", "permanently deletes"),
    ("stay as they are", "without changes"),
    ("the same as in other stacks, above", "see \"Same change\" above"),
    ("Look closer:", "To reproduce:"),
    ("is on record nowhere", "was not recorded as reviewed"),
    (
        "goes to another branch than",
        "targets a branch that is not deployed",
    ),
    (
        "changes nothing on the infrastructure",
        "makes no infrastructure changes",
    ),
    ("had no room here", "omitted to fit GitHub's limit"),
    (
        "that no merged pull request showed",
        "not shown in any merged pull request",
    ),
    ("did not end well", "failed"),
    ("The longest not looked at", "Least recently checked"),
    ("look for drift has ended well", "successful drift check"),
    ("Put back", "Restored"),
    ("what the head wants", "up to date, or: changes pending"),
    ("wants something else than what is applied", "changes pending"),
    ("nothing was ever applied", "never applied"),
    (
        "the head does not have it any more",
        "removed from the repository",
    ),
    ("may or may not be there", "outcome unknown"),
    (
        "nobody is there to agree",
        "confirmation required but stdin is not a terminal",
    ),
    ("is not what was shown", "changed after you confirmed it"),
    ("hosted by", "Python interpreter"),
    ("may do what it is for", "permissions OK"),
    ("it is not said which cluster", "no rule assigns a cluster to"),
    ("is not a length of time", "invalid duration"),
    ("it continues from here", "completed work is kept"),
    ("ended without a word", "no result from"),
    ("failed without a word", "failed with no error output"),
    ("as a whole: {", "before any stack was processed"),
    ("looking at what would change", "planning"),
    ("was not told", "could not update"),
    ("asking which kinds", "discovering API resources"),
    ("could not be had", "could not obtain"),
    ("under your feet", "not pinned"),
    ("the walls that there are", "a partial sandbox"),
    ("sent on and on", "too many redirects"),
    ("costs time, never truth", "safe: the next run is slower"),
    ("Say nothing but", "Print only"),
    ("plan is made again", "Konverge plans again"),
    ("goes on from", "continues from"),
    ("half made", "not completed"),
    ("held back:", "skipped:"),
    ("of it was touched", "was stopped before anything was changed"),
    ("nothing outside is", "live objects are not changed"),
    ("ules as code", "policy sets"),
    ("grant power", "grant permissions"),
    ("grants power", "grants permissions"),
    ("on no record", "not recorded as reviewed"),
    ("looked at last", "last checked"),
    ("could not be looked at", "could not be checked"),
    ("is no regular file", "is not a regular file"),
    ("gree to exactly", "approve exactly"),
    ("may not stand", "is not allowed"),
    ("goes on without it", "continues without it"),
    ("the receipt", "the apply record"),
    ("dealt out", "split"),
    ("has no room beside", "is omitted, or: is full"),
    ("made up anew", "generated"),
    ("could not be given back", "could not be released"),
];

fn collect(path: &Path, into: &mut Vec<PathBuf>) {
    if path.is_file() {
        let text = ["rs", "md", "yml", "yaml", "html", "txt", "json"];
        if path
            .extension()
            .is_some_and(|end| text.iter().any(|text| end == *text))
        {
            into.push(path.to_owned());
        }
        return;
    }
    for entry in fs::read_dir(path).expect("a folder of the project") {
        collect(&entry.expect("an entry").path(), into);
    }
}

#[test]
fn words_that_nobody_understood_do_not_come_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for top in [
        "src",
        "crates",
        "docs",
        "README.md",
        "CONTRIBUTING.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "action.yml",
        "action",
        "tests/golden",
    ] {
        collect(&root.join(top), &mut files);
    }
    let mut wrong = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).expect("a text file of the project");
        for (number, line) in joined_lines(&text) {
            for (phrase, better) in PHRASES {
                if line.contains(phrase) {
                    let file = file.strip_prefix(root).expect("below the root").display();
                    wrong.push(format!("{file}:{number}: \"{phrase}\"; write: {better}"));
                }
            }
        }
    }
    assert!(files.len() > 400, "only {} files were read", files.len());
    assert!(
        wrong.is_empty(),
        "{} lines speak a dialect:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
