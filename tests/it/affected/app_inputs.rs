//! Promise 1 for the packages of applications: a random edit of `kcl.mod`, the pins of `kcl.mod.lock`, a module's
//! binary or a file that the program reads affects the stacks that have it as an input, and no other.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    affected::{
        random_repository::Dice,
        workspaces::{affected, json, seed},
    },
    support::{
        apps::{HELLO_FILE, QUICKSTART, hello_binary, workspace, write_hello_stack, write_stack},
        git::Repository,
    },
};

/// Those of `shop` have a module of their own.
const STACKS: [&str; 4] = [
    "apps/blog/dev",
    "apps/blog/prod",
    "apps/shop/dev",
    "apps/shop/prod",
];

/// What a round may write, by file: for whom the file is an input, and what it holds.
struct Edits<'d> {
    dice: &'d mut Dice,
    round: usize,
    written: BTreeMap<String, (Vec<&'static str>, Vec<u8>)>,
}

impl Edits<'_> {
    fn write(&mut self, path: String, stacks: &[&'static str], content: impl Into<Vec<u8>>) {
        self.written.insert(path, (stacks.to_vec(), content.into()));
    }

    /// One edit of a random kind. Values come from small sets, so that some edits change nothing.
    fn roll(&mut self, repository: &Repository) {
        let stack = *self.dice.pick(&STACKS);
        let shop = *self.dice.pick(&STACKS[2..]);
        match self.dice.roll(7) {
            0 => {
                let path = format!("{stack}/kcl.mod");
                let text = repository.read(&path);
                let (profile, _) = text.split_once("entries").unwrap();
                let entries = *self.dice.pick(&["[\"main.k\"]", "[\"main.k\", \"more.k\"]"]);
                self.write(path, &[stack], format!("{profile}entries = {entries}\n"));
            }
            1 => {
                let pin = self.dice.roll(3);
                // Of another platform: a pin of this one has to be that of the binary.
                let platform = match std::env::consts::ARCH {
                    "aarch64" => "linux-amd64",
                    _ => "linux-arm64",
                };
                let version = self.dice.roll(2);
                let lock = format!(
                    "[dependencies.kam]\nname = \"kam\"\nversion = \"0.2.{version}\"\n\n[dependencies.hello]\nname = \"hello\"\nbinaries = {{ {platform} = \"sha256:{pin:02}\" }}\n"
                );
                self.write(format!("{shop}/kcl.mod.lock"), &[shop], lock);
            }
            2 => {
                let mut binary = std::fs::read(hello_binary()).unwrap();
                binary.push(b'0' + u8::try_from(self.dice.roll(3)).unwrap());
                let path = format!("{shop}/vendor/hello_0.1.0/{HELLO_FILE}");
                self.write(path, &[shop], binary);
            }
            3 => {
                let content = format!("tier-{}", self.dice.roll(3));
                self.write(format!("{stack}/tier.txt"), &[stack], content);
            }
            4 => {
                let content = format!("schema Service:\n    unused?: int = {}\n", self.dice.roll(3));
                self.write(format!("{stack}/vendor/other_0.1.0/other.k"), &[], content);
            }
            5 => {
                let content = format!("# {stack}, round {}\n", self.round);
                self.write(format!("{stack}/README.md"), &[], content);
            }
            _ => {
                let path = format!("{stack}/vendor/service_0.2.1/service.k");
                let text = repository.read(&path);
                let (before, after) = text.split_once("    replicas").unwrap();
                let (_, after) = after.split_once('\n').unwrap();
                let replicas = self.dice.roll(3) + 1;
                let content = format!("{before}    replicas: int = {replicas}\n{after}");
                self.write(path, &[stack], content);
            }
        }
    }
}

fn four_stacks() -> Repository {
    let repository = Repository::init();
    for stack in STACKS {
        let tier = "workload: service.Service {\n        labels: {tier: file.read(\"tier.txt\")}\n";
        if stack.starts_with("apps/shop/") {
            write_hello_stack(&repository, stack, "");
            let binary = std::fs::read(hello_binary()).unwrap();
            repository.write(&format!("{stack}/vendor/hello_0.1.0/{HELLO_FILE}"), binary);
        } else {
            write_stack(&repository, stack, ("0.2.1", "0.3.0"), QUICKSTART);
        }
        let program = repository.read(&format!("{stack}/main.k"));
        let program = program.replace("workload: service.Service {\n", tier);
        repository
            .write(
                &format!("{stack}/main.k"),
                format!("import file\n{program}"),
            )
            .write(&format!("{stack}/tier.txt"), "tier-0")
            .write(
                &format!("{stack}/more.k"),
                "import kam.v1.app_configuration as ac\n\nquickstart: ac.AppConfiguration {\n    annotations: {more: \"yes\"}\n}\n",
            );
    }
    repository.write(
        "workspaces/default.yaml",
        workspace("0.2.1", "      default: {replicas: 1}\n"),
    );
    repository
}

#[test]
fn random_edits_of_packages_affect_exactly_the_stacks_that_have_them() {
    let seed = seed();
    let mut dice = Dice(seed);
    let repository = four_stacks();
    let mut base = repository.commit("Base");
    let build = || json(&repository, &["build", "--all", "--output=json"])["stacks"].clone();
    let spec = |all: &Value, stack: &str| {
        let mut stacks = all.as_array().unwrap().iter();
        stacks.find(|one| one["stack"] == stack).unwrap()["resources"].clone()
    };
    let mut before = build();
    let (mut hits, mut misses) = (0, 0);
    for round in 0..8 {
        let mut edits = Edits {
            written: BTreeMap::new(),
            dice: &mut dice,
            round,
        };
        for _ in 0..=edits.dice.roll(4) {
            edits.roll(&repository);
        }
        let mut expected = BTreeSet::new();
        for (path, (stacks, content)) in &edits.written {
            let file = repository.path().join(path);
            if std::fs::read(&file).ok().as_ref() != Some(content) {
                expected.extend(stacks.iter().map(|stack| (*stack).to_owned()));
            }
            repository.write(path, content);
        }
        let edited: Vec<_> = edits.written.keys().collect();
        repository.write("round.txt", round.to_string());
        let head = repository.commit(&format!("Round {round}"));
        let found = affected(&repository, &base, &head);
        let named: BTreeSet<String> = found.iter().map(|(stack, _)| stack.clone()).collect();
        assert_eq!(named, expected, "seed {seed}, round {round}: {edited:?}");
        for (stack, why) in &found {
            let path = why[0]["path"].as_str().unwrap();
            assert!(
                edited.iter().any(|edited| *edited == path),
                "seed {seed}, round {round}: {stack} is named for {path}"
            );
        }
        let built = build();
        for stack in STACKS
            .iter()
            .filter(|stack| spec(&before, stack) != spec(&built, stack))
        {
            let is_named = named.contains(*stack);
            assert!(
                is_named,
                "seed {seed}, round {round}: the Spec of {stack} changed"
            );
            hits += 1;
        }
        misses += STACKS.len() - named.len();
        (before, base) = (built, head);
    }
    assert!(
        hits > 1 && misses > 5,
        "seed {seed}: {hits} changes, {misses} stacks left alone"
    );
}
