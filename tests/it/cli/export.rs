//! `konverge export`: the files, what is said about them, and the artifact in a registry.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::support::{git::Repository, process::Konverge, stores::Registry, tiny_monorepo};

/// Writes a Spec file of these resources.
pub(super) fn spec_file(folder: &Path, name: &str, resources: &[Value]) -> PathBuf {
    let file = folder.join(format!("{name}.json"));
    fs::write(&file, json!({"resources": resources}).to_string()).unwrap();
    file
}

pub(super) fn resource(id: &str, attributes: Value, depends_on: &[&str]) -> Value {
    json!({"id": id, "type": "Kubernetes", "attributes": attributes, "dependsOn": depends_on})
}

pub(super) fn config(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}, "data": data})
}

fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": "default"}})
}

pub(super) fn export(folder: &Path, arguments: &[&str]) -> Konverge {
    Konverge::new(["export"]).arg_all(arguments).dir(folder)
}

/// Every file below a folder, by its path.
pub(super) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path)
            } else {
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

pub(super) fn document(stack: &Path) -> Value {
    serde_json::from_slice(&fs::read(stack.join("konverge.json")).unwrap()).unwrap()
}

#[test]
fn what_is_not_carried_is_said_and_nothing_is_half_written() {
    let folder = tempfile::tempdir().unwrap();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}, "stringData": {"p": "hunter2hunter2"}});
    let mut bucket = resource("aws:b", json!({"a": 1}), &[]);
    bucket["type"] = json!("Terraform");
    bucket["extensions"] =
        json!({"provider": "registry.terraform.io/hashicorp/aws/5.0.0", "resourceType": "aws_s3_bucket"});
    let user = config(
        "c",
        json!({"bucket": "$kusion_path.aws:b.arn", "password": "words of a friend"}),
    );
    let all = [
        bucket,
        resource("v1:Secret:default:s", secret, &[]),
        resource("v1:ConfigMap:default:c", user, &["v1:Secret:default:s"]),
        resource("v1:Service:default:w", object("v1", "Service", "w"), &[]),
        resource(
            "batch/v1:Job:default:j",
            object("batch/v1", "Job", "j"),
            &["v1:Service:default:w"],
        ),
    ];
    spec_file(folder.path(), "all", &all);
    let to_out = |arguments: &[&str]| {
        export(
            folder.path(),
            &[arguments, &["--spec", "all.json", "--to", "out"]].concat(),
        )
    };

    let refused = to_out(&["helm"]).run().expect(1);
    assert!(
        refused.stderr.contains("`aws:b` is a Terraform resource")
            && refused.stderr.contains("--leave-out terraform"),
        "{}",
        refused.stderr
    );
    let refused = to_out(&["argocd", "--leave-out", "terraform"]).run().expect(1);
    for said in [
        "`v1:Secret:default:s` holds data of a Secret at `/stringData/p`",
        "that only an apply knows: `aws:b.arn`",
        "konverge export helm",
    ] {
        assert!(refused.stderr.contains(said), "{}", refused.stderr);
    }
    assert!(!folder.path().join("out").exists());

    let written = to_out(&["helm", "--leave-out", "terraform"]).run().expect(0);
    assert!(
        written.stdout.starts_with("spec/all: 4 objects in 2 levels to "),
        "{}",
        written.stdout
    );
    for said in [
        "left out (terraform): aws:b",
        "order lost: aws:b comes before v1:ConfigMap:default:c, and one of them is left out (reference)",
        "wait lost: batch/v1:Job:default:j does not wait until v1:Service:default:w is ready (dependsOn)",
        "required value: v1:Secret:default:s/stringData/p in `secrets`",
        "required value: aws:b.arn in `references`",
        "carried in clear although it looks like a secret: v1:ConfigMap:default:c at /data/password",
    ] {
        assert!(written.stderr.contains(said), "{said} in {}", written.stderr);
    }
    let stack = folder.path().join("out/spec-all");
    let first = files(&stack);
    assert!(
        first
            .values()
            .all(|content| !String::from_utf8_lossy(content).contains("hunter2"))
    );
    assert_eq!(
        document(&stack)["leftOut"],
        json!([{"id": "aws:b", "because": "terraform"}])
    );

    // The same again gives the same bytes, and what an earlier export left is gone.
    fs::write(stack.join("old.yaml"), "x").unwrap();
    to_out(&["helm", "--leave-out", "terraform"]).run().expect(0);
    assert_eq!(files(&stack), first);
    assert_eq!(fs::read_dir(folder.path().join("out")).unwrap().count(), 1);
}

