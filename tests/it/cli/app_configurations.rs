//! Stacks of AppConfigurations: built, previewed and applied like any other.

use konverge_engine::spec;
use serde_json::{Value, json};

use crate::{
    meta::docs::{blocks, root},
    support::{
        apps::{QUICKSTART, workspace, write_stack},
        cluster::Cluster,
        git::Repository,
        objects::Objects,
        plain_core::spec_of,
        process::{Konverge, Outcome},
    },
};

const FOLDER: &str = "example/quickstart/default";

/// The Spec of the quickstart, as Kusion's documentation shows it.
const DOCUMENTED: &str = "
resources:
- id: v1:Namespace:quickstart
  type: Kubernetes
  attributes: {apiVersion: v1, kind: Namespace, metadata: {creationTimestamp: null, name: quickstart}, spec: {}, status: {}}
  extensions: {GVK: '/v1, Kind=Namespace'}
- id: apps/v1:Deployment:quickstart:quickstart-default-quickstart
  type: Kubernetes
  attributes:
    apiVersion: apps/v1
    kind: Deployment
    metadata:
      creationTimestamp: null
      labels: {app.kubernetes.io/name: quickstart, app.kubernetes.io/part-of: quickstart}
      name: quickstart-default-quickstart
      namespace: quickstart
    spec:
      selector: {matchLabels: {app.kubernetes.io/name: quickstart, app.kubernetes.io/part-of: quickstart}}
      strategy: {}
      template:
        metadata:
          creationTimestamp: null
          labels: {app.kubernetes.io/name: quickstart, app.kubernetes.io/part-of: quickstart}
        spec: {containers: [{image: 'kusionstack/kusion-quickstart:latest', name: quickstart, resources: {}}]}
    status: {}
  dependsOn: ['v1:Namespace:quickstart', 'v1:Service:quickstart:quickstart-default-quickstart-private']
  extensions: {GVK: 'apps/v1, Kind=Deployment'}
- id: v1:Service:quickstart:quickstart-default-quickstart-private
  type: Kubernetes
  attributes:
    apiVersion: v1
    kind: Service
    metadata:
      creationTimestamp: null
      labels: {app.kubernetes.io/name: quickstart, app.kubernetes.io/part-of: quickstart}
      name: quickstart-default-quickstart-private
      namespace: quickstart
    spec:
      ports: [{name: quickstart-default-quickstart-private-8080-tcp, port: 8080, protocol: TCP, targetPort: 8080}]
      selector: {app.kubernetes.io/name: quickstart, app.kubernetes.io/part-of: quickstart}
      type: ClusterIP
    status: {loadBalancer: {}}
  dependsOn: ['v1:Namespace:quickstart']
  extensions: {GVK: '/v1, Kind=Service'}
secretStore: null
context: {}
";

fn quickstart(versions: (&str, &str)) -> Repository {
    let repository = Repository::init();
    write_stack(&repository, FOLDER, versions, QUICKSTART);
    repository.commit("The quickstart");
    repository
}

fn konverge(repository: &Repository, arguments: &[&str]) -> Outcome {
    Konverge::new(arguments).dir(repository.path()).with_kcl().run()
}

fn build(repository: &Repository) -> Outcome {
    konverge(repository, &["build", FOLDER, "--output=json", "--show-secrets"])
}

/// The attributes of a resource of a build.
fn attributes(outcome: &Outcome, id: &str) -> Value {
    let spec = outcome.json();
    let mut resources = spec["resources"].as_array().unwrap().iter();
    let found = resources.find(|resource| resource["id"] == id);
    found.unwrap_or_else(|| panic!("{id} is not in {spec:#}"))["attributes"].clone()
}

const DEPLOYMENT: &str = "apps/v1:Deployment:quickstart:quickstart-default-quickstart";

#[test]
fn the_quickstart_gives_the_documented_spec() {
    let repository = quickstart(("0.1.0", "0.2.0"));
    let first = build(&repository).expect(0);
    let documented = spec::read_text(DOCUMENTED, "specs.md").unwrap();
    assert_eq!(
        spec_of(&first.json()).digest(),
        documented.digest(),
        "{}",
        first.stdout
    );
    assert!(!first.stderr.contains("warning: "), "{}", first.stderr);
    // The same input gives the same bytes, no matter who compiles.
    let again = Konverge::new(["build", FOLDER, "--output=json", "--show-secrets"]);
    let again = again
        .env("KONVERGE_CACHE", "off")
        .dir(repository.path())
        .with_kcl()
        .run()
        .expect(0);
    assert_eq!(first.stdout, again.stdout);
}

