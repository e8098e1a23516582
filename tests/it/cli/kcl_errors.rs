//! What KCL refuses: the first causes are shown, once for all stacks, and a refusal is known to the next run.

use std::path::Path;

use serde_json::Value;

use crate::support::{
    apps::{QUICKSTART, write_stack},
    git::Repository,
    process::{Konverge, Outcome},
    tiny_monorepo,
};

/// A shared model that is refused at 51 places for two reasons, and three stacks that have it. One has an error of its
/// own.
pub fn broken_model() -> Repository {
    let repository = tiny_monorepo::monorepo();
    let members: String = (0..50).map(|n| format!("    m{n}?: bool = false\n")).collect();
    let model = format!(
        "color = \"green\"\nschema Model:\n{members}\nsum = lambda a: int, b: int {{ a + b }}\ntwo = sum(1)\n"
    );
    repository.write("base/app.k", model);
    for (id, own) in [("a/dev", ""), ("b/dev", "own = missing\n"), ("c/dev", "")] {
        tiny_monorepo::write_program(
            &repository,
            id,
            &format!("import base.app\n\ncolor = app.color\n{own}"),
        );
    }
    repository
}

fn konverge(repository: &Repository, arguments: &[&str], cache: &Path) -> Konverge {
    Konverge::new(arguments)
        .dir(repository.path())
        .env("XDG_CACHE_HOME", cache)
}

fn preview(repository: &Repository) -> Outcome {
    let cache = tempfile::tempdir().unwrap();
    let arguments = ["preview", "--all", "--live", "never"];
    konverge(repository, &arguments, cache.path())
        .with_kcl()
        .run()
        .expect(1)
}

#[test]
fn the_first_causes_of_many_stacks_are_shown_once() {
    let repository = broken_model();
    // The base has no stack that could fail as before.
    repository.git(["add", "kcl.mod"]);
    repository.git(["commit", "--quiet", "-m", "A module"]);
    repository.git(["add", "--all"]);
    let said = preview(&repository);
    let said = said.stdout + &said.stderr;
    let cause = "name 'false' is not defined (and in 49 more places)";
    assert_eq!(said.matches("name 'false' is not defined").count(), 1, "{said}");
    assert!(said.contains(cause), "{said}");
    assert_eq!(
        said.matches("expected 2 positional arguments").count(),
        1,
        "{said}"
    );
    assert!(said.contains("a/dev, b/dev, c/dev: failed (3 stacks)"), "{said}");
    assert!(
        said.contains("… and 1 line that only some of the stacks have"),
        "{said}"
    );

    // `check` has each place, once with its stacks.
    let cache = tempfile::tempdir().unwrap();
    let check = konverge(&repository, &["check", "--all", "--output=json"], cache.path());
    let checked = check.with_kcl().run().expect(1).json();
    let compile: Vec<&Value> = checked["remarks"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|remark| remark["rule"] == "compile")
        .collect();
    assert_eq!(compile.len(), 52, "{compile:?}");
    let of_model = compile.iter().filter(|remark| remark["file"] == "base/app.k");
    assert!(
        of_model
            .map(|remark| remark["stacks"].as_array().unwrap().len())
            .eq([3; 51]),
        "{compile:?}"
    );
}

#[test]
fn a_refusal_is_known_to_the_next_run() {
    let repository = broken_model();
    let cache = tempfile::tempdir().unwrap();
    let build = || konverge(&repository, &["build", "--all"], cache.path());
    let cold = build().with_kcl().run().expect(1);
    assert!(
        cold.stderr.contains("name 'false' is not defined"),
        "{}",
        cold.stderr
    );
    // There is no core to compile with.
    assert_eq!(build().run().expect(1).stderr, cold.stderr);
    // Other files, another answer.
    repository.write("base/app.k", "color = \"green\"\n");
    let other = build().run().expect(1).stderr;
    assert!(other.contains("is not installed"), "{other}");
}

