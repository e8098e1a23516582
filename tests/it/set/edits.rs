//! Edits as a user types them: the line that changes, the base, golden files, many at once.

use std::{os::unix::fs::MetadataExt as _, path::Path};

use super::set;
use crate::support::{git::Repository, process::Konverge};

const DEV: &str = "appops/storefront/dev/main.k";

fn difference(repository: &Repository) -> Vec<String> {
    let text = repository.git(["diff", "--unified=0"]);
    let lines = text.lines().filter(|line| {
        (line.starts_with('+') || line.starts_with('-'))
            && !line.starts_with("+++")
            && !line.starts_with("---")
    });
    lines.map(str::to_owned).collect()
}

#[test]
fn one_line_changes_and_the_spec_difference_is_shown() {
    let repository = Repository::konfig_example();
    let image = "server.image=\"ghcr.io/example/storefront:2.5.0\"";
    let checked = set(&repository, &["storefront/dev", image, "--check"]).expect(0);
    assert!(checked.stdout.contains("2.4.0-rc.1"), "{}", checked.stdout);
    assert!(difference(&repository).is_empty());
    let done = set(
        &repository,
        &["storefront/dev", image, "server.env.LOG_LEVEL=\"info\""],
    )
    .expect(0);
    assert_eq!(
        difference(&repository),
        [
            "-    image = \"ghcr.io/example/storefront:2.4.0-rc.1\"",
            "-    env.LOG_LEVEL = \"debug\"",
            "+    image = \"ghcr.io/example/storefront:2.5.0\"",
            "+    env.LOG_LEVEL = \"info\"",
        ]
    );
    assert!(
        done.stdout
            .contains(&format!("replaced  {DEV}:8  server.image  storefront/dev")),
        "{}",
        done.stdout
    );
    assert!(
        done.stdout.contains("ghcr.io/example/storefront:2.5.0"),
        "{}",
        done.stdout
    );
    let again = set(&repository, &["storefront/dev", image]).expect(0);
    assert!(
        again.stderr.contains("sets these values already"),
        "{}",
        again.stderr
    );
}

