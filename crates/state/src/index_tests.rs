use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::FutureExt as _;

use super::{
    super::{
        DocumentWriter, LeaseOptions, RepositoryId,
        fixture::{self, StoreRequest, WatchedStore},
    },
    *,
};
use crate::store::{MemoryStore, Store};
use konverge_base::model::{RepoPath, other_names::OtherNames};

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
        folder: RepoPath::root().child("apps").into(),
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
        other.read_all().await.unwrap().into_inner().entries
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
async fn a_stack_that_was_announced_and_found_unchanged_is_not_open_for_ever() {
    let bench = Bench::new().await;
    let stacks = ["a/dev", "b/dev", "c/dev"].map(fixture::stack);
    for stack in &stacks {
        bench.apply(stack).await;
    }
    bench.states.save_index().await.unwrap();
    let [unchanged, changed, held_back] = &stacks;
    for _ in 0..2 {
        let run = fixture::states(&bench.store, &Arc::default());
        let known = run.known().await.unwrap();
        run.announce_run(known, &stacks).await.unwrap();
        assert!(bench.read().await[unchanged].open, "another run is at work");
        let lease = run.acquire(unchanged, LeaseOptions::default()).await.unwrap();
        lease.mark_unchanged().await.unwrap();
        lease.release().await.unwrap();
        let lease = run.acquire(changed, LeaseOptions::default()).await.unwrap();
        lease.journal(fixture::created("b")).await.unwrap();
        lease.mark_unchanged().await.unwrap();
        lease.release().await.unwrap();
        run.save_index().await.unwrap();
    }
    let read = bench.read().await;
    assert!(!read[unchanged].open, "{read:?}");
    assert_eq!((read[unchanged].serial, read[unchanged].resources), (1, 1));
    assert!(read[changed].open, "its journal is in no state");
    assert!(read[held_back].open, "no lease of it ended");
    let run = fixture::states(&bench.store, &Arc::default());
    let known = run.known().await.unwrap();
    run.announce_run(known, &stacks[1..]).await.unwrap();
    let lease = run.acquire(held_back, LeaseOptions::default()).await.unwrap();
    lease.mark_unchanged().await.unwrap();
    lease.release().await.unwrap();
    run.save_index().await.unwrap();
    assert!(!bench.read().await[held_back].open);
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
    let rebuilt = bench.states.rebuild_index().await.unwrap();
    let entries = &rebuilt.entries;
    let seen = |stack: &StackId| {
        let entry = &entries[stack];
        (entry.epoch, entry.serial, entry.open, entry.resources)
    };
    assert_eq!(seen(&applied), (1, 1, false, 1));
    assert_eq!(seen(&interrupted), (2, 1, true, 1));
    assert_eq!(seen(&begun), (1, 0, true, 0));
    assert_eq!(seen(&damaged), (1, 1, true, 0));
}

/// What was counted of the documents of an index: the newest compaction, and the deltas.
type Counted = (u64, usize);

impl Bench {
    /// Another run on the same store.
    fn run(&self) -> StateStore {
        fixture::states(&self.store, &Arc::default())
    }

    async fn counted(&self) -> Counted {
        let (compactions, deltas) = names(&self.store.list(&index_folder()).await.unwrap());
        (compactions.last().copied().unwrap_or(0), deltas.len())
    }

    /// The entry of a stack as the documents of the index say it.
    async fn written(&self, stack: &StackId) -> IndexEntry {
        self.run().index().await.unwrap().entries[stack].clone()
    }

    /// Writes deltas that say nothing.
    async fn put_deltas(&self, count: usize) {
        for _ in 0..count {
            self.states.write_delta(0, BTreeMap::new()).await.unwrap();
        }
    }
}

/// Applies a stack with that many intents.
async fn apply(states: &StateStore, stack: &StackId, intents: usize) {
    let lease = states.acquire(stack, LeaseOptions::default()).await.unwrap();
    let names: Vec<_> = (0..intents).map(|number| format!("r{number}")).collect();
    for name in &names {
        lease.journal(fixture::created(name)).await.unwrap();
    }
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    lease.commit(fixture::state(stack, &names), &[]).await.unwrap();
}

