//! `scripts/parts`: a test waits for a part that is being built, and the table of the parts is that of the script.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use crate::{
    meta::docs::root,
    support::process::{Konverge, Outcome},
};

/// `scripts/parts` with a folder of its own.
fn parts(cache: &Path, arguments: &[&str]) -> Konverge {
    Konverge::of(&root().join("scripts/parts"), arguments).env("KONVERGE_PARTS", cache.to_str().unwrap())
}

/// What a test does that needs a part: it looks for the stamp while somebody holds the lock.
const WAITS: &str = r#"while [ ! -e "$KONVERGE_PARTS/stamps/terraform" ]; do
  flock -n -s "$KONVERGE_PARTS/parts.lock" true && exit 3
  sleep 0.1
done"#;

/// A `PATH` with a Terraform, which the script only links to, and a Go that builds nothing.
fn tools(folder: &Path) -> String {
    for (name, script) in [("terraform", "#!/bin/sh\n"), ("go", "#!/bin/sh\nexit 1\n")] {
        let program = folder.join(name);
        fs::write(&program, script).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

#[test]
fn a_command_runs_while_parts_are_installed_and_sees_those_that_are_made_again_as_missing() {
    let (cache, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = tools(programs.path());
    let during = |command: &str| -> Outcome {
        parts(
            cache.path(),
            &["during", "terraform", "--", "bash", "-c", command],
        )
        .env("PATH", &path)
        .run()
    };
    during(WAITS).expect(0);
    // In place: nothing is installed, and the command's end is that of the script.
    let again = during("exit 7").expect(7);
    assert!(!again.stderr.contains("terraform: done"), "{}", again.stderr);
    // Made from something else: the old one does not count while the new one is on its way.
    fs::write(cache.path().join("stamps/terraform"), "another").unwrap();
    during(&format!(
        r#"grep another "$KONVERGE_PARTS/stamps/terraform" && exit 4; {WAITS}"#
    ))
    .expect(0);
}

#[test]
fn a_part_that_cannot_be_installed_is_named_and_the_others_are_there() {
    let (cache, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = tools(programs.path());
    let installed = parts(cache.path(), &["install", "yaml-readers", "terraform"])
        .env("PATH", &path)
        .run()
        .expect(1);
    assert!(
        installed.stderr.contains("not installed: yaml-readers"),
        "{}",
        installed.stderr
    );
    assert!(cache.path().join("stamps/terraform").exists());
    let cost = fs::read_to_string(cache.path().join("costs/terraform")).unwrap();
    assert_eq!(cost.split_whitespace().count(), 2, "{cost}");
}

/// A Rust of a distribution has no other targets.
#[test]
fn a_rust_without_rustup_is_told_what_checks_the_sources_for_macos() {
    let cache = tempfile::tempdir().unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let without = std::env::split_paths(&path).filter(|folder| !folder.join("rustup").exists());
    let without = std::env::join_paths(without).unwrap();
    let said = parts(cache.path(), &["install", "macos"])
        .env("PATH", &without)
        .run()
        .expect(1)
        .stderr;
    assert!(
        said.contains("`rustup` is needed to install the part `macos`") && said.contains("https://rustup.rs"),
        "{said}"
    );
}

#[test]
fn the_table_of_parts_is_that_of_the_script() {
    Konverge::of(&root().join("scripts/parts-table"), ["--check"])
        .run()
        .expect(0);
}
