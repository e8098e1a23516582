//! Plain words: phrases that readers did not understand do not come back, in code, docs and what the commands print.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::messages::joined_lines;

/// A phrase that nobody may write any more, and what to write instead.
const PHRASES: &[(&str, &str)] = &[
    ("always encrypted", "encrypted where there is a key"),
    ("can not", "cannot"),
    ("is no job of", "is not a job of"),
    ("is no length of time", "invalid duration"),
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
    ("goes on", "continues"),
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
    ("the receipt", "the apply record"),
    ("dealt out", "split"),
    ("has no room beside", "is omitted, or: is full"),
    (" anew", "again, or: recreated, generated"),
    ("could not be given back", "could not be released"),
    ("must be a text", "must be a string"),
    ("should be a text", "must be a string"),
    ("must be text", "must be a string"),
    ("not a text", "not a string"),
    ("stands here twice", "duplicate key"),
    ("approved by nobody", "no approvals"),
    ("takes folders in again", "re-includes folders"),
    ("take the key out", "remove the key"),
    ("the word of values", "reserved"),
    ("left standing", "kept"),
    ("not looked at", "not refreshed, or: not checked"),
    ("who it makes you", "your identity"),
    ("who they make you", "your identity"),
    ("the kubeconfig makes you", "your identity"),
    ("what holds it up", "what blocks it"),
    ("still to end", "terminating"),
    ("replicas cannot be made", "replicas cannot be created"),
    ("is at work on", "an operation of … is in progress"),
    ("make a cycle", "form a cycle"),
    ("replaced this head", "a newer commit was pushed"),
    ("the pinned one; trying", "checksum OK"),
    ("answered nonsense", "invalid response"),
    ("ended before it served", "exited before the handshake"),
    ("no longer: create", "edited"),
    ("by turns", "alternately"),
    ("somebody changed", "changed outside Konverge"),
    ("taken back", "reverted"),
    ("hat is recorded of", "the records of"),
    ("not known yet", "unknown"),
    ("held against", "compared with"),
    ("walls", "sandbox"),
    ("look for drift", "check for drift"),
    ("without a word", "with no output, or: silently"),
    ("no cluster was asked", "no cluster was queried"),
    ("hoever", "anyone who"),
    ("Power comes from", "trusted settings come from"),
    ("speaks for itself", "its stderr is shown"),
    ("what to apply", "find the pending stacks"),
    ("Seen by", "Detected by"),
    ("Go on?", "Apply … to …? Type `yes`"),
];

/// Names of functions that say nothing of the field, from the same list.
const NAMES: &str = r"\bfn (?:acquire_anew|as_agreed|did_nothing|is_well|standing|read_standing|looks|remember_looks|newest_looks)\b";

/// `X is no Y`: a reader who learned English expects *is not a*.
fn has_is_no(line: &str) -> bool {
    line.match_indices(" is no ").any(|(at, found)| {
        let next = line[at + found.len()..]
            .split(|c: char| !c.is_alphabetic())
            .next();
        !line[..at].to_lowercase().ends_with("there") && !matches!(next, Some("longer" | "reason" | "more"))
    })
}

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
    let names = regex::Regex::new(NAMES).expect("a valid expression");
    let mut wrong = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).expect("a text file of the project");
        for (number, line) in joined_lines(&text) {
            let name = file
                .strip_prefix(root)
                .expect("below the root")
                .display()
                .to_string();
            let is_code = name.ends_with(".rs");
            for (phrase, better) in PHRASES {
                if line.contains(phrase) {
                    wrong.push(format!("{name}:{number}: \"{phrase}\"; write: {better}"));
                }
            }
            if let Some(found) = names.find(&line).filter(|_| is_code) {
                wrong.push(format!(
                    "{name}:{number}: \"{}\"; name it by a verb and a noun of the field",
                    found.as_str()
                ));
            }
            if is_code && has_is_no(&line) {
                wrong.push(format!("{name}:{number}: \"is no …\"; write: is not a …"));
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
