//! The docs: pages that are generated are up to date, links lead somewhere, and YAML blocks of konverge.yaml are valid.
//! That every command is known is a unit test of the command line.

use std::{
    fs,
    path::{Path, PathBuf},
};

use konverge_config::Config;
use konverge_stack_test_language::StackTest;

use crate::support::{ci_stage::Stage, cluster::Cluster, git::Repository, process::Konverge};
pub use crate::support::{
    pages::{blocks, pages},
    root,
};

#[test]
fn generated_pages_are_up_to_date() {
    for (page, file) in [
        ("commands", "commands.md"),
        ("config", "konverge-yaml.md"),
        ("environment", "environment.md"),
        ("errors", "errors.md"),
        ("plan", "plan.schema.json"),
    ] {
        let made = Konverge::new(["__reference", page]).run().expect(0).stdout;
        let path = root().join("docs/reference").join(file);
        let there = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            made == there,
            "{} is old: `konverge __reference {page} > {}`",
            path.display(),
            path.display()
        );
    }
}

/// The file that `# yaml-language-server: $schema=…` names, as the site serves it.
#[test]
fn the_schema_of_konverge_yaml_is_up_to_date() {
    let made = Konverge::new(["config", "schema"]).run().expect(0).stdout;
    let path = root().join("docs/reference/konverge.schema.json");
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        made == there,
        "{} is old: `konverge config schema > {}`",
        path.display(),
        path.display()
    );
}

