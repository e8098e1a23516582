//! Modules that are not built in, from the file of an application to its Spec: where their binaries come from, and who
//! may run them.

use serde_json::{Value, json};
use sha2::Digest as _;

use crate::support::{
    apps::{HELLO, HELLO_FILE, hello_binary, write_hello_stack},
    ci_stage::Stage,
    git::Repository,
    process::{Konverge, Outcome},
};

const FOLDER: &str = "example/quickstart/default";
const DEPLOYMENT: &str = "apps/v1:Deployment:quickstart:quickstart-default-quickstart";
const CONFIG_MAP: &str = "v1:ConfigMap:quickstart:quickstart-hello";

fn repository(settings: &str) -> Repository {
    let repository = Repository::init();
    write_hello_stack(&repository, FOLDER, settings);
    repository
}

/// The binary in the folder of its package.
fn vendor_binary(repository: &Repository, folder: &str, more: &[u8]) {
    let mut content = std::fs::read(hello_binary()).unwrap();
    content.extend_from_slice(more);
    repository.write(&format!("{folder}/vendor/hello_0.1.0/{HELLO_FILE}"), content);
}

fn build(repository: &Repository) -> Konverge {
    Konverge::new(["build", FOLDER, "--output=json", "--show-secrets"])
        .dir(repository.path())
        .with_kcl()
}

fn attributes(outcome: &Outcome, id: &str) -> Value {
    let spec = outcome.json();
    let mut resources = spec["resources"].as_array().unwrap().iter();
    let found = resources.find(|resource| resource["id"] == id);
    found.unwrap_or_else(|| panic!("{id} is not in {spec:#}"))["attributes"].clone()
}

fn sha256(content: &[u8]) -> String {
    let hash = sha2::Sha256::digest(content);
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn platform() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "linux-arm64",
        _ => "linux-amd64",
    }
}

#[test]
fn a_module_makes_resources_and_patches_the_workload() {
    let repository = repository("");
    vendor_binary(&repository, FOLDER, b"");
    repository.write(
        "workspaces/default.yaml",
        "modules:\n  hello:\n    path: oci://ghcr.io/acme/hello\n    version: 0.1.0\n    configs:\n      default: {size: 3}\ncontext: {region: somewhere}\n",
    );
    repository.commit("An application with a module");
    let first = build(&repository).run().expect(0);
    let data = &attributes(&first, CONFIG_MAP)["data"];
    assert_eq!(
        *data,
        json!({"context": "region: somewhere\n", "module": "hello", "patched": "yes", "platform": "size: 3\n"})
    );
    let deployment = attributes(&first, DEPLOYMENT);
    assert_eq!(deployment["metadata"]["labels"]["hello"], "yes");
    assert_eq!(deployment["spec"]["template"]["metadata"]["labels"]["pod"], "yes");
    assert_eq!(deployment["spec"]["replicas"], 2);
    // Put in front one by one, in Kubernetes' names.
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"][0]["env"],
        json!([
            {"name": "HELLO_PASSWORD", "valueFrom": {"secretKeyRef": {"name": "hello", "key": "password"}}},
            {"name": "HELLO", "value": "world"},
        ])
    );
    let again = build(&repository).env("KONVERGE_CACHE", "off").run().expect(0);
    assert_eq!(first.stdout, again.stdout);
}

#[test]
fn a_module_s_error_names_the_application_and_the_module() {
    let repository = repository("mode = \"error\"");
    let without = build(&repository).run().expect(1);
    assert!(
        without.stderr.contains(
            "needs the module `hello`: its package (oci://ghcr.io/acme/hello 0.1.0) has no binary for linux/"
        ),
        "{}",
        without.stderr
    );
    vendor_binary(&repository, FOLDER, b"");
    let failed = build(&repository).run().expect(1);
    for part in [
        "`quickstart`",
        "the module `hello`: it returned an error: size: 100% of",
        "gRPC status 3",
        "the platform has no settings for this module: if it needs some, write them into `workspaces/",
        "\"path\":\"oci://ghcr.io/acme/hello\",\"version\":\"0.1.0\"",
    ] {
        assert!(failed.stderr.contains(part), "{part}: {}", failed.stderr);
    }
    let program = format!("{FOLDER}/main.k");
    repository.replace(&program, "mode = \"error\"", "mode = \"not-yaml\"");
    let failed = build(&repository).run().expect(1);
    assert!(
        failed.stderr.contains("returned a resource that cannot be read"),
        "{}",
        failed.stderr
    );
}

