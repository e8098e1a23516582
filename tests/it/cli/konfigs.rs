//! The published Konfigs: every stack is what the core alone gives, and a newcomer's first pull request is green.

use serde_json::{Value, json};

use crate::support::{
    apps,
    ci_stage::Stage,
    cluster::Cluster,
    git::Repository,
    konfigs::{self, RootPath, SHARED_NAME},
    objects::Objects,
    plain_core::{core_alone, spec_of},
    process::{Konverge, Outcome},
    repository_shapes,
};

fn konverge(repository: &Repository, arguments: &[&str]) -> Outcome {
    Konverge::new(arguments)
        .dir(repository.path())
        .with_kcl()
        .env("XDG_STATE_HOME", repository.path().join(".git/test-state"))
        .run()
}

fn stacks(repository: &Repository, arguments: &[&str]) -> Vec<Value> {
    let arguments = [&["affected", "--output", "json"], arguments].concat();
    let told = konverge(repository, &arguments).expect(0).json();
    told["stacks"].as_array().unwrap().clone()
}

fn ids(stacks: &[Value]) -> Vec<&str> {
    stacks.iter().map(|stack| stack["id"].as_str().unwrap()).collect()
}

/// Every stack built, and held against the core asked directly.
fn is_what_the_core_gives(repository: &Repository, count: usize) {
    let built = konverge(
        repository,
        &["build", "--all", "--output", "json", "--show-secrets"],
    )
    .expect(0);
    let built = built.json();
    let built = built["stacks"].as_array().unwrap();
    assert_eq!(built.len(), count);
    for stack in built {
        let folder = stack["stack"].as_str().unwrap();
        let spec = spec_of(stack);
        assert!(!spec.resources.is_empty(), "{folder}");
        assert_eq!(
            spec,
            core_alone(repository, folder),
            "{folder} is not what the core alone gives"
        );
    }
}

#[test]
fn every_stack_of_kcl_langs_konfig_is_what_the_core_alone_gives() {
    let repository = konfigs::kcl_lang(RootPath::Upwards);
    is_what_the_core_gives(&repository, 20);
    // The entry of the package counts as one: a change of it affects every stack.
    repository.write(
        "models/kube/render/render.k",
        repository
            .read("models/kube/render/render.k")
            .replace("\"main\"", "\"app\""),
    );
    assert_eq!(stacks(&repository, &["--worktree"]).len(), 20);
    is_what_the_core_gives(&repository, 20);
}

#[test]
fn every_stack_of_kusionstacks_konfig_is_what_the_core_alone_gives() {
    let old = konfigs::konfig_2022();
    old.write("konverge.yaml", "kcl: {settings: v0.7}\n")
        .commit("Settings");
    is_what_the_core_gives(&old, 28);
    is_what_the_core_gives(&konfigs::konfig_2023(), 28);
}

/// As published, each stack names the repository's own package by the folder that it was cloned into.
#[test]
fn the_published_paths_of_kcl_langs_konfig_mean_the_repository_itself() {
    let repository = konfigs::kcl_lang(RootPath::Published);
    let upwards = konfigs::kcl_lang(RootPath::Upwards);
    let build = |repository: &Repository| {
        konverge(repository, &["build", "--all", "--output", "json"])
            .expect(0)
            .stdout
    };
    assert!(build(&repository) == build(&upwards), "the same Specs");
    // Whatever the name of this checkout's folder is.
    repository.replace("models/kube/render/render.k", "\"main\"", "\"app\"");
    assert_eq!(stacks(&repository, &["--worktree"]).len(), 20);
    // The name of the package decides.
    repository.write("kcl.mod", "[package]\nname = \"else\"\n");
    let refused = konverge(&repository, &["build", "examples/server/app_service/prod"]).expect(1);
    assert!(
        refused
            .stderr
            .contains("`../../../../../konfig` leads out of the repository"),
        "{}",
        refused.stderr
    );
}