/// Manifests that the docs show are what a real API server takes.
#[tokio::test]
async fn manifests_that_are_shown_are_taken() {
    let cluster = Cluster::shared();
    let config = cluster.kubeconfig();
    let mut seen = 0;
    for page in pages() {
        for block in blocks(&fs::read_to_string(&page).unwrap(), "yaml") {
            if block.starts_with("apiVersion:") {
                let folder = tempfile::tempdir().unwrap();
                let file = folder.path().join("spec.yaml");
                let resources: Vec<_> = konverge_base::yaml::documents(&block)
                    .unwrap()
                    .into_iter()
                    .map(|object| {
                        let name = object["metadata"]["name"].as_str().unwrap();
                        let (version, kind) = (
                            object["apiVersion"].as_str().unwrap(),
                            object["kind"].as_str().unwrap(),
                        );
                        let id = match object["metadata"]["namespace"].as_str() {
                            Some(namespace) => format!("{version}:{kind}:{namespace}:{name}"),
                            None => format!("{version}:{kind}:{name}"),
                        };
                        seen += 1;
                        serde_json::json!({"id": id, "type": "Kubernetes", "attributes": object})
                    })
                    .collect();
                fs::write(&file, serde_json::json!({"resources": resources}).to_string()).unwrap();
                let previewed =
                    Konverge::new(["preview", "--live", "required", "--output", "json", "--spec"])
                        .arg(&file)
                        .arg("--kubeconfig")
                        .arg(&config)
                        .run();
                let plan: serde_json::Value = serde_json::from_str(&previewed.stdout).unwrap_or_else(|_| {
                    panic!("{}: {}{}", page.display(), previewed.stdout, previewed.stderr)
                });
                let stack = &plan["stacks"][0];
                assert!(stack["error"].is_null(), "{}: {stack}", page.display());
                assert_eq!(stack["summary"]["create"], resources.len(), "{stack}");
            }
        }
    }
    assert!(seen >= 4, "{seen} manifests");
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for (at, _) in text.match_indices("](") {
            let target: String = text[at + 2..].chars().take_while(|c| *c != ')').collect();
            let file = target.split('#').next().unwrap_or_default();
            let outside = target.contains("://") || file.is_empty();
            if !outside && !page.parent().unwrap().join(Path::new(file)).exists() {
                wrong.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn configurations_that_are_shown_are_valid() {
    let mut seen = 0;
    for page in pages() {
        for block in blocks(&fs::read_to_string(&page).unwrap(), "yaml") {
            if block.starts_with("version: 1") {
                seen += 1;
                Config::parse(&block).unwrap_or_else(|error| panic!("{}: {error}\n{block}", page.display()));
            }
        }
    }
    assert!(seen >= 2, "{seen} blocks");
}

#[test]
fn stack_tests_and_hooks_that_are_shown_are_valid() {
    let hooks = fs::read_to_string(root().join(".pre-commit-hooks.yaml")).unwrap();
    let hooks: serde_json::Value = konverge_base::yaml::from_str(&hooks).unwrap();
    let ids: Vec<_> = hooks.as_array().unwrap().iter().map(|hook| &hook["id"]).collect();
    let (mut tests, mut shown_hooks) = (0, 0);
    for page in pages() {
        for block in blocks(&fs::read_to_string(&page).unwrap(), "yaml") {
            let document: serde_json::Value = konverge_base::yaml::documents(&block).unwrap().remove(0);
            if document["assert"].is_array() || document["steps"].is_array() {
                tests += 1;
                StackTest::parse(&block)
                    .unwrap_or_else(|error| panic!("{}: {error}\n{block}", page.display()));
            }
            for hook in document["repos"].as_array().into_iter().flatten() {
                for hook in hook["hooks"].as_array().unwrap() {
                    shown_hooks += 1;
                    assert!(ids.contains(&&hook["id"]), "{}: {hook}", page.display());
                }
            }
        }
    }
    assert!(
        tests >= 2 && shown_hooks >= 2,
        "{tests} tests, {shown_hooks} hooks"
    );
}

/// Every YAML block is one that a test looks at: a configuration, a workflow, manifests, GitLab's component,
/// rules in CEL, resources of a Spec, stack tests, the hooks of pre-commit.
#[test]
fn blocks_that_are_shown_are_of_a_known_kind() {
    for page in pages() {
        for block in blocks(&fs::read_to_string(&page).unwrap(), "yaml") {
            let documents = konverge_base::yaml::documents(&block);
            let documents = documents.unwrap_or_else(|error| panic!("{}: {error}\n{block}", page.display()));
            let known = |document: &serde_json::Value| {
                document["version"] == 1
                    || document["jobs"].is_object()
                    || document["kind"].is_string()
                    || document["stages"].is_array()
                    || document["rules"].is_array()
                    || document["resources"].is_array()
                    || document["assert"].is_array()
                    || document["steps"].is_array()
                    || document["repos"].is_array()
                    || document["include"].is_array()
                    || document["spec"]["inputs"].is_object()
            };
            assert!(
                documents.iter().all(known),
                "{}: of no known kind:\n{block}",
                page.display()
            );
        }
    }
}

/// Every key that a command prints is described in its section of the page.
#[test]
fn json_documents_are_described() {
    let monorepo = Repository::konfig_example();
    monorepo.replace("appops/storefront/dev/main.k", "2.4.0-rc.1", "2.4.0-rc.2");
    monorepo.commit("A newer build");
    let page = fs::read_to_string(root().join("docs/reference/json.md")).unwrap();
    let objects = root().join("tests/fixtures/health/objects.yaml");
    let objects = objects.to_str().unwrap();
    let commands: [(&str, &[&str]); 10] = [
        ("list", &["list"]),
        ("affected", &["affected", "--base", "HEAD~1"]),
        ("graph", &["graph"]),
        ("build", &["build", "storefront/dev"]),
        ("build", &["build", "storefront/dev", "storefront/prod"]),
        ("preview", &["preview", "--base", "HEAD~1", "--live", "never"]),
        ("check", &["check", "storefront/dev"]),
        ("health", &["health", objects]),
        ("state doctor", &["state", "doctor"]),
        ("Errors", &["build", "no/such"]),
    ];
    for (section, arguments) in commands {
        let printed = Konverge::new(arguments.iter().chain(&["--output", "json"]))
            .dir(monorepo.path())
            .with_kcl()
            .run()
            .stdout;
        described(&page, section, &printed);
    }
}

/// The same for what takes a cluster and a store: what is applied, what drifted, how it stands, what is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn json_documents_of_what_is_applied_are_described() {
    let page = fs::read_to_string(root().join("docs/reference/json.md")).unwrap();
    let mut stage = Stage::small("").await;
    stage.reviewed(7, "json", |stage| {
        stage.stack("json/dev", &[("json-web", "one"), ("json-db", "one")]);
    });
    let merged = stage.merge(7, "json");
    merged.outcome.check(0);
    let result = fs::read_to_string(merged.output("result-path")).unwrap();
    assert!(result.contains("\"pullRequests\""), "{result}");
    described(&page, "apply", &result);
    let stopped = stage.straight_to_main(|stage| stage.stack("json/prod", &[("json-prod", "one")]));
    stopped.outcome.check(3);
    described(
        &page,
        "apply",
        &fs::read_to_string(stopped.output("result-path")).unwrap(),
    );
    stage.by_hand("json-web", Some("two")).await;
    let commands: [(&str, &[&str], i32); 10] = [
        ("adopt", &["adopt"], 0),
        ("apply", &["apply", "--yes", "json/prod"], 0),
        ("preview", &["drift"], 0),
        ("preview", &["preview", "--all"], 0),
        ("status", &["status"], 0),
        ("doctor", &["doctor"], 0),
        ("state", &["state", "list"], 0),
        ("state", &["state", "show", "json/dev"], 0),
        ("state", &["state", "history", "json/dev"], 0),
        ("state", &["state", "pull", "json/dev"], 0),
    ];
    for (section, arguments, code) in commands {
        let ran = stage
            .konverge(arguments.iter().chain(&["--output", "json"]).copied())
            .run();
        assert_eq!(
            ran.code,
            Some(code),
            "{arguments:?}: {}{}",
            ran.stdout,
            ran.stderr
        );
        described(&page, section, &ran.stdout);
    }
    let destroyed = stage
        .konverge(["destroy", "--yes", "json/dev", "json/prod", "--output", "json"])
        .run()
        .expect(0);
    described(&page, "apply", &destroyed.stdout);
}

/// Every key of a document stands in its section of the page, or among those that all sections share.
fn described(page: &str, section: &str, printed: &str) {
    let document: serde_json::Value =
        serde_json::from_str(printed).unwrap_or_else(|error| panic!("{section}: {error}: {printed}"));
    let (shared, _) = page.split_once("\n## ").unwrap();
    let (_, text) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let text = shared.to_owned() + text.split("\n## ").next().unwrap();
    let mut keys = Vec::new();
    collect(&document, &mut keys);
    assert!(keys.len() >= 3, "{section}: {keys:?}");
    for key in keys {
        assert!(
            text.contains(&format!("`{key}`")),
            "{section}: `{key}` is not described: {printed}"
        );
    }
}

/// The keys of a document; objects of the user's own are not looked into.
fn collect(value: &serde_json::Value, keys: &mut Vec<String>) {
    match value {
        serde_json::Value::Array(items) => items.iter().for_each(|item| collect(item, keys)),
        serde_json::Value::Object(object) => {
            for (key, value) in object {
                keys.push(key.clone());
                if !["attributes", "extensions", "from", "to", "private"].contains(&key.as_str()) {
                    collect(value, keys);
                }
            }
        }
        _ => {}
    }
}

/// A man page for every command, and none for what is not for people.
#[test]
fn man_pages_are_made() {
    let folder = tempfile::tempdir().unwrap();
    Konverge::new(["__reference", "man", "--to"])
        .arg(folder.path())
        .run()
        .expect(0);
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    assert!(
        read("konverge.1").contains(".TH konverge 1"),
        "{}",
        read("konverge.1")
    );
    assert!(read("konverge-preview.1").contains("live infrastructure"));
    assert!(read("konverge-state-unlock.1").contains("lease"));
    let names: Vec<_> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(names.len() > 30, "{names:?}");
    assert!(!names.iter().any(|name| name.contains("__")), "{names:?}");
}

/// Each attack and each promise of the tables names tests and files that exist, and where it ends.
#[test]
fn the_tables_of_attackers_and_promises_name_what_exists() {
    let sources: String = rust_files()
        .iter()
        .map(|file| fs::read_to_string(file).unwrap())
        .collect();
    let files: Vec<String> = rust_files()
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    let page = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let (_, tables) = page.split_once("## Attackers of the rules").unwrap();
    let is_row = |line: &&str| line.starts_with("| ") && !line.contains(" | test | ");
    let rows = tables.lines().filter(is_row);
    let mut seen = 0;
    for row in rows {
        let cells: Vec<&str> = row.split(" | ").collect();
        let [promise, _, holds, tests, limit] = cells[..] else {
            panic!("five cells: {row}")
        };
        let limit = limit.trim_end_matches('|').trim();
        assert!(!limit.is_empty(), "where does it end: {row}");
        assert!(
            tests.contains('`') || tests == "the same" && seen > 0,
            "which test: {row}"
        );
        let code = |cell: &str| -> Vec<String> {
            let words = cell.split('`').skip(1).step_by(2);
            words.map(str::to_owned).collect()
        };
        for name in code(tests).iter().filter(|name| !name.contains(' ')) {
            let (module, test) = name.rsplit_once("::").unwrap_or(("", name));
            let exists = match test {
                "*" | "tests" => files.iter().any(|file| is_module(file, module)),
                file if file.ends_with(".rs") => {
                    files.iter().any(|known| known.ends_with(&format!("/{file}")))
                }
                test => {
                    sources.contains(&format!("fn {test}("))
                        || sources.contains(&format!(" {test}: "))
                        || sources.contains(&format!(" {test}\n"))
                }
            };
            assert!(exists, "{promise}: no test `{name}`");
            seen += 1;
        }
        for file in code(holds)
            .iter()
            .filter(|name| name.ends_with(".rs") || name.ends_with('/'))
        {
            let file = file.trim_end_matches('/');
            assert!(root().join(file).exists(), "{promise}: no file `{file}`");
        }
    }
    assert!(seen > 20, "{seen}");
}

/// Each promise of a forge names tests that exist.
#[test]
fn the_promises_of_forges_name_their_tests() {
    let files = rust_files();
    let page = fs::read_to_string(root().join("docs/reference/forges.md")).unwrap();
    let (_, table) = page.split_once("| promise |").unwrap();
    let mut seen = 0;
    for row in table.lines().skip(2) {
        if !row.starts_with('|') {
            break;
        }
        // After the promise, for each forge whether it is given and how that is known.
        let cells: Vec<_> = row.trim_matches('|').split(" | ").skip(1).collect();
        for known in cells.chunks(2).map(|of_forge| of_forge[1]) {
            assert!(
                known.contains('`') || known.contains("its source"),
                "how is it known: {row}"
            );
        }
        let modules = cells
            .chunks(2)
            .flat_map(|of_forge| of_forge[1].split('`').skip(1).step_by(2));
        for module in modules {
            let exists = files
                .iter()
                .any(|file| is_module(&file.display().to_string(), module));
            assert!(exists, "no module `{module}`: {row}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen}");
}

/// Whether a file holds a module, by the end of the module's path.
fn is_module(file: &str, module: &str) -> bool {
    let path = module.replace("::", "/");
    let file = file.replace("/src/", "/");
    file.ends_with(&format!("/{path}.rs")) || file.ends_with(&format!("/{path}/mod.rs"))
}

fn rust_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().join("src"), root().join("crates"), root().join("tests/it")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                files.push(path);
            }
        }
    }
    files
}