#[test]
fn a_folder_of_binaries_is_used_for_what_the_lock_pins() {
    let repository = repository("");
    let store = tempfile::tempdir().unwrap();
    let folder = store
        .path()
        .join(format!("acme/hello/0.1.0/{}", platform().replace('-', "/")));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(hello_binary(), folder.join(HELLO_FILE)).unwrap();
    let build = || build(&repository).env("KUSION_MODULE_PATH", store.path());

    let unpinned = build().run().expect(1);
    let digest = sha256(&std::fs::read(hello_binary()).unwrap());
    let line = format!("binaries = {{ {} = \"{digest}\" }}", platform());
    assert!(
        unpinned.stderr.contains("is not pinned") && unpinned.stderr.contains(&line),
        "{}",
        unpinned.stderr
    );

    let lock = format!("{FOLDER}/kcl.mod.lock");
    repository.write(&lock, format!("[dependencies.hello]\nname = \"hello\"\n{line}\n"));
    let built = build().run().expect(0);
    assert_eq!(attributes(&built, CONFIG_MAP)["data"]["patched"], "yes");

    // What is served under the name is another binary now: nothing of it runs.
    repository.write(
        &lock,
        format!(
            "[dependencies.hello]\nname = \"hello\"\nbinaries = {{ {} = \"sha256:00\" }}\n",
            platform()
        ),
    );
    let moved = build().run().expect(1);
    assert!(
        moved.stderr.contains("and kcl.mod.lock pins sha256:00"),
        "{}",
        moved.stderr
    );

    let inside = repository.path().join("binaries");
    std::fs::create_dir_all(&inside).unwrap();
    let refused = build().env("KUSION_MODULE_PATH", inside).run().expect(1);
    assert!(
        refused.stderr.contains("lies in the repository"),
        "{}",
        refused.stderr
    );
}

#[test]
fn another_binary_or_pin_affects_the_stack() {
    let repository = repository("");
    vendor_binary(&repository, FOLDER, b"");
    repository.commit("With a module");
    let affected = |why: &str| {
        let outcome = Konverge::new(["affected", "--base=HEAD~1", "--output=json"])
            .dir(repository.path())
            .run()
            .expect(0);
        let stacks = outcome.json()["stacks"].clone();
        assert_eq!(stacks.as_array().unwrap().len(), 1, "{stacks:#}");
        assert_eq!(stacks[0]["why"][0]["path"], why, "{stacks:#}");
    };
    vendor_binary(&repository, FOLDER, b"another one");
    repository.commit("Another binary");
    affected(&format!("{FOLDER}/vendor/hello_0.1.0/{HELLO_FILE}"));
    let lock = format!("{FOLDER}/kcl.mod.lock");
    repository.write(
        &lock,
        "[dependencies.hello]\nname = \"hello\"\nbinaries = { linux-amd64 = \"sha256:00\" }\n",
    );
    repository.commit("A pin");
    affected(&lock);
}

/// A fork brings a module's binary of its own: it is not run. What the base has is run for a fork, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_fork_runs_only_the_binaries_of_its_base() {
    let mut stage = Stage::small("").await;
    let preview = |stage: &mut Stage, number: u64, branch: &str, change: &dyn Fn(&Stage)| {
        stage.monorepo.checkout("main").branch(branch);
        change(stage);
        stage.monorepo.commit(branch);
        let (payload, trial) = stage.opened(number, branch, "opened", "mallory/konfig");
        let own = stage.preview(number, &payload, &trial);
        [own.outcome.stdout.as_str(), &own.outcome.stderr, &own.summary].concat()
    };
    let said = preview(&mut stage, 7, "theirs", &|stage| {
        write_hello_stack(&stage.monorepo, FOLDER, "");
        vendor_binary(&stage.monorepo, FOLDER, b"");
    });
    assert!(
        said.contains("this module is not run for this pull request"),
        "{said}"
    );
    assert!(said.contains("ask a maintainer to bring the module in"), "{said}");

    stage.monorepo.checkout("main");
    write_hello_stack(&stage.monorepo, FOLDER, "");
    vendor_binary(&stage.monorepo, FOLDER, b"");
    stage.monorepo.commit("The module is ours");
    let said = preview(&mut stage, 8, "settings", &|stage| {
        write_hello_stack(&stage.monorepo, FOLDER, "mode = \"no-patch\"");
    });
    assert!(!said.contains("is not run"), "{said}");
    assert!(said.contains("quickstart-default-quickstart"), "{said}");
    let said = preview(&mut stage, 9, "another", &|stage| {
        vendor_binary(&stage.monorepo, FOLDER, b"with a backdoor");
    });
    assert!(
        said.contains("this module is not run for this pull request"),
        "{said}"
    );
}

