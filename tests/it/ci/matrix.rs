//! One change over the jobs of a matrix: each job takes its share, and together they plan what one job would have
//! planned.

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

fn stacks_of(plan: &str) -> Vec<Value> {
    serde_json::from_str::<Value>(plan).unwrap()["stacks"]
        .as_array()
        .unwrap()
        .clone()
}

#[test]
fn shards_together_plan_what_one_job_would() {
    let repository = changed();
    let matrix = [
        "affected", "--base", "main", "--output", "matrix", "--shards", "3",
    ];
    let matrix = konverge(&repository, &matrix).run().expect(0).json();
    let entries = matrix["include"].as_array().unwrap();
    let shards: Vec<&str> = entries
        .iter()
        .map(|entry| entry["shard"].as_str().unwrap())
        .collect();
    assert_eq!(shards, ["1/3", "2/3", "3/3"]);

    let preview = |more: &[&str]| {
        let arguments = [
            "preview", "--rev", "HEAD", "--base", "main", "--live", "never", "--output", "json",
        ];
        konverge(&repository, &arguments)
            .arg_all(more)
            .run()
            .expect(0)
            .stdout
    };
    let whole = stacks_of(&preview(&[]));
    assert_eq!(whole.len(), 5);
    let mut joined: Vec<Value> = shards
        .iter()
        .flat_map(|shard| {
            let part = stacks_of(&preview(&["--shard", shard]));
            assert!((1..=2).contains(&part.len()), "{shard}: {}", part.len());
            part
        })
        .collect();
    joined.sort_by_key(|stack| stack["stack"].as_str().unwrap().to_owned());
    assert_eq!(joined, whole);
}

#[test]
fn every_command_that_reads_stacks_takes_a_shard() {
    let repository = changed();
    let all = konverge(&repository, &["affected", "--all", "--output", "folders"])
        .run()
        .expect(0);
    let all = all.stdout.lines().count();
    let resources = |more: &[&str]| {
        let built = konverge(&repository, &["build", "--all", "--output", "json"])
            .arg_all(more)
            .run()
            .expect(0);
        serde_json::from_str::<Value>(&built.stdout).unwrap()
    };
    let one = resources(&["--shard", &format!("{all}/{all}")]);
    assert_ne!(one, resources(&[]));
    let checked = konverge(
        &repository,
        &["check", "--all", "--shard", "1/2", "--skip", "schema"],
    )
    .run();
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
}

#[test]
fn a_shard_that_does_not_exist_is_refused() {
    let repository = changed();
    for shard in ["3/2", "0/2", "2", "1/257", "x"] {
        let refused = konverge(&repository, &["build", "--shard", shard])
            .run()
            .expect(64);
        assert!(refused.stderr.contains("<number>/<count>"), "{}", refused.stderr);
    }
    let refused = konverge(
        &repository,
        &["affected", "--output", "matrix", "--shards", "257"],
    )
    .run()
    .expect(64);
    assert!(refused.stderr.contains("256"), "{}", refused.stderr);
}
