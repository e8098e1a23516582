//! The line of the README that installs Konverge, run as it stands there, against assets of the names and shapes that
//! `scripts/release` makes. A stand-in for `curl` takes the place of GitHub.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use crate::{
    meta::docs::root,
    support::process::{Konverge, Outcome},
};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Says where the latest release is, and gives one asset of it, as `curl -f` does.
const CURL: &str = r#"#!/bin/bash
set -eu
releases=https://github.com/konverge/konverge/releases
case $* in
  "-fsSLo /dev/null -w %{url_effective} $releases/latest") printf %s "$releases/tag/v$VERSION" ;;
  "-fsSL $releases/download/v$VERSION/"*) cat "$ASSETS/${2##*/}" ;;
  *) echo "curl: (22) $*" >&2; exit 22 ;;
esac
"#;

fn program(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The line of the README.
fn line() -> String {
    let text = fs::read_to_string(root().join("README.md")).unwrap();
    let found: Vec<_> = text
        .lines()
        .filter(|line| line.contains("/releases/download/"))
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].to_owned()
}

/// The release's assets in a folder: for each target the archive, and what lies beside it.
fn assets(folder: &Path) {
    let script = fs::read_to_string(root().join("scripts/release")).unwrap();
    for shape in [
        "name=konverge-$version-$target\n",
        "cp \"$binary\" README.md LICENSE CHANGELOG.md \"$dist/$name/\"",
        "-cf - \"$name\"",
        ">\"$name.tar.gz\"",
    ] {
        assert!(
            script.contains(shape),
            "scripts/release has another shape: {shape}"
        );
    }
    for (machine, system) in [
        ("x86_64", "unknown-linux-gnu"),
        ("aarch64", "unknown-linux-gnu"),
        ("x86_64", "apple-darwin"),
        ("aarch64", "apple-darwin"),
    ] {
        let name = format!("konverge-{VERSION}-{machine}-{system}");
        let inside = folder.join("made").join(&name);
        program(
            &inside.join("konverge"),
            &format!("#!/bin/sh\necho konverge {machine}-{system}\n"),
        );
        for file in ["README.md", "completions/konverge.bash", "man/konverge.1"] {
            program(&inside.join(file), "not the binary\n");
        }
        let archive = folder.join("assets").join(format!("{name}.tar.gz"));
        fs::create_dir_all(archive.parent().unwrap()).unwrap();
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--format=gnu", "-czf"]).arg(&archive);
        tar.arg("-C").arg(folder.join("made")).arg(&name);
        assert!(tar.status().unwrap().success());
        for beside in [
            format!("{name}.tar.gz.sha256"),
            format!("{name}.cdx.json"),
            "SHA256SUMS".to_owned(),
        ] {
            fs::write(folder.join("assets").join(beside), "").unwrap();
        }
    }
}

fn install(folder: &Path, (system, machine): (&str, &str), line: &str) -> Outcome {
    program(&folder.join("bin/curl"), CURL);
    program(
        &folder.join("bin/uname"),
        &format!("#!/bin/sh\ncase $1 in -m) echo {machine} ;; -s) echo {system} ;; esac\n"),
    );
    let path = std::env::var("PATH").unwrap();
    let script = format!("set -eo pipefail\n{line}\n");
    Konverge::of("/bin/bash".as_ref(), ["-c", script.as_str()])
        .dir(folder)
        .env("HOME", folder.join("home"))
        .env("ASSETS", folder.join("assets"))
        .env("VERSION", VERSION)
        .env("PATH", format!("{}:{path}", folder.join("bin").display()))
        .run()
}

#[test]
fn the_line_of_the_readme_installs_the_binary_of_a_release() {
    let line = line();
    for (of, target) in [
        (("Linux", "x86_64"), "x86_64-unknown-linux-gnu"),
        (("Linux", "aarch64"), "aarch64-unknown-linux-gnu"),
        (("Darwin", "x86_64"), "x86_64-apple-darwin"),
        (("Darwin", "arm64"), "aarch64-apple-darwin"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        // A new machine: there is not even the folder.
        fs::create_dir(folder.path().join("home")).unwrap();
        assets(folder.path());
        install(folder.path(), of, &line).expect(0);
        let bin = folder.path().join("home/.local/bin");
        let installed: Vec<_> = fs::read_dir(&bin)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(installed, ["konverge"]);
        let said = Command::new(bin.join("konverge")).output().unwrap();
        assert_eq!(
            String::from_utf8(said.stdout).unwrap(),
            format!("konverge {target}\n")
        );
    }
}