#[tokio::test]
async fn the_known_states_are_those_of_the_first_reading() {
    let bench = Bench::new().await;
    let stack = fixture::stack("a/dev");
    bench.apply(&stack).await;
    let run = bench.run();
    assert_eq!(run.known().await.unwrap().entries[&stack].serial, 1);
    assert!(
        !run.known().await.unwrap().entries[&stack].open,
        "it was looked up"
    );
    bench.apply(&stack).await;
    assert_eq!(run.known().await.unwrap().entries[&stack].serial, 1);
    assert_eq!(bench.read().await[&stack].serial, 2);
}

#[tokio::test]
async fn the_index_is_compacted_if_it_was_rebuilt_or_has_many_deltas() {
    for (deltas, compaction) in [(DELTAS_KEPT, 1), (DELTAS_KEPT + 1, 2)] {
        let bench = Bench::new().await;
        assert_eq!(bench.counted().await, (1, 0), "a new index is a compaction");
        bench.put_deltas(deltas).await;
        let known = bench.states.read_all().await.unwrap();
        assert_eq!(
            (known.compaction, known.unmerged.len(), known.merged.len()),
            (1, deltas, 0)
        );
        bench.states.maintain_index(&known).await.unwrap();
        assert_eq!(bench.counted().await, (compaction, deltas));
    }
    let bench = Bench::new().await;
    let known = bench.states.rebuild_index().await.unwrap();
    bench.states.maintain_index(&known).await.unwrap();
    assert_eq!(bench.counted().await, (2, 0));
    bench.states.maintain_index(&known).await.unwrap();
    assert_eq!(bench.counted().await, (2, 0), "another run was faster");
}

#[tokio::test]
async fn what_was_looked_up_is_written_once() {
    let bench = Bench::new().await;
    let stack = fixture::stack("a/dev");
    apply(&bench.run(), &stack, 1).await;
    assert_eq!(bench.counted().await, (1, 1));
    assert!(bench.written(&stack).await.open);
    let known = bench.states.read_all().await.unwrap();
    assert!(!known.entries[&stack].open);
    assert_eq!(known.found.keys().collect::<Vec<_>>(), [&stack]);
    bench.states.maintain_index(&known).await.unwrap();
    assert_eq!(bench.counted().await, (1, 2));
    assert!(!bench.written(&stack).await.open);
    let known = bench.states.read_all().await.unwrap();
    assert!(known.found.is_empty());
    bench.states.maintain_index(&known).await.unwrap();
    assert_eq!(bench.counted().await, (1, 2));
}

#[tokio::test]
async fn a_stack_that_a_run_works_on_stays_open() {
    let bench = Bench::new().await;
    let stack = fixture::stack("a/dev");
    bench.apply(&stack).await;
    let known = bench.states.read_all().await.unwrap();
    bench.states.maintain_index(&known).await.unwrap();
    let run = bench.run();
    let lease = run.acquire(&stack, LeaseOptions::default()).await.unwrap();
    lease.journal(fixture::created("b")).await.unwrap();
    let known = bench.states.read_all().await.unwrap();
    assert!(known.entries[&stack].open && known.found.is_empty());
    assert_eq!(
        (known.entries[&stack].epoch, known.entries[&stack].resources),
        (2, 1)
    );
}

#[tokio::test]
async fn old_compactions_and_merged_deltas_are_deleted() {
    let bench = Bench::new().await;
    for number in 2..=6 {
        bench.put_deltas(2).await;
        let known = bench.states.read_all().await.unwrap();
        assert!(bench.states.compact(&known).await.unwrap());
        assert!(
            !bench.states.compact(&known).await.unwrap(),
            "its number is taken"
        );
        let (compactions, deltas) = names(&bench.store.list(&index_folder()).await.unwrap());
        let oldest = number.max(COMPACTIONS_KEPT) + 1 - COMPACTIONS_KEPT;
        assert_eq!(compactions, (oldest..=number).collect::<Vec<_>>());
        assert_eq!(deltas.len(), 2, "those that it merged stay until the next one");
    }
    let known = bench.states.read_all().await.unwrap();
    assert_eq!((known.unmerged.len(), known.merged.len()), (0, 2));
}

