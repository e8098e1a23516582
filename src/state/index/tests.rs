#![allow(clippy::unwrap_used)]
use std::{sync::Arc, time::Duration};

use super::{
    super::{LeaseOptions, fixture},
    *,
};
use crate::{
    model::RepoPath,
    store::{MemoryStore, Store},
};

fn entry(epoch: u64, serial: u64, open: bool, resources: usize) -> IndexEntry {
    IndexEntry {
        open,
        resources,
        ..IndexEntry::open(epoch, serial, None)
    }
}

/// What two entries of a stack become, in both orders.
fn joined(one: &IndexEntry, other: &IndexEntry) -> IndexEntry {
    let stack = fixture::stack("shop/prod");
    let [ours, turned] = [[one, other], [other, one]].map(|pair| {
        let mut entries = BTreeMap::new();
        pair.into_iter()
            .for_each(|entry| join(&mut entries, [(stack.clone(), entry.clone())]));
        assert_eq!(entries.len(), 1);
        entries.remove(&stack).unwrap()
    });
    assert_eq!(ours, turned, "the order of the deltas changes nothing");
    ours
}

#[test]
fn the_later_lease_wins_and_within_a_lease_the_end() {
    let ended = entry(1, 5, false, 3);
    assert_eq!(joined(&ended, &entry(2, 4, false, 1)), entry(2, 4, false, 1));
    assert_eq!(joined(&ended, &entry(1, 4, true, 1)), ended);
    assert_eq!(joined(&ended, &entry(1, 6, false, 0)), entry(1, 6, false, 0));
}

#[test]
fn an_opening_entry_takes_over_what_the_entry_before_knew() {
    let ended = IndexEntry {
        folder: RepoPath::root().child("apps"),
        commit: Some("a".repeat(40).parse().unwrap()),
        ..entry(1, 5, false, 3)
    };
    let both = joined(&ended, &entry(2, 5, true, 0));
    assert_eq!((both.epoch, both.open, both.resources), (2, true, 3));
    assert_eq!((&both.folder, &both.commit), (&ended.folder, &ended.commit));
    // An entry that knows its resources is taken as it is, and so is the end of a stack without any.
    assert_eq!(joined(&ended, &entry(2, 5, true, 1)), entry(2, 5, true, 1));
    assert_eq!(joined(&ended, &entry(2, 6, false, 0)), entry(2, 6, false, 0));
}

struct Bench {
    store: Arc<dyn Store>,
    states: StateStore,
}

impl Bench {
    async fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let states = fixture::states(&store, &Arc::default());
        let known = states.read_all().await.unwrap();
        states.maintain_index(&known).await.unwrap();
        Self { store, states }
    }

    /// As another run reads it.
    async fn read(&self) -> BTreeMap<StackId, IndexEntry> {
        let other = fixture::states(&self.store, &Arc::default());
        other.read_all().await.unwrap().entries
    }

    async fn apply(&self, stack: &StackId) {
        let lease = self.states.acquire(stack, LeaseOptions::default()).await.unwrap();
        lease.journal(fixture::created("a")).await.unwrap();
        lease.commit(fixture::state(stack, &["a"]), &[]).await.unwrap();
    }

    async fn deltas(&self) -> usize {
        names(&self.store.list(&index_folder()).await.unwrap()).1.len()
    }
}

#[tokio::test]
async fn a_run_announces_its_stacks_in_one_write_and_none_of_them_again() {
    let bench = Bench::new().await;
    let stacks = ["a/dev", "b/dev"].map(fixture::stack);
    let known = bench.states.read_all().await.unwrap();
    bench.states.announce_run(&known, &stacks[..1]).await.unwrap();
    assert_eq!(bench.deltas().await, 0, "one stack announces itself");
    bench.states.announce_run(&known, &stacks).await.unwrap();
    assert_eq!(bench.deltas().await, 1);
    let read = bench.read().await;
    assert!(
        stacks
            .iter()
            .all(|stack| read[stack].open && read[stack].epoch == 1),
        "{read:?}"
    );
    for stack in &stacks {
        bench.apply(stack).await;
    }
    assert_eq!(bench.deltas().await, 1);
    let read = bench.read().await;
    assert!(
        stacks
            .iter()
            .all(|stack| !read[stack].open && read[stack].resources == 1),
        "{read:?}"
    );
}

#[tokio::test]
async fn an_index_made_from_states_says_which_stacks_a_dead_run_left_open() {
    let bench = Bench::new().await;
    let [applied, interrupted, begun, damaged] = ["a/dev", "b/dev", "c/dev", "d/dev"].map(fixture::stack);
    for stack in [&applied, &interrupted, &damaged] {
        bench.apply(stack).await;
    }
    for stack in [&interrupted, &begun] {
        let options = LeaseOptions {
            term: Duration::from_secs(1),
            ..LeaseOptions::default()
        };
        let lease = bench.states.acquire(stack, options).await.unwrap();
        lease.journal(fixture::created("b")).await.unwrap();
    }
    let state = keys::state(&damaged, 1);
    bench.store.delete(&state).await.unwrap();
    bench.store.create(&state, "{".into()).await.unwrap();
    let entries = bench.states.rebuild_index().await.unwrap().entries;
    let seen = |stack: &StackId| {
        let entry = &entries[stack];
        (entry.epoch, entry.serial, entry.open, entry.resources)
    };
    assert_eq!(seen(&applied), (1, 1, false, 1));
    assert_eq!(seen(&interrupted), (2, 1, true, 1));
    assert_eq!(seen(&begun), (1, 0, true, 0));
    assert_eq!(seen(&damaged), (1, 1, true, 0));
}
