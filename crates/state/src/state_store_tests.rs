use std::sync::atomic::{AtomicU32, Ordering};

use futures::FutureExt as _;

use super::{
    super::{
        LeaseOptions,
        fixture::{self, HandClock, StoreRequest, WatchedStore},
    },
    *,
};
use crate::store::MemoryStore;
use konverge_base::error::chain;

#[tokio::test]
async fn a_state_in_the_place_of_another_is_not_read() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let states = fixture::states(&store, &Arc::<HandClock>::default());
    let [ours, other] = ["shop/prod", "shop/dev"].map(fixture::stack);
    let lease = states.acquire(&ours, LeaseOptions::default()).await.unwrap();
    lease.commit(fixture::state(&ours, &["a"]), &[]).await.unwrap();
    let letter = store.get(&keys::state(&ours, 1)).await.unwrap().unwrap();
    for (stack, serial) in [(&ours, 2), (&other, 1)] {
        store
            .create(&keys::state(stack, serial), letter.clone())
            .await
            .unwrap();
        let refused = states.load_serial(stack, serial).await.unwrap_err();
        assert!(matches!(refused, StateError::Damaged { .. }), "{refused}");
    }
    states.load_serial(&ours, 1).await.unwrap();
}

fn states() -> StateStore {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    fixture::states(&store, &Arc::default())
}

async fn apply(states: &StateStore, stack: &StackId, names: &[&str]) {
    let lease = states.acquire(stack, LeaseOptions::default()).await.unwrap();
    lease.commit(fixture::state(stack, names), &[]).await.unwrap();
}

#[tokio::test]
async fn the_stacks_of_the_index_are_those_that_are_not_retired() {
    let states = states();
    let [kept, forgotten] = ["a/dev", "b/dev"].map(fixture::stack);
    for stack in [&kept, &forgotten] {
        apply(&states, stack, &["a"]).await;
    }
    assert_eq!(states.list().await.unwrap(), [kept.clone(), forgotten.clone()]);
    let lease = states.acquire(&forgotten, LeaseOptions::default()).await.unwrap();
    let empty = fixture::state(&forgotten, &[]);
    lease.record(WriteReason::Forget, empty, None).await.unwrap();
    assert_eq!(states.list().await.unwrap(), [kept]);
    assert!(states.load(&forgotten).await.unwrap().unwrap().retired);
    // A run begins to make something of it again.
    let lease = states.acquire(&forgotten, LeaseOptions::default()).await.unwrap();
    lease.journal(fixture::created("b")).await.unwrap();
    assert!(!states.load(&forgotten).await.unwrap().unwrap().retired);
    let kept = fixture::stack("a/dev");
    assert!(!states.load(&kept).await.unwrap().unwrap().retired);
}

#[tokio::test]
async fn the_history_is_every_serial_from_the_newest_on_with_what_cannot_be_read() {
    let states = states();
    let stack = fixture::stack("shop/prod");
    assert_eq!(states.history(&stack).await.unwrap(), []);
    apply(&states, &stack, &["a"]).await;
    let lease = states.acquire(&stack, LeaseOptions::default()).await.unwrap();
    let mut pushed = fixture::state(&stack, &["a", "b"]);
    pushed.commit = Some("c".repeat(40).parse().unwrap());
    lease
        .record(WriteReason::Push, pushed, Some("by hand".to_owned()))
        .await
        .unwrap();
    states
        .store
        .create(&keys::state(&stack, 3), "{".into())
        .await
        .unwrap();
    let history = states.history(&stack).await.unwrap();
    assert_eq!(
        history.iter().map(|line| line.serial).collect::<Vec<_>>(),
        [3, 2, 1]
    );
    let entry = |reason, commit: Option<String>, resources, note: Option<&str>| HistoryEntry {
        reason,
        writer: states.envelopes.writer.clone(),
        time: Timestamp::UNIX_EPOCH,
        commit,
        resources,
        note: note.map(str::to_owned),
        receipt: None,
    };
    let second = entry(WriteReason::Push, Some("c".repeat(40)), 2, Some("by hand"));
    assert_eq!(history[1].document, Ok(second));
    assert_eq!(history[2].document, Ok(entry(WriteReason::Apply, None, 1, None)));
    let unreadable = history[0].document.as_ref().unwrap_err();
    assert!(unreadable.contains("is damaged"), "{unreadable}");
    let [first, second] = [0, 1].map(|at| serde_json::to_value(&history[at]).unwrap());
    assert_eq!(first, serde_json::json!({"serial": 3, "unreadable": unreadable}));
    assert_eq!(
        (&second["serial"], &second["reason"]),
        (&2.into(), &"push".into())
    );
}

