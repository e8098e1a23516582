//! The stage of the Dockerfile that compiles: what it copies is all that Cargo and the compiler read, and what it
//! leaves is where the rest of the image, `scripts/image` and a release expect it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use globset::{GlobBuilder, GlobMatcher};
use konverge_base::model::RepoPath;

use crate::meta::docs::root;

/// The instructions of the stage `build`, each on one line.
fn stage() -> Vec<String> {
    let text = fs::read_to_string(root().join("Dockerfile")).unwrap();
    let text = text.replace("\\\n", " ");
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let mut stage = lines.skip_while(|line| !line.ends_with(" AS build"));
    assert!(stage.next().is_some(), "the Dockerfile has no stage `build`");
    stage
        .take_while(|line| !line.starts_with("FROM "))
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The lines of .dockerignore: whether they take in again, and what they match.
fn ignore_rules() -> Vec<(bool, GlobMatcher)> {
    let text = fs::read_to_string(root().join(".dockerignore")).unwrap();
    let rules = text.lines().map(str::trim);
    let rules = rules.filter(|line| !line.is_empty() && !line.starts_with('#'));
    rules
        .map(|line| {
            let (again, pattern) = match line.strip_prefix('!') {
                Some(pattern) => (true, pattern),
                None => (false, line),
            };
            let glob = GlobBuilder::new(pattern.trim_matches('/'))
                .literal_separator(true)
                .build();
            (again, glob.unwrap().compile_matcher())
        })
        .collect()
}

/// Returns true if .dockerignore keeps a file, or a folder above it, out of the build. The last line that matches wins.
fn is_ignored(rules: &[(bool, GlobMatcher)], file: &str) -> bool {
    let above = |glob: &GlobMatcher| {
        Path::new(file)
            .ancestors()
            .any(|path| !path.as_os_str().is_empty() && glob.is_match(path))
    };
    let last = rules.iter().rev().find(|(_, glob)| above(glob));
    last.is_some_and(|(again, _)| !again)
}

/// The files of a checkout, and those that are not committed yet.
fn checkout() -> Vec<String> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
            "--deduplicate",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(listed.status.success());
    let files = String::from_utf8(listed.stdout).unwrap();
    let files = files.split_terminator('\0').map(str::to_owned);
    files.filter(|file| root().join(file).is_file()).collect()
}

/// Where a `COPY` puts a file of the context, relative to the stage's folder; `None` if it does not copy it.
fn copied_to(copy: &str, file: &RepoPath) -> Option<RepoPath> {
    let words: Vec<_> = copy.split_whitespace().skip(1).collect();
    assert!(
        !words
            .iter()
            .any(|word| word.starts_with("--") || word.contains('*')),
        "this test does not know `{copy}`"
    );
    let (target, sources) = words.split_last().unwrap();
    let inside = |source: &&str| {
        let source = RepoPath::normalize(source).unwrap();
        if source == *file {
            Some(file.file_name().to_owned())
        } else {
            // What a folder holds goes below the target, without the folder.
            Some(file.relative_to(&source)?.to_string())
        }
    };
    let found = sources.iter().find_map(inside)?;
    RepoPath::normalize(target).unwrap().join(&found)
}

/// What the stage has before its `RUN`: path in its folder, and path in the checkout.
fn copied_files() -> BTreeMap<RepoPath, PathBuf> {
    let (stage, rules) = (stage(), ignore_rules());
    let copies: Vec<_> = stage.iter().filter(|line| line.starts_with("COPY ")).collect();
    let mut copied = BTreeMap::new();
    for file in checkout().iter().filter(|file| !is_ignored(&rules, file)) {
        let path = RepoPath::normalize(file).unwrap();
        let targets = copies.iter().filter_map(|copy| copied_to(copy, &path));
        copied.extend(targets.map(|to| (to, root().join(file))));
    }
    copied
}

/// The command of the stage, without the mounts of its caches.
fn command() -> String {
    let stage = stage();
    let runs: Vec<_> = stage
        .iter()
        .filter_map(|line| line.strip_prefix("RUN "))
        .collect();
    let [run] = runs.as_slice() else {
        panic!("one RUN: {runs:?}");
    };
    let words = run.split_whitespace().skip_while(|word| word.starts_with("--"));
    words.collect::<Vec<_>>().join(" ")
}