#[test]
fn a_workspace_is_chosen_by_rule_by_the_stack_s_name_or_as_default() {
    let repository = quickstart(("0.2.1", "0.3.0"));
    let replicas = |count: u32| workspace("0.2.1", &format!("      default: {{replicas: {count}}}\n"));
    let built = |outcome: &Outcome| attributes(outcome, DEPLOYMENT)["spec"]["replicas"].clone();
    assert_eq!(built(&build(&repository).expect(0)), Value::Null);
    repository.write("workspaces/default.yaml", replicas(2));
    assert_eq!(built(&build(&repository).expect(0)), 2);
    repository.write("workspaces/large.yaml", replicas(3));
    repository.write(
        "konverge.yaml",
        "stacks: [{match: 'example/**', workspace: large}]\n",
    );
    assert_eq!(built(&build(&repository).expect(0)), 3);
    // A block for the project replaces the key.
    repository.write(
        "workspaces/large.yaml",
        workspace("0.2.1", "      default: {replicas: 3}\n      few:\n        projectSelector: [quickstart]\n        replicas: 5\n"),
    );
    assert_eq!(built(&build(&repository).expect(0)), 5);
    repository.write(
        "konverge.yaml",
        "stacks: [{match: 'example/**', workspace: missing}]\n",
    );
    let missing = build(&repository).expect(1);
    assert!(
        missing.stderr.contains("workspaces/missing.yaml"),
        "{}",
        missing.stderr
    );
    repository.write(
        "konverge.yaml",
        "stacks: [{match: 'example/**', workspace: ../x}]\n",
    );
    let refused = build(&repository).expect(1);
    assert!(
        refused.stderr.contains("not the name of a workspace"),
        "{}",
        refused.stderr
    );
}

#[test]
fn what_kusion_loses_without_a_word_is_said() {
    let repository = quickstart(("0.2.1", "0.3.0"));
    repository
        .write("workspaces/default.yaml", workspace("0.2.0", "      default: {replicas: 2}\n"))
        .write(
            "example/quickstart/project.yaml",
            "name: quickstart\nextensions:\n- kind: kubernetesNamespace\n  kubernetesNamespace: {namespace: team-a}\n",
        );
    let built = build(&repository).expect(0);
    for says in [
        "version 0.2.0 of the module `service`",
        "moves only the Namespace and the Secrets to `team-a`",
    ] {
        assert!(built.stderr.contains(says), "{says}: {}", built.stderr);
    }
    repository.write(&format!("{FOLDER}/stack.yaml"), "name: dev blue\n");
    // A name that no workspace can have is none that an object can have.
    let failed = build(&repository).expect(1);
    assert!(failed.stderr.contains("dev blue"), "{}", failed.stderr);
}

#[test]
fn a_stack_name_that_no_workspace_can_have_is_said() {
    let repository = quickstart(("0.2.1", "0.3.0"));
    repository
        .write(
            "workspaces/default.yaml",
            workspace("0.2.1", "      default: {replicas: 2}\n"),
        )
        .write(&format!("{FOLDER}/stack.yaml"), "name: dev+blue\n");
    let says = "no workspace can have the name of the stack, `dev+blue`";
    let built = build(&repository).expect(0);
    assert!(built.stderr.contains(says), "{}", built.stderr);
    repository.write(
        "konverge.yaml",
        "stacks: [{match: 'example/**', workspace: default}]\n",
    );
    let named = build(&repository).expect(0);
    assert!(!named.stderr.contains(says), "{}", named.stderr);
}