#[tokio::test]
async fn the_end_of_a_small_later_apply_of_one_stack_is_not_worth_a_delta() {
    let [stack, other] = ["a/dev", "b/dev"].map(fixture::stack);
    // The first state is always recorded; then it depends on the number of intents.
    for (stacks, intents, deltas) in [
        (vec![&stack], 1, 0),
        (vec![&stack], WORTH_A_DELTA - 1, 0),
        (vec![&stack], WORTH_A_DELTA, 1),
        (vec![&stack], 0, 1),
        (vec![&stack, &other], 1, 1),
        (vec![], 0, 0),
    ] {
        let bench = Bench::new().await;
        let first = bench.run();
        for stack in [&stack, &other] {
            apply(&first, stack, 1).await;
        }
        first.save_index().await.unwrap();
        let (_, before) = bench.counted().await;
        assert_eq!(before, 3, "two announcements and one end");
        assert!(!bench.written(&stack).await.open);
        let run = bench.run();
        for stack in &stacks {
            apply(&run, stack, intents).await;
        }
        // A stack without an intent is not announced.
        let announced = if intents == 0 { 0 } else { stacks.len() };
        run.save_index().await.unwrap();
        assert_eq!(
            bench.counted().await,
            (1, before + announced + deltas),
            "{intents} {stacks:?}"
        );
        run.save_index().await.unwrap();
        assert_eq!(
            bench.counted().await,
            (1, before + announced + deltas),
            "what is saved is saved once"
        );
    }
    let bench = Bench::new().await;
    let run = bench.run();
    apply(&run, &stack, 1).await;
    run.save_index().await.unwrap();
    assert_eq!(
        bench.counted().await,
        (1, 2),
        "a first state is recorded, however small"
    );
    assert!(!bench.written(&stack).await.open);
}

#[tokio::test]
async fn a_run_that_wrote_many_deltas_compacts_them_at_its_end() {
    for (stacks, compaction) in [(DELTAS_KEPT, 1), (DELTAS_KEPT + 1, 2)] {
        let bench = Bench::new().await;
        let run = bench.run();
        for number in 0..stacks {
            apply(&run, &fixture::stack(&format!("s{number}/dev")), 1).await;
        }
        run.save_index().await.unwrap();
        assert_eq!(bench.counted().await, (compaction, stacks + 1));
    }
}

#[tokio::test]
async fn an_end_is_recorded_by_a_compaction_if_one_is_due() {
    let stack = fixture::stack("a/dev");
    for (deltas, expected) in [
        (DELTAS_KEPT, (1, DELTAS_KEPT + 2)),
        (DELTAS_KEPT + 1, (2, DELTAS_KEPT + 2)),
    ] {
        let bench = Bench::new().await;
        bench.put_deltas(deltas).await;
        let run = bench.run();
        // The run reads the index, because the stack has no document.
        apply(&run, &stack, 1).await;
        run.save_index().await.unwrap();
        assert_eq!(bench.counted().await, expected, "{deltas}");
        assert!(!bench.written(&stack).await.open);
    }
    // A run that has compacted the index already writes a delta.
    let bench = Bench::new().await;
    bench.put_deltas(DELTAS_KEPT + 1).await;
    let run = bench.run();
    let known = run.known().await.unwrap();
    run.maintain_index(known).await.unwrap();
    apply(&run, &stack, 1).await;
    run.save_index().await.unwrap();
    assert_eq!(bench.counted().await, (2, DELTAS_KEPT + 3));
}

#[tokio::test]
async fn an_index_without_a_compaction_gets_one_at_the_end_of_an_apply() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let states = fixture::states(&store, &Arc::default());
    let bench = Bench { store, states };
    let stack = fixture::stack("a/dev");
    bench.apply(&stack).await;
    bench.states.save_index().await.unwrap();
    assert_eq!(bench.counted().await, (1, 1), "the delta is the announcement");
    assert!(!bench.written(&stack).await.open);
}

#[tokio::test]
async fn a_run_that_did_not_read_the_index_reads_it_if_many_deltas_are_listed() {
    let stack = fixture::stack("a/dev");
    for (listed, compaction) in [(DELTAS_LISTED, 1), (DELTAS_LISTED + 1, 2)] {
        let bench = Bench::new().await;
        apply(&bench.run(), &stack, 1).await;
        // One announcement there is, and one follows.
        bench.put_deltas(listed - 2).await;
        let run = bench.run();
        apply(&run, &stack, 1).await;
        run.save_index().await.unwrap();
        assert_eq!(bench.counted().await, (compaction, listed), "{listed}");
        assert_eq!(bench.written(&stack).await.open, compaction == 1);
        assert!(!bench.read().await[&stack].open);
    }
}