#[tokio::test]
async fn a_missing_serial_is_said_with_the_command_that_lists_the_others() {
    let states = states();
    let stack = fixture::stack("shop/prod");
    assert!(states.load(&stack).await.unwrap().is_none());
    let error = chain(&states.load_serial(&stack, 4).await.unwrap_err());
    assert!(
        error.contains("no serial 4") && error.contains("konverge state history shop/prod"),
        "{error}"
    );
}

#[tokio::test]
async fn a_stack_has_a_state_while_there_is_only_a_journal() {
    let states = states();
    let stack = fixture::stack("shop/prod");
    let lease = states.acquire(&stack, LeaseOptions::default()).await.unwrap();
    lease.journal(fixture::created("a")).await.unwrap();
    lease.journal(fixture::created("b")[..1].to_vec()).await.unwrap();
    let read = states.load(&stack).await.unwrap().unwrap();
    assert_eq!((read.serial, read.epoch, read.reason), (0, 0, WriteReason::Apply));
    assert_eq!(read.writer, states.envelopes.writer);
    assert_eq!(
        read.state.resources,
        fixture::state(&stack, &["a", "b"]).resources
    );
    assert_eq!(read.pending, [fixture::recorded("b").id]);
}

#[tokio::test]
async fn a_journal_that_the_document_contains_is_not_read_again() {
    let states = states();
    let stack = fixture::stack("shop/prod");
    apply(&states, &stack, &["a"]).await;
    let put = async |epoch, entry, name| {
        let document = JournalDocument::Entries(fixture::created(name));
        let key = keys::journal(&stack, epoch, entry);
        let letter = states.letter("journal", &key, &document).unwrap();
        states.store.create(&key, letter.bytes).await.unwrap();
    };
    // The document contains the journal before epoch 2, entry 1.
    let lease = states.acquire(&stack, LeaseOptions::default()).await.unwrap();
    lease.journal(fixture::created("contained")).await.unwrap();
    lease.commit(fixture::state(&stack, &["a"]), &[]).await.unwrap();
    for (epoch, entry, name) in [
        (1, 5, "w"),
        (2, 0, "x"),
        (2, 1, "y"),
        (2, 2, "z"),
        (3, 0, "later"),
    ] {
        put(epoch, entry, name).await;
    }
    let reading = states.read(&stack).await.unwrap();
    let expected: Vec<_> = ["y", "z", "later"]
        .into_iter()
        .flat_map(fixture::created)
        .collect();
    assert_eq!(reading.entries, expected);
}

#[tokio::test]
async fn a_listing_that_was_outdated_is_repeated_a_few_times() {
    // The newest document of the listing is gone when it is read, for so many listings.
    for (times, is_read) in [(STALE_LISTINGS - 1, true), (STALE_LISTINGS, false)] {
        let lists = AtomicU32::new(0);
        let stack = fixture::stack("shop/prod");
        let stray = keys::state(&stack, 9);
        let store = WatchedStore::shared(move |objects, request| {
            match request {
                StoreRequest::List(key)
                    if key.as_str().starts_with("stacks/")
                        && lists.fetch_add(1, Ordering::SeqCst) < times =>
                {
                    objects.overwrite(&stray, "{".into());
                }
                StoreRequest::Get(key) if *key == stray => {
                    objects.delete(key).now_or_never().unwrap()?;
                }
                _ => {}
            }
            Ok(())
        });
        let states = fixture::states(&store, &Arc::default());
        assert_eq!(states.read(&stack).await.is_ok(), is_read, "{times}");
    }
}

