//! The GitHub actions: inputs reach the program, the metadata matches the documentation, and the setup action installs
//! only the released archive.

use std::{fmt::Write as _, fs, path::Path, process::Command};

use axum::{
    Router,
    http::{StatusCode, Uri},
};
use serde_json::Value;

use crate::{
    meta::docs::root,
    support::{executable, git::Repository, process::Konverge},
};

/// The action's inputs reach the program through the environment that the runner sets.
#[test]
fn inputs_of_the_action_are_obeyed() {
    let monorepo = Repository::konfig_example();
    let elsewhere = tempfile::tempdir().unwrap();
    let folder = monorepo.path().file_name().unwrap().to_owned();
    let outcome = Konverge::new(["build", "storefront/dev"])
        .with_kcl()
        .dir(monorepo.path().parent().unwrap())
        .env("INPUT_WORKING-DIRECTORY", &folder)
        .env("INPUT_REVIEW-KEY", "")
        .run();
    let outcome = outcome.expect(0);
    assert!(outcome.stdout.contains("Deployment"), "{}", outcome.stdout);
    let wrong = Konverge::new(["ci"])
        .dir(elsewhere.path())
        .env("INPUT_LIVE", "perhaps")
        .run();
    let wrong = wrong.expect(64);
    assert!(wrong.stderr.contains("perhaps"), "{}", wrong.stderr);
    let wrong = Konverge::new(["ci"])
        .dir(elsewhere.path())
        .env("INPUT_COMMENT", "sometimes")
        .run();
    let wrong = wrong.expect(64);
    assert!(wrong.stderr.contains("`changes`"), "{}", wrong.stderr);
    // An expression that gives nothing must not mean every environment. The default of the action does.
    for (name, given) in [("INPUT_FOR-ENVIRONMENT", ""), ("KONVERGE_FOR_ENVIRONMENT", " ")] {
        let wrong = Konverge::new(["ci"]).dir(elsewhere.path()).env(name, given).run();
        let wrong = wrong.expect(64);
        assert!(
            wrong
                .stderr
                .contains("`for-environment` (KONVERGE_FOR_ENVIRONMENT) is empty"),
            "{}",
            wrong.stderr
        );
    }
    let default = metadata("action.yml")["inputs"]["for-environment"]["default"].clone();
    let all = Konverge::new(["ci"])
        .dir(elsewhere.path())
        .env("INPUT_FOR-ENVIRONMENT", default.as_str().unwrap())
        .run();
    assert!(!all.stderr.contains("for-environment"), "{}", all.stderr);
    let inputs = metadata("action.yml")["inputs"].clone();
    let inputs: Vec<_> = inputs.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        inputs,
        [
            "command",
            "github-token",
            "working-directory",
            "live",
            "comment",
            "kubeconfig",
            "shard",
            "shard-result",
            "approve",
            "environment",
            "for-environment",
            "review-key",
            "age-identity"
        ]
    );
}

fn metadata(file: &str) -> Value {
    konverge_base::yaml::from_str(&fs::read_to_string(root().join(file)).unwrap()).unwrap()
}

/// All actions: the metadata file, and the value for `uses:`.
const ACTIONS: [(&str, &str); 2] = [
    ("action.yml", "konverge/konverge"),
    ("action/setup/action.yml", "konverge/konverge/action/setup"),
];

/// docs/reference/action.md, made of the metadata. `KONVERGE_WRITE_REFERENCE=1 cargo test --test it action` writes it.
#[test]
fn the_reference_of_the_actions_is_up_to_date() {
    let mut page = "# Actions\n\nGenerated from the metadata by `KONVERGE_WRITE_REFERENCE=1 cargo test --test it action`. Every input is optional. An output is a text, unless its type is in brackets.\n".to_owned();
    for (file, uses) in ACTIONS {
        let action = metadata(file);
        let text = |value: &Value| value.as_str().unwrap_or_default().trim().to_owned();
        let inputs = action["inputs"].as_object().unwrap();
        assert!(inputs.len() <= 13, "{file}: {} inputs", inputs.len());
        write!(
            page,
            "\n## {uses}\n\n{}\n\nInputs:\n\n",
            text(&action["description"])
        )
        .unwrap();
        for (name, input) in inputs {
            assert!(
                name.bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{name}"
            );
            assert!(!text(&input["description"]).is_empty(), "{name} is not described");
            let default = match text(&input["default"]) {
                none if none.is_empty() => String::new(),
                default => format!(" Default `{default}`."),
            };
            writeln!(page, "- `{name}`: {}{default}", text(&input["description"])).unwrap();
        }
        page.push_str("\nOutputs:\n\n");
        for (name, output) in action["outputs"].as_object().unwrap() {
            let description = text(&output["description"]);
            let typed = description
                .strip_suffix(").")
                .and_then(|text| text.rsplit_once(" ("));
            let (meaning, kind) = typed.unwrap_or_else(|| panic!("{name} has no type: {description}"));
            assert!(
                ["boolean", "integer", "text", "path", "JSON list of texts"].contains(&kind),
                "{name}: {kind}"
            );
            let kind = match kind {
                "text" => String::new(),
                kind => format!(" ({kind})"),
            };
            writeln!(page, "- `{name}`{kind}: {meaning}").unwrap();
        }
    }
    let path = root().join("docs/reference/action.md");
    if std::env::var_os("KONVERGE_WRITE_REFERENCE").is_some() {
        fs::write(&path, &page).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == page,
        "docs/reference/action.md is old"
    );
}