#[test]
fn the_doctor_calls_a_binary_and_says_what_it_answers() {
    let doctor = |arguments: &[&str]| Konverge::new(["doctor"]).arg_all(arguments).run();
    let binary = hello_binary();
    let path = binary.to_str().unwrap();
    let fine = doctor(&["--module", path]).expect(0);
    for part in [
        "handshake: 1|1|unix|",
        "answer: v1:ConfigMap:doctor:app-hello; 1 patchers",
    ] {
        assert!(fine.stdout.contains(part), "{part}: {}", fine.stdout);
    }
    let other = doctor(&["--module", "/bin/true"]).expect(1);
    assert!(
        other
            .stdout
            .contains("it exited before the handshake (exit code 0)"),
        "{}",
        other.stdout
    );
    let nowhere = doctor(&["--module", "mysql"]).expect(1);
    assert!(
        nowhere
            .stdout
            .contains("neither a file nor a module on this machine"),
        "{}",
        nowhere.stdout
    );
    let store = tempfile::tempdir().unwrap();
    let folder = store
        .path()
        .join(format!("acme/hello/0.1.0/{}", platform().replace('-', "/")));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(&binary, folder.join(HELLO_FILE)).unwrap();
    let by_name = Konverge::new(["doctor", "--module", "hello"]).env("KUSION_MODULE_PATH", store.path());
    assert!(by_name.run().expect(0).stdout.contains(HELLO_FILE));
}

/// What a registry serves, by the last part of the path.
async fn answer(
    axum::extract::State(served): axum::extract::State<
        std::sync::Arc<std::collections::HashMap<String, Vec<u8>>>,
    >,
    uri: axum::http::Uri,
) -> axum::response::Response {
    use axum::response::IntoResponse as _;
    let name = uri.path().rsplit('/').next().unwrap_or_default();
    match served.get(name) {
        Some(content) => content.clone().into_response(),
        None => axum::http::StatusCode::NOT_FOUND.into_response(),
    }
}

/// A package with its binary at the tag `0.1.0`: an index with a manifest for this platform and one for another.
fn pushed(binary: &[u8]) -> std::collections::HashMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in HELLO {
        std::fs::write(folder.path().join(path), text).unwrap();
    }
    std::fs::write(folder.path().join(HELLO_FILE), binary).unwrap();
    let tar = std::process::Command::new("tar")
        .args([
            "-C",
            folder.path().to_str().unwrap(),
            "-cz",
            "kcl.mod",
            "hello.k",
            HELLO_FILE,
        ])
        .output()
        .unwrap();
    let archive = tar.stdout;
    let manifest = json!({
        "schemaVersion": 2,
        "config": {"mediaType": "application/vnd.io.kusion.config.v1+json", "digest": sha256(b"{}"), "size": 2},
        "layers": [{"mediaType": "application/vnd.io.kusion.content.v1.tar+gzip", "digest": sha256(&archive), "size": archive.len()}],
    });
    let manifest = manifest.to_string().into_bytes();
    let (os, architecture) = platform().split_once('-').unwrap();
    let entry = |os: &str, architecture: &str, digest: &str| json!({"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": manifest.len(), "platform": {"os": os, "architecture": architecture}});
    let entries = [
        entry("windows", "amd64", &sha256(b"nothing")),
        entry(os, architecture, &sha256(&manifest)),
    ];
    let index = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries});
    std::collections::HashMap::from([
        (sha256(&manifest), manifest),
        (sha256(&archive), archive),
        ("0.1.0".to_owned(), index.to_string().into_bytes()),
    ])
}

