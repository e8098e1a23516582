//! Promise 1 for workspaces: an edit affects the stacks whose merged configuration it changes, and no other.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    affected::random_repository::Dice,
    support::{
        apps::{QUICKSTART, workspace, write_stack},
        git::Repository,
        process::Konverge,
    },
};

const STACKS: [&str; 4] = [
    "apps/shop/dev",
    "apps/shop/prod",
    "apps/blog/dev",
    "apps/blog/prod",
];

pub fn json(repository: &Repository, arguments: &[&str]) -> Value {
    Konverge::new(arguments)
        .dir(repository.path())
        .with_kcl()
        .run()
        .expect(0)
        .json()
}

/// The affected stacks between two commits, with the reasons.
pub fn affected(repository: &Repository, base: &str, head: &str) -> Vec<(String, Value)> {
    let answer = json(
        repository,
        &["affected", "--base", base, "--head", head, "--output=json"],
    );
    let stacks = answer["stacks"].as_array().unwrap().iter();
    stacks
        .map(|stack| (stack["stack"].as_str().unwrap().to_owned(), stack["why"].clone()))
        .collect()
}

fn four_stacks() -> Repository {
    let repository = Repository::init();
    for stack in STACKS {
        write_stack(&repository, stack, ("0.2.1", "0.3.0"), QUICKSTART);
    }
    repository.write(
        "workspaces/dev.yaml",
        workspace("0.2.1", "      default: {replicas: 1}\n"),
    );
    repository.write(
        "workspaces/prod.yaml",
        workspace("0.2.1", "      default: {replicas: 3}\n"),
    );
    repository
}

#[test]
fn an_edit_names_its_file_as_the_reason() {
    let repository = four_stacks();
    let base = repository.commit("Base");
    repository.write(
        "workspaces/prod.yaml",
        workspace("0.2.1", "      default: {replicas: 3}\n      large:\n        projectSelector: [shop]\n        replicas: 9\n"),
    );
    let head = repository.commit("More of the shop");
    let found = affected(&repository, &base, &head);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "apps/shop/prod");
    let why = json!([{"path": "workspaces/prod.yaml", "kind": "workspace", "chain": ["workspaces/prod.yaml", "apps/shop/prod"]}]);
    assert_eq!(found[0].1, why);
}

#[test]
fn a_comment_a_module_that_no_stack_has_and_a_key_that_nothing_reads_affect_nothing() {
    let repository = four_stacks();
    let base = repository.commit("Base");
    let text = repository.read("workspaces/dev.yaml");
    repository.write(
        "workspaces/dev.yaml",
        format!("# For developers.\n{text}  mysql:\n    path: oci://ghcr.io/kusionstack/mysql\n    version: 0.2.0\n    configs:\n      default: {{size: 20}}\ncontext: {{KUBECONFIG_PATH: /etc/kubeconfig}}\n"),
    );
    repository.write(
        "workspaces/staging.yaml",
        workspace("0.2.1", "      default: {replicas: 7}\n"),
    );
    let head = repository.commit("Nothing for these stacks");
    let found = affected(&repository, &base, &head);
    assert!(found.is_empty(), "{found:?}");
}

/// A package without dependencies has no applications: a workspace is no input of it.
#[test]
fn a_package_of_plain_resources_has_no_workspace() {
    let repository = four_stacks();
    repository
        .write("apps/plain/project.yaml", "name: plain\n")
        .write("apps/plain/dev/stack.yaml", "name: dev\n")
        .write(
            "apps/plain/dev/kcl.mod",
            "[package]\n\n[profile]\nentries = [\"main.k\"]\n",
        )
        .write("apps/plain/dev/main.k", "resources = []\n");
    let base = repository.commit("Base");
    let text = repository.read("workspaces/dev.yaml");
    repository.write("workspaces/dev.yaml", format!("{text}context: {{zone: b}}\n"));
    let head = repository.commit("Another zone");
    let found = affected(&repository, &base, &head);
    let found: Vec<_> = found.iter().map(|(stack, _)| stack.as_str()).collect();
    assert_eq!(found, ["apps/blog/dev", "apps/shop/dev"]);
}

#[test]
fn another_workspace_in_konverge_yaml_is_the_reason() {
    let repository = four_stacks();
    let base = repository.commit("Base");
    repository.write(
        "konverge.yaml",
        "stacks: [{match: apps/blog/dev, workspace: prod}]\n",
    );
    let head = repository.commit("The blog as in production");
    let found = affected(&repository, &base, &head);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].0.as_str(), &found[0].1[0]["kind"]),
        ("apps/blog/dev", &json!("config"))
    );
    // The base is compiled with the workspace that its own file names.
    let exact = json(
        &repository,
        &[
            "affected",
            "--base",
            &base,
            "--head",
            &head,
            "--exact",
            "--output=json",
        ],
    );
    assert_eq!(exact["stacks"][0]["spec"], "changed");
}

/// The seed of random edits: `KONVERGE_SEED`, else always the same. It is printed.
pub fn seed() -> u64 {
    let text = std::env::var("KONVERGE_SEED").ok();
    let seed = text.map_or(22, |text| text.parse().expect("KONVERGE_SEED is a number"));
    println!("KONVERGE_SEED={seed}");
    seed
}