#[tokio::test]
async fn a_rebuilt_index_says_what_it_was_made_of() {
    let bench = Bench::new().await;
    let [stack, announced] = ["a/dev", "b/dev"].map(fixture::stack);
    bench.apply(&stack).await;
    let entries = BTreeMap::from([(announced.clone(), entry(1, 0, true, 0))]);
    bench.states.write_delta(1, entries).await.unwrap();
    bench
        .store
        .create(&delta_key("damaged"), "{".into())
        .await
        .unwrap();
    let rebuilt = bench.states.rebuild_index().await.unwrap();
    assert_eq!(
        (rebuilt.compaction, rebuilt.complete, rebuilt.rebuilt),
        (1, true, true)
    );
    let (_, deltas) = names(&bench.store.list(&index_folder()).await.unwrap());
    assert_eq!((&rebuilt.unmerged, rebuilt.merged.len()), (&deltas, 0));
    let seen: Vec<_> = rebuilt
        .entries
        .iter()
        .map(|(stack, entry)| (stack, entry.open))
        .collect();
    assert_eq!(seen, [(&stack, false), (&announced, true)]);
    assert_eq!(bench.states.stacks().await.unwrap(), [stack]);
}

#[tokio::test]
async fn a_damaged_document_of_the_index_makes_it_incomplete() {
    let stack = fixture::stack("a/dev");
    for key in [delta_key("0000000001-ab"), compaction_key(2)] {
        let bench = Bench::new().await;
        bench.apply(&stack).await;
        assert!(bench.run().read_index().await.unwrap().complete);
        bench.store.create(&key, "{".into()).await.unwrap();
        assert!(!bench.run().read_index().await.unwrap().complete, "{key}");
        let read = bench.run().read_all().await.unwrap();
        assert!(read.rebuilt && !read.entries[&stack].open);
    }
    let foreign = StateStore::open(
        Arc::clone(&Bench::new().await.store),
        RepositoryId::new("other"),
        DocumentWriter {
            run: "r".to_owned(),
            actor: "a".to_owned(),
        },
    );
    assert!(matches!(
        foreign.read_all().await,
        Err(StateError::Foreign { .. })
    ));
}

#[tokio::test]
async fn a_reading_that_a_compaction_overtook_is_repeated() {
    // The listing shows a delta that is gone when it is read, for so many readings.
    for (times, is_complete) in [(1, true), (STALE_LISTINGS - 1, true), (STALE_LISTINGS, false)] {
        let lists = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&lists);
        let store = WatchedStore::shared(move |objects, request| {
            let count = || counted.load(Ordering::SeqCst);
            match request {
                StoreRequest::List(key) if *key == index_folder() && count() > 0 => {
                    counted.fetch_add(1, Ordering::SeqCst);
                    if count() <= times + 1 {
                        objects.overwrite(&delta_key("gone"), "{".into());
                    }
                }
                StoreRequest::Get(key) if *key == delta_key("gone") => {
                    objects.delete(key).now_or_never().unwrap()?;
                }
                _ => {}
            }
            Ok(())
        });
        let states = fixture::states(&store, &Arc::default());
        let known = states.read_all().await.unwrap();
        states.maintain_index(&known).await.unwrap();
        lists.store(1, Ordering::SeqCst);
        assert_eq!(
            states.read_index().await.unwrap().complete,
            is_complete,
            "{times}"
        );
    }
}

#[tokio::test]
async fn an_entry_is_written_if_it_has_a_serial_and_is_not_retired() {
    let bench = Bench::new().await;
    let retired = IndexEntry {
        retired: true,
        ..entry(1, 3, false, 0)
    };
    let rows = [
        ("a/dev", entry(1, 0, true, 0), false),
        ("b/dev", entry(1, 1, false, 1), true),
        ("c/dev", retired, false),
    ];
    let entries = rows
        .iter()
        .map(|(stack, entry, _)| (fixture::stack(stack), entry.clone()));
    bench.states.write_delta(1, entries.collect()).await.unwrap();
    let run = bench.run();
    for (stack, _, expected) in rows {
        assert_eq!(
            run.was_written(&fixture::stack(stack)).await.unwrap(),
            expected,
            "{stack}"
        );
    }
    assert!(!run.was_written(&fixture::stack("d/dev")).await.unwrap());
}