async fn serve(served: std::collections::HashMap<String, Vec<u8>>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let router = axum::Router::new()
        .fallback(answer)
        .with_state(std::sync::Arc::new(served));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    host
}

/// From the tag of a registry to the process, and not one step with a binary that the lock does not pin.
#[tokio::test(flavor = "multi_thread")]
async fn a_module_of_a_registry_is_fetched_checked_and_run() {
    use base64::Engine as _;
    let repository = repository("");
    let binary = std::fs::read(hello_binary()).unwrap();
    let host = serve(pushed(&binary)).await;
    std::fs::remove_dir_all(repository.path().join(format!("{FOLDER}/vendor/hello_0.1.0"))).unwrap();
    repository.replace(
        &format!("{FOLDER}/kcl.mod"),
        "oci://ghcr.io/acme/hello",
        &format!("oci://{host}/nested/acme/hello"),
    );
    // Of the names and the contents in the order of their paths.
    let mut files: Vec<(&str, &[u8])> = HELLO
        .iter()
        .map(|(path, text)| (*path, text.as_bytes()))
        .collect();
    files.push((HELLO_FILE, &binary));
    files.sort();
    let sum = |files: &[(&str, &[u8])]| {
        let content: Vec<u8> = files
            .iter()
            .flat_map(|(_, content)| content.iter().copied())
            .collect();
        base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(&content))
    };
    let lock = |sum: &str| {
        repository.write(
            &format!("{FOLDER}/kcl.mod.lock"),
            format!("[dependencies.hello]\nname = \"hello\"\nfull_name = \"hello_0.1.0\"\nversion = \"0.1.0\"\nsum = \"{sum}\"\nreg = \"{host}\"\nrepo = \"nested/acme/hello\"\noci_tag = \"0.1.0\"\n"),
        );
    };
    lock(&sum(&files));
    repository.commit("A module of a registry");
    let home = tempfile::tempdir().unwrap();
    let build = |host: &std::path::Path| build(&repository).env("XDG_CACHE_HOME", host).run();
    let built = build(home.path()).expect(0);
    assert_eq!(attributes(&built, CONFIG_MAP)["data"]["patched"], "yes");

    // The tag was moved, or the lock is of another binary: nothing is unpacked, nothing runs.
    let fresh = tempfile::tempdir().unwrap();
    lock(&sum(&files[..2]));
    let moved = build(fresh.path()).expect(1);
    assert!(
        moved.stderr.contains("hello") && moved.stderr.contains("kcl.mod.lock"),
        "{}",
        moved.stderr
    );

    // Nothing pins it: its KCL is looked up, its binary is not run.
    std::fs::remove_file(repository.path().join(format!("{FOLDER}/kcl.mod.lock"))).unwrap();
    let unlocked = build(fresh.path()).expect(1);
    for part in [
        "its package is not locked, so nothing pins its binary".to_owned(),
        "run `konverge kcl lock`".to_owned(),
    ] {
        assert!(unlocked.stderr.contains(&part), "{}", unlocked.stderr);
    }
    Konverge::new(["kcl", "lock", FOLDER])
        .dir(repository.path())
        .with_kcl()
        .run()
        .expect(0);
    let built = build(fresh.path()).expect(0);
    assert_eq!(attributes(&built, CONFIG_MAP)["data"]["patched"], "yes");
}

#[test]
fn what_a_module_may_do_is_an_input_of_its_stacks() {
    let repository = repository("");
    vendor_binary(&repository, FOLDER, b"");
    repository.commit("With a module");
    let digest = || {
        let outcome = Konverge::new(["affected", "--base=HEAD~1", "--output=json"])
            .dir(repository.path())
            .run();
        outcome.expect(0).json()["stacks"].clone()
    };
    repository.write("konverge.yaml", "version: 1\nmodules: {other: {network: true}}\n");
    repository.commit("Another module has the network");
    assert_eq!(digest(), json!([]));
    repository.write("konverge.yaml", "version: 1\nmodules: {hello: {network: true}}\n");
    repository.commit("This one has it");
    let stacks = digest();
    assert_eq!(stacks.as_array().unwrap().len(), 1, "{stacks:#}");
}