#[test]
fn a_path_that_leads_out_of_the_repository_names_the_path_to_write() {
    let repository = konfigs::kcl_lang(RootPath::Published);
    let folder = "examples/server/app_service/prod";
    let module = format!("{folder}/kcl.mod");
    // One level more than the folder around the checkout.
    repository.replace(&module, "../../../../../konfig", "../../../../../../work/konfig");
    let refused = konverge(&repository, &["build", folder]).expect(1);
    assert!(
        refused
            .stderr
            .contains("`../../../../../../work/konfig` leads out of the repository; write `../../../..`"),
        "{}",
        refused.stderr
    );
    repository.replace(&module, "../../../../../../work/konfig", "../../../..");
    konverge(&repository, &["build", folder]).expect(0);
    // An entry that leads out by the name of the checkout's folder, too.
    repository.replace(
        &module,
        "../base/base.k",
        "../../../../../konfig/examples/server/app_service/base/base.k",
    );
    let refused = konverge(&repository, &["build", folder]).expect(1);
    assert!(
        refused.stderr.contains("write `../base/base.k`"),
        "{}",
        refused.stderr
    );
    // Where nothing of that name is here, nothing is suggested.
    repository.write("kcl.mod", "[package]\nname = \"else\"\n");
    repository.replace(&module, "../../../..\" }", "../../../../../other\" }");
    let refused = konverge(&repository, &["build", folder]).expect(1);
    assert!(
        refused.stderr.contains("only files of the repository are read"),
        "{}",
        refused.stderr
    );
}

/// The stacks of packages behave as others do: they are added, removed, named and left out.
#[test]
fn packages_that_are_included_are_stacks() {
    let repository = repository_shapes::packages();
    assert!(stacks(&repository, &["--all"]).is_empty());
    repository
        .write("konverge.yaml", "include: ['examples/*/*/*']\n")
        .commit("Stacks");
    let all = stacks(&repository, &["--all"]);
    assert_eq!(all.len(), 20, "{:?}", ids(&all));
    assert!(ids(&all).contains(&"guestbook/prod"), "{:?}", ids(&all));
    assert_eq!(
        build(&repository),
        build(&konfigs::kcl_lang(RootPath::Upwards)),
        "the same Specs as with stack.yaml"
    );

    // A new package is a new stack, and one that goes is removed.
    let folder = "examples/appops/guestbook";
    for file in ["kcl.mod", "main.k"] {
        let text = repository.read(&format!("{folder}/dev/{file}"));
        repository.write(&format!("{folder}/canary/{file}"), text);
    }
    repository.commit("One more");
    let added = stacks(&repository, &["--base", "HEAD~1"]);
    assert_eq!(
        (ids(&added), &added[0]["change"]),
        (vec!["guestbook/canary"], &"added".into())
    );
    assert_eq!(added[0]["why"][0]["path"], format!("{folder}/canary/kcl.mod"));
    repository.remove(&format!("{folder}/canary")).commit("One less");
    let removed = stacks(&repository, &["--base", "HEAD~1"]);
    assert_eq!(
        (ids(&removed), &removed[0]["change"]),
        (vec!["guestbook/canary"], &"removed".into())
    );

    // Names of one's own, and folders that are left out.
    repository
        .write(&format!("{folder}/project.yaml"), "name: book\ntenant: acme\n")
        .write(&format!("{folder}/dev/stack.yaml"), "name: first\n")
        .write(
            "konverge.yaml",
            "include: ['examples/*/*/*']\nexclude: [examples/server]\n",
        )
        .commit("Names");
    let named = stacks(&repository, &["--all"]);
    assert_eq!(
        ids(&named),
        [
            "acme/book/first",
            "acme/book/prod",
            "acme/book/test",
            "http-echo/dev",
            "nginx-example/dev",
            "app_main_container/dev",
        ]
    );
    let wrong = konverge(
        repository.write("konverge.yaml", "include: ['examples/[']\n"),
        &["list"],
    );
    assert!(
        wrong
            .expect(1)
            .stderr
            .contains("include: `examples/[` is not a glob")
    );
}

fn build(repository: &Repository) -> String {
    konverge(repository, &["build", "--all", "--output", "manifests"])
        .expect(0)
        .stdout
}