#[tokio::test]
async fn a_stack_is_announced_once_for_a_lease() {
    let bench = Bench::new().await;
    let [one, two] = ["a/dev", "b/dev"].map(fixture::stack);
    let run = bench.run();
    let known = run.known().await.unwrap().clone();
    run.announce_run(&known, &[one.clone(), two.clone()])
        .await
        .unwrap();
    assert_eq!(bench.counted().await, (1, 1));
    run.announce(&one, 1, 0).await.unwrap();
    assert_eq!(
        (bench.counted().await, run.finished().deltas),
        ((1, 1), 0),
        "it was announced"
    );
    for (number, epoch) in [(1, 2), (2, 3)] {
        run.announce(&one, epoch, 1).await.unwrap();
        assert_eq!(bench.counted().await, (1, 1 + number));
        assert_eq!(run.finished().deltas, number);
    }
    let written = bench.written(&one).await;
    assert_eq!((written.epoch, written.serial, written.open), (3, 1, true));
}

#[tokio::test]
async fn a_stack_that_was_announced_and_not_reached_yet_stays_open() {
    let bench = Bench::new().await;
    let stacks = ["a/dev", "b/dev"].map(fixture::stack);
    bench.apply(&stacks[0]).await;
    let known = bench.states.read_all().await.unwrap();
    assert!(!known.entries[&stacks[0]].open);
    bench.run().announce_run(&known, &stacks).await.unwrap();
    let announced = bench.states.read_all().await.unwrap();
    assert!(announced.found.is_empty());
    let entry = &announced.entries[&stacks[0]];
    assert_eq!((entry.epoch, entry.open, entry.resources), (2, true, 1));
}

/// Runs that were held back foresee leases that nobody takes.
#[tokio::test]
async fn a_stack_that_was_applied_under_an_earlier_lease_than_announced_is_closed() {
    let bench = Bench::new().await;
    let stacks = ["a/dev", "b/dev"].map(fixture::stack);
    for _ in 0..2 {
        let known = bench.states.read_all().await.unwrap();
        bench.run().announce_run(&known, &stacks).await.unwrap();
    }
    bench.apply(&stacks[0]).await;
    let known = bench.states.read_all().await.unwrap();
    let entry = &known.entries[&stacks[0]];
    assert_eq!((entry.epoch, entry.serial, entry.open), (1, 1, false));
    assert!(
        known.entries[&stacks[1]].open,
        "it was announced and not reached yet"
    );
}

#[tokio::test]
async fn a_stack_that_was_announced_and_never_changed_was_not_applied() {
    let bench = Bench::new().await;
    let [applied, begun, refused, named] = ["a/dev", "b/dev", "c/dev", "d/dev"].map(fixture::stack);
    bench.apply(&applied).await;
    let known = bench.states.read_all().await.unwrap();
    let run = bench.run();
    let all = [&applied, &begun, &refused, &named].map(StackId::clone);
    run.announce_run(&known, &all).await.unwrap();
    for stack in [&refused, &named, &begun] {
        let lease = run.acquire(stack, LeaseOptions::default()).await.unwrap();
        let names = OtherNames {
            ids: [fixture::stack("e/dev")].into(),
            ..OtherNames::default()
        };
        let data = JournalEntry::Runtime {
            key: "k".to_owned(),
            value: 1.into(),
        };
        match stack {
            _ if stack == &named => lease.journal(vec![JournalEntry::Names { names }]).await.unwrap(),
            _ if stack == &begun => lease.journal(vec![data]).await.unwrap(),
            _ => {}
        }
        lease.release().await.unwrap();
    }
    let read = bench.states.read_all().await.unwrap();
    let rebuilt = bench.states.rebuild_index().await.unwrap();
    for known in [read, rebuilt] {
        for (stack, was_applied) in [
            (&applied, true),
            (&begun, true),
            (&refused, false),
            (&named, false),
        ] {
            assert_eq!(known.was_applied(stack), was_applied, "{stack}");
            assert!(
                known.entries[stack].open,
                "{stack}: a run may be about to reach it"
            );
        }
    }
}