#[test]
fn bad_input_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    spec_file(
        folder.path(),
        "a",
        &[resource("v1:ConfigMap:default:a", config("a", json!({})), &[])],
    );
    let says = |arguments: &[&str], code: i32, words: &[&str]| {
        let outcome = export(folder.path(), arguments).run().expect(code);
        for word in words {
            assert!(
                outcome.stderr.contains(word),
                "{arguments:?}: {word} in {}",
                outcome.stderr
            );
        }
    };
    says(&[], 64, &["Usage: konverge export"]);
    says(
        &["chart", "--spec", "a.json", "--to", "x"],
        64,
        &["invalid value 'chart'", "helm"],
    );
    says(&["helm", "--spec", "a.json"], 64, &["--to"]);
    says(&["helm", "--all", "--to", "x"], 1, &["not in a git repository"]);
    says(
        &["helm", "--spec", "a.json", "--to", "oci://ghcr.io/a:1"],
        64,
        &["helm push"],
    );
    says(
        &["flux", "--spec", "a.json", "--to", "https://ghcr.io/a:1"],
        64,
        &["oci://"],
    );
    says(
        &["flux", "--spec", "a.json", "--to", "oci://ghcr.io/a"],
        64,
        &["has no tag", "oci://HOST/NAME:TAG"],
    );
    says(
        &["oam", "--spec", "a.json", "--to", "x", "--source", "https://x/y"],
        64,
        &["argocd"],
    );
    says(
        &["flux", "--spec", "a.json", "--to", "x", "--name", "y"],
        64,
        &["export helm"],
    );
    says(
        &["helm", "--spec", "a.json", "--to", "x", "--name", "A b"],
        64,
        &["`A b` is not a valid chart name", "--name"],
    );
    says(
        &["helm", "--spec", "a.json", "--to", "x", "--chart-version", "v1"],
        64,
        &["`v1` is not a version of a chart", "1.2.3"],
    );
    fs::create_dir_all(folder.path().join("theirs/spec-a")).unwrap();
    fs::write(folder.path().join("theirs/spec-a/mine.txt"), "mine").unwrap();
    says(
        &["helm", "--spec", "a.json", "--to", "theirs"],
        64,
        &["holds no earlier export", "choose an empty folder"],
    );
    assert_eq!(files(&folder.path().join("theirs")).len(), 1);
    fs::write(folder.path().join("file"), "").unwrap();
    says(
        &["helm", "--spec", "a.json", "--to", "file"],
        64,
        &["cannot be written"],
    );
    // A change proposes a link where a job writes.
    let repository = Repository::init();
    let elsewhere = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), repository.path().join("deploy")).unwrap();
    fs::copy(folder.path().join("a.json"), repository.path().join("a.json")).unwrap();
    for to in ["deploy", "deploy/x"] {
        let outcome = export(repository.path(), &["helm", "--spec", "a.json", "--to", to])
            .run()
            .expect(64);
        assert!(
            outcome.stderr.contains("through a link of the repository"),
            "{}",
            outcome.stderr
        );
    }
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn stacks_of_a_commit_are_written_each_into_a_folder() {
    let repository = Repository::konfig_example();
    let stacks = ["appops/orders/dev", "appops/orders/prod"];
    let run = |target: &str| {
        let arguments = [&[target], &stacks[..], &["--rev", "HEAD", "--to", "out"]].concat();
        export(repository.path(), &arguments).with_kcl().run()
    };
    let refused = run("flux").expect(1);
    assert!(refused.stderr.contains("data of a Secret"), "{}", refused.stderr);
    run("helm").expect(0);
    for stack in ["orders-dev", "orders-prod"] {
        let document = document(&repository.path().join("out").join(stack));
        assert_eq!(document["commit"], repository.rev("HEAD"), "{stack}");
        assert!(
            document["values"]
                .as_array()
                .is_some_and(|values| !values.is_empty()),
            "{stack}"
        );
    }
    // Another tool in the same place would mix both.
    let refused = export(
        repository.path(),
        &[
            "crossplane",
            stacks[0],
            "--rev",
            "HEAD",
            "--to",
            "out",
            "--leave-out",
            "secrets",
        ],
    );
    let refused = refused.with_kcl().run().expect(64);
    assert!(refused.stderr.contains("for the same tool"), "{}", refused.stderr);
}

