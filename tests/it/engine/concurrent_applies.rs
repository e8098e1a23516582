//! Many processes of `konverge apply --spec` at once, on the real API server and an S3 server: whatever stands in the
//! cluster is recorded, whatever is recorded stands there, and nothing that was made is forgotten.

use crate::support::{process::Running, spec_runs::SpecRuns};
use konverge_base::model::StackId;
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// So many processes on so many stacks. Each wants two ConfigMaps of its own and none of those that another made.
async fn many(processes: usize, stacks: usize) {
    let runs = SpecRuns::on_s3("many", "  lease: {wait: 30m}\n").await;
    let stack = |n: usize| format!("app{}/prod", n % stacks);
    let names = |n: usize| [format!("r{n}-a"), format!("r{n}-b")];
    for n in 0..processes {
        let names = names(n);
        runs.spec(&format!("{n}.json"), &names.each_ref().map(String::as_str));
    }
    let start = |n: usize| {
        let run = runs.apply(&format!("{n}.json"), &stack(n));
        run.arg("--output=json").limit(Duration::from_secs(1800)).start()
    };
    let running: Vec<Running> = (0..processes).map(start).collect();
    let mut serials: BTreeMap<StackId, BTreeSet<u64>> = BTreeMap::new();
    for (n, running) in running.into_iter().enumerate() {
        let report = running.wait().expect(0).json();
        let outcome = &report["stacks"][0];
        assert_eq!(outcome["result"], "applied", "process {n}: {outcome}");
        let serial = outcome["serial"].as_u64().unwrap();
        let fresh = serials
            .entry(stack(n).parse().unwrap())
            .or_default()
            .insert(serial);
        assert!(fresh, "serial {serial} of {} was given twice", stack(n));
    }
    let states = runs.states("the test").await;
    let known = states.read_all().await.unwrap();
    for n in 0..stacks {
        let stack = stack(n);
        let (made, recorded) = (runs.made(&stack).await, runs.recorded(&stack).await);
        assert_eq!(made, recorded, "{stack}");
        let of_one = (0..processes).any(|n| made == BTreeSet::from(names(n)));
        assert!(of_one, "{stack} is what no Spec asked for: {made:?}");
        // Each process wrote a serial of its own; those between are fences, where two had looked at the same moment.
        let id: StackId = stack.parse().unwrap();
        let newest = states.load(&id).await.unwrap().unwrap();
        assert_eq!(serials[&id].len(), processes / stacks, "{stack}");
        assert_eq!(serials[&id].last(), Some(&newest.serial), "{stack}");
        assert!(newest.pending.is_empty());
        assert!(
            known.entries[&id].settled_digest().is_some(),
            "{stack} is not settled"
        );
    }
    // Every object that was ever made was deleted again or is recorded: nothing is left beside.
    let everything = runs.made_by_anybody().await;
    assert_eq!(everything.len(), 2 * stacks, "{everything:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_on_one_stack_leave_exactly_what_is_recorded() {
    many(6, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_on_as_many_stacks_do_not_wait_for_each_other() {
    many(6, 6).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a hundred processes; `make test-all` runs it"]
async fn a_hundred_processes_on_one_stack() {
    many(100, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a hundred processes; `make test-all` runs it"]
async fn a_hundred_processes_on_a_hundred_stacks() {
    many(100, 100).await;
}