#[tokio::test]
async fn a_state_that_was_written_and_is_gone_is_noticed() {
    let states = states();
    let stack = fixture::stack("shop/prod");
    apply(&states, &stack, &["a"]).await;
    states.save_index().await.unwrap();
    let run = || fixture::states(&states.store, &Arc::default());
    assert!(run().load(&stack).await.unwrap().is_some());
    states.store.delete(&keys::state(&stack, 1)).await.unwrap();
    let gone = run().load(&stack).await;
    assert!(matches!(gone, Err(StateError::Vanished { serial: 1, .. })));
}

/// Who holds no key can still take away the newest serial: the one before it is genuine.
#[tokio::test]
async fn where_documents_are_encrypted_a_newest_serial_that_is_gone_is_noticed() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (stack, sealer) = (fixture::stack("shop/prod"), Sealer::generate());
    let run =
        || fixture::states(&store, &Arc::default()).with_sealer(Some(sealer.clone()), SealScope::Documents);
    for names in [["a"], ["b"], ["c"]] {
        let states = run();
        // A small apply: it leaves no other trace in the index.
        let lease = states.acquire(&stack, LeaseOptions::default()).await.unwrap();
        lease.journal(fixture::created(names[0])).await.unwrap();
        lease.commit(fixture::state(&stack, &names), &[]).await.unwrap();
        states.save_index().await.unwrap();
    }
    let newest = store.get(&keys::state(&stack, 3)).await.unwrap().unwrap();
    store.delete(&keys::state(&stack, 3)).await.unwrap();
    let gone = |error: Option<StateError>| {
        matches!(
            error,
            Some(StateError::Vanished {
                serial: 3,
                newest: Some(2),
                ..
            })
        )
    };
    assert!(gone(run().load(&stack).await.err()));
    assert!(gone(run().acquire(&stack, LeaseOptions::default()).await.err()));
    // It is put back; and who knows that it is gone continues from the one before it.
    store.create(&keys::state(&stack, 3), newest).await.unwrap();
    assert_eq!(run().load(&stack).await.unwrap().unwrap().serial, 3);
    store.delete(&keys::state(&stack, 3)).await.unwrap();
    let over = LeaseOptions {
        over_vanished: true,
        ..LeaseOptions::default()
    };
    let lease = run().acquire(&stack, over).await.unwrap();
    lease.commit(fixture::state(&stack, &["d"]), &[]).await.unwrap();
    assert_eq!(run().load(&stack).await.unwrap().unwrap().serial, 3);
}

#[test]
fn a_store_of_states_says_what_it_was_opened_with() {
    let states = states();
    assert_eq!(states.repository().as_str(), "acme/infra");
    assert!(states.sealer().is_none());
    assert_eq!(
        (states.store().url(), states.shared_store().url()),
        ("memory:", "memory:")
    );
    let sealer = Sealer::generate();
    let sealing = states.with_sealer(Some(sealer.clone()), SealScope::Documents);
    assert_eq!(
        sealing.sealer().map(Sealer::recipients),
        Some(sealer.recipients())
    );
}

/// A store went back: the newest state is gone, and the index with it.
#[tokio::test]
async fn a_state_that_is_gone_with_the_index_is_missed_by_its_journal_or_by_a_later_lease() {
    let stack = fixture::stack("shop/prod");
    for has_later_lease in [false, true] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let states = || fixture::states(&store, &Arc::default());
        let acquire = async || states().acquire(&stack, LeaseOptions::default()).await;
        for names in [vec!["a"], vec!["a", "b"]] {
            let lease = acquire().await.unwrap();
            lease.journal(fixture::created("a")).await.unwrap();
            if !has_later_lease {
                lease.journal(fixture::created("b")).await.unwrap();
            }
            lease.commit(fixture::state(&stack, &names), &[]).await.unwrap();
        }
        if has_later_lease {
            drop(acquire().await.unwrap());
        }
        store.delete(&keys::state(&stack, 2)).await.unwrap();
        for key in store.list(&Key::from_components(&["index"])).await.unwrap() {
            store.delete(&key).await.unwrap();
        }
        let missed = acquire().await.err();
        let is_missed = matches!(
            missed,
            Some(StateError::Vanished {
                serial: 2,
                newest: Some(1),
                ..
            })
        );
        assert!(is_missed, "{has_later_lease}: {missed:?}");
        let loaded = states().load(&stack).await;
        // Without a lease only the listing is read.
        assert_eq!(loaded.is_err(), !has_later_lease, "{loaded:?}");
    }
}