/// Which files Argo CD takes for a change of an application, as its code compares.
fn argo_matches(value: &str, file: &str) -> bool {
    let file = format!("/{file}");
    value.split(';').any(|item| {
        let folder = item.trim_end_matches('/');
        let inside = file == folder
            || file
                .strip_prefix(folder)
                .is_some_and(|rest| rest.starts_with('/'));
        let code = item.strip_suffix("/*.k").is_some_and(|folder| {
            let name = file.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
            name.is_some_and(|name| name.ends_with(".k") && !name.contains('/'))
        });
        inside || code
    })
}

#[test]
fn argo_cd_watches_exactly_what_affects_a_stack() {
    let repository = Repository::konfig_example();
    let run = |arguments: &[&str]| {
        Konverge::new(["affected"])
            .arg_all(arguments)
            .dir(repository.path())
            .with_kcl()
            .run()
    };
    let printed = run(&["appops/orders/dev", "--output", "argocd-paths"])
        .expect(0)
        .stdout;
    let (stack, value) = printed.trim_end().split_once('\t').unwrap();
    assert_eq!(stack, "orders/dev");
    let tracked = repository.git(["ls-files"]);
    let (mut watched, mut others) = (0, 0);
    for file in tracked.lines().filter(|file| !file.contains("golden")).step_by(7) {
        let before = repository.read(file);
        let comment = if file.ends_with(".json") {
            " \n"
        } else {
            "\n# another line\n"
        };
        repository.write(file, format!("{before}{comment}"));
        let changed = run(&["--worktree", "--base", "HEAD", "--output", "json"]);
        repository.write(file, before);
        if changed.code != Some(0) {
            continue;
        }
        let stacks = changed.json();
        let affects = stacks["stacks"]
            .as_array()
            .unwrap()
            .iter()
            .any(|stack| stack["id"] == "orders/dev");
        let is_watched = argo_matches(value, file);
        assert!(
            !affects || is_watched,
            "{file} affects the stack and is not watched:\n{value}"
        );
        // A pattern cannot leave out the tests of a package, and a comment in YAML is no change.
        let is_known = file.ends_with("_test.k") || file.ends_with(".yaml");
        assert!(
            affects || !is_watched || is_known,
            "{file} is watched and does not affect the stack:\n{value}"
        );
        watched += u32::from(affects);
        others += u32::from(!argo_matches(value, file));
    }
    assert!(watched > 1 && others > 10, "{watched} {others}");
    let refused = run(&["appops/orders/dev"]).expect(64);
    assert!(refused.stderr.contains("argocd-paths"), "{}", refused.stderr);
    let all = run(&["--all", "--output", "argocd-paths"]).expect(0).stdout;
    assert!(
        all.lines().count() >= 16 && all.lines().all(|line| line.contains('\t')),
        "{all}"
    );
}

