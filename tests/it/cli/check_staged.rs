//! `konverge check --staged`: what the next commit holds, whatever lies in the working tree.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use crate::support::{
    git::Repository,
    process::{Konverge, Outcome, binary},
    tiny_monorepo::{monorepo, write_stack},
};

const A: &str = "appops/a/dev/main.k";
const B: &str = "appops/b/dev/main.k";
const BROKEN: &str = "resources = = []\n";

fn two_stacks() -> Repository {
    let repository = monorepo();
    write_stack(&repository, "a/dev", "a", "low");
    write_stack(&repository, "b/dev", "b", "low");
    repository
}

fn staged(repository: &Repository) -> Konverge {
    Konverge::new(["check", "--staged"])
        .dir(repository.path())
        .with_kcl()
}

/// git, which may fail and has hooks.
fn git(repository: &Repository, arguments: &[&str]) -> Outcome {
    let who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"];
    let git = Konverge::of(Path::new("git"), who).arg_all(arguments);
    git.dir(repository.path()).with_kcl().run()
}

#[test]
fn what_is_staged_is_checked_and_not_the_working_tree() {
    let repository = two_stacks();
    repository.commit("Two stacks");
    let good = repository.read(A);
    // Staged is the fault, and the working tree has it no more.
    repository.write(A, BROKEN).git(["add", "."]);
    repository.write(A, &good);
    let found = staged(&repository).run().expect(1);
    assert!(found.stdout.contains(&format!("{A}:1:")), "{}", found.stdout);
    // The other way round; and a file that a commit would not hold.
    let higher = good.replace("low", "high");
    repository.write(A, &higher).git(["add", "."]);
    repository
        .write(A, BROKEN)
        .write("appops/a/dev/other.k", BROKEN)
        .write("appops/a/new/stack.yaml", "name: new\n")
        .git(["add", "--intent-to-add", "appops/a/new/stack.yaml"]);
    let before = repository.git(["status", "--porcelain"]);
    let passed = staged(&repository).run().expect(0);
    assert!(
        passed.stdout.contains("1 stack checked: 0 errors"),
        "{}",
        passed.stdout
    );
    assert_eq!(repository.git(["status", "--porcelain"]), before);
    assert_eq!(repository.read(A), BROKEN);
    // Nothing that a stack is made of.
    repository.git(["checkout", "--quiet", "--force", "HEAD", "--", A]);
    repository.write("notes.txt", "x\n").git(["add", "notes.txt"]);
    let passed = staged(&repository).run().expect(0);
    assert!(
        passed.stdout.contains("0 stacks checked: 0 errors"),
        "{}",
        passed.stdout
    );
}

#[test]
fn the_first_commit_is_checked_as_a_whole_and_a_conflict_is_told() {
    let repository = two_stacks();
    repository.git(["add", "."]);
    let passed = staged(&repository).run().expect(0);
    assert!(
        passed.stdout.contains("2 stacks checked: 0 errors"),
        "{}",
        passed.stdout
    );
    repository.commit("Two stacks");
    let low = repository.read(A);
    repository
        .branch("other")
        .write(A, low.replace("low", "lower"))
        .commit("Lower");
    repository
        .checkout("main")
        .write(A, low.replace("low", "lowest"))
        .commit("Lowest");
    git(&repository, &["merge", "--quiet", "other"]).check(1);
    let refused = staged(&repository).run().expect(1);
    let said = format!("`{A}` has a conflict that is not resolved");
    assert!(refused.stderr.contains(&said), "{}", refused.stderr);
}

/// For `git commit PATH` git gives its hooks an index of their own.
#[test]
fn a_hook_of_git_checks_the_files_of_its_commit_alone() {
    let repository = two_stacks();
    repository.commit("Two stacks");
    let hook = repository.path().join(".git/hooks/pre-commit");
    repository.write(
        ".git/hooks/pre-commit",
        format!("#!/bin/sh\nexec {} check --staged\n", binary().display()),
    );
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let good = repository.read(A);
    repository
        .write(A, good.replace("low", "high"))
        .write(B, BROKEN)
        .git(["add", "."]);
    let refused = git(&repository, &["commit", "--quiet", "-m", "x"]).expect(1);
    assert!(refused.stderr.contains(B), "{}", refused.stderr);
    git(&repository, &["commit", "--quiet", "-m", "x", A]).check(0);
    assert_eq!(repository.git(["show", "--format=", "--name-only", "HEAD"]), A);
    let refused = git(&repository, &["commit", "--quiet", "-m", "x", B]).expect(1);
    assert!(refused.stderr.contains(B), "{}", refused.stderr);
}

/// A worktree of its own has an index of its own, and a hook names it.
#[test]
fn the_index_is_that_of_the_repository() {
    let repository = two_stacks();
    repository.commit("Two stacks");
    let folder = tempfile::tempdir().unwrap();
    let linked = folder.path().join("linked");
    let path = linked.to_str().unwrap();
    repository.git(["worktree", "add", "--quiet", "-b", "linked", path]);
    std::fs::write(linked.join(B), BROKEN).unwrap();
    let add = Konverge::of(Path::new("git"), ["-C", path, "add", "."]);
    add.run().expect(0);
    let in_linked = || Konverge::new(["check", "--staged"]).dir(&linked).with_kcl();
    let found = in_linked().run().expect(1);
    assert!(found.stdout.contains(B), "{}", found.stdout);
    let index = repository.path().join(".git/worktrees/linked/index");
    let found = in_linked().env("GIT_INDEX_FILE", &index).run().expect(1);
    assert!(found.stdout.contains(B), "{}", found.stdout);
    staged(&repository).run().expect(0);
    // That of another one, and one that does not exist, are not an empty commit.
    for other in [index.to_str().unwrap(), ".git/nothing"] {
        let refused = staged(&repository).env("GIT_INDEX_FILE", other).run().expect(1);
        assert!(
            refused.stderr.contains("which is not a file in the git folder"),
            "{}",
            refused.stderr
        );
    }
    let bare = repository.clone_with(&["--bare"]);
    let refused = staged(&bare).run().expect(1);
    assert!(
        refused.stderr.contains("leave `--worktree` or `--staged` out"),
        "{}",
        refused.stderr
    );
}