/// The program sets exactly the outputs that the action declares.
#[test]
fn the_outputs_are_those_that_are_set() {
    let mut source = String::new();
    for entry in fs::read_dir(root().join("crates/ci/src")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            source.push_str(&fs::read_to_string(path).unwrap());
        }
    }
    let action = metadata("action.yml");
    for name in action["outputs"].as_object().unwrap().keys() {
        assert!(source.contains(&format!("\"{name}\"")), "nothing sets {name}");
    }
}

/// A release as the workflow makes it, pinned as the workflow pins it, installed by the composite action as a runner
/// runs it (`act`, on this machine). An archive with another checksum is refused.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the part `act`: make test-all"]
async fn the_setup_action_installs_what_was_released() {
    let (version, target) = (env!("CARGO_PKG_VERSION"), "x86_64-unknown-linux-gnu");
    let name = format!("konverge-{version}-{target}");
    let work = tempfile::tempdir().unwrap();
    let dist = work.path().join(format!("dist/v{version}"));
    fs::create_dir_all(dist.join(&name)).unwrap();
    fs::copy(env!("CARGO_BIN_EXE_konverge"), dist.join(&name).join("konverge")).unwrap();
    let archive = dist.join(format!("{name}.tar.gz"));
    let pack = |dist: &Path| {
        let packed = Command::new("tar")
            .arg("-czf")
            .arg(&archive)
            .arg("-C")
            .arg(dist)
            .arg(&name)
            .status();
        assert!(packed.unwrap().success());
    };
    pack(&dist);

    let repository = Repository::init();
    for file in [
        "action.yml",
        "action/setup/action.yml",
        "action/setup/install",
        "action/setup/checksums.txt",
        "scripts/pin-release",
    ] {
        repository.write(file, fs::read(root().join(file)).unwrap());
        let mode = fs::metadata(root().join(file)).unwrap().permissions();
        fs::set_permissions(repository.path().join(file), mode).unwrap();
    }
    let url = serve(work.path().join("dist")).await;
    repository.write(
        ".github/workflows/try.yml",
        format!("name: try\non: push\npermissions: {{}}\njobs:\n  try:\n    runs-on: ubuntu-24.04\n    steps:\n      - uses: actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8\n      - id: setup\n        uses: ./action/setup\n        with: {{download-url: '{url}', kcl: none}}\n      - run: '\"$FOLDER/konverge\" --version && konverge affected --help'\n        env:\n          FOLDER: ${{{{ steps.setup.outputs.path }}}}\n"),
    );
    repository.git(["remote", "add", "origin", "https://github.com/konverge/konverge"]);
    repository.commit("The actions");
    let image = format!("ghcr.io/konverge/konverge@sha256:{}", "0".repeat(64));
    let pinned = Konverge::of(&repository.path().join("scripts/pin-release"), [version, &image])
        .arg(&dist)
        .dir(repository.path())
        .run()
        .expect(0);
    assert!(
        pinned.stdout.contains(&format!("Release {version}")),
        "{}",
        pinned.stdout
    );
    assert!(
        repository
            .read("action.yml")
            .contains(&format!("image: docker://{image}"))
    );

    let act = || {
        let dir = repository.path().to_owned();
        tokio::task::spawn_blocking(move || {
            Konverge::of(
                &executable("act", "act"),
                [
                    "push",
                    "-P",
                    "ubuntu-24.04=-self-hosted",
                    "--container-daemon-socket",
                    "-",
                ],
            )
            .dir(dir)
            .run()
        })
    };
    let installed = act().await.unwrap().expect(0);
    assert!(
        installed.stdout.contains(&format!("konverge {version}")),
        "{}",
        installed.stdout
    );
    assert!(
        installed.stdout.contains("List the stacks that a change affects"),
        "{}",
        installed.stdout
    );
    fs::write(dist.join(&name).join("konverge"), "#!/bin/sh\n").unwrap();
    pack(&dist);
    let refused = act().await.unwrap().expect(1);
    assert!(
        refused.stdout.contains("is not what was pinned"),
        "{}",
        refused.stdout
    );
    assert!(!refused.stdout.contains("Which stacks"), "{}", refused.stdout);
}

/// The files of a folder over HTTP.
async fn serve(folder: std::path::PathBuf) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(move |uri: Uri| {
        let file = folder.join(uri.path().trim_start_matches('/'));
        async move { fs::read(file).map_err(|_| StatusCode::NOT_FOUND) }
    });
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}
