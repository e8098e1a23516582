//! The published history of both Konfigs, replayed commit by commit: every stack is what the core alone gives, and what
//! a commit affects is exactly what the core loads other files for.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::support::{
    git::Repository,
    konfig_history::Replay,
    plain_core::{CoreAlone, cores_alone, spec_of},
    process::Konverge,
};

fn json(repository: &Repository, arguments: &[&str]) -> Value {
    Konverge::new(arguments.iter().chain(&["--output", "json"]))
        .dir(repository.path())
        .with_kcl()
        .env("XDG_STATE_HOME", repository.path().join(".git/test-state"))
        .run()
        .expect(0)
        .json()
}

/// Everything that a stack is made of, by path: what the core loads, and the files beside it that say how.
type Inputs = BTreeMap<String, String>;

fn inputs(repository: &Repository, alone: &CoreAlone) -> Inputs {
    let stack = alone.folder.as_str();
    let project = stack.rsplit_once('/').unwrap().0;
    let mut paths: BTreeSet<String> = alone.files.iter().chain(&alone.modules).cloned().collect();
    paths.extend(["stack.yaml", "kcl.yaml", "ci-test/settings.yaml"].map(|name| format!("{stack}/{name}")));
    paths.insert(format!("{project}/project.yaml"));
    if let Ok(definitions) = std::fs::read_dir(repository.path().join(project).join("crd")) {
        let names = definitions.map(|file| file.unwrap().file_name().into_string().unwrap());
        paths.extend(names.map(|name| format!("{project}/crd/{name}")));
    }
    let read = |path: String| {
        let text = std::fs::read_to_string(repository.path().join(&path)).ok()?;
        Some((path, text))
    };
    paths.into_iter().filter_map(read).collect()
}

/// What a commit should and does affect, summed up.
#[derive(Debug, Default)]
struct Score {
    named: usize,
    right: usize,
    missed: usize,
}

#[derive(Default)]
struct Revision {
    inputs: BTreeMap<String, Inputs>,
    ids: BTreeMap<String, String>,
}

/// Builds every stack of the step, and asks what it affects.
fn check(replay: &Replay, what: &str, before: Option<&Revision>, score: &mut Score) -> Revision {
    let repository = &replay.repository;
    let alone = cores_alone(repository, &replay.stacks());
    let built = json(repository, &["build", "--all", "--show-secrets"]);
    let built: BTreeMap<&str, &Value> = match built["stacks"].as_array() {
        Some(stacks) => stacks
            .iter()
            .map(|stack| (stack["stack"].as_str().unwrap(), stack))
            .collect(),
        None => panic!("{what}: {built}"),
    };
    assert_eq!(built.len(), alone.len(), "{what}");
    let mut now = Revision::default();
    for core in &alone {
        let built = built[core.folder.as_str()];
        assert!(!core.spec.resources.is_empty(), "{what}: {}", core.folder);
        let mut spec = core.spec.clone();
        let project = core.folder.rsplit_once('/').unwrap().0;
        let definitions: Vec<_> = crate::support::compiler::folder(repository.path())
            .into_iter()
            .filter(|(path, _)| path.as_str().starts_with(&format!("{project}/crd/")))
            .collect();
        konverge_engine::spec::append_crds(&mut spec, &definitions).unwrap();
        assert_eq!(
            spec_of(built),
            spec,
            "{what}: {} is not what the core alone gives",
            core.folder
        );
        now.inputs.insert(core.folder.clone(), inputs(repository, core));
        now.ids
            .insert(core.folder.clone(), built["id"].as_str().unwrap().to_owned());
    }
    let Some(before) = before else { return now };
    let affected = json(repository, &["affected", "--base", "HEAD~1"]);
    let affected = affected["stacks"].as_array().unwrap();
    let of = |wanted: &[&str]| -> BTreeSet<&str> {
        let is_wanted = |stack: &&Value| wanted.contains(&stack["change"].as_str().unwrap());
        let stacks = affected.iter().filter(is_wanted);
        stacks.map(|stack| stack["stack"].as_str().unwrap()).collect()
    };
    // A stack that is called otherwise now is affected, since what is recorded of it moves along.
    let is_same = |folder: &String| {
        before.inputs.get(folder) == now.inputs.get(folder) && before.ids.get(folder) == now.ids.get(folder)
    };
    let folders = now.inputs.keys();
    let should: BTreeSet<&str> = folders
        .filter(|folder| !is_same(folder))
        .map(String::as_str)
        .collect();
    let does = of(&["added", "modified"]);
    score.named += does.len();
    score.right += does.intersection(&should).count();
    score.missed += should.difference(&does).count();
    assert_eq!(does, should, "{what}: {affected:#?}");
    let gone: BTreeSet<&str> = before
        .ids
        .iter()
        .filter(|(folder, id)| !now.ids.contains_key(*folder) && !now.ids.values().any(|other| other == *id))
        .map(|(folder, _)| folder.as_str())
        .collect();
    assert_eq!(of(&["removed"]), gone, "{what}: {affected:#?}");
    // Only what lies elsewhere now has moved.
    for stack in affected {
        let folder = stack["stack"].as_str().unwrap();
        let moved = stack["why"]
            .as_array()
            .unwrap()
            .iter()
            .any(|why| why["kind"] == "moved");
        assert!(!moved || !before.ids.contains_key(folder), "{what}: {stack:#}");
    }
    now
}

fn holds(mut replay: Replay, steps: usize) {
    let (mut score, mut before, mut seen) = (Score::default(), None, 0);
    while let Some(what) = replay.next() {
        before = Some(check(&replay, what, before.as_ref(), &mut score));
        seen += 1;
    }
    assert_eq!(seen, steps);
    // Precision and recall are 1.00: as many are named as should be.
    assert_eq!((score.right, score.missed), (score.named, 0), "{score:?}");
    assert!(score.named > 50, "{score:?}");
}

#[test]
fn the_history_of_kusionstacks_konfig_is_read_exactly() {
    holds(Replay::kusionstack(), 17);
}

#[test]
fn the_history_of_kcl_langs_konfig_is_read_exactly() {
    holds(Replay::kcl_lang(), 8);
}