#[test]
fn a_repository_of_the_era_before_is_told_so() {
    let repository = quickstart(("0.2.1", "0.3.0"));
    let old = "modules:\n  database:\n    default: {size: 1}\nruntimes: {}\n";
    repository.write("workspaces/default.yaml", old);
    let failed = build(&repository).expect(1);
    assert!(failed.stderr.contains("Kusion 0.10 or 0.11"), "{}", failed.stderr);
    assert!(
        failed.stderr.contains("workspaces/default.yaml"),
        "{}",
        failed.stderr
    );
    repository.write("workspaces/default.yaml", "");
    // As Kusion 0.7 reads it, the kcl.mod of a stack counts for nothing.
    repository.write("konverge.yaml", "kcl: {settings: v0.7}\n");
    repository.write(
        &format!("{FOLDER}/kcl.yaml"),
        "kcl_cli_configs: {files: [main.k]}\n",
    );
    repository.write(&format!("{FOLDER}/ci-test/settings.yaml"), "kcl_options: []\n");
    let failed = build(&repository).expect(1);
    assert!(
        failed.stderr.contains("`quickstart` is an AppConfiguration"),
        "{}",
        failed.stderr
    );
    assert!(failed.stderr.contains("kcl.settings: v0.7"), "{}", failed.stderr);
}