#[test]
fn what_only_the_base_sets_is_added_to_the_stack_or_changed_for_all() {
    let repository = Repository::konfig_example();
    let delay = "server.liveness.delay=20";
    let done = set(&repository, &["storefront/dev", delay, "--output", "json"])
        .expect(0)
        .json();
    assert_eq!(difference(&repository), ["+    liveness.delay = 20"]);
    assert_eq!(done["edits"][0]["result"], "added");
    assert_eq!(done["edits"][0]["file"], DEV);
    assert_eq!(done["stacks"].as_array().unwrap().len(), 1);
    repository.git(["checkout", "--quiet", "."]);
    let done = set(
        &repository,
        &["storefront/dev", delay, "--in", "base", "--output", "json"],
    )
    .expect(0)
    .json();
    assert_eq!(
        difference(&repository),
        ["-        delay = 10", "+        delay = 20"]
    );
    assert_eq!(done["edits"][0]["file"], "appops/storefront/base/base.k");
    let changed: Vec<_> = done["stacks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stack| stack["id"].clone())
        .collect();
    assert_eq!(
        changed,
        ["storefront/dev", "storefront/prod", "storefront/staging"]
    );
}

#[test]
fn golden_files_follow_and_edits_come_from_a_file() {
    let repository = Repository::konfig_example();
    repository.write(
        "edits.yaml",
        "- stacks: [orders/dev]\n  set: {server.config.env.LOG_LEVEL: warning}\n- stacks: [orders/dev, storefront/dev]\n  set: {server.image: 'ghcr.io/example/x:1'}\n",
    );
    repository.commit("Edits");
    let done = set(
        &repository,
        &["--from", "edits.yaml", "--update", "--output", "json"],
    )
    .expect(0)
    .json();
    let files: Vec<_> = done["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file.as_str().unwrap())
        .collect();
    assert_eq!(
        files,
        [
            "appops/orders/dev/ci-test/stdout.golden.yaml",
            "appops/orders/dev/main.k",
            "appops/storefront/dev/ci-test/stdout.golden.yaml",
            DEV,
        ]
    );
    let golden = repository.read(files[0]);
    assert!(
        golden.contains("LOG_LEVEL: warning") && golden.contains("ghcr.io/example/x:1"),
        "{golden}"
    );
    for stack in ["appops/orders/dev", "appops/storefront/dev"] {
        crate::support::process::Konverge::new(["check", stack])
            .dir(repository.path())
            .with_kcl()
            .run()
            .expect(0);
    }
}

/// A value as somebody types it gets the core's format, if the file has it.
#[test]
fn a_value_gets_the_format_of_its_file() {
    let repository = Repository::konfig_example();
    let typed = "{LOG_LEVEL=\"info\",MODE=\"x\"}";
    let env = "    env = {LOG_LEVEL = \"debug\"}\n";
    repository.replace(DEV, "    env.LOG_LEVEL = \"debug\"\n", env);
    repository.commit("A block in one line");
    let formatted = repository.read(DEV);
    let edit = format!("server.env={typed}");
    set(&repository, &["storefront/dev", &edit]).expect(0);
    let value = "{LOG_LEVEL = \"info\", MODE = \"x\"}";
    assert_eq!(
        repository.read(DEV),
        formatted.replace("{LOG_LEVEL = \"debug\"}", value)
    );
    // A file with a format of its own keeps it.
    repository.write(DEV, formatted.replace("env = {", "env  =  {"));
    set(&repository, &["storefront/dev", &edit]).expect(0);
    assert!(
        repository.read(DEV).contains(&format!("    env  =  {typed}\n")),
        "{}",
        repository.read(DEV)
    );
}

/// A secret value reaches neither the terminal nor the document.
#[test]
fn a_secret_value_is_not_shown() {
    let repository = Repository::konfig_example();
    repository.write(
        DEV,
        repository.read(DEV).replace(
            "    env.LOG_LEVEL = \"debug\"\n",
            "    env.LOG_LEVEL = \"debug\"\n    env.API_PASSWORD = \"hunter2-before\"\n",
        ),
    );
    repository.commit("A secret");
    for output in ["text", "json"] {
        let value = format!("server.env.API_PASSWORD=\"hunter2-{output}\"");
        let done = set(&repository, &["storefront/dev", &value, "--output", output]).expect(0);
        assert!(
            !done.stdout.contains("hunter2") && !done.stderr.contains("hunter2"),
            "{}",
            done.stdout
        );
        assert!(repository.read(DEV).contains(&format!("hunter2-{output}")));
    }
}

/// A working tree cannot be saved for the next run, so the commit that is checked out is. What follows from files that
/// are not committed is the same with it and without.
#[test]
fn the_next_run_starts_from_the_commit_that_is_checked_out() {
    let repository = Repository::konfig_example();
    let run = |edit: &str, cache: &Path| {
        let run = Konverge::new(["set", "storefront/dev", edit, "--check"]).dir(repository.path());
        let run = run.env("XDG_CACHE_HOME", cache).with_kcl();
        run.run().expect(0).stdout
    };
    let cache = tempfile::tempdir().unwrap();
    let saved = || saved_revision(cache.path());
    run("server.image=\"a:1\"", cache.path());
    let first = saved();
    // A second file of the stack, which nobody committed.
    repository.replace(
        "appops/storefront/dev/kcl.yaml",
        "- main.k",
        "- main.k\n    - more.k",
    );
    repository.write(
        "appops/storefront/dev/more.k",
        "import base.pkg.frontend\n\nserver: frontend.Server {\n    env.MORE = \"1\"\n}\n",
    );
    let more = "server.env.MORE=\"2\"";
    let derived = run(more, cache.path());
    assert!(derived.contains("appops/storefront/dev/more.k:4"), "{derived}");
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(derived, run(more, empty.path()));
    assert_eq!(saved(), first, "it is not written again");
    // Another commit is saved in its place.
    repository.commit("More");
    assert_eq!(run(more, cache.path()), derived);
    assert_ne!(saved(), first);
}

/// The file of the revision that is saved in a cache: a new one each time that it is written.
fn saved_revision(cache: &Path) -> u64 {
    let files = std::fs::read_dir(cache.join("konverge/affected")).unwrap();
    let mut files = files.map(|entry| entry.unwrap().path());
    let file = files.find(|path| path.extension().is_some_and(|end| end == "revision"));
    std::fs::metadata(file.expect("the commit is saved"))
        .unwrap()
        .ino()
}

/// On a branch, the base of a working tree does not take the place of the commit that is checked out.
#[test]
fn on_a_branch_the_commit_that_is_checked_out_stays_saved() {
    let repository = Repository::konfig_example();
    let cache = tempfile::tempdir().unwrap();
    let preview = || {
        let run = Konverge::new(["preview", "--live=never"]).dir(repository.path());
        run.env("XDG_CACHE_HOME", cache.path()).with_kcl().run().expect(0);
        saved_revision(cache.path())
    };
    let set = |edit: &str| {
        let run = Konverge::new(["set", "storefront/dev", edit]).dir(repository.path());
        run.env("XDG_CACHE_HOME", cache.path()).with_kcl().run().expect(0);
    };
    repository.branch("feature");
    set("server.image=\"a:1\"");
    repository.commit("An edit");
    let first = preview();
    assert_eq!(preview(), first, "it is not written again");
    // What is not committed changes nothing about that.
    set("server.image=\"a:2\"");
    assert_eq!(preview(), first);
}

/// The core's formatter would make a whole number of it.
#[test]
fn a_whole_float_stays_a_float() {
    let repository = Repository::init();
    let program = "apiVersion = \"example.com/v1\"\nkind = \"Sampling\"\nmetadata = {name = \"f\", namespace = \"app\"}\nspec = {\n    rate = 1.5\n}\n";
    repository
        .write("kcl.mod", "[package]\nname = \"konfig\"\n")
        .write("shop/project.yaml", "name: shop\n")
        .write("shop/dev/stack.yaml", "name: dev\n")
        .write("shop/dev/kcl.yaml", "kcl_cli_configs: {files: [main.k]}\n")
        .write("shop/dev/main.k", program)
        .commit("A rate");
    set(&repository, &["shop/dev", "spec.rate=2.0"]).expect(0);
    assert_eq!(repository.read("shop/dev/main.k"), program.replace("1.5", "2.0"));
}
