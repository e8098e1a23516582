//! What is released: what the guides name is there, and the scripts of a release do what its workflow takes for
//! granted.

use std::{fs, process::Command};

use sha2::{Digest, Sha256};

use crate::{
    meta::docs::root,
    support::{cache, git::Repository, process::Konverge},
};

/// The repository's files, with a history of one commit.
fn copy() -> Repository {
    let listed = Command::new("git")
        .args(["ls-files", "-z"])
        .current_dir(root())
        .output()
        .unwrap();
    let repository = Repository::init();
    for file in String::from_utf8(listed.stdout).unwrap().split_terminator('\0') {
        let from = root().join(file);
        let mode = fs::metadata(&from).unwrap().permissions();
        repository.write(file, fs::read(&from).unwrap());
        fs::set_permissions(repository.path().join(file), mode).unwrap();
    }
    repository.commit("Everything");
    repository
}

/// The major versions of the action, the setup action, the workflow and the image that are named, each with its file.
fn named(folder: &std::path::Path) -> Vec<(String, String)> {
    let listed = Command::new("git")
        .args(["grep", "-oE", r#"konverge/konverge[^ @:"]*(@v|:)[0-9]+\b"#, "--"])
        .args([
            "docs",
            "README.md",
            "src/commands/init",
            "templates",
            "konfig-example",
        ])
        .current_dir(folder)
        .output()
        .unwrap();
    let lines = String::from_utf8(listed.stdout).unwrap();
    let number = |line: &str| {
        line.rsplit(|c: char| !c.is_ascii_digit())
            .next()
            .unwrap()
            .to_owned()
    };
    lines
        .lines()
        .map(|line| (number(line), line.to_owned()))
        .collect()
}

/// The tag and the image of a major version are moved by its releases: no other one is there.
#[test]
fn what_is_named_is_what_releases_move() {
    let named = named(&root());
    assert!(named.len() >= 12, "{named:?}");
    for (number, line) in &named {
        assert_eq!(number, env!("CARGO_PKG_VERSION_MAJOR"), "{line}");
    }
    let workflow = fs::read_to_string(root().join(".github/workflows/release.yml")).unwrap();
    for moved in [
        "--tag \"$IMAGE:${VERSION%%.*}\"",
        "HEAD:refs/tags/v${VERSION%%.*}",
    ] {
        assert!(workflow.contains(moved), "{moved}");
    }
}

#[test]
#[ignore = "needs `scripts/parts install release`; `make test-all` runs it"]
fn the_next_release_is_named_everywhere_and_has_its_notes() {
    let repository = copy();
    let run = |script: &str, arguments: &[&str]| {
        Konverge::of(&repository.path().join("scripts").join(script), arguments)
            .dir(repository.path())
            .env("KONVERGE_PARTS", cache())
            .run()
            .expect(0)
            .stdout
    };
    let major: u32 = env!("CARGO_PKG_VERSION_MAJOR").parse().unwrap();
    let (old, new) = (env!("CARGO_PKG_VERSION"), format!("{}.0.0", major + 1));
    assert_eq!(
        run("next-release", &["major", "--here"]),
        format!("{old} -> {new}\n")
    );
    for file in ["Cargo.toml", "Cargo.lock"] {
        let text = repository.read(file);
        let ours = text.split("name = \"konverge\"\n").nth(1).unwrap();
        assert!(
            ours.starts_with(&format!("version = \"{new}\"")),
            "{file}: {}",
            &ours[..40]
        );
    }
    repository.commit("Release");
    for (number, line) in named(repository.path()) {
        assert_eq!(number, (major + 1).to_string(), "{line}");
    }
    let image = format!("ghcr.io/konverge/konverge@sha256:{}", "a".repeat(64));
    let notes = run("release-notes", &[&new, &image, "0123abc"]);
    // What was unreleased, the commits, how to pin it and how to check it.
    for part in [
        "### Added",
        "### Commits",
        "Everything",
        "konverge/konverge@0123abc",
        &image,
        "gh attestation verify",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    let changes = repository.read("CHANGELOG.md");
    assert!(
        changes.contains(&format!("## [Unreleased]\n\n## [{new}] - ")),
        "{changes}"
    );
}

/// The formula names the archives of the release with their sums.
#[test]
fn the_formula_has_the_sums_of_the_archives() {
    let folder = tempfile::tempdir().unwrap();
    let formula = || {
        Konverge::of(&root().join("scripts/homebrew"), ["1.2.3"])
            .arg(folder.path())
            .run()
    };
    let archive = |machine: &str| format!("konverge-1.2.3-{machine}-apple-darwin.tar.gz");
    fs::write(folder.path().join(archive("aarch64")), "arm").unwrap();
    let missing = formula().expect(66).stderr;
    assert!(missing.contains(&archive("x86_64")), "{missing}");
    fs::write(folder.path().join(archive("x86_64")), "intel").unwrap();
    let formula = formula().expect(0).stdout;
    for (machine, content) in [("aarch64", "arm"), ("x86_64", "intel")] {
        let digest = Sha256::digest(content);
        let sum: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let lines = format!(
            "    url \"https://github.com/konverge/konverge/releases/download/v1.2.3/{}\"\n    sha256 \"{sum}\"\n",
            archive(machine)
        );
        assert!(formula.contains(&lines), "{formula}");
    }
    let workflow = fs::read_to_string(root().join(".github/workflows/release.yml")).unwrap();
    assert!(workflow.contains("scripts/homebrew \"$VERSION\" dist >dist/konverge.rb"));
    for target in ["aarch64-apple-darwin", "x86_64-apple-darwin"] {
        assert!(
            workflow.contains(&format!("{{target: {target}, runner: macos-15")),
            "{target}"
        );
    }
}

/// The bases of the image are the builder's to choose, what it is stands in its labels, and nothing secret goes in.
#[test]
fn the_image_says_what_it_is_made_of() {
    let text = fs::read_to_string(root().join("Dockerfile")).unwrap();
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let bases: Vec<_> = lines
        .iter()
        .filter_map(|line| line.strip_prefix("FROM "))
        .collect();
    assert!(bases.len() >= 3, "{bases:?}");
    for base in bases {
        let name = base
            .strip_prefix("${")
            .and_then(|rest| rest.split_once('}'))
            .unwrap()
            .0;
        assert!(
            lines.iter().any(|line| line.starts_with(&format!("ARG {name}="))),
            "{base}"
        );
    }
    for label in [
        "title",
        "description",
        "source",
        "documentation",
        "licenses",
        "version",
        "revision",
    ] {
        let label = format!("org.opencontainers.image.{label}=");
        assert!(text.contains(&label), "{label}");
    }
    for argument in lines
        .iter()
        .filter(|line| line.starts_with("ARG ") || line.starts_with("ENV "))
    {
        let secret = ["TOKEN", "SECRET", "PASSWORD", "KEY"]
            .iter()
            .any(|word| argument.contains(word));
        assert!(!secret, "{argument}");
    }
}

/// The picture in the README is drawn of the comment that the tests hold.
#[test]
fn the_picture_is_of_the_comment() {
    let drawn = fs::read_to_string(root().join("docs/images/comment.png.of")).unwrap();
    let comment = fs::read(root().join("tests/golden/comment-shop.md")).unwrap();
    let digest: String = Sha256::digest(comment)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(
        drawn.trim(),
        digest,
        "docs/images/comment.png is old: scripts/picture"
    );
}