/// Cargo itself, up to the first crate that it would compile: it refuses a manifest that names a missing file, a lock
/// file that does not fit, and a workspace without one of its members.
#[test]
fn the_build_stage_reaches_the_compiler() {
    let folder = tempfile::tempdir().unwrap();
    for (to, from) in copied_files() {
        let to = folder.path().join(to.as_str());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    }
    let run = Command::new("sh")
        .args(["-c", &command()])
        .current_dir(folder.path())
        .env("CARGO_NET_OFFLINE", "true")
        .env("RUSTC_WRAPPER", root().join("tests/it/meta/compile_begins.sh"))
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(said.contains("the compile begins"), "`{}`: {said}", command());
}

/// The compiler's own lists of what it read in this checkout: sources, and what they include.
#[test]
fn the_build_stage_has_every_file_that_the_compiler_reads() {
    let lists = Path::new(env!("CARGO_BIN_EXE_konverge")).with_file_name("deps");
    let lists = fs::read_dir(lists).unwrap().map(|entry| entry.unwrap().path());
    let mut needed = BTreeSet::new();
    for list in lists.filter(|file| file.extension().is_some_and(|end| end == "d")) {
        let text = fs::read_to_string(list).unwrap();
        // Those of our own crates are relative. What only tests read is not compiled in the image, and an older list
        // may have a file that is gone.
        let files = text.lines().filter_map(|line| line.strip_suffix(':'));
        let files = files.filter_map(|file| RepoPath::normalize(&file.replace("\\ ", " ")));
        let tests = RepoPath::normalize("tests").unwrap();
        needed.extend(files.filter(|file| !file.is_within(&tests) && root().join(file.as_str()).is_file()));
    }
    assert!(needed.len() > 500, "{} files", needed.len());
    let path = |text: &str| RepoPath::normalize(text).unwrap();
    assert!(needed.contains(&path("crates/kcl/src/worker.py")));
    let copied = copied_files();
    let missing: Vec<_> = needed.iter().filter(|file| !copied.contains_key(*file)).collect();
    assert!(missing.is_empty(), "not in the build stage: {missing:?}");
    // The settings that a release is compiled with.
    assert!(copied.contains_key(&path(".cargo/config.toml")));
}

#[test]
fn the_build_stage_has_nothing_that_git_ignores() {
    let rules = ignore_rules();
    let text = fs::read_to_string(root().join(".gitignore")).unwrap();
    for line in text.lines() {
        let sample = line.trim_matches('/').replace('*', "x");
        assert!(is_ignored(&rules, &sample), ".dockerignore lacks `{line}`");
    }
    assert!(is_ignored(&rules, ".git/config"));
}

/// `scripts/image` plays Cargo, a release brings the binary: both put it where the stage does.
#[test]
fn everybody_agrees_where_the_binary_is() {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap();
    assert!(
        command().ends_with(" && cp target/release/konverge /konverge"),
        "{}",
        command()
    );
    assert!(read("Dockerfile").contains("COPY --from=build /konverge /usr/local/bin/konverge"));
    assert!(
        read("scripts/image").contains("mkdir -p target/release && cp /konverge target/release/konverge")
    );
    let release = read(".github/workflows/release.yml");
    assert!(
        release.contains("/release/konverge\" target/image/")
            && release.contains("--build-context build=target/image")
    );
    // Who builds by hand has the quick profile.
    assert!(read("Makefile").contains("$(TARGET)/fast/konverge kcl install"));
    assert!(read("README.md").contains("leaves `target/fast/konverge`"));
    assert!(read("scripts/quick-start").contains("~/konverge/target/fast:"));
    let manifest = read("Cargo.toml");
    let rust = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .unwrap();
    let image = format!(
        "ARG RUST_IMAGE=docker.io/library/rust:{}-",
        rust.trim_matches('"')
    );
    assert!(read("Dockerfile").contains(&image), "{image}");
}
