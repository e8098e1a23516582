//! `konverge build`: the Spec of every stack of the example, and what a person sees when something is wrong.

use konverge_engine::spec;
use serde_json::Value;

use crate::support::{
    git::Repository,
    plain_core::{core_alone, spec_of},
    process::Konverge,
};

fn build(repository: &Repository) -> Konverge {
    Konverge::new(["build"]).dir(repository.path()).with_kcl()
}

#[test]
fn every_stack_of_the_example_is_its_golden_and_what_the_core_alone_gives() {
    let repository = Repository::konfig_example();
    let outcome = build(&repository)
        .arg("--all")
        .arg("--show-secrets")
        .arg("--output=json")
        .run()
        .expect(0);
    let all = outcome.json();
    let stacks = all["stacks"].as_array().unwrap();
    assert!(stacks.len() >= 16, "{} stacks", stacks.len());
    let mut applications = 0;
    for stack in stacks {
        let folder = stack["stack"].as_str().unwrap();
        let built = spec_of(stack);
        let golden = repository.read(&format!("{folder}/ci-test/stdout.golden.yaml"));
        let golden = spec::read_text(&golden, folder).unwrap();
        assert_eq!(built.digest(), golden.digest(), "{folder} is not its golden file");
        let module = repository.path().join(folder).join("kcl.mod");
        if std::fs::read_to_string(module).is_ok_and(|module| module.contains("kam = ")) {
            // The core prints the applications of this stack, and not their resources.
            applications += 1;
            continue;
        }
        let mut alone = core_alone(&repository, folder);
        let project = folder.rsplit_once('/').unwrap().0;
        let crds: Vec<_> = crate::support::compiler::folder(repository.path())
            .into_iter()
            .filter(|(path, _)| path.as_str().starts_with(&format!("{project}/crd/")))
            .collect();
        spec::append_crds(&mut alone, &crds).unwrap();
        assert_eq!(built, alone, "{folder} is not what the core alone gives");
    }
    assert_eq!(applications, 2);
}

#[test]
fn all_outputs_hold_the_same_and_hide_secrets() {
    let repository = Repository::konfig_example();
    let stack = "appops/orders/dev";
    let json = build(&repository).arg(stack).arg("--output=json").run().expect(0);
    let yaml = build(&repository).arg(stack).run().expect(0);
    let resources = json.json();
    assert_eq!(resources["version"], 1);
    let from_yaml: Value = konverge_base::yaml::from_str(&yaml.stdout).unwrap();
    assert_eq!(
        from_yaml["resources"].as_array().unwrap().len(),
        resources["resources"].as_array().unwrap().len()
    );
    assert!(yaml.stdout.starts_with("resources:\n- id: "), "{}", yaml.stdout);
    let manifests = build(&repository)
        .arg(stack)
        .arg("--output=manifests")
        .run()
        .expect(0);
    let objects = konverge_base::yaml::documents(&manifests.stdout).unwrap();
    assert!(objects.iter().all(|object| object["apiVersion"].is_string()));
    for outcome in [&json, &yaml, &manifests] {
        let secret = outcome.stdout.contains("Secret");
        assert!(secret, "the stack has a Secret");
    }
    let secrets = objects.iter().filter(|object| object["kind"] == "Secret");
    for value in secrets.flat_map(|secret| {
        secret["data"]
            .as_object()
            .or(secret["stringData"].as_object())
            .unwrap()
            .values()
    }) {
        assert!(value.get("$secret").is_some(), "{value}");
    }
}

#[test]
fn a_revision_is_read_without_touching_the_working_tree() {
    let repository = Repository::konfig_example();
    let build = |repository| build(repository).arg("--show-secrets");
    let before = build(&repository).arg("orders/dev").run().expect(0).stdout;
    repository.write("appops/orders/dev/main.k", "broken = = 1\n");
    build(&repository).arg("orders/dev").run().expect(1);
    let at_head = build(&repository)
        .arg("orders/dev")
        .arg("--rev=HEAD")
        .run()
        .expect(0);
    assert_eq!(at_head.stdout, before);
    build(&repository)
        .arg("orders/dev")
        .arg("--rev=nope")
        .run()
        .expect(1);
}

#[test]
fn a_broken_stack_is_named_at_its_place_and_others_are_built() {
    let repository = Repository::konfig_example();
    repository.write("appops/orders/dev/main.k", "broken = = 1\n");
    let outcome = build(&repository).arg("appops/orders").run().expect(1);
    assert!(
        outcome.stderr.contains("appops/orders/dev/main.k:1:10"),
        "{}",
        outcome.stderr
    );
    assert!(outcome.stderr.contains("broken = = 1"), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("orders-prod"), "{}", outcome.stdout);
    let json = build(&repository)
        .arg("appops/orders/dev")
        .arg("--output=json")
        .run()
        .expect(1)
        .json();
    assert_eq!(json["error"]["kind"], "kcl");
    assert_eq!(json["error"]["file"], "appops/orders/dev/main.k");
    assert_eq!(
        (&json["error"]["line"], &json["error"]["column"]),
        (&1.into(), &10.into())
    );
}

