//! One change over the jobs of a matrix: shared out once, planned in shares, gathered to what one job would have said.

use serde_json::Value;

use crate::support::{git::Repository, process::Konverge};

fn konverge(repository: &Repository, arguments: &[&str]) -> Konverge {
    Konverge::new(arguments.iter().copied())
        .dir(repository.path())
        .with_kcl()
}

/// A change that several stacks of the example feel.
fn changed() -> Repository {
    let repository = Repository::konfig_example();
    repository.branch("feature");
    let all = konverge(&repository, &["affected", "--all", "--output", "folders"])
        .run()
        .expect(0);
    for folder in all.stdout.lines().take(5) {
        let path = format!("{folder}/stack.yaml");
        let text = repository.read(&path);
        repository.write(&path, format!("{text}# touched\n"));
    }
    repository.commit("touch five stacks");
    repository
}

#[test]
fn shares_are_planned_apart_and_gathered_to_the_whole() {
    let repository = changed();
    let legs = tempfile::tempdir().unwrap();
    let file = legs.path().join("shares.txt");
    let file = file.to_str().unwrap();
    let base = ["--base", "main"];
    let made = konverge(
        &repository,
        &[
            "affected",
            "--base",
            "main",
            "--output",
            "matrix",
            "--shards",
            "3",
            "--shard-file",
            file,
        ],
    )
    .run()
    .expect(0)
    .json();
    let shards: Vec<String> = made["include"]
        .as_array()
        .unwrap()
        .iter()
        .map(|shard| shard["shard"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(shards, ["1/3", "2/3", "3/3"]);
    let preview = |more: &[&str]| {
        let arguments = ["preview", "--rev", "HEAD", "--live", "never", "--output", "json"];
        konverge(&repository, &arguments)
            .arg_all(base)
            .arg_all(more)
            .run()
            .expect(0)
            .stdout
    };
    let whole = preview(&[]);
    for shard in &shards {
        let number = shard.split('/').next().unwrap();
        let leg = preview(&["--shard-file", file, "--shard", shard]);
        let folder = legs.path().join(format!("leg-{number}"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("plan.json"), &leg).unwrap();
        assert_eq!(preview(&["--shard-file", file, "--shard", number]), leg);
    }
    let gathered = |more: &[&str]| {
        let gather = legs.path().to_str().unwrap();
        konverge(&repository, &["report", "--gather", gather, "--shard-file", file])
            .arg_all(more)
            .run()
    };
    assert_eq!(gathered(&["--output", "json"]).expect(0).stdout, whole);
    let count = |text: &str| {
        serde_json::from_str::<Value>(text).unwrap()["stacks"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!(count(&whole), 5);
    // A job that never printed its plan is not passed over.
    std::fs::remove_file(legs.path().join("leg-2/plan.json")).unwrap();
    let missing = gathered(&[]).expect(64);
    assert!(missing.stderr.contains("no job reported"), "{}", missing.stderr);
    // Nor is one that is there twice.
    std::fs::copy(
        legs.path().join("leg-1/plan.json"),
        legs.path().join("again.json"),
    )
    .unwrap();
    let twice = gathered(&[]).expect(64);
    assert!(twice.stderr.contains("is reported by"), "{}", twice.stderr);
}

#[test]
fn a_share_that_is_not_there_is_refused() {
    let repository = changed();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shares.json");
    let file = file.to_str().unwrap();
    konverge(
        &repository,
        &[
            "affected",
            "--base",
            "main",
            "--shards",
            "2",
            "--shard-file",
            file,
        ],
    )
    .run()
    .expect(0);
    let said = konverge(&repository, &["build", "--shard-file", file, "--shard", "3"])
        .run()
        .expect(64);
    assert!(said.stderr.contains("1/2, 2/2"), "{}", said.stderr);
    std::fs::write(file, "no shares").unwrap();
    let said = konverge(&repository, &["build", "--shard-file", file, "--shard", "1"])
        .run()
        .expect(64);
    assert!(said.stderr.contains("these are no shares"), "{}", said.stderr);
}

/// What a stack took to compile once decides where it goes the next time.
#[test]
fn shares_are_balanced_by_what_was_measured() {
    let repository = changed();
    let cache = tempfile::tempdir().unwrap();
    let at_home = |arguments: &[&str]| {
        konverge(&repository, arguments)
            .env("XDG_CACHE_HOME", cache.path())
            .run()
            .expect(0)
    };
    at_home(&["build", "--all", "--output", "json"]);
    let costs = crate::support::compiler::folder(cache.path())
        .into_iter()
        .find(|(path, _)| path.as_str().ends_with(".costs.json"))
        .expect("what stacks took is kept");
    let costs: serde_json::Map<String, Value> = serde_json::from_slice(&costs.1).unwrap();
    let all = at_home(&["affected", "--all", "--output", "folders"]);
    assert_eq!(costs.len(), all.stdout.lines().count());
    assert!(costs.values().all(Value::is_u64), "{costs:?}");
}