/// A workspace as data: what the oracle merges by itself.
#[derive(Clone)]
struct Settings(Map<String, Value>);

impl Settings {
    /// Random settings for the modules that stacks have, and for one that they lack.
    fn roll(dice: &mut Dice) -> Self {
        let mut modules = Map::new();
        for module in ["service", "network", "mysql"] {
            if dice.roll(4) == 0 {
                continue;
            }
            let mut configs = Map::new();
            if dice.roll(3) > 0 {
                configs.insert("default".to_owned(), Self::block(dice, module));
            }
            if dice.roll(2) == 0 {
                let mut block = Self::block(dice, module);
                block["projectSelector"] = if dice.roll(2) == 0 {
                    json!(["shop"])
                } else {
                    json!(["blog", "other"])
                };
                configs.insert("some".to_owned(), block);
            }
            let version = if dice.roll(5) == 0 { "0.2.0" } else { "0.2.1" };
            modules.insert(
                module.to_owned(),
                json!({"path": "p", "version": version, "configs": configs}),
            );
        }
        let mut all = Map::from_iter([("modules".to_owned(), Value::Object(modules))]);
        if dice.roll(4) == 0 {
            all.insert("context".to_owned(), json!({"zone": dice.roll(2)}));
        }
        Self(all)
    }

    fn block(dice: &mut Dice, module: &str) -> Value {
        let mut block = match module {
            "service" => json!({"replicas": dice.roll(3), "labels": {"tier": format!("t{}", dice.roll(2))}}),
            "network" => json!({"port": {"type": "aws", "labels": {"l": format!("{}", dice.roll(2))}}}),
            _ => json!({"size": dice.roll(3)}),
        };
        if dice.roll(6) == 0 {
            block["importedResources"] = json!({"a:b:c:d": format!("cloud-{}", dice.roll(2))});
        }
        block
    }

    /// What concerns a project that has `service` and `network`.
    fn merged(&self, project: &str) -> Value {
        let mut merged = Map::new();
        for (name, module) in self.0["modules"].as_object().unwrap() {
            let mut settings = module["configs"]["default"]
                .as_object()
                .cloned()
                .unwrap_or_default();
            let some = &module["configs"]["some"];
            let selects = some["projectSelector"]
                .as_array()
                .is_some_and(|projects| projects.contains(&json!(project)));
            if selects {
                let mut block = some.as_object().unwrap().clone();
                block.remove("projectSelector");
                settings.extend(block);
            }
            if name == "mysql" {
                if let Some(imported) = settings.get("importedResources") {
                    merged.insert(name.clone(), imported.clone());
                }
            } else {
                merged.insert(name.clone(), json!([module["version"], settings]));
            }
        }
        json!([merged, self.0.get("context")])
    }
}

#[test]
fn random_edits_affect_exactly_the_stacks_whose_merged_settings_change() {
    let seed = seed();
    let mut dice = Dice(seed);
    let repository = four_stacks();
    let (mut specs, mut before, mut base) = (Value::Null, Vec::<Settings>::new(), String::new());
    let (mut hits, mut misses) = (0, 0);
    for round in 0..12 {
        let settings: Vec<Settings> = match (round, dice.roll(3)) {
            (0, _) | (_, 0) => vec![Settings::roll(&mut dice), Settings::roll(&mut dice)],
            (_, 1) => vec![Settings::roll(&mut dice), before[1].clone()],
            _ => vec![before[0].clone(), Settings::roll(&mut dice)],
        };
        for (name, settings) in ["dev", "prod"].iter().zip(&settings) {
            let text = Value::Object(settings.0.clone()).to_string();
            repository.write(
                &format!("workspaces/{name}.yaml"),
                format!("# round {round}\n{text}\n"),
            );
        }
        let head = repository.commit(&format!("Round {round}"));
        let built = json(&repository, &["build", "--all", "--output=json"])["stacks"].clone();
        if round > 0 {
            let found: BTreeSet<String> = affected(&repository, &base, &head)
                .into_iter()
                .map(|(stack, _)| stack)
                .collect();
            let merged = |all: &[Settings], stack: &str| {
                let project = stack.split('/').nth(1).unwrap();
                all[usize::from(stack.ends_with("/prod"))].merged(project)
            };
            let spec = |all: &Value, stack: &str| {
                let mut stacks = all.as_array().unwrap().iter();
                stacks.find(|one| one["stack"] == stack).unwrap()["resources"].clone()
            };
            for stack in STACKS {
                let changed = merged(&before, stack) != merged(&settings, stack);
                assert_eq!(
                    found.contains(stack),
                    changed,
                    "seed {seed}, round {round}: {stack}"
                );
                if spec(&specs, stack) != spec(&built, stack) {
                    assert!(changed, "seed {seed}, round {round}: the Spec of {stack} changed");
                    hits += 1;
                }
                misses += usize::from(!changed);
            }
        }
        (specs, before, base) = (built, settings, head);
    }
    assert!(
        hits > 5 && misses > 5,
        "seed {seed}: {hits} changes, {misses} stacks left alone"
    );
}
