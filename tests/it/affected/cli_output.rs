//! `konverge affected` and `konverge graph` as a user types them: what they say explains itself, in every form.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{git::Repository, process::Konverge};

const SHARED: &str = "base/pkg/frontend/server.k";

fn said(repository: &Repository, arguments: &[&str]) -> String {
    let run = Konverge::new(arguments.iter().copied()).dir(repository.path());
    run.run().expect(0).stdout
}

fn json(repository: &Repository, arguments: &[&str]) -> Value {
    serde_json::from_str(&said(repository, arguments)).unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The example, with one line of a package changed that nearly every stack builds on.
fn one_line_changed() -> Repository {
    let repository = Repository::konfig_example();
    repository.branch("change");
    let text = repository.read(SHARED);
    repository.write(SHARED, format!("{text}\n_one_line = 1\n"));
    repository.commit("one line");
    repository
}

/// A stack by its folder, with its change and the kinds and chains of why.
type Row = (String, String, Vec<(String, String)>);

fn rows(answer: &Value) -> Vec<Row> {
    let rows = answer["stacks"].as_array().unwrap().iter().map(|stack| {
        let why = stack["why"].as_array().unwrap().iter().map(|why| {
            let chain: Vec<&str> = why["chain"].as_array().unwrap().iter().map(text).collect();
            assert_eq!(text(&why["path"]), chain[0]);
            assert_eq!(
                chain.last().copied(),
                Some(text(&stack["stack"])),
                "it ends at the stack"
            );
            (text(&why["kind"]).to_owned(), chain.join(" > "))
        });
        (
            text(&stack["stack"]).to_owned(),
            text(&stack["change"]).to_owned(),
            why.collect(),
        )
    });
    rows.collect()
}

#[test]
fn one_line_of_a_shared_package_explains_itself() {
    let repository = one_line_changed();
    let answer = json(&repository, &["affected", "--output", "json"]);
    let rows = rows(&answer);
    // Who builds on it, by the graph: nobody else is named, and nobody is missed.
    let graph = json(
        &repository,
        &["graph", "--downstream", SHARED, "--output", "json"],
    );
    let downstream: BTreeSet<&str> = graph["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|node| node["kind"] == "stack")
        .map(|node| text(&node["path"]))
        .collect();
    let named: BTreeSet<&str> = rows.iter().map(|(stack, ..)| stack.as_str()).collect();
    assert_eq!(named, downstream);
    assert!(named.len() >= 8, "{named:?}");
    for (stack, change, why) in &rows {
        assert_eq!(change, "modified");
        assert_eq!(why.len(), 1, "{stack}: one file changed, so there is one reason");
        assert_eq!(why[0].0, "import");
    }
    // The text says the file, each stack, and every link between.
    let told = said(&repository, &["affected"]);
    for (stack, _, why) in &rows {
        assert!(told.contains(stack.as_str()), "{stack}: {told}");
        for link in why[0].1.split(" > ") {
            assert!(told.contains(link), "{link}: {told}");
        }
    }
    // The picture has a box for each of them; the list of folders is the stacks alone.
    let drawn = said(&repository, &["affected", "--output", "mermaid"]);
    assert!(drawn.starts_with("graph LR\n"), "{drawn}");
    assert!(
        named
            .iter()
            .all(|stack| drawn.contains(&format!("([\"{stack}\"])"))),
        "{drawn}"
    );
    assert!(drawn.contains(&format!("[[\"{SHARED}\"]]")), "{drawn}");
    let folders = said(&repository, &["affected", "--output", "folders"]);
    assert_eq!(folders.lines().collect::<BTreeSet<_>>(), named);
}

#[test]
fn the_graph_is_told_in_every_form_up_and_down() {
    let repository = one_line_changed();
    let whole = json(&repository, &["graph", "--output", "json"]);
    let nodes = |graph: &Value| -> BTreeSet<(String, String)> {
        let nodes = graph["nodes"].as_array().unwrap().iter();
        nodes
            .map(|node| (text(&node["kind"]).to_owned(), text(&node["path"]).to_owned()))
            .collect()
    };
    assert_eq!(whole["version"], 1);
    let all = nodes(&whole);
    let has = |nodes: &BTreeSet<(String, String)>, kind: &str, path: &str| {
        nodes.contains(&(kind.to_owned(), path.to_owned()))
    };
    assert!(has(&all, "stack", "appops/orders/dev"));
    assert!(has(&all, "package", "base/pkg/frontend"));
    assert!(has(&all, "file", SHARED));
    // `application.toml` is read at run time by `base.k` beside it.
    assert!(
        all.iter()
            .any(|(kind, path)| kind == "data" && path.starts_with("appops/orders/base"))
    );
    for edge in whole["edges"].as_array().unwrap() {
        for end in ["from", "to"] {
            assert!(
                has(&all, text(&edge[end]["kind"]), text(&edge[end]["path"])),
                "{edge}"
            );
        }
    }
    // Up from a stack: all that it is made of, nothing of another one. `kusion deps` missed the settings.
    let up = nodes(&json(
        &repository,
        &["graph", "--upstream", "appops/orders/dev", "--output", "json"],
    ));
    for path in [
        SHARED,
        "appops/orders/base/base.k",
        "appops/orders/dev/main.k",
        "appops/orders/dev/kcl.yaml",
        "appops/orders/dev/ci-test/settings.yaml",
        "appops/orders/dev/stack.yaml",
        "appops/orders/project.yaml",
    ] {
        assert!(has(&up, "file", path), "{path}: {up:?}");
    }
    assert!(
        !up.iter()
            .any(|(_, path)| path.contains("orders/prod") || path.contains("uploads")),
        "{up:?}"
    );
    // Down from its own file: this stack alone.
    let down = nodes(&json(
        &repository,
        &[
            "graph",
            "--downstream",
            "appops/orders/dev/main.k",
            "--output",
            "json",
        ],
    ));
    let stacks: Vec<_> = down
        .iter()
        .filter(|(kind, _)| kind == "stack")
        .map(|(_, path)| path.as_str())
        .collect();
    assert_eq!(stacks, ["appops/orders/dev"]);
    assert!(down.is_subset(&all) && up.is_subset(&all));
    // The other forms name the same.
    let one = ["graph", "--downstream", "appops/orders/dev/main.k", "--output"];
    let forms = ["text", "dot", "mermaid"].map(|form| said(&repository, &[&one[..], &[form]].concat()));
    assert!(forms[1].starts_with("digraph"), "{}", forms[1]);
    assert!(forms[2].starts_with("graph LR\n"), "{}", forms[2]);
    for (_, path) in &down {
        assert!(
            forms.iter().all(|form| form.contains(path.as_str())),
            "{path}: {forms:?}"
        );
    }
    // Each node is followed by what it depends on.
    let edges = whole["edges"].as_array().unwrap();
    let edge = edges
        .iter()
        .find(|edge| edge["from"]["path"] == "appops/orders/dev")
        .unwrap();
    let to = format!("  → {} {}", text(&edge["to"]["kind"]), text(&edge["to"]["path"]));
    let said_text = said(&repository, &["graph"]);
    let below = said_text
        .lines()
        .skip_while(|line| *line != "stack appops/orders/dev")
        .skip(1)
        .take_while(|line| line.starts_with("  "));
    assert!(
        below.collect::<Vec<_>>().contains(&to.as_str()),
        "{to}: {said_text}"
    );
    let unknown = Konverge::new(["graph", "--upstream", "nowhere.k"])
        .dir(repository.path())
        .run()
        .expect(64);
    assert!(unknown.stderr.contains("nowhere.k"), "{}", unknown.stderr);
}

/// What is not committed counts with `--worktree` alone, files that git does not know yet too.
#[test]
fn the_working_tree_is_looked_at_on_request() {
    let repository = Repository::konfig_example();
    let main = repository.read("appops/orders/dev/main.k");
    repository.write("appops/orders/dev/main.k", format!("{main}\n_more = 1\n"));
    repository.write("base/pkg/frontend/fresh.k", "_fresh = 1\n");
    assert!(rows(&json(&repository, &["affected", "--output", "json"])).is_empty());
    let answer = json(&repository, &["affected", "--worktree", "--output", "json"]);
    assert_eq!(answer["head"], Value::Null);
    let rows = rows(&answer);
    let orders = rows
        .iter()
        .find(|(stack, ..)| stack == "appops/orders/dev")
        .unwrap();
    let edited = "appops/orders/dev/main.k > appops/orders/dev".to_owned();
    assert_eq!(orders.2[0], ("entry".to_owned(), edited));
    assert!(
        orders
            .2
            .iter()
            .any(|(_, chain)| chain.starts_with("base/pkg/frontend/fresh.k > ")),
        "{orders:?}"
    );
    assert!(rows.len() >= 8, "a new sibling is part of its package: {rows:?}");
}

#[test]
fn stacks_and_projects_that_come_go_and_move() {
    let repository = Repository::konfig_example();
    repository.branch("change");
    repository.rename("appops/uploads/dev", "appops/uploads/development");
    repository.remove("appops/orders/prod");
    repository.write("appops/fresh/project.yaml", "name: fresh\n");
    repository.write("appops/fresh/dev/stack.yaml", "name: dev\n");
    repository.write(
        "appops/fresh/dev/kcl.yaml",
        "kcl_cli_configs:\n  files: [main.k]\n",
    );
    repository.write("appops/fresh/dev/main.k", "x = 1\n");
    repository.commit("all at once");
    let answer = json(&repository, &["affected", "--output", "json"]);
    let ids: Vec<_> = answer["stacks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stack| text(&stack["id"]))
        .collect();
    assert_eq!(ids, ["fresh/dev", "orders/prod", "uploads/dev"]);
    let rows = rows(&answer);
    let changes: Vec<_> = rows
        .iter()
        .map(|(stack, change, _)| (stack.as_str(), change.as_str()))
        .collect();
    let expected = [
        ("appops/fresh/dev", "added"),
        ("appops/orders/prod", "removed"),
        ("appops/uploads/development", "modified"),
    ];
    assert_eq!(changes, expected, "git mv destroys nothing");
    assert!(rows[2].2.iter().any(|(kind, _)| kind == "moved"), "{rows:?}");
    // A project that moves as a whole, its name kept: the same identities.
    repository.branch("again");
    repository.rename("appops/sessions", "teams/sessions");
    repository.commit("a project moves");
    let answer = json(&repository, &["affected", "--base", "change", "--output", "json"]);
    let moved: Vec<_> = answer["stacks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stack| (text(&stack["id"]), text(&stack["change"])))
        .collect();
    assert_eq!(
        moved,
        [
            ("platform/sessions/dev", "modified"),
            ("platform/sessions/prod", "modified")
        ]
    );
}

/// One edit of each input that no import shows, with the stacks and kinds that it must give.
#[test]
fn every_other_input_is_told_by_its_kind() {
    let repository = Repository::konfig_example();
    let module = "[package]\nname = \"konfig\"\n\n[dependencies]\nk8s = \"1.31\"\n";
    let locked = |sum: &str| {
        format!(
            "[dependencies.k8s]\nname = \"k8s\"\nfull_name = \"k8s_1.31\"\nversion = \"1.31\"\nsum = \"{sum}\"\n"
        )
    };
    repository
        .write("kcl.mod", module)
        .write("kcl.mod.lock", locked("aaaa"));
    repository.commit("a dependency");
    let one = ["appops/orders/dev"].as_slice();
    let project = ["appops/orders/dev", "appops/orders/prod"].as_slice();
    let configuration = repository.read("konverge.yaml");
    let settings = repository.read("appops/orders/dev/ci-test/settings.yaml");
    let cases: [(&str, String, &str, Option<&[&str]>); 9] = [
        (
            "appops/orders/dev/stack.yaml",
            "name: dev\n# touched\n".into(),
            "stack",
            Some(one),
        ),
        (
            "appops/orders/project.yaml",
            "name: orders\n# touched\n".into(),
            "project",
            Some(project),
        ),
        (
            "appops/orders/crd/new.yaml",
            "kind: CustomResourceDefinition\n".into(),
            "crd",
            Some(project),
        ),
        (
            "appops/orders/base/application.toml",
            "touched = 1\n".into(),
            "data",
            Some(project),
        ),
        (
            "appops/orders/dev/ci-test/settings.yaml",
            format!("{settings}  - key: more\n    value: 1\n"),
            "options",
            Some(one),
        ),
        (
            "appops/orders/dev/kcl.yaml",
            "kcl_cli_configs:\n  files: [main.k]\n".into(),
            "settings",
            Some(one),
        ),
        ("kcl.mod.lock", locked("bbbb"), "module", None),
        (
            "konverge.yaml",
            configuration.replace("version: 0.13.2", "version: 0.13.0"),
            "compiler",
            None,
        ),
        (
            "konverge.yaml",
            format!("{configuration}  - match: appops/orders/dev\n    ignore: [/spec/replicas]\n"),
            "config",
            Some(one),
        ),
    ];
    let all = rows(&json(&repository, &["affected", "--all", "--output", "json"])).len();
    for (number, (path, text, kind, stacks)) in cases.into_iter().enumerate() {
        repository.checkout("main").branch(&format!("case{number}"));
        repository.write(path, text);
        repository.commit(path);
        let rows = rows(&json(&repository, &["affected", "--output", "json"]));
        let named: Vec<_> = rows.iter().map(|(stack, ..)| stack.as_str()).collect();
        match stacks {
            Some(stacks) => assert_eq!(named, stacks, "{path}"),
            None => assert_eq!(named.len(), all, "{path}: {named:?}"),
        }
        for (stack, _, why) in &rows {
            let told = (kind.to_owned(), format!("{path} > {stack}"));
            let by_reader = |(known, chain): &(String, String)| known == kind && chain.starts_with(path);
            assert!(
                why.contains(&told) || (kind == "data" && why.iter().any(by_reader)),
                "{path}: {why:?}"
            );
        }
    }
}

/// A submodule is an input like any other: checked out by its files, else by the commit that it stands at.
#[test]
fn a_submodule_that_moves_on_affects_what_imports_it() {
    let library = Repository::init();
    library.write("lib.k", "lib = 1\n").commit("one");
    let repository = Repository::init();
    repository.write("kcl.mod", "");
    repository.write("apps/a/project.yaml", "name: a\n");
    for (stack, text) in [
        ("uses", "import shared\n\nx = shared.lib\n"),
        ("does-not", "x = 1\n"),
    ] {
        let folder = format!("apps/a/{stack}");
        repository.write(&format!("{folder}/stack.yaml"), format!("name: {stack}\n"));
        repository.write(
            &format!("{folder}/kcl.yaml"),
            "kcl_cli_configs:\n  files: [main.k]\n",
        );
        repository.write(&format!("{folder}/main.k"), text);
    }
    let url = library.path().to_str().unwrap().to_owned();
    let allowed = "protocol.file.allow=always";
    repository.git([
        "-c",
        allowed,
        "submodule",
        "--quiet",
        "add",
        url.as_str(),
        "shared",
    ]);
    repository.commit("with a submodule");
    repository.branch("change");
    library.write("lib.k", "lib = 2\n").commit("two");
    repository.git(["-c", allowed, "submodule", "--quiet", "update", "--remote"]);
    repository.commit("it moves on");
    let here = rows(&json(&repository, &["affected", "--output", "json"]));
    let chain = |path: &str| {
        (
            "import".to_owned(),
            format!("{path} > apps/a/uses/main.k > apps/a/uses"),
        )
    };
    let why = vec![chain("shared"), chain("shared/lib.k")];
    assert_eq!(here, [("apps/a/uses".to_owned(), "modified".to_owned(), why)]);
    // A clone that never checked it out.
    let clone = repository.clone_with(&["--branch", "change"]);
    let there = rows(&json(
        &clone,
        &["affected", "--output", "json", "--base", "origin/main"],
    ));
    let named: Vec<_> = there.iter().map(|(stack, ..)| stack.as_str()).collect();
    assert_eq!(named, ["apps/a/uses"]);
    assert!(
        there[0].2.iter().all(|(_, chain)| chain.starts_with("shared > ")),
        "{there:?}"
    );
}