#[test]
fn projects_of_one_name_are_known_by_their_folders_until_they_are_named() {
    let repository = konfigs::konfig_2023();
    let all = stacks(&repository, &["--all"]);
    let server: Vec<_> = ids(&all)
        .into_iter()
        .filter(|id| id.contains("/server/"))
        .collect();
    assert_eq!((all.len(), server.len()), (28, 10));
    assert!(
        server.contains(&"base/examples/server/app_service/prod"),
        "{server:?}"
    );
    assert!(ids(&all).contains(&"guestbook/dev"));
    // One message for all of it, in every command.
    for arguments in [
        &["affected", "--all"][..],
        &["build", "guestbook/dev"],
        &["preview", "--all", "--live", "never"],
    ] {
        let told = konverge(&repository, arguments).expect(0);
        assert_eq!(
            told.stderr.matches(SHARED_NAME).count(),
            1,
            "{arguments:?}: {}",
            told.stderr
        );
        assert!(told.stderr.contains("identity: PROJECT/STACK"), "{}", told.stderr);
    }

    // A change of one is a change of that one.
    let folder = "base/examples/server/app_service/prod";
    repository.replace(&format!("{folder}/main.k"), "replicas = 4", "replicas = 5");
    assert_eq!(ids(&stacks(&repository, &["--worktree"])), [folder]);
    repository.commit("Replicas");

    // A name for one of them: it is affected, and nothing else.
    repository.write(
        "konverge.yaml",
        format!("stacks: [{{match: {folder}, identity: web/prod}}]\n"),
    );
    repository.commit("Named");
    let named = stacks(&repository, &["--base", "HEAD~1"]);
    assert_eq!(ids(&named), ["web/prod"]);
    assert_eq!(named[0]["change"], "modified");
    assert_eq!(named[0]["why"][0]["path"], "konverge.yaml");
    assert_eq!(named[0]["why"].as_array().unwrap().len(), 1, "{named:?}");

    // Without the others there is nothing to tell apart; what is left out is not removed.
    repository.write(
        "konverge.yaml",
        "exclude: [base/examples, '!base/examples/server/app_volume']\n",
    );
    repository.commit("Examples are no stacks");
    let left = stacks(&repository, &["--all"]);
    assert_eq!(left.len(), 14, "{:?}", ids(&left));
    assert!(
        ids(&left).contains(&format!("{SHARED_NAME}/prod").as_str()),
        "{:?}",
        ids(&left)
    );
    let changed = stacks(&repository, &["--base", "HEAD~1"]);
    assert_eq!(ids(&changed), [format!("{SHARED_NAME}/prod")]);
    assert_eq!(changed[0]["change"], "modified");
}

#[test]
fn packages_are_no_stacks() {
    let repository = konfigs::one_stack();
    let example = |folder: &str| {
        repository
            .write(&format!("{folder}/kcl.mod"), "[package]\nname = \"lib\"\n")
            .write(&format!("{folder}/lib.k"), "schema Lib:\n    a: int\n")
            .write(&format!("{folder}/examples/demo/project.yaml"), "name: demo\n")
            .write(&format!("{folder}/examples/demo/dev/stack.yaml"), "name: dev\n")
            .write(&format!("{folder}/examples/demo/dev/main.k"), "a = 1\n");
    };
    example("vendor/lib_1.0.0");
    example("third_party/lib");
    // A package that nobody uses has stacks like any folder.
    assert_eq!(
        stacks(&repository, &["--all"]).len(),
        1,
        "git knows none of it yet"
    );
    repository.commit("Packages");
    assert_eq!(ids(&stacks(&repository, &["--all"])), ["shop/dev", "demo/dev"]);
    repository.write(
        "kcl.mod",
        "[package]\nname = \"shop\"\n[dependencies]\nlib = { path = \"third_party/lib\" }\n",
    );
    repository.commit("A dependency");
    let told = konverge(&repository, &["affected", "--all", "--output", "json"]).expect(0);
    assert_eq!(
        told.json()["stacks"].as_array().unwrap().len(),
        1,
        "{}",
        told.stdout
    );
    assert!(told.stderr.contains("'!third_party/lib/**'"), "{}", told.stderr);
    // What a change makes a package is left out, not removed.
    let changed = stacks(&repository, &["--base", "HEAD~1"]);
    assert!(
        changed.iter().all(|stack| stack["change"] != "removed"),
        "{changed:?}"
    );
    repository
        .write("konverge.yaml", "exclude: ['!third_party/lib/**']\n")
        .commit("Stacks all the same");
    assert_eq!(ids(&stacks(&repository, &["--all"])), ["shop/dev", "demo/dev"]);
}

/// A pull request that changes one stack.
fn change_is_green(stage: &mut Stage, changed: &str, from: &str, to: &str) {
    stage.monorepo.branch("change");
    let text = stage.monorepo.read(changed);
    assert!(text.contains(from), "{text}");
    stage.monorepo.write(changed, text.replace(from, to));
    let head = stage.monorepo.commit("A change");
    let second = stage.pull_request(2, "change", "opened");
    second.outcome.check(0);
    assert_eq!(
        stage.status(&head, "konverge/preview").as_deref(),
        Some("success")
    );
    let printed = format!("{}{}", second.outcome.stdout, second.outcome.stderr);
    assert_eq!(printed.matches("defines no clusters").count(), 1, "{printed}");
    let counts = " affected: 1 to change ";
    assert!(second.summary.contains(counts), "{}", second.summary);
}

