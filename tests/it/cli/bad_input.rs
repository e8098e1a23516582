//! Wrong input of every kind: what is said, the exit code, and that nothing is left half-written.

use std::path::Path;

use crate::support::{
    cluster::Cluster,
    git::Repository,
    process::{Konverge, Outcome},
    s3::S3,
    tiny_monorepo,
};

fn konverge(monorepo: &Repository, arguments: &[&str]) -> Outcome {
    let state = monorepo.path().join(".git/test-state");
    Konverge::new(arguments)
        .with_kcl()
        .dir(monorepo.path())
        .env("XDG_STATE_HOME", state)
        .run()
}

/// The exit code, and everything that must be said.
fn says(outcome: &Outcome, code: i32, words: &[&str]) {
    assert_eq!(
        outcome.code,
        Some(code),
        "--- stdout\n{}\n--- stderr\n{}",
        outcome.stdout,
        outcome.stderr
    );
    let all = format!("{}\n{}", outcome.stdout, outcome.stderr);
    for word in words {
        assert!(all.contains(word), "`{word}` is not said:\n{all}");
    }
}

fn nothing_written(monorepo: &Repository) {
    assert_eq!(
        monorepo.git(["status", "--porcelain"]),
        "",
        "the working tree was written to"
    );
    assert!(
        !monorepo.path().join(".git/test-state").exists(),
        "state was written"
    );
}

#[test]
fn no_repository_and_no_arguments() {
    let nowhere = tempfile::tempdir().unwrap();
    says(
        &Konverge::new(["preview"]).dir(nowhere.path()).run(),
        1,
        &["not in a git repository", "--repo"],
    );
    says(&Konverge::new::<&str>([]).run(), 64, &["Usage: konverge"]);
    says(&Konverge::new(["previw"]).run(), 64, &["previw", "preview"]);
    says(
        &Konverge::new(["apply", "--live", "sometimes"]).run(),
        64,
        &["sometimes", "leave `--live` out"],
    );
}

#[test]
fn no_kcl_mod() {
    let monorepo = Repository::init();
    monorepo.write("README.md", "nothing here").commit("Empty");
    says(&konverge(&monorepo, &["preview", "--all"]), 1, &["kcl.mod"]);
    nothing_written(&monorepo);
}

#[test]
fn an_unknown_revision_and_an_unknown_stack() {
    let monorepo = Repository::konfig_example();
    says(
        &konverge(&monorepo, &["preview", "--rev", "nowhere"]),
        1,
        &["nowhere"],
    );
    says(
        &konverge(&monorepo, &["preview", "storefront/prd", "--live", "never"]),
        64,
        &["storefront/prd", "did you mean `storefront/prod`"],
    );
    nothing_written(&monorepo);
}

/// Wrong usage, whichever command it is and whatever it asks first.
#[test]
fn an_unknown_stack_and_a_missing_file_end_with_the_same_code_everywhere() {
    let monorepo = Repository::konfig_example();
    monorepo
        .write("konverge.yaml", "version: 1\nclusters: {dev: {}}\n")
        .commit("A cluster");
    for command in [
        "apply", "build", "check", "destroy", "drift", "preview", "set", "status", "test",
    ] {
        let mut arguments = vec![command, "no/such"];
        if command == "set" {
            arguments.push("image=nginx:1");
        }
        let outcome = konverge(&monorepo, &arguments);
        assert_eq!(outcome.code, Some(64), "{command}: {}", outcome.stderr);
    }
    let unlock = ["unlock", "no/such", "--lease", "a", "--reason", "b"];
    for arguments in [
        &["show", "no/such"][..],
        &["show", "no/such", "--serial", "1"],
        &["history", "no/such"],
        &["diff", "no/such", "1", "2"],
        &["rollback", "no/such", "--to", "1"],
        &["pull", "no/such"],
        &["move", "no/such", "not/there"],
        &["forget", "no/such", "--yes"],
        &["rebind", "no/such"],
        &unlock,
    ] {
        let outcome = konverge(&monorepo, &[&["state"], arguments].concat());
        says(&outcome, 64, &["nothing is recorded for stack `no/such`"]);
    }
    // Asking leaves no document behind.
    says(&konverge(&monorepo, &["state", "list"]), 0, &[]);
    assert_eq!(
        konverge(&monorepo, &["state", "list"])
            .stdout
            .matches("no/such")
            .count(),
        0
    );
    for arguments in [
        &["health", "nowhere.yaml"][..],
        &["state", "push", "no/such", "nowhere.json"],
    ] {
        says(&konverge(&monorepo, arguments), 64, &["No such file"]);
    }
    let without = Repository::init();
    without
        .write("kcl.mod", "[package]\nname = \"a\"\n")
        .commit("No file");
    says(&konverge(&without, &["config", "check"]), 64, &["konverge init"]);
}

