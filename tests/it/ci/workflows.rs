//! Every workflow and action, ours and those that the docs show, as GitHub reads them (actionlint) and for what is
//! unsafe in them (zizmor).

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use crate::{
    meta::docs::{blocks, pages, root},
    support::{
        executable,
        git::Repository,
        process::{Konverge, Outcome},
        tiny_monorepo::write_program,
    },
};

/// Our own, and the example's.
fn workflows() -> Vec<PathBuf> {
    let folders = [".github/workflows", "konfig-example/.github/workflows"];
    let files = folders
        .iter()
        .flat_map(|folder| fs::read_dir(root().join(folder)).unwrap());
    let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// The workflow of `init` with a change of a guide: a job that it has keeps its other keys, and its checkout.
fn in_the_workflow_of_init(change: &str) -> String {
    let text = fs::read_to_string(root().join("src/commands/init/workflow.yml")).unwrap();
    let mut workflow: Value = konverge_base::yaml::from_str(&text).unwrap();
    let change: Value = konverge_base::yaml::from_str(change).unwrap();
    for (name, change) in change["jobs"].as_object().unwrap() {
        let job = &mut workflow["jobs"][name];
        let checkout = job["steps"][0].clone();
        for (key, value) in change.as_object().unwrap() {
            match (key.as_str(), &mut job[key]) {
                ("permissions", Value::Object(keys)) => keys.extend(value.as_object().unwrap().clone()),
                ("steps", Value::Array(steps)) => {
                    *steps = vec![checkout.clone()];
                    steps.extend(value.as_array().unwrap().clone());
                }
                (_, place) => *place = value.clone(),
            }
        }
    }
    let jobs = json!({"jobs": workflow["jobs"].take()});
    // The rest as it is written: what a library makes of it has another order, and other quotes.
    let (head, _) = text.split_once("\njobs:\n").unwrap();
    let head = &head[head.find("name:").unwrap()..];
    format!("{head}\n{}", konverge_base::yaml::to_string(&jobs))
}

/// The workflows that the docs show, written to a folder.
fn shown(folder: &Path) -> Vec<PathBuf> {
    let folder = folder.join(".github/workflows");
    fs::create_dir_all(&folder).unwrap();
    let mut files = Vec::new();
    for page in pages() {
        for block in blocks(&fs::read_to_string(&page).unwrap(), "yaml") {
            // One with an omission is a sketch.
            let block = if block.starts_with("jobs:\n") && !block.contains("# …") {
                in_the_workflow_of_init(&block)
            } else {
                block
            };
            if block.starts_with("name:") && block.contains("\njobs:") {
                let name = page.file_stem().unwrap().to_string_lossy().into_owned();
                files.push(folder.join(format!("{name}-{}.yml", files.len())));
                fs::write(files.last().unwrap(), format!("{block}\n")).unwrap();
            }
        }
    }
    files
}

/// The parts of workflows that the docs show, without a name: with what a page leaves out, because its reader has that
/// already.
fn parts(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for page in pages() {
        for block in blocks(&fs::read_to_string(&page).unwrap(), "yaml") {
            if !block.starts_with("on:") || !block.contains("\njobs:") {
                continue;
            }
            let mut workflow: Value = konverge_base::yaml::from_str(&block).unwrap();
            let workflow_keys = workflow.as_object_mut().unwrap();
            workflow_keys.entry("on").or_insert_with(|| json!({"push": {}}));
            for job in workflow_keys["jobs"].as_object_mut().unwrap().values_mut() {
                if job.is_null() {
                    *job = json!({});
                }
                let job = job.as_object_mut().unwrap();
                job.entry("runs-on").or_insert_with(|| json!("ubuntu-latest"));
                if job.get("steps").is_none_or(Value::is_null) {
                    job.insert("steps".to_owned(), json!([{"run": "true"}]));
                }
            }
            let name = page.file_stem().unwrap().to_string_lossy().into_owned();
            files.push(folder.join(format!("{name}-part-{}.yml", files.len())));
            fs::write(files.last().unwrap(), workflow.to_string()).unwrap();
        }
    }
    files
}

fn actionlint(files: &[PathBuf]) -> Outcome {
    Konverge::of(
        &executable("actionlint", "actionlint"),
        ["-no-color", "-shellcheck=", "-pyflakes="],
    )
    .arg_all(files)
    .run()
}

fn zizmor(files: &[PathBuf]) -> Outcome {
    Konverge::of(
        &executable("zizmor", "zizmor"),
        ["--offline", "--no-progress", "--config"],
    )
    .arg(root().join(".github/zizmor.yml"))
    .arg_all(files)
    .run()
}

#[test]
fn workflows_and_actions_are_sound() {
    let folder = tempfile::tempdir().unwrap();
    let mut files = workflows();
    let ours = files.len();
    files.extend(shown(folder.path()));
    assert!(files.len() >= ours + 8, "{files:?}");
    let parts = parts(folder.path());
    assert!(!parts.is_empty(), "{parts:?}");
    let read = actionlint(&[&files[..], &parts[..]].concat());
    assert!(read.code == Some(0), "{}\n{}", read.stdout, read.stderr);
    files.extend(
        ["action.yml", "action/setup/action.yml", ".github/dependabot.yml"].map(|file| root().join(file)),
    );
    let judged = zizmor(&files);
    assert!(judged.code == Some(0), "{}\n{}", judged.stdout, judged.stderr);
}

/// The workflow that `init` wrote, which both tools find sound.
fn sound_workflow(monorepo: &Repository) -> serde_json::Value {
    let files = [monorepo.path().join(".github/workflows/konverge.yml")];
    for judged in [actionlint(&files), zizmor(&files)] {
        assert!(judged.code == Some(0), "{}\n{}", judged.stdout, judged.stderr);
    }
    konverge_base::yaml::from_str(&fs::read_to_string(&files[0]).unwrap()).unwrap()
}

/// What `init` writes for a cloud: each job may ask for a token, and has an identity of its own.
#[test]
fn the_workflow_for_a_cloud_is_sound_and_each_job_logs_in() {
    for (cloud, store, shared, identity, kind) in [
        (
            "aws",
            "s3://my-bucket/konverge",
            &["AWS_REGION"][..],
            "AWS_ROLE_ARN",
            "ROLE",
        ),
        (
            "google",
            "gs://my-bucket/konverge",
            &["GOOGLE_WORKLOAD_IDENTITY_PROVIDER"],
            "GOOGLE_SERVICE_ACCOUNT_EMAIL",
            "ACCOUNT",
        ),
        (
            "azure",
            "az://my-container/konverge",
            &["AZURE_TENANT_ID", "AZURE_STORAGE_ACCOUNT_NAME"],
            "AZURE_CLIENT_ID",
            "CLIENT",
        ),
    ] {
        let monorepo = Repository::init();
        monorepo
            .write("kcl.mod", "[package]\nname = \"konfig\"\n")
            .commit("No stack yet");
        let options = ["--cloud", cloud, "--store", store, "--cluster", "prod"];
        let init = Konverge::new(["init"].iter().chain(&options))
            .dir(monorepo.path())
            .run()
            .expect(0);
        let workflow = sound_workflow(&monorepo);
        for job in ["preview", "apply", "drift"] {
            let variable = format!("KONVERGE_{}_{kind}", job.to_uppercase());
            let job = &workflow["jobs"][job];
            assert_eq!(job["permissions"]["id-token"], "write");
            let step = &job["steps"][1];
            assert_eq!(step["env"][identity], format!("${{{{ vars.{variable} }}}}"));
            assert_eq!(step["with"]["kubeconfig"], "${{ vars.KUBECONFIG }}");
            for name in shared {
                assert_eq!(step["env"][name], format!("${{{{ vars.{name} }}}}"));
            }
            // What is to be set is said, and set by the commands of a guide.
            for name in shared.iter().copied().chain([variable.as_str()]) {
                assert!(init.stderr.contains(name), "{name}: {}", init.stderr);
                assert!(is_set_by_a_guide(name), "{name}");
            }
        }
        let config = konverge_config::Config::parse(&monorepo.read("konverge.yaml")).unwrap();
        assert_eq!(config.state.url.as_deref(), Some(store));
        let cluster = config.clusters.values().next().unwrap();
        assert_eq!(cluster.context.as_deref(), Some("prod"));
    }
}

/// Whether a guide sets this variable of the repository.
fn is_set_by_a_guide(name: &str) -> bool {
    let command = format!("gh variable set {name} --body ");
    let texts = pages().into_iter().map(|page| fs::read_to_string(page).unwrap());
    texts.into_iter().any(|text| text.contains(&command))
}

#[test]
fn init_refuses_what_is_not_the_address_of_a_store() {
    let monorepo = Repository::init();
    let refused = Konverge::new(["init", "--store", "my bucket"])
        .dir(monorepo.path())
        .run();
    assert!(
        refused
            .expect(64)
            .stderr
            .contains("is not the address of a store")
    );
}

/// What `init` writes for environments: a job for each, and rules for the stacks whose folders have their names.
#[test]
fn the_workflow_for_environments_is_sound_and_its_rules_fit() {
    for cloud in [&[][..], &["--cloud", "aws"], &["--cloud", "google"]] {
        let monorepo = Repository::init();
        monorepo.write("kcl.mod", "[package]\nname = \"konfig\"\n");
        for stack in ["shop/dev", "shop/prod"] {
            write_program(&monorepo, stack, "resources = []\n");
        }
        monorepo.commit("Two stacks");
        let options = ["init", "--no-install", "--environments", "dev,production,edge"];
        let init = Konverge::new(options.iter().chain(cloud))
            .dir(monorepo.path())
            .run();
        init.expect(0);
        let workflow = sound_workflow(&monorepo);
        let apply = &workflow["jobs"]["apply"];
        let names = serde_json::json!(["dev", "production", "edge"]);
        assert_eq!(apply["strategy"]["matrix"]["environment"], names);
        let with = &apply["steps"][1]["with"];
        assert_eq!(with["for-environment"], "${{ matrix.environment }}");
        let config = monorepo.read("konverge.yaml");
        let parsed = konverge_config::Config::parse(&config).unwrap();
        assert_eq!(parsed.environments(), ["dev", "production"], "{config}");
        assert!(config.contains("#   environment: edge"), "{config}");
    }
    let refused = Konverge::new(["init", "--environments", "dev,dev"])
        .dir(Repository::init().path())
        .run();
    refused.expect(64);
}

/// Both tools see what they are here for.
#[test]
fn what_is_wrong_in_a_workflow_is_seen() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.yml");
    let text = "name: bad\non: pull_request_target\njobs:\n  bad:\n    runs-on: ubuntu-24.04\n    steps:\n      - uses: actions/checkout@v5\n        with: {ref: \"${{ github.event.pull_request.head.sha }}\", fetch: 0}\n      - run: echo \"${{ github.event.pull_request.title }}\"\n";
    fs::write(&file, text).unwrap();
    let read = actionlint(std::slice::from_ref(&file));
    assert!(read.stdout.contains("potentially untrusted"), "{}", read.stdout);
    let judged = zizmor(&[file]);
    for finding in [
        "dangerous-triggers",
        "unpinned-uses",
        "template-injection",
        "excessive-permissions",
    ] {
        assert!(judged.stdout.contains(finding), "{finding}: {}", judged.stdout);
    }
}