/// `init`, commit, pull request, comment, merge; then a pull request that changes a stack. Answers what `init` said.
async fn first_pull_requests_are_green(
    monorepo: Repository,
    stacks: usize,
    changed: &str,
    from: &str,
    to: &str,
) -> String {
    first_pull_requests_are_green_in("", monorepo, stacks, changed, (from, to)).await
}

/// The same by somebody who works in a folder of the repository, as the jobs of its workflow do.
async fn first_pull_requests_are_green_in(
    folder: &str,
    monorepo: Repository,
    stacks: usize,
    changed: &str,
    (from, to): (&str, &str),
) -> String {
    let mut stage = Stage::newcomer(monorepo).await;
    stage.monorepo.branch("konverge");
    let here = stage.monorepo.path().join(folder);
    stage.env.push(("KONVERGE_REPO", here.display().to_string()));
    let said = Konverge::new(["init"]).dir(&here).with_kcl().run().expect(0);
    let said = format!("{}{}", said.stdout, said.stderr);
    assert!(said.contains(&format!("{stacks} of {stacks} compile")), "{said}");
    let head = stage.monorepo.commit("Konverge");
    let first = stage.pull_request(1, "konverge", "opened");
    first.outcome.check(0);
    assert_eq!(
        stage.status(&head, "konverge/preview").as_deref(),
        Some("success")
    );
    let verb = if stacks == 1 {
        "stack compiles"
    } else {
        "stacks compile"
    };
    let (_, comment) = stage.comments().remove(0);
    assert!(
        comment.contains(&format!("Konverge preview: {stacks} of {stacks} {verb}"))
            && comment.contains("This change adds `konverge.yaml`, so every stack was compiled."),
        "{comment}"
    );
    // There is no store yet: nothing is applied, and that is not a failure.
    let merged = stage.merge(1, "konverge");
    merged.outcome.check(0);
    let none = "nothing is applied: konverge.yaml configures no store";
    assert!(merged.summary.contains(none), "{}", merged.summary);
    let head = stage.monorepo.rev("main");
    assert_eq!(stage.status(&head, "konverge/apply").as_deref(), Some("success"));
    stage.schedule().outcome.check(0);
    change_is_green(&mut stage, changed, from, to);
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_pull_request_is_green_in_the_konfig_of_2022() {
    let changed = "appops/guestbook/dev/main.k";
    let said = first_pull_requests_are_green(
        konfigs::konfig_2022(),
        28,
        changed,
        "replicas = 3",
        "replicas = 4",
    )
    .await;
    assert!(said.contains("found: 28 stacks of 22 projects"), "{said}");
    assert!(said.contains("kcl.settings: v0.7"), "{said}");
    assert!(said.contains("known by their folder"), "{said}");
    assert!(said.contains("tried: `konverge affected --worktree`"), "{said}");
    assert!(said.contains("0.13.2    28 of 28 compile"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_pull_request_is_green_in_the_konfig_of_2023() {
    let changed = "appops/guestbook/dev/main.k";
    let said = first_pull_requests_are_green(
        konfigs::konfig_2023(),
        28,
        changed,
        "replicas = 3",
        "replicas = 4",
    )
    .await;
    assert!(said.contains("read as Kusion v0.9.0 does"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_pull_request_is_green_with_one_module_a_stack() {
    let changed = "examples/server/app_service/prod/main.k";
    let monorepo = konfigs::kcl_lang(RootPath::Upwards);
    let said = first_pull_requests_are_green(monorepo, 20, changed, "replicas = 4", "replicas = 5").await;
    assert!(said.contains("found: 20 stacks of 18 projects"), "{said}");
}

/// As published, kcl-lang's Konfig has neither `project.yaml` nor `stack.yaml`.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_pull_request_is_green_with_packages_alone() {
    let changed = "examples/server/app_service/prod/main.k";
    let monorepo = repository_shapes::packages();
    let said = first_pull_requests_are_green(monorepo, 20, changed, "replicas = 4", "replicas = 5").await;
    assert!(said.contains("found: 20 stacks of 18 projects"), "{said}");
    assert!(
        said.contains(
            "packages with a program are the stacks (`include` in konverge.yaml: `examples/*/*/*`)"
        ),
        "{said}"
    );
}

/// Today's Konfig: each stack is a package with AppConfigurations.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_pull_request_is_green_with_app_configurations() {
    let monorepo = Repository::init();
    monorepo.write("kcl.mod", "[package]\nname = \"apps\"\n");
    for folder in ["example/quickstart/dev", "example/web/dev"] {
        apps::write_stack(&monorepo, folder, ("0.2.1", "0.3.0"), apps::QUICKSTART);
    }
    monorepo.commit("Applications");
    let changed = "example/web/dev/main.k";
    let said = first_pull_requests_are_green(monorepo, 2, changed, "port: 8080", "port: 8081").await;
    assert!(said.contains("2 stacks hold AppConfigurations"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_pull_request_is_green_in_a_subfolder() {
    let changed = "platform/konfig/shop/dev/main.k";
    let monorepo = konfigs::subfolder("platform/konfig");
    let folder = "platform/konfig";
    let said = first_pull_requests_are_green_in(folder, monorepo, 1, changed, ("one", "two")).await;
    assert!(
        said.contains("1 stack of 1 project in `platform/konfig`"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_pull_request_is_green_with_one_stack() {
    let monorepo = konfigs::one_stack();
    let said = first_pull_requests_are_green(monorepo, 1, "shop/dev/main.k", "one", "two").await;
    assert!(said.contains("found: 1 stack of 1 project"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_pull_request_is_green_in_a_repository_that_was_empty() {
    let monorepo = Repository::init();
    konfigs::write_one_stack(&monorepo, "");
    let said = konverge(&monorepo, &["init"]).expect(0).stderr;
    assert!(said.contains("found: 1 stack of 1 project"), "{said}");
    assert!(said.contains("git add -A && git commit"), "{said}");
    monorepo.commit("One stack, and Konverge");
    let mut stage = Stage::newcomer(monorepo).await;
    change_is_green(&mut stage, "shop/dev/main.k", "one", "two");
}

/// The commonest KCL repository: one package, which is the repository.
#[tokio::test(flavor = "multi_thread")]
async fn a_package_at_the_root_is_a_stack_from_init_to_its_removal() {
    let cluster = Cluster::shared();
    let (namespace, objects) = (cluster.namespace("at-root").await, Objects::of(cluster).await);
    let program = |word: &str| konfigs::config_map(word).replace("default", &namespace);
    let repository = Repository::init();
    repository
        .write("kcl.mod", "[package]\nname = \"shop\"\nedition = \"0.0.1\"\n")
        .write("main.k", program("one"))
        .commit("A package");
    let said = konverge(&repository, &["init"]).expect(0).stderr;
    assert!(said.contains("found: 1 stack of 1 project"), "{said}");
    assert!(!said.contains("0.0.1"), "{said}");
    let config = repository.read("konverge.yaml") + "clusters: {test: {}}\n";
    repository.write("konverge.yaml", config).commit("Konverge");
    let listed = konverge(&repository, &["list"]).expect(0).stdout;
    assert!(listed.starts_with("root/default"), "{listed}");
    let here = |arguments: &[&str]| {
        Konverge::new(arguments)
            .dir(repository.path())
            .with_kcl()
            .env("XDG_STATE_HOME", repository.path().join(".git/test-state"))
            .env("KUBECONFIG", cluster.kubeconfig())
            .run()
    };
    // A Spec from a file is recorded in no folder: the stack at the root is not what continues it.
    let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}});
    let spec = json!({"resources": [{"id": format!("v1:ConfigMap:{namespace}:alone"), "type": "Kubernetes", "attributes": map("alone")}]});
    let file = repository.path().join(".git/alone.json");
    std::fs::write(&file, spec.to_string()).unwrap();
    here(&["apply", "--yes", "--spec", ".git/alone.json"]).expect(0);

    here(&["apply", "root/default", "--yes", "--rev", "HEAD"]).expect(0);
    assert!(objects.get(&map("alone")).await.is_some());
    repository.write("main.k", program("two")).commit("Two");
    let affected = stacks(&repository, &["--base", "HEAD~1"]);
    assert_eq!(ids(&affected), ["root/default"]);
    here(&["apply", "--pending", "--yes", "--rev", "HEAD"]).expect(0);
    assert_eq!(
        objects.get(&map("settings")).await.unwrap()["data"]["word"],
        "two"
    );

    // Its folder is recorded as the root, so its removal is one.
    repository
        .write("main.k", program("three").replace("settings", "Not A Name"))
        .commit("Refused");
    here(&["apply", "--pending", "--yes", "--rev", "HEAD"]).expect(1);
    repository.remove("main.k");
    repository
        .write("lib/kcl.mod", "[package]\nname = \"lib\"\n")
        .remove("kcl.mod");
    repository.commit("Gone");
    here(&["apply", "--pending", "--yes", "--rev", "HEAD"]).expect(0);
    assert!(objects.get(&map("settings")).await.is_none());
    assert!(objects.get(&map("alone")).await.is_some());
}

/// A package at the root that is run with several settings files: what `init` prints makes a stack of each.
#[test]
fn each_settings_file_at_the_root_becomes_a_stack_by_the_printed_lines() {
    let repository = Repository::init();
    let settings = |word: &str| format!("# Kept as it is.\nkcl_options:\n  - key: word\n    value: {word}\n");
    let program = konfigs::config_map("one").replace("\"one\"", "option(\"word\")");
    repository
        .write("kcl.mod", "[package]\nname = \"shop\"\n")
        .write("main.k", program)
        .write("dev.yaml", settings("no"))
        .write("prod.yaml", settings("0755"))
        .write("values.yaml", "replicas: 3\n")
        .commit("A package");
    let said = konverge(&repository, &["init"]).stderr;
    let hint = "For one stack for each of `dev.yaml`, `prod.yaml`: run these lines";
    assert!(said.contains(hint), "{said}");
    let lines: Vec<_> = said
        .lines()
        .filter_map(|line| line.strip_prefix("  ").filter(|line| line.contains(" > ")))
        .collect();
    assert_eq!(lines.len(), 3, "{said}");
    for line in lines {
        let done = std::process::Command::new("sh")
            .args(["-c", line])
            .current_dir(repository.path())
            .status();
        assert!(done.unwrap().success(), "{line}");
    }
    repository.replace("konverge.yaml", "include:\n  - \".\"\n", "");
    repository.commit("Stacks");
    let built = konverge(&repository, &["build", "--all", "--output", "json"]).expect(0);
    let words: Vec<_> = built.json()["stacks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stack| {
            let word = &spec_of(stack).resources[0].attributes["data"]["word"];
            (
                stack["id"].as_str().unwrap().to_owned(),
                word.as_str().unwrap().to_owned(),
            )
        })
        .collect();
    let expected = [("root/dev", "no"), ("root/prod", "0755")];
    assert_eq!(words, expected.map(|(id, word)| (id.to_owned(), word.to_owned())));
}

#[test]
fn a_repository_without_a_module_is_told_so() {
    let repository = Repository::init();
    repository.write("README.md", "Nothing yet.\n").commit("Nothing");
    let said = konverge(&repository, &["init"]).expect(0);
    assert!(
        said.stderr.contains("there is no `kcl.mod`")
            && said.stderr.contains("with `[package]` and a `name`"),
        "{}",
        said.stderr
    );
    assert!(!said.stderr.contains("tried:"), "{}", said.stderr);
}

#[test]
fn a_version_of_kcl_that_cannot_be_installed_is_said() {
    let repository = konfigs::one_stack();
    // As the first publication of KusionStack's Konfig has it.
    let module = repository.read("kcl.mod") + "[expected]\nkclvm_version = \"v0.4.6\"\n";
    repository.write("kcl.mod", module).commit("An older KCL");
    let said = konverge(&repository, &["init"]).expect(0).stderr;
    assert!(
        said.contains("kcl.mod names 0.4.6, which cannot be installed"),
        "{said}"
    );
    assert!(
        repository.read("konverge.yaml").contains("version: 0.13.2"),
        "{said}"
    );
}

#[test]
fn contexts_of_the_kubeconfig_are_offered() {
    let repository = konfigs::one_stack();
    let kubeconfig = repository.path().join(".git/kubeconfig");
    std::fs::write(
        &kubeconfig,
        "current-context: kind-two\ncontexts: [{name: kind-one}, {name: kind-two}]\n",
    )
    .unwrap();
    let said = Konverge::new(["init"])
        .dir(repository.path())
        .with_kcl()
        .env("KUBECONFIG", &kubeconfig)
        .run()
        .expect(0);
    assert!(
        said.stderr.contains("2 contexts of your kubeconfig"),
        "{}",
        said.stderr
    );
    let config = repository.read("konverge.yaml");
    assert!(
        config.starts_with("# yaml-language-server: $schema=https://"),
        "{config}"
    );
    let (one, two) = (
        config.find("#   kind-one:").unwrap(),
        config.find("#   kind-two:").unwrap(),
    );
    assert!(two < one, "the current one is first: {config}");
}