#[test]
fn a_module_that_only_kusion_runs_is_named() {
    let repository = quickstart(("0.2.1", "0.3.0"));
    repository.replace(
        &format!("{FOLDER}/kcl.mod"),
        "oci://ghcr.io/kusionstack/network",
        "oci://ghcr.io/acme/network",
    );
    let failed = build(&repository).expect(1);
    assert!(
        failed.stderr.contains("oci://ghcr.io/acme/network 0.3.0"),
        "{}",
        failed.stderr
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quickstart_is_applied_and_then_there_is_nothing_to_do() {
    let cluster = Cluster::shared();
    let repository = Repository::init();
    let folder = "example/quickstart-applied/default";
    write_stack(&repository, folder, ("0.2.1", "0.3.0"), QUICKSTART);
    repository
        .write("konverge.yaml", "version: 1\nclusters: {test: {}}\n")
        .commit("The quickstart");
    let home = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        Konverge::new(arguments)
            .dir(repository.path())
            .env("KUBECONFIG", cluster.kubeconfig())
            .env("XDG_STATE_HOME", home.path())
            .with_kcl()
            .run()
    };
    let summary = |outcome: &Outcome| outcome.json()["stacks"][0]["summary"].clone();
    let planned = run(&["preview", folder, "--output=json"]).expect(0);
    assert_eq!(summary(&planned)["create"], 3, "{}", planned.stdout);
    run(&["apply", folder, "--yes", "--no-wait"]).expect(0);
    let after = run(&["preview", folder, "--output=json"]).expect(0);
    assert_eq!(summary(&after)["unchanged"], 3, "{}", after.stdout);
    // A platform team's edit is one change of one field.
    repository.write(
        "workspaces/default.yaml",
        workspace("0.2.1", "      default: {replicas: 2}\n"),
    );
    let edited = run(&["preview", folder, "--output=json"]).expect(0).json();
    let changes = edited["stacks"][0]["resources"][0]["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 1, "{edited:#}");
    assert_eq!(
        (&changes[0]["path"], &changes[0]["to"]),
        (&json!("/spec/replicas"), &json!(2))
    );
    run(&["apply", folder, "--yes", "--no-wait"]).expect(0);
}

/// What Kusion records of a stack whose Spec this is.
fn release(spec: &Value) -> String {
    json!({
        "project": "shop", "workspace": "dev", "revision": 3, "stack": "dev", "spec": {"resources": spec["resources"]},
        "state": {"resources": spec["resources"]}, "phase": "succeeded",
        "createTime": "2025-01-01T00:00:00Z", "modifiedTime": "2025-01-01T00:00:00Z",
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_is_typed_whole_and_nothing_is_made_again() {
    let cluster = Cluster::start();
    cluster.start_controllers();
    let objects = Objects::of(&cluster).await;
    let repository = Repository::init();
    write_stack(&repository, "apps/shop/dev", ("0.2.1", "0.3.0"), QUICKSTART);
    repository.commit("As Kusion had it");
    let home = tempfile::tempdir().unwrap();
    let kusion = home.path().join(".kusion");
    let releases = kusion.join("releases/shop/dev");
    std::fs::create_dir_all(&releases).unwrap();
    std::fs::create_dir_all(kusion.join("workspaces")).unwrap();
    let settings = workspace("0.2.1", "      default: {replicas: 1}\n")
        + "secretStore: null\ncontext: {AWS_SECRET_ACCESS_KEY: s3cret}\n";
    std::fs::write(kusion.join("workspaces/dev.yaml"), settings).unwrap();

    let programs = std::path::Path::new(env!("CARGO_BIN_EXE_konverge"))
        .parent()
        .unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let typed = |line: &str| {
        Konverge::of(std::path::Path::new("/bin/sh"), ["-c", line])
            .dir(repository.path())
            .with_kcl()
            .env("HOME", home.path())
            .env("PATH", &path)
            .env("KUBECONFIG", cluster.kubeconfig())
            .env("XDG_STATE_HOME", home.path().join("state"))
            .run()
            .expect(0)
    };
    let page = std::fs::read_to_string(root().join("docs/guides/kusion-apps.md")).unwrap();
    let mut uids = Vec::new();
    let mut typed_lines = 0;
    for line in blocks(&page, "sh").join("\n").lines() {
        if line.contains("/releases/") {
            // By now the Spec is Kusion's: it runs, and Kusion has recorded it.
            let spec = typed("konverge build shop/dev --output json").json();
            for resource in spec["resources"].as_array().unwrap() {
                let object = &resource["attributes"];
                objects.create_as(object, "kusion").await;
                let live = objects.get(object).await.unwrap();
                uids.push((object.clone(), live["metadata"]["uid"].clone()));
            }
            std::fs::write(releases.join("3.yaml"), release(&spec)).unwrap();
            std::fs::write(
                releases.join(".metadata.yml"),
                "latestRevision: 3\nreleaseMetaDatas:\n- {revision: 3, stack: dev}\n",
            )
            .unwrap();
        }
        let outcome = typed(line);
        typed_lines += 1;
        match line {
            "konverge init" => {
                assert!(
                    outcome.stderr.contains("1 stack holds AppConfigurations"),
                    "{}",
                    outcome.stderr
                );
                assert!(outcome.stderr.contains("--workspace dev"), "{}", outcome.stderr);
                let config = repository.read("konverge.yaml") + "clusters: {test: {}}\n";
                repository.write("konverge.yaml", config);
            }
            line if line.contains("--workspace") => {
                assert!(
                    outcome.stderr.contains("AWS_SECRET_ACCESS_KEY"),
                    "{}",
                    outcome.stderr
                );
                assert!(!repository.read("workspaces/dev.yaml").contains("s3cret"));
                repository.git(["add", "--all"]);
            }
            _ => {}
        }
    }
    assert_eq!(typed_lines, 7);
    assert_eq!(uids.len(), 3);
    for (object, uid) in &uids {
        assert_eq!(
            objects.get(object).await.unwrap()["metadata"]["uid"],
            *uid,
            "{object}"
        );
    }
    let after = typed("konverge preview shop/dev --output json").json();
    assert_eq!(after["stacks"][0]["summary"]["unchanged"], 3, "{after:#}");

    // By turns, as the page sets it up: what changes is a release that Kusion reads.
    let page_config = blocks(&page, "yaml")
        .into_iter()
        .find(|block| block.contains("kusion_releases"));
    let page_config = page_config
        .unwrap()
        .replace("/home/me", home.path().to_str().unwrap());
    let setting = page_config
        .lines()
        .find(|line| line.contains("kusion_releases"))
        .unwrap();
    let config = repository.read("konverge.yaml");
    let config = if config.contains("state:\n") {
        config.replacen("state:\n", &format!("state:\n{setting}\n"), 1)
    } else {
        format!("{config}state:\n{setting}\n")
    };
    repository.write("konverge.yaml", config);
    repository.write(
        "workspaces/dev.yaml",
        workspace("0.2.1", "      default: {replicas: 2}\n"),
    );
    typed("konverge apply shop/dev --yes --no-wait");
    let newest = std::fs::read_to_string(releases.join("4.yaml")).unwrap();
    let newest: Value = konverge_base::yaml::from_str(&newest).unwrap();
    assert_eq!(
        (&newest["phase"], &newest["stack"]),
        (&json!("succeeded"), &json!("dev"))
    );
    assert_eq!(newest["state"]["resources"].as_array().unwrap().len(), 3);
}

#[test]
fn init_names_the_only_workspace_and_the_era_before() {
    let repository = quickstart(("0.2.1", "0.3.0"));
    repository.write(
        "workspaces/platform.yaml",
        workspace("0.2.1", "      default: {replicas: 4}\n"),
    );
    write_stack(&repository, "old/shop/dev", ("0.2.1", "0.3.0"), QUICKSTART);
    repository.write("old/shop/dev/kcl.mod", "[dependencies]\ncatalog = { git = \"https://github.com/KusionStack/catalog.git\", tag = \"0.1.2\" }\n");
    repository.commit("Two eras");
    let report = konverge(&repository, &["init"]).expect(0);
    assert!(
        report.stderr.contains("1 stack holds AppConfigurations"),
        "{}",
        report.stderr
    );
    assert!(
        report.stderr.contains("1 stack is of Kusion 0.10"),
        "{}",
        report.stderr
    );
    assert!(repository.read("konverge.yaml").contains("workspace: platform"));
    assert_eq!(
        attributes(&build(&repository).expect(0), DEPLOYMENT)["spec"]["replicas"],
        4
    );
}

#[test]
fn a_workspace_is_imported_once_and_only_if_it_is_one() {
    let repository = quickstart(("0.2.1", "0.3.0"));
    let backend = tempfile::tempdir().unwrap();
    let import =
        |from: &str, name: &str| konverge(&repository, &["state", "import", from, "--workspace", name]);
    let from = backend.path().to_str().unwrap();
    let missing = import(from, "dev").expect(1);
    assert!(
        missing.stderr.contains("`workspaces/dev.yaml`"),
        "{}",
        missing.stderr
    );
    std::fs::create_dir(backend.path().join("workspaces")).unwrap();
    let file = backend.path().join("workspaces/dev.yaml");
    std::fs::write(&file, "runtimes: {kubernetes: {kubeConfig: /k}}\n").unwrap();
    let old = import(from, "dev").expect(1);
    assert!(old.stderr.contains("Kusion 0.10 or 0.11"), "{}", old.stderr);
    std::fs::write(&file, workspace("0.2.1", "      default: {replicas: 2}\n")).unwrap();
    import(&format!("file://{from}/"), "dev").expect(0);
    assert!(repository.read("workspaces/dev.yaml").contains("replicas: 2"));
    let twice = import(file.to_str().unwrap(), "dev").expect(1);
    assert!(twice.stderr.contains("the file exists"), "{}", twice.stderr);
    import(from, "../../x").expect(64);
}

#[test]
fn notes_stand_in_the_preview_once_for_all_stacks() {
    let repository = Repository::init();
    for stack in ["dev", "prod"] {
        write_stack(
            &repository,
            &format!("apps/shop/{stack}"),
            ("0.2.1", "0.3.0"),
            QUICKSTART,
        );
    }
    repository.commit("Two stacks");
    repository.write(
        "workspaces/default.yaml",
        workspace("0.2.0", "      default: {replicas: 2}\n"),
    );
    let planned = konverge(&repository, &["preview", "--live=never"]).expect(0);
    let note = "version 0.2.0 of the module `service`";
    assert_eq!(planned.stdout.matches(note).count(), 1, "{}", planned.stdout);
    assert!(
        planned.stdout.contains("shop/dev, shop/prod: warning:"),
        "{}",
        planned.stdout
    );
    assert!(!planned.stderr.contains(note), "{}", planned.stderr);
    for (output, shows) in [
        ("markdown", "- `shop/dev`, `shop/prod`: "),
        ("html", "<h2>Notes</h2>"),
    ] {
        let arguments = ["preview", "--live=never", &format!("--output={output}")];
        let planned = konverge(&repository, &arguments).expect(0);
        assert_eq!(
            planned.stdout.matches("names version 0.2.0 of").count(),
            1,
            "{}",
            planned.stdout
        );
        assert!(planned.stdout.contains(shows), "{}", planned.stdout);
    }
    let planned = konverge(&repository, &["preview", "--live=never", "--output=json"])
        .expect(0)
        .json();
    for stack in planned["stacks"].as_array().unwrap() {
        assert!(stack["notes"][0].as_str().unwrap().contains(note), "{stack:#}");
    }
}