#[test]
fn a_secret_of_the_environment_does_not_come_back_in_an_error() {
    let repository = Repository::konfig_example();
    repository.write(
        "appops/orders/dev/main.k",
        "_x: int = \"ghp_abcdefghijklmnop\"\nassert False, \"ghp_abcdefghijklmnop\"\n",
    );
    for output in ["yaml", "json"] {
        let outcome = build(&repository)
            .arg_all(["appops/orders/dev", "--output", output])
            .env("GITHUB_TOKEN", "ghp_abcdefghijklmnop")
            .run()
            .expect(1);
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(said.contains("appops/orders/dev/main.k:1:"), "{said}");
        assert!(said.contains("_x: int = "), "{said}");
        assert!(!said.contains("ghp_abcdefghijklmnop"), "{said}");
    }
}

#[test]
fn a_reference_to_a_secret_is_printed_and_never_resolved() {
    let repository = Repository::konfig_example();
    let stack = "appops/orders/dev";
    let reference = "ref+vault://apps/orders#/level";
    repository.replace(
        &format!("{stack}/main.k"),
        "LOG_LEVEL = \"debug\"",
        &format!("LOG_LEVEL = \"{reference}\""),
    );
    let built = build(&repository)
        .arg_all([stack, "--output=json"])
        .run()
        .expect(0);
    let printed = r#""LOG_LEVEL":{"$secret":{"ref":"vault:apps/orders#/level"}}"#;
    assert!(built.stdout.contains(printed), "{}", built.stdout);
}

fn on_an_old_kernel(repository: &Repository) -> Konverge {
    Konverge::on_an_old_kernel(["build", "appops/orders/dev"])
        .dir(repository.path())
        .with_kcl()
        .env("KONVERGE_CACHE", "off")
}

#[test]
fn a_kernel_without_a_wall_is_said_loudly_and_stops_what_requires_all() {
    let repository = Repository::konfig_example();
    let built = on_an_old_kernel(&repository).run().expect(0);
    assert!(
        built
            .stderr
            .contains("warning: KCL is compiled without a full sandbox: Landlock"),
        "{}",
        built.stderr
    );
    repository.replace("konverge.yaml", "kcl:\n", "kcl:\n  sandbox: required\n");
    let refused = on_an_old_kernel(&repository).run().expect(1);
    assert!(
        refused.stderr.contains("the sandbox cannot be set up: Landlock"),
        "{}",
        refused.stderr
    );
    assert!(
        refused.stderr.contains("kcl.sandbox: best-effort"),
        "{}",
        refused.stderr
    );
    // The same on this kernel.
    build(&repository).arg("appops/orders/dev").run().expect(0);
}

#[test]
fn what_is_missing_is_said_with_the_next_command() {
    let repository = Repository::konfig_example();
    let no_core = Konverge::new(["build", "appops/orders/dev"])
        .dir(repository.path())
        .run()
        .expect(1);
    assert!(
        no_core.stderr.contains("konverge kcl install 0.13.2"),
        "{}",
        no_core.stderr
    );
    let no_stack = build(&repository).arg("appops/order/dev").run().expect(64);
    assert!(
        no_stack.stderr.contains("did you mean `appops/orders/dev`?"),
        "{}",
        no_stack.stderr
    );
    // Without a name it is what the change affects: nothing yet, then one project.
    let nothing = build(&repository).run().expect(0);
    assert!(
        nothing.stderr.contains("no stack is affected"),
        "{}",
        nothing.stderr
    );
    repository.write(
        "appops/orders/dev/main.k",
        repository.read("appops/orders/dev/main.k") + "\n# changed\n",
    );
    let one = build(&repository).arg("--output=json").run().expect(0);
    assert!(one.json()["resources"].is_array(), "{}", one.stdout);
}

#[test]
fn a_spec_from_a_file_needs_neither_core_nor_repository() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("spec.yaml"),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {n: \"1\"}\n",
    )
    .unwrap();
    let run = |file: &str| {
        Konverge::new(["build", "--output=json", "--spec", file])
            .dir(folder.path())
            .run()
    };
    let json = run("spec.yaml").expect(0).json();
    assert_eq!(json["resources"][0]["id"], "v1:ConfigMap:a");
    assert_eq!(json["resources"][0]["attributes"]["data"]["n"], "1");
    assert_eq!(run("none.yaml").expect(64).json()["error"]["file"], "none.yaml");
}