/// The next machine, or the next minute, may answer otherwise.
#[test]
fn an_error_of_the_machine_is_tried_again() {
    let repository = tiny_monorepo::monorepo();
    let programs = [
        // What the operating system answers.
        "import file\n\ntext = file.read(\"missing.txt\")\n",
        // Its time or its memory ends.
        "loop = lambda n: int -> int {\n    loop(n + 1)\n}\na = loop(1)\n",
    ];
    for (n, program) in programs.into_iter().enumerate() {
        tiny_monorepo::write_program(&repository, "a/dev", program);
        let cache = tempfile::tempdir().unwrap();
        let build = || konverge(&repository, &["build", "--all"], cache.path());
        let cold = build().with_kcl().run().expect(1);
        assert!(!cold.stderr.contains("is not installed"), "{n}: {}", cold.stderr);
        let warm = build().run().expect(1).stderr;
        assert!(warm.contains("is not installed"), "{n}: {} {warm}", cold.stderr);
    }
}

#[test]
fn a_name_that_an_unset_option_gives_names_the_option() {
    let repository = tiny_monorepo::monorepo();
    let program = "import base.app\n\n_name = option(\"app_name\")\n_level = option(\"level\", default=\"low\")\n\nresources = [\n    {\n        \
                   \"apiVersion\" = \"v1\"\n        \"kind\" = \"ConfigMap\"\n        \"metadata\" = {\"name\" = _name, \"namespace\" = \"x\"}\n        \
                   \"data\" = {\"level\" = _level, \"color\" = app.color}\n    }\n]\n";
    tiny_monorepo::write_program(&repository, "a/dev", program);
    let cache = tempfile::tempdir().unwrap();
    let build = || konverge(&repository, &["build", "a/dev"], cache.path()).with_kcl();
    let refused = build().run().expect(1).stderr;
    assert!(
        refused.contains("resources[0].metadata.name: is null, but the `ConfigMap` needs a string there"),
        "{refused}"
    );
    assert!(
        refused.contains("the option `app_name` (appops/a/dev/main.k:3). Set it under `kcl_options`"),
        "{refused}"
    );
    assert!(!refused.contains("`level`"), "{refused}");
    // As it says.
    repository.write(
        "appops/a/dev/kcl.yaml",
        "kcl_cli_configs:\n  files: [main.k]\nkcl_options:\n  - {key: app_name, value: settings}\n",
    );
    let built = build().run().expect(0).stdout;
    assert!(built.contains("v1:ConfigMap:x:settings"), "{built}");
}

#[test]
fn new_objects_are_shown_without_what_only_a_server_writes() {
    let repository = Repository::init();
    repository
        .write("README.md", "No stack yet\n")
        .commit("No stack yet");
    let image = "                image: \"kusionstack/kusion-quickstart:latest\"\n";
    let probe =
        "                readinessProbe: p.Probe {probeHandler: p.Http {url: \"http://localhost:8080\"}}\n";
    let program = QUICKSTART.replace(image, &format!("{image}{probe}"));
    let program = format!("import service.container.probe as p\n{program}");
    assert!(program.contains("readinessProbe"), "{program}");
    write_stack(
        &repository,
        "example/quickstart/default",
        ("0.2.1", "0.3.0"),
        &program,
    );
    repository.commit("The quickstart");
    let cache = tempfile::tempdir().unwrap();
    let arguments = ["preview", "--base", "HEAD~1", "--live", "never"];
    let shown = konverge(&repository, &arguments, cache.path())
        .with_kcl()
        .run()
        .expect(0)
        .stdout;
    assert!(shown.contains("quickstart-default-quickstart"), "{shown}");
    for field in ["creationTimestamp", "status"] {
        assert!(!shown.contains(field), "{field}: {shown}");
    }
    // The path that nobody wrote is Kubernetes' to choose.
    assert!(
        shown.contains("port: 8080") && !shown.contains("path:"),
        "{shown}"
    );
}