#[test]
fn a_wrong_key_in_konverge_yaml_is_named_with_its_line() {
    let monorepo = Repository::konfig_example();
    monorepo
        .write("konverge.yaml", "version: 1\nstat:\n  url: s3://x\n")
        .commit("A slip");
    says(
        &konverge(&monorepo, &["preview", "--all"]),
        1,
        &["stat", "konverge.yaml:2", "did you mean `state`"],
    );
}

#[test]
fn a_kcl_error_and_a_broken_stack_take_no_other_stack_down() {
    let monorepo = Repository::konfig_example();
    monorepo
        .replace(
            "appops/storefront/dev/main.k",
            "server: frontend.Server {",
            "server: frontend.Server {\n    replicas = \"many\"",
        )
        .write("appops/reports/dev/stack.yaml", "name: [")
        .replace(
            "appops/orders/base/base.k",
            "LOG_LEVEL = \"info\"",
            "LOG_LEVEL = \"warn\"",
        );
    monorepo.commit("Two faults and a change");
    let outcome = konverge(
        &monorepo,
        &["preview", "--base", "HEAD~1", "--rev", "HEAD", "--live", "never"],
    );
    says(
        &outcome,
        1,
        &[
            "appops/storefront/dev/main.k:",
            "appops/reports/dev/stack.yaml",
            "orders/prod",
            "LOG_LEVEL",
        ],
    );
    let json = konverge(
        &monorepo,
        &[
            "preview", "--base", "HEAD~1", "--rev", "HEAD", "--live", "never", "--output", "json",
        ],
    )
    .json();
    let failed = json["stacks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|stack| stack["id"] == "storefront/dev")
        .unwrap();
    assert_eq!(failed["error"]["kind"], "kcl", "{failed}");
    assert!(
        failed["error"]["line"].is_u64() && failed["error"]["column"].is_u64(),
        "{failed}"
    );
}

#[test]
fn an_unreachable_cluster_and_store_are_named() {
    let monorepo = Repository::konfig_example();
    let kubeconfig = monorepo.path().join(".git/kubeconfig");
    std::fs::write(
        &kubeconfig,
        "apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{name: x, cluster: {server: 'http://127.0.0.1:9'}}]\ncontexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {}}]\n",
    )
    .unwrap();
    let kubeconfig = kubeconfig.display().to_string();
    let outcome = konverge(
        &monorepo,
        &["preview", "storefront/dev", "--kubeconfig", &kubeconfig],
    );
    says(&outcome, 1, &["127.0.0.1:9"]);
    // It was the cluster that was to be compared with.
    let arguments = [
        "preview",
        "storefront/dev",
        "--kubeconfig",
        &kubeconfig,
        "--output",
        "json",
    ];
    let plan = konverge(&monorepo, &arguments).json();
    assert_eq!(plan["stacks"][0]["basis"], "live", "{plan}");
    let missing = konverge(
        &monorepo,
        &["preview", "storefront/dev", "--kubeconfig", "/nonexistent"],
    );
    says(&missing, 1, &["/nonexistent"]);

    let config = "version: 1\nstate:\n  id: x\n  url: s3://bucket/x\n  options: {endpoint: 'http://127.0.0.1:9', region: x, allow_http: 'true', path_style: 'true'}\n";
    monorepo
        .write("konverge.yaml", config)
        .commit("A store that is not there");
    let unreachable = Konverge::new(["state", "list"])
        .with_kcl()
        .dir(monorepo.path())
        .env("AWS_ACCESS_KEY_ID", "x")
        .env("AWS_SECRET_ACCESS_KEY", "not-shown-anywhere")
        .run();
    says(&unreachable, 1, &["s3://bucket/x"]);
    assert!(!unreachable.stderr.contains("not-shown-anywhere"));
}

#[test]
fn no_credentials_for_cluster_and_store() {
    let monorepo = Repository::konfig_example();
    let cluster = Cluster::shared();
    let kubeconfig = monorepo.path().join(".git/kubeconfig");
    let known = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    assert!(known.contains("token-of-admin"));
    std::fs::write(&kubeconfig, known.replace("token-of-admin", "not-shown-anywhere")).unwrap();
    let refused = konverge(
        &monorepo,
        &[
            "preview",
            "storefront/dev",
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
        ],
    );
    says(&refused, 1, &["Unauthorized", "the credentials are not accepted"]);
    assert!(!format!("{refused:?}").contains("not-shown-anywhere"));

    let server = S3::shared();
    let bucket = server.bucket("no-credentials");
    let config = format!(
        "version: 1\nstate:\n  id: x\n  url: s3://{bucket}/x\n  options: {{endpoint: '{}', region: x, allow_http: 'true', path_style: 'true'}}\n",
        server.endpoint()
    );
    monorepo.write("konverge.yaml", config).commit("A store");
    let none = konverge(&monorepo, &["state", "list"]);
    says(&none, 1, &[&bucket, "AWS_ACCESS_KEY_ID"]);
    nothing_written(&monorepo);
}

#[test]
fn nobody_is_there_to_agree() {
    let monorepo = Repository::konfig_example();
    let outcome = konverge(&monorepo, &["apply", "storefront/dev"]);
    assert_ne!(outcome.code, Some(0), "{}", outcome.stdout);
    says(
        &konverge(&monorepo, &["apply", "storefront/dev", "--yes"]),
        1,
        &["no cluster is configured", "clusters"],
    );
    says(
        &konverge(&monorepo, &["apply", "--live", "never", "--yes"]),
        64,
        &["always compares with live infrastructure", "leave `--live` out"],
    );
    says(
        &konverge(&monorepo, &["drift", "--all"]),
        64,
        &["this command selects every stack by default", "leave `--all` out"],
    );
}

#[test]
fn what_is_wrong_with_every_stack_is_said_once() {
    let monorepo = Repository::konfig_example();
    let outcome = konverge(&monorepo, &["preview", "--all", "--live", "required"]);
    assert_eq!(outcome.code, Some(1), "{}{}", outcome.stdout, outcome.stderr);
    let said = &outcome.stdout;
    assert_eq!(said.matches("no cluster is configured").count(), 1, "{said}");
    assert!(
        said.contains("alerts/dev, alerts/prod") && said.contains(" failed."),
        "{said}"
    );
}

#[test]
fn a_shallow_clone_without_its_base_says_what_to_add() {
    let origin = Repository::konfig_example();
    origin
        .branch("change")
        .replace("appops/storefront/dev/main.k", "rc.1", "rc.2");
    origin.commit("Change");
    let clone = origin.clone_with(&["--depth=1", "--branch=change"]);
    std::fs::remove_dir_all(Path::new(origin.path())).unwrap();
    let outcome = konverge(&clone, &["preview", "--rev", "HEAD", "--base", "HEAD~1"]);
    says(&outcome, 1, &["fetch-depth: 0"]);
}

#[test]
fn a_konverge_yaml_that_is_no_file_is_not_overlooked() {
    for folder in [false, true] {
        let monorepo = tiny_monorepo::monorepo();
        monorepo.write("platform/konverge.yaml", "version: 1\n");
        if folder {
            monorepo.write("konverge.yaml/rules", "version: 1\n");
        } else {
            let link = monorepo.path().join("konverge.yaml");
            std::os::unix::fs::symlink("platform/konverge.yaml", link).unwrap();
        }
        monorepo.commit("Moved");
        for arguments in [&["preview", "--all"][..], &["config", "check"]] {
            says(
                &konverge(&monorepo, arguments),
                1,
                &["konverge.yaml", "not a regular file"],
            );
        }
    }
}
