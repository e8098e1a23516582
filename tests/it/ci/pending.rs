//! `--pending`, by hand and in any CI: what is not applied yet, whatever earlier runs left.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use konverge_base::model::{CommitId, event::NoEvents};
use konverge_run::{BranchHistory, CloneHistory, NoNotes, RunContext};
use konverge_secrets::{HashKey, Secrets};
use serde_json::{Value, json};

use super::deployments::only_dry_runs_of;
use crate::support::{ci_stage::Stage, git::Repository, process::Outcome};

/// A command in a checkout of the monorepo.
fn run_in(stage: &Stage, checkout: &Path, arguments: &[&str]) -> Outcome {
    let caches = stage.scratch.path().join("caches");
    stage
        .konverge(arguments.iter().copied())
        .dir(checkout)
        .env("XDG_CACHE_HOME", caches)
        .run()
}

fn run(stage: &Stage, arguments: &[&str]) -> Outcome {
    run_in(stage, stage.monorepo.path(), arguments)
}

fn ids(document: &Value) -> Vec<String> {
    let stacks = document["stacks"].as_array().unwrap().iter();
    let mut ids: Vec<_> = stacks
        .map(|stack| stack["id"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    ids
}

/// The stacks that a preview of the pending ones shows.
fn pending(stage: &Stage, more: &[&str]) -> Vec<String> {
    let arguments = [&["preview", "--pending", "--output", "json"], more].concat();
    ids(&run(stage, &arguments).expect(0).json())
}

/// Applies the pending ones; which stacks that were.
fn applied(stage: &Stage, more: &[&str]) -> Vec<String> {
    let arguments = [&["apply", "--pending", "--yes", "--output", "json"], more].concat();
    ids(&run(stage, &arguments).expect(0).json())
}

/// What `status` says of each stack; the same stacks are pending.
fn status(stage: &Stage) -> BTreeMap<String, String> {
    let told = run(stage, &["status", "--live", "never", "--output", "json"]).expect(0);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let told = told.json()["stacks"].as_array().unwrap().clone();
    let heads: BTreeMap<_, _> = told
        .iter()
        .map(|stack| (text(&stack["id"]), text(&stack["head"])))
        .collect();
    let behind = heads
        .iter()
        .filter(|(_, head)| !["applied", "kept"].contains(&head.as_str()));
    let behind: Vec<_> = behind.map(|(id, _)| id.clone()).collect();
    assert_eq!(behind, pending(stage, &[]), "{heads:?}");
    heads
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_stopped_and_taken_back_is_not_pending() {
    let mut stage = Stage::small("").await;
    let write = |value: &str, stage: &Stage| {
        for id in ["back-a/dev", "back-b/dev"] {
            stage.stack(id, &[(&id.replace('/', "-"), value)]);
        }
    };
    write("one", &stage);
    stage.monorepo.commit("Two stacks");
    assert_eq!(applied(&stage, &[]), ["back-a/dev", "back-b/dev"]);
    let unreviewed = stage.straight_to_main(|stage| write("two", stage));
    unreviewed.outcome.check(3);
    assert_eq!(pending(&stage, &[]), ["back-a/dev", "back-b/dev"]);
    let back = stage.straight_to_main(|stage| write("one", stage));
    back.outcome.check(0);
    assert_eq!(stage.value("back-a-dev").await.as_deref(), Some("one"));
    let none: [&str; 0] = [];
    assert_eq!(pending(&stage, &[]), none);
    assert_eq!(status(&stage)["back-b/dev"], "applied");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_apply_takes_the_stacks_that_no_run_has_applied() {
    let stage = Stage::small("").await;
    let none: [&str; 0] = [];
    assert_eq!(pending(&stage, &[]), none);
    for id in ["pend-a/dev", "pend-b/dev", "pend-b/prod"] {
        stage.stack(id, &[(&id.replace('/', "-"), "one")]);
    }
    stage.monorepo.commit("Three stacks");
    assert_eq!(pending(&stage, &[]), ["pend-a/dev", "pend-b/dev", "pend-b/prod"]);

    // Of named stacks those that are pending; a name that means nothing is told.
    assert_eq!(
        applied(&stage, &["pend-a", "pend-b/dev"]),
        ["pend-a/dev", "pend-b/dev"]
    );
    assert_eq!(stage.value("pend-b-prod").await, None);
    let calm = run(&stage, &["apply", "pend-a", "pend-b/dev", "--pending", "--yes"]).expect(0);
    let note = "note: none of these stacks has pending changes";
    assert!(calm.stderr.contains(note), "{}", calm.stderr);
    let typo = run(&stage, &["apply", "pend-x/*", "--pending", "--yes"]).expect(64);
    assert!(typo.stderr.contains("there is no stack"), "{}", typo.stderr);
    assert_eq!(pending(&stage, &["pend-*/*"]), ["pend-b/prod"]);
    assert_eq!(status(&stage)["pend-b/prod"], "new");
    assert_eq!(applied(&stage, &[]), ["pend-b/prod"]);
    let calm = run(&stage, &["apply", "--pending", "--output", "json"]).expect(0);
    assert_eq!(calm.json()["stacks"], json!([]));
    assert!(
        calm.stderr.contains("note: no stack has pending changes"),
        "{}",
        calm.stderr
    );

    // A stack that is removed goes, one whose folder is excluded stays, and a Spec from a file was never in the
    // repository.
    let spec = stage.scratch.path().join("spec.yaml");
    let map = r#"{id: "v1:ConfigMap:default:pend-file", type: Kubernetes, attributes: {apiVersion: v1, kind: ConfigMap, metadata: {name: pend-file, namespace: default}, data: {value: one}}}"#;
    std::fs::write(&spec, format!("resources: [{map}]\n")).unwrap();
    let file = spec.to_str().unwrap();
    run(
        &stage,
        &["apply", "--spec", file, "--stack", "pend-file/one", "--yes"],
    )
    .expect(0);
    stage.configure("exclude: [appops/pend-a]\n");
    stage.monorepo.remove("appops/pend-b/prod").commit("Less");
    assert_eq!(pending(&stage, &["pend-b"]), ["pend-b/prod"]);
    let heads = status(&stage);
    for (id, head) in [
        ("pend-a/dev", "kept"),
        ("pend-b/dev", "applied"),
        ("pend-b/prod", "removed"),
        ("pend-file/one", "kept"),
    ] {
        assert_eq!(heads[id], head, "{id}: {heads:?}");
    }
    assert_eq!(applied(&stage, &[]), ["pend-b/prod"]);
    assert_eq!(stage.value("pend-b-prod").await, None);
    for kept in ["pend-a-dev", "pend-file"] {
        assert_eq!(stage.value(kept).await.as_deref(), Some("one"), "{kept}");
    }
    assert_eq!(pending(&stage, &[]), none);

    // What may hide a stack skips its removal.
    stage.configure("");
    stage.monorepo.remove("appops/pend-a");
    stage.stack("pend-c/dev", &[("pend-c-dev", "one")]);
    stage.monorepo.write("appops/pend-c/project.yaml", "title: c\n");
    stage.monorepo.commit("A project without a name");
    let held = run(&stage, &["apply", "--pending", "--yes"]).expect(1);
    for words in ["pend-a/dev", "appops/pend-c/project.yaml"] {
        assert!(held.stdout.contains(words), "{words}: {}", held.stdout);
    }
    assert!(stage.value("pend-a-dev").await.is_some());
    let shown = run(&stage, &["preview", "--pending"]).expect(1).stderr;
    assert!(
        shown.contains("an apply will skip the removal of pend-a/dev"),
        "{shown}"
    );
}

/// The digest is of what was applied, committed or not, and the commit is told only if the tree is that commit's.
#[tokio::test(flavor = "multi_thread")]
async fn the_files_that_are_read_are_compared_with_what_is_recorded() {
    let stage = Stage::small("").await;
    let recorded = |stage: &Stage| {
        let shown = stage.state(&["show", "tree/dev", "--output", "json"]).json();
        shown["state"].get("commit").cloned()
    };
    stage.stack("tree/dev", &[("tree-dev", "one")]);
    let first = stage.monorepo.commit("One");
    assert_eq!(applied(&stage, &[]), ["tree/dev"]);
    assert_eq!(recorded(&stage), Some(json!(first)));

    stage.stack("tree/dev", &[("tree-dev", "two")]);
    assert_eq!(pending(&stage, &["--rev", "HEAD"]), Vec::<String>::new());
    assert_eq!(applied(&stage, &[]), ["tree/dev"]);
    assert_eq!(stage.value("tree-dev").await.as_deref(), Some("two"));
    let shown = run(&stage, &["state", "show", "tree/dev", "--output", "json"]).expect(0);
    assert!(shown.json()["state"].get("commit").is_none(), "{}", shown.stdout);
    assert_eq!(pending(&stage, &[]), Vec::<String>::new());
    assert_eq!(pending(&stage, &["--rev", "HEAD"]), ["tree/dev"]);
    // Committed, it is what was applied.
    stage.monorepo.commit("Two");
    assert_eq!(pending(&stage, &["--rev", "HEAD"]), Vec::<String>::new());
    assert_eq!(recorded(&stage), None);
    stage.monorepo.git(["revert", "--no-edit", "HEAD"]);
    assert_eq!(applied(&stage, &[]), ["tree/dev"]);
    assert_eq!(stage.value("tree-dev").await.as_deref(), Some("one"));
}

/// A shard that starts after another one has ended sees fewer pending stacks, and still takes its own.
#[tokio::test(flavor = "multi_thread")]
async fn shards_one_after_the_other_apply_everything() {
    let stage = Stage::small("").await;
    let all: Vec<_> = (0..7).map(|n| format!("deal-{n}/dev")).collect();
    for (n, id) in all.iter().enumerate() {
        stage.stack(id, &[(&format!("deal-{n}"), "one")]);
    }
    stage.monorepo.commit("Seven");
    let mut taken: Vec<_> = ["1/3", "2/3", "3/3"]
        .iter()
        .flat_map(|shard| applied(&stage, &["--shard", shard]))
        .collect();
    taken.sort();
    assert_eq!(taken, all);
    let empty = run(&stage, &["preview", "--pending", "--shard", "1/3"]).expect(0);
    let note = "note: this shard has no stack with pending changes";
    assert!(empty.stderr.contains(note), "{}", empty.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stack_under_another_identity_is_one_stack() {
    let stage = Stage::small("").await;
    stage.stack("ident/dev", &[("ident-dev", "one")]);
    stage.monorepo.commit("One");
    assert_eq!(applied(&stage, &[]), ["ident/dev"]);
    stage.configure("stacks: [{match: appops/ident/dev, identity: other/dev}]\n");
    stage.monorepo.commit("Another identity");
    assert_eq!(pending(&stage, &[]), ["other/dev"]);
    assert_eq!(status(&stage)["other/dev"], "changed");
    assert_eq!(applied(&stage, &[]), ["other/dev"]);
    assert_eq!(stage.value("ident-dev").await.as_deref(), Some("one"));
    assert_eq!(pending(&stage, &[]), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pipeline_of_an_older_commit_leaves_what_a_newer_one_applied() {
    let stage = Stage::small("").await;
    let monorepo = &stage.monorepo;
    stage.stack("older/dev", &[("older-dev", "one")]);
    stage.stack("older/prod", &[("older-prod", "one")]);
    let first = monorepo.commit("One");
    assert_eq!(applied(&stage, &[]), ["older/dev", "older/prod"]);
    stage.stack("older/dev", &[("older-dev", "two")]);
    stage.stack("older/new", &[("older-new", "two")]);
    monorepo.remove("appops/older/prod");
    let second = monorepo.commit("Two");
    assert_eq!(applied(&stage, &[]), ["older/dev", "older/new", "older/prod"]);

    // Where the job's checkout is the older commit, and in clones that were cut off there.
    let deep = monorepo.clone_with(&[]);
    deep.checkout(&first);
    let shallow = monorepo.clone_with(&["--depth=1"]);
    shallow.git(["fetch", "--quiet", "--depth=1", "origin", &first]);
    shallow.checkout(&first);
    let checkouts: [(&Path, &[&str]); 3] = [
        (monorepo.path(), &["--rev", &first]),
        (deep.path(), &[]),
        (shallow.path(), &["--rev", "HEAD"]),
    ];
    for (checkout, rev) in checkouts {
        for command in [&["preview"][..], &["apply", "--yes"]] {
            let arguments = [command, &["--pending", "--output", "json"], rev].concat();
            let late = run_in(&stage, checkout, &arguments).expect(0);
            assert_eq!(ids(&late.json()), Vec::<String>::new());
            for id in ["older/dev", "older/new", "older/prod"] {
                let words = format!("{id} has the newer commit {}", &second[..7]);
                assert!(late.stderr.contains(&words), "{words}: {}", late.stderr);
            }
        }
        assert_eq!(stage.value("older-dev").await.as_deref(), Some("two"));
        assert_eq!(stage.value("older-new").await.as_deref(), Some("two"));
        assert_eq!(stage.value("older-prod").await, None);
    }
    // A newer commit that gave it another identity, too.
    stage.configure("stacks: [{match: appops/older/dev, identity: newer/dev}]\n");
    let third = monorepo.commit("Three");
    assert_eq!(applied(&stage, &[]), ["newer/dev"]);
    let late = run(
        &stage,
        &[
            "apply",
            "--pending",
            "--yes",
            "--output",
            "json",
            "--rev",
            &second,
        ],
    );
    let late = late.expect(0);
    assert_eq!(ids(&late.json()), Vec::<String>::new());
    let words = format!("older/dev has the newer commit {}", &third[..7]);
    assert!(late.stderr.contains(&words), "{words}: {}", late.stderr);
    assert_eq!(pending(&stage, &[]), Vec::<String>::new());
    // By its name it goes back.
    run(&stage, &["apply", "older/dev", "--rev", &first, "--yes"]).expect(0);
    assert_eq!(stage.value("older-dev").await.as_deref(), Some("one"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_says_nothing_of_what_is_recorded_is_refused() {
    let stage = Stage::small("").await;
    for (arguments, words) in [
        (
            &["preview", "--pending", "--base", "HEAD"][..],
            "cannot be used with",
        ),
        (&["apply", "--pending", "--spec", "x.yaml"], "cannot be used with"),
        (
            &["preview", "--pending", "--live", "never"],
            "konverge status --live never",
        ),
    ] {
        let refused = run(&stage, arguments).expect(64).stderr;
        assert!(refused.contains(words), "{arguments:?}: {refused}");
    }
    // Without a store the states of this machine count, and that is said.
    stage
        .monorepo
        .write("konverge.yaml", "clusters: {test: {}}\nkcl: {version: 0.13.2}\n");
    stage.stack("alone/dev", &[("alone-dev", "one")]);
    let states = stage.scratch.path().join("states");
    let alone = |arguments: &[&str]| {
        let konverge = stage.konverge(arguments.iter().copied());
        konverge.env("XDG_STATE_HOME", &states).run().expect(0)
    };
    let first = alone(&["apply", "--pending", "--yes", "--output", "json"]);
    assert_eq!(ids(&first.json()), ["alone/dev"]);
    assert!(
        first.stderr.contains("`state.url` is not set"),
        "{}",
        first.stderr
    );
    let again = alone(&["apply", "--pending", "--yes", "--output", "json"]);
    assert_eq!(ids(&again.json()), Vec::<String>::new());
    // Before the first commit, too.
    let unborn = Repository::init();
    unborn
        .write("kcl.mod", "[package]\nname = \"unborn\"\n")
        .write("konverge.yaml", "clusters: {test: {}}\n");
    let konverge = stage.konverge(["apply", "--pending", "--yes"]);
    let unborn = konverge.dir(unborn.path()).env("XDG_STATE_HOME", &states).run();
    let said = unborn.expect(0).stderr;
    assert!(said.contains("no stack has pending changes"), "{said}");
}

/// Another run may have been made from a clone that is newer than this one.
#[tokio::test]
async fn a_clone_asks_for_what_another_run_has_applied_meanwhile() {
    let upstream = Repository::init();
    let commit = |name: &str| -> CommitId { upstream.write("file", name).commit(name).parse().unwrap() };
    let (before, head) = (commit("before"), commit("head"));
    for (arguments, branch) in [(&[][..], "beside"), (&["--depth=1"], "aside")] {
        upstream.checkout("main");
        upstream.git(["reset", "--quiet", "--hard", head.as_str()]);
        let clone = upstream.clone_with(arguments);
        let (next, newest) = (commit("next"), commit("newest"));
        upstream.checkout(head.as_str()).branch(branch);
        let beside = upstream
            .write("other", "x")
            .commit("beside")
            .parse::<CommitId>()
            .unwrap();
        let run = RunContext {
            dir: clone.path().to_owned(),
            env: Default::default(),
            secrets: Secrets::new(HashKey::random()),
            cancel: Default::default(),
            writes: Arc::default(),
            events: Arc::new(NoEvents),
            notes: Arc::new(NoNotes),
            recorder: Default::default(),
        };
        let repository = konverge_repo::git::Repository::discover(clone.path()).unwrap();
        let history = CloneHistory::new(&run, &repository, Some(head.clone()));
        assert_eq!(history.newer_commits().await.unwrap(), BTreeSet::new());
        let now = history.newer_commits_now(&[before.clone(), head.clone()]).await;
        assert_eq!(now.unwrap(), BTreeSet::new());
        // A shallow clone that deepens fetches the branch as well.
        let now = history.newer_commits_now(std::slice::from_ref(&newest)).await;
        let now = now.unwrap();
        assert!(now.contains(&newest), "{now:?}");
        assert!(
            now.is_subset(&BTreeSet::from([next.clone(), newest.clone()])),
            "{now:?}"
        );
        // Of an older commit of the branch everything after it is newer; of another branch, what it lacks.
        clone.git([
            "fetch",
            "--quiet",
            "origin",
            "+refs/heads/*:refs/remotes/origin/*",
        ]);
        for (at, newer) in [
            (&head, BTreeSet::from([next.clone(), newest.clone()])),
            (&beside, BTreeSet::from([next.clone(), newest.clone()])),
            (&newest, BTreeSet::new()),
        ] {
            let history = CloneHistory::new(&run, &repository, Some(at.clone()));
            assert_eq!(history.newer_commits().await.unwrap(), newer, "{at}");
        }
        let nowhere: CommitId = "1".repeat(40).parse().unwrap();
        history.newer_commits_now(&[nowhere]).await.unwrap_err();
        assert_eq!(
            CloneHistory::new(&run, &repository, None)
                .newer_commits()
                .await
                .unwrap(),
            BTreeSet::new()
        );
    }
}

/// After an apply that ended half-way the next preview has one row for each stack, and counts what is left to do.
#[tokio::test(flavor = "multi_thread")]
async fn after_an_apply_that_ended_half_way_the_next_preview_counts_what_is_left() {
    let mut stage = Stage::small("").await;
    only_dry_runs_of("left-b").await;
    stage.reviewed(7, "half", |stage| {
        stage.stack("left/dev", &[("left-a", "one"), ("left-b", "one")]);
    });
    let merged = stage.merge(7, "half");
    merged.outcome.check(1);
    let log = &merged.outcome.stdout;
    assert!(
        log.contains("left/dev: failed, 1 of 2 resources changed"),
        "{log}"
    );
    let (_, next) = stage.reviewed(8, "next", |stage| {
        stage.stack("left/dev", &[("left-a", "two"), ("left-b", "one")]);
        stage.stack("beside/dev", &[("left-c", "one")]);
    });
    let text = next.summary;
    assert!(
        text.contains("### Konverge preview: 2 to create, 1 to update\n"),
        "{text}"
    );
    assert!(text.contains("2 stacks affected: 2 to change"), "{text}");
    let rows: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("| `left/dev` |"))
        .collect();
    assert_eq!(rows.len(), 1, "{text}");
    assert!(rows[0].contains("| 1 to create, 1 to update |"), "{text}");
}
