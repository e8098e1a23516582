//! Tests of the file events, and of the working tree that is read by them. Each kind of file events has them.

use std::{collections::BTreeSet, process::Command};

use konverge_base::{error::UserError, model::file_source::FileKind};
use konverge_repo::git::Repository;
use proptest::prelude::*;

use super::*;

fn of(root: &Path) -> FileEvents<'static> {
    FileEvents::start(root, |path| path.as_str() == "target").unwrap()
}

#[tokio::test]
async fn a_write_is_seen_at_any_depth_and_in_new_folders() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    fs::create_dir_all(root.join("a/b")).unwrap();
    let mut events = of(&root);
    fs::write(root.join("a/b/x.k"), "a = 1\n").unwrap();
    events.wait().await.unwrap();
    fs::create_dir_all(root.join("c/d")).unwrap();
    events.wait().await.unwrap();
    fs::write(root.join("c/d/x.k"), "a = 1\n").unwrap();
    events.wait().await.unwrap();
    fs::write(root.join("kcl.mod"), "").unwrap();
    events.wait().await.unwrap();
}

#[test]
fn reading_and_ignored_folders_are_no_event() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    for inside in [".git", "target", "a"] {
        fs::create_dir(root.join(inside)).unwrap();
    }
    fs::write(root.join("a/x.k"), "a = 1\n").unwrap();
    let mut events = of(&root);
    fs::write(root.join(".git/index"), "x").unwrap();
    fs::write(root.join("target/x"), "x").unwrap();
    fs::read(root.join("a/x.k")).unwrap();
    fs::create_dir_all(root.join(".git/objects/aa")).unwrap();
    assert_eq!(events.take_written().unwrap(), nothing());
    fs::write(root.join("a/y.k"), "a = 1\n").unwrap();
    let written = BTreeSet::from([RepoPath::normalize("a/y.k").unwrap()]);
    assert_eq!(events.take_written().unwrap(), WrittenPaths::Known(written));
}

#[tokio::test]
async fn a_root_that_is_removed_is_an_error_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap().join("repository");
    fs::create_dir(&root).unwrap();
    let mut events = of(&root);
    fs::remove_dir(&root).unwrap();
    let failure = UserError::from(events.wait().await.unwrap_err());
    assert!(
        failure.message.contains("was removed") && !failure.hints.is_empty(),
        "{failure:?}"
    );
}

/// One write in a working tree, with names from a few, so that writes meet each other.
#[derive(Debug, Clone)]
enum Write {
    File(&'static str, u8),
    Remove(&'static str),
    Move(&'static str, &'static str),
    Link(&'static str, &'static str),
    Git(&'static [&'static str]),
}

const PLACES: [&str; 12] = [
    "a.k",
    "b.k",
    "f/a.k",
    "f/g/a.k",
    "f/g",
    "f",
    "h/kept.log",
    "h/x.log",
    ".gitignore",
    "h/.gitignore",
    "n/.git",
    "n/a.k",
];

fn write() -> impl Strategy<Value = Write> {
    let place = || prop::sample::select(PLACES.to_vec());
    let git: Vec<&'static [&'static str]> = vec![
        &["add", "--all"],
        &["add", "--force", "h"],
        &["rm", "--quiet", "--cached", "-r", "--ignore-unmatch", "f"],
        &["reset", "--quiet", "--hard"],
    ];
    prop_oneof![
        6 => (place(), 0..3u8).prop_map(|(path, text)| Write::File(path, text)),
        2 => place().prop_map(Write::Remove),
        2 => (place(), place()).prop_map(|(from, to)| Write::Move(from, to)),
        1 => (place(), place()).prop_map(|(from, to)| Write::Link(from, to)),
        1 => prop::sample::select(git).prop_map(Write::Git),
    ]
}

impl Write {
    /// Many of them cannot be done, which changes nothing.
    fn run(&self, repository: &konverge_testkit::git::Repository) {
        let at = |path: &str| repository.path().join(path);
        let _ = match self {
            Self::File(path, text) => {
                let text = if path.ends_with(".gitignore") {
                    ["*.log\n", "b.k\nf\n", ""][usize::from(*text)]
                } else {
                    ["a = 1\n", "a = 2\n", "a = 3\n"][usize::from(*text)]
                };
                let _ = at(path).parent().map(fs::create_dir_all);
                fs::write(at(path), text)
            }
            Self::Remove(path) => fs::remove_file(at(path)).or_else(|_| fs::remove_dir_all(at(path))),
            Self::Move(from, to) => fs::rename(at(from), at(to)),
            Self::Link(from, to) => std::os::unix::fs::symlink(from, at(to)),
            Self::Git(arguments) => Command::new("git")
                .args(*arguments)
                .current_dir(repository.path())
                .output()
                .map(drop),
        };
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, ..ProptestConfig::default() })]

    /// What is derived from the events is what a whole listing finds.
    #[test]
    fn a_derived_working_tree_is_the_one_that_is_read_whole(rounds in prop::collection::vec(prop::collection::vec(write(), 1..4), 1..8)) {
        let real = konverge_testkit::git::Repository::init();
        real.write("a.k", "a = 1\n").write("f/a.k", "a = 1\n").write("h/kept.log", "a = 1\n").write(".gitignore", "*.log\n");
        real.git(["add", "--force", "--all"]);
        real.commit("first");
        let repository = Repository::discover(real.path()).unwrap();
        let mut events = FileEvents::start(repository.root(), |path| repository.ignores(path)).unwrap();
        let mut known = repository.worktree().unwrap();
        for round in rounds {
            round.iter().for_each(|write| write.run(&real));
            let written = events.take_written().unwrap();
            // What cannot be read says so both times, and is read whole then.
            let (derived, whole) = (repository.worktree_after(known.as_ref(), &written), repository.worktree());
            let Ok(whole) = whole else { events.lose_track(); continue };
            let derived = derived.unwrap();
            prop_assert_eq!(derived.files(), whole.files(), "{:?} {:?}", round, written);
            for entry in derived.files().values().filter(|entry| entry.kind == FileKind::File) {
                prop_assert_eq!(derived.read(entry.blob).unwrap(), whole.read(entry.blob).unwrap());
            }
            known = derived;
        }
    }
}
