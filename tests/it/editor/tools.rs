//! The server under pytest-lsp, on a monorepo of 5,000 stacks; the extension for VS Code under Node and `vsce`.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;

use crate::support::{
    cache, installed, kcl,
    process::{Konverge, binary},
    root,
    tiny_monorepo::{monorepo, write_stack},
};

const STACKS: usize = 5_000;

#[test]
#[ignore = "needs `scripts/parts install pytest-lsp`; `make test-all` runs it"]
fn pytest_lsp_drives_the_server_on_five_thousand_stacks() {
    let python = installed("pytest-lsp", cache().join("pytest-lsp/bin/python3"));
    let repository = monorepo();
    for number in 0..STACKS {
        let stage = ["dev", "test", "prod", "pre-prod", "prod-eu"][number % 5];
        write_stack(&repository, &format!("p{:04}/{stage}", number / 5), "a", "low");
    }
    repository.commit("Five thousand stacks");
    let script = root().join("tests/it/editor/test_pytest_lsp.py");
    Konverge::of(&python, ["-m", "pytest", "--quiet", "-p", "no:cacheprovider"])
        .arg(&script)
        .dir(repository.path())
        .env("KONVERGE", binary())
        .env("KONVERGE_KCL", kcl::interpreter())
        .env("REPOSITORY", repository.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .limit(Duration::from_secs(600))
        .run()
        .expect(0);
}

/// The extension in a folder of its own, with what it needs.
fn extension() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(root().join("editors/vscode")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    folder
}

fn node(folder: &Path, program: &str, arguments: &[&str]) -> String {
    Konverge::of(&PathBuf::from(program), arguments)
        .dir(folder)
        .limit(Duration::from_secs(300))
        .run()
        .expect(0)
        .stdout
}

#[test]
#[ignore = "needs `scripts/parts install vsce`; `make test-all` runs it"]
fn the_extension_is_packaged_with_what_it_needs_and_nothing_else() {
    let vsce = installed("vsce", cache().join("vsce/node_modules/.bin/vsce"));
    let folder = extension();
    node(
        folder.path(),
        "npm",
        &["ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund"],
    );
    node(folder.path(), "node", &["--test"]);
    node(
        folder.path(),
        vsce.to_str().unwrap(),
        &["package", "--out", "konverge.vsix"],
    );
    let listed = node(folder.path(), vsce.to_str().unwrap(), &["ls"]);
    for file in [
        "extension.js",
        "binary.js",
        "package.json",
        "README.md",
        "node_modules/vscode-languageclient/node.js",
    ] {
        assert!(listed.lines().any(|line| line == file), "{file}\n{listed}");
    }
    assert!(
        !listed.contains("test")
            || listed
                .lines()
                .all(|line| line.starts_with("node_modules/") || !line.contains("test")),
        "{listed}"
    );
    assert!(folder.path().join("konverge.vsix").metadata().unwrap().len() > 10_000);
}

/// What a folder must not decide: whether the server runs, and which program it is.
#[test]
fn the_extension_does_not_run_in_a_folder_that_is_not_trusted() {
    let text = fs::read_to_string(root().join("editors/vscode/package.json")).unwrap();
    let manifest: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        manifest["capabilities"]["untrustedWorkspaces"]["supported"],
        false
    );
    let path = &manifest["contributes"]["configuration"]["properties"]["konverge.path"];
    assert_eq!(path["scope"], "machine");
    assert_eq!(manifest["version"], env!("CARGO_PKG_VERSION"));
    let commands = manifest["contributes"]["commands"].to_string();
    assert!(
        !commands.contains("apply") && !commands.contains("destroy"),
        "{commands}"
    );
}