#[tokio::test]
async fn an_artifact_has_one_digest_and_a_tag_one_content() {
    let registry = Registry::start();
    let folder = tempfile::tempdir().unwrap();
    spec_file(
        folder.path(),
        "a",
        &[resource(
            "v1:ConfigMap:default:a",
            config("a", json!({"x": "1"})),
            &[],
        )],
    );
    let url = format!("oci://{}/acme/a:1", registry.host());
    let push = |url: &str| export(folder.path(), &["argocd", "--spec", "a.json", "--to", url]).run();
    let first = push(&url).expect(0).stdout;
    let digest = first.trim_end().rsplit_once('@').unwrap().1.to_owned();
    assert!(digest.starts_with("sha256:"), "{first}");
    assert!(
        push(&url)
            .expect(0)
            .stdout
            .contains(&format!("{digest} (unchanged)"))
    );
    assert!(
        push(&url.replace(":1", ":2").replace("/a:2", "/b:2"))
            .expect(0)
            .stdout
            .contains(&digest),
        "another tag, the same digest"
    );

    // Two at the same moment: both end well, with the same.
    let both: Vec<_> = (0..2)
        .map(|_| {
            export(
                folder.path(),
                &["argocd", "--spec", "a.json", "--to", &url.replace("a:1", "c:1")],
            )
            .start()
        })
        .collect();
    for run in both {
        assert!(run.wait().expect(0).stdout.contains(&digest));
    }
    // Other readers find one layer of the type that Argo CD knows, and in it what was written.
    use oci_client::{
        Client, Reference,
        client::{ClientConfig, ClientProtocol},
        secrets::RegistryAuth,
    };
    let client = Client::new(ClientConfig {
        protocol: ClientProtocol::Http,
        ..ClientConfig::default()
    });
    let image: Reference = url.trim_start_matches("oci://").parse().unwrap();
    let kind = "application/vnd.oci.image.layer.v1.tar+gzip";
    let pulled = client
        .pull(&image, &RegistryAuth::Anonymous, vec![kind])
        .await
        .unwrap();
    assert_eq!(
        (pulled.digest.as_deref(), pulled.layers.len()),
        (Some(digest.as_str()), 1)
    );
    let archive = folder.path().join("layer.tgz");
    fs::write(&archive, &pulled.layers[0].data).unwrap();
    let listed = Command::new("tar")
        .args(["-tzf", archive.to_str().unwrap()])
        .output()
        .unwrap()
        .stdout;
    let listed = String::from_utf8(listed).unwrap();
    assert_eq!(
        listed,
        "manifests/\nmanifests/000/\nkonverge.json\nmanifests/000/configmap-default-a.yaml\n"
    );

    spec_file(
        folder.path(),
        "a",
        &[resource(
            "v1:ConfigMap:default:a",
            config("a", json!({"x": "2"})),
            &[],
        )],
    );
    let refused = push(&url).expect(1);
    assert!(
        refused.stderr.contains("exists with other content") && refused.stderr.contains("another tag"),
        "{}",
        refused.stderr
    );
    let nobody = push("oci://127.0.0.1:1/a/b:1").expect(1);
    assert!(
        nobody.stderr.contains("the registry `127.0.0.1:1`"),
        "{}",
        nobody.stderr
    );
}

#[test]
fn the_same_spec_at_another_commit_is_the_same_artifact() {
    let registry = Registry::start();
    let repository = tiny_monorepo::monorepo();
    tiny_monorepo::write_stack(&repository, "app/dev", "app", "info");
    let first = repository.commit("A stack");
    let second = repository.write("README.md", "Words.\n").commit("Words");
    assert_ne!(first, second);
    let digest = |commit: &str, tag: &str| {
        let url = format!("oci://{}/acme/app:{tag}", registry.host());
        let arguments = ["argocd", "app/dev", "--rev", commit, "--to", &url];
        let pushed = export(repository.path(), &arguments).with_kcl().run().expect(0);
        let (_, digest) = pushed.stdout.trim_end().rsplit_once('@').unwrap();
        digest.trim_end_matches(" (unchanged)").to_owned()
    };
    assert_eq!(digest(&first, "1"), digest(&second, "2"));
    tiny_monorepo::write_stack(&repository, "app/dev", "app", "debug");
    let third = repository.commit("Another Spec");
    assert_ne!(digest(&second, "2"), digest(&third, "3"));
}

#[test]
fn a_push_to_a_silent_registry_ends_with_a_stop_request() {
    let folder = tempfile::tempdir().unwrap();
    spec_file(
        folder.path(),
        "a",
        &[resource("v1:ConfigMap:default:a", config("a", json!({})), &[])],
    );
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("oci://{}/a/b:1", silent.local_addr().unwrap());
    let run = export(folder.path(), &["argocd", "--spec", "a.json", "--to", &url]).start();
    let (_connection, _) = silent.accept().unwrap();
    run.signal(nix::sys::signal::Signal::SIGINT);
    run.wait().expect(130);
}
