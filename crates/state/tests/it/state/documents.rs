//! State documents, journals and the index, in memory and in folders; what is counted is requests.

use std::sync::Arc;

use konverge_base::model::{
    CommitId, Digest, StackId, apply_record::ApplyRecord, apply_result::StackResult,
    authorization::Authorization, state::JournalEntry,
};
use konverge_state::{
    SealScope, Sealer, StateError, WriteReason,
    store::{Key, MemoryStore, Store, StoreOptions},
};

use super::fixture::{id, intent, recorded, short, stack, states, with};
use crate::support::counting_store::Counted;

#[tokio::test]
async fn what_was_committed_is_what_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let store = konverge_state::store::open(folder.path().to_str().unwrap(), &StoreOptions::default())
        .await
        .unwrap();
    konverge_state::store::probe(&*store).await.unwrap();
    let states = states(store, "1");
    assert_eq!(states.load(&stack()).await.unwrap(), None);
    let lease = states.acquire(&stack(), short()).await.unwrap();
    lease.journal(vec![intent("a")]).await.unwrap();
    let serial = lease.commit(with(&["a"], "one"), &[7]).await.unwrap();
    assert_eq!(serial, 1);
    // Nothing more can be done with a lease that was given back.
    assert!(matches!(lease.check(), Err(StateError::Lost { .. })));
    let loaded = states.load(&stack()).await.unwrap().unwrap();
    // The intent on `a` has no result: it stays a question, whatever the caller committed.
    assert_eq!(loaded.state.input_digest, None);
    let lease = states.acquire(&stack(), short()).await.unwrap();
    lease
        .journal(vec![
            intent("b"),
            JournalEntry::Done {
                recorded: recorded("b"),
            },
        ])
        .await
        .unwrap();
    lease.commit(with(&["a", "b"], "two"), &[8]).await.unwrap();
    let loaded = states.load(&stack()).await.unwrap().unwrap();
    assert_eq!((loaded.serial, loaded.state), (2, with(&["a", "b"], "two")));
    assert_eq!(loaded.applied_reviews.into_iter().collect::<Vec<_>>(), [7, 8]);
    let history = states.history(&stack()).await.unwrap();
    assert_eq!(history.iter().map(|line| line.serial).collect::<Vec<_>>(), [2, 1]);
}

#[tokio::test]
async fn requests_stay_within_what_was_promised() {
    let counted = Arc::new(Counted::new(Arc::new(MemoryStore::default())));
    let states = states(Arc::clone(&counted) as Arc<dyn Store>, "1");
    for resources in [1, 19, 20, 39, 40, 41, 100, 400] {
        let names: Vec<_> = (0..resources).map(|n| format!("r{n:04}")).collect();
        counted.reset();
        let lease = states.acquire(&stack(), short()).await.unwrap();
        lease
            .journal(names.iter().map(|name| intent(name)).collect())
            .await
            .unwrap();
        for name in &names {
            lease
                .journal(vec![JournalEntry::Done {
                    recorded: recorded(name),
                }])
                .await
                .unwrap();
        }
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        lease.commit(with(&names, "x"), &[]).await.unwrap();
        states.save_index().await.unwrap();
        let count = counted.count();
        // The first apply of a stack tells the index that there is a state.
        let first = usize::from(resources == 1);
        assert!(
            count.creates <= 4 + first + resources / 20,
            "{resources} resources: {count:?}"
        );
        counted.reset();
        assert!(states.load(&stack()).await.unwrap().unwrap().pending.is_empty());
        let count = counted.count();
        assert_eq!((count.lists, count.gets, count.creates), (1, 1, 0));
    }
}

#[tokio::test]
async fn the_index_answers_and_is_made_again() {
    let counted = Arc::new(Counted::new(Arc::new(MemoryStore::default())));
    let states = states(Arc::clone(&counted) as Arc<dyn Store>, "1");
    let known = states.read_all().await.unwrap();
    states.maintain_index(&known).await.unwrap();
    let id = |n: usize| -> StackId { format!("app{n}/prod").parse().unwrap() };
    for n in 0..30 {
        let mut state = with(&["a"], "one");
        state.stack = id(n);
        let lease = states.acquire(&id(n), short()).await.unwrap();
        lease
            .journal(vec![
                intent("a"),
                JournalEntry::Done {
                    recorded: recorded("a"),
                },
            ])
            .await
            .unwrap();
        lease.commit(state, &[]).await.unwrap();
    }
    states.save_index().await.unwrap();
    counted.reset();
    let known = states.read_all().await.unwrap();
    let count = counted.count();
    assert_eq!(known.entries.len(), 30);
    assert!(
        known
            .entries
            .values()
            .all(|entry| entry.settled_digest() == Some(Digest::of_bytes(b"one")))
    );
    assert_eq!(count.lists, 1);
    assert!(count.gets <= 17, "{count:?}");
    // A run that died after its first intent shows, although it recorded nothing.
    let lease = states.acquire(&id(3), short()).await.unwrap();
    lease.journal(vec![intent("b")]).await.unwrap();
    drop(lease);
    let known = states.read_all().await.unwrap();
    assert_eq!(known.entries[&id(3)].settled_digest(), None);
    assert_eq!(
        known.entries[&id(4)].settled_digest(),
        Some(Digest::of_bytes(b"one"))
    );
    for key in counted.list(&Key::from_components(&["index"])).await.unwrap() {
        counted.delete(&key).await.unwrap();
    }
    assert_eq!(states.read_all().await.unwrap().entries, known.entries);
}

#[tokio::test]
async fn the_hash_key_is_made_once() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let (one, two) = (states(Arc::clone(&store), "1"), states(store, "2"));
    assert!(one.existing_hash_key().await.unwrap().is_none());
    let (one, two) = tokio::join!(one.hash_key(), two.hash_key());
    assert_eq!(one.unwrap().to_bytes(), two.unwrap().to_bytes());
}

#[tokio::test]
async fn sealed_states_hide_what_they_hold() {
    let store = Arc::new(MemoryStore::default());
    let sealed = states(Arc::clone(&store) as Arc<dyn Store>, "1")
        .with_sealer(Some(Sealer::generate()), SealScope::Documents);
    let lease = sealed.acquire(&stack(), short()).await.unwrap();
    lease.journal(vec![intent("hunter222")]).await.unwrap();
    lease.commit(with(&["hunter222"], "x"), &[]).await.unwrap();
    for key in store.list(&Key::from_components(&[])).await.unwrap() {
        let text = String::from_utf8(store.get(&key).await.unwrap().unwrap().to_vec()).unwrap();
        assert!(!text.contains("hunter222"), "{key}");
    }
    assert_eq!(
        sealed.load(&stack()).await.unwrap().unwrap().state.resources[0].id,
        id("hunter222")
    );
    let without = states(store, "2");
    assert!(matches!(
        without.load(&stack()).await,
        Err(StateError::Sealed { .. })
    ));
}

#[tokio::test]
async fn old_serials_leases_and_journals_are_cleaned_up() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let states = states(Arc::clone(&store), "1").with_retention(3);
    for round in 0..8 {
        let lease = states.acquire(&stack(), short()).await.unwrap();
        lease
            .journal(vec![
                intent("a"),
                JournalEntry::Done {
                    recorded: recorded("a"),
                },
            ])
            .await
            .unwrap();
        lease.commit(with(&["a"], &round.to_string()), &[]).await.unwrap();
    }
    let history = states.history(&stack()).await.unwrap();
    let serials: Vec<_> = history.iter().map(|line| line.serial).collect();
    assert_eq!(serials, [8, 7, 6]);
    let kept = store
        .list(&Key::from_components(&["stacks", "shop/prod"]))
        .await
        .unwrap();
    assert!(kept.len() <= 3 + 2, "{kept:?}");
    let gone = states.load_serial(&stack(), 5).await.unwrap_err();
    assert!(gone.to_string().contains("state history"), "{gone}");
}

#[tokio::test]
async fn runs_that_did_nothing_push_nothing_out_of_the_history() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let states = states(Arc::clone(&store), "1").with_retention(3);
    let mut round = 0;
    let mut conclude = async |result: StackResult| {
        round += 1;
        let lease = states.acquire(&stack(), short()).await.unwrap();
        let record = ApplyRecord {
            digest: Digest::of_bytes(b"plan"),
            commit: None,
            merged: None,
            result,
            grounds: Authorization::default(),
        };
        let state = with(&["a"], &round.to_string());
        lease
            .conclude(WriteReason::Apply, state, &[], record, None)
            .await
            .unwrap()
    };
    let serials = async || {
        let history = states.history(&stack()).await.unwrap();
        history.iter().map(|line| line.serial).collect::<Vec<_>>()
    };
    for _ in 0..3 {
        conclude(StackResult::Applied).await;
    }
    for _ in 0..20 {
        conclude(StackResult::Unchanged).await;
    }
    // The newest two are always there: what an outdated run would write next is taken.
    assert_eq!(serials().await, [23, 22, 3, 2, 1]);
    conclude(StackResult::Applied).await;
    assert_eq!(serials().await, [24, 23, 3, 2]);
    conclude(StackResult::Applied).await;
    assert_eq!(serials().await, [25, 24, 3]);
    let newest = states.load(&stack()).await.unwrap().unwrap();
    assert_eq!(newest.state, with(&["a"], "25"));
}

#[tokio::test]
async fn what_an_apply_writes_grows_with_its_resources_and_no_faster() {
    let counted = Arc::new(Counted::new(Arc::new(MemoryStore::default())));
    let states = states(Arc::clone(&counted) as Arc<dyn Store>, "1");
    let mut bytes = Vec::new();
    for resources in [100, 200, 400, 800] {
        let names: Vec<_> = (0..resources).map(|n| format!("r{n:04}")).collect();
        let done = |name: &String| JournalEntry::Done {
            recorded: recorded(name),
        };
        counted.reset();
        let lease = states.acquire(&stack(), short()).await.unwrap();
        lease
            .journal(names.iter().map(|name| intent(name)).collect())
            .await
            .unwrap();
        for name in &names {
            lease.journal(vec![done(name)]).await.unwrap();
        }
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        lease.commit(with(&names, "x"), &[]).await.unwrap();
        bytes.push(counted.count().created_bytes as f64 / f64::from(resources));
    }
    // Bytes a resource do not grow.
    assert!(bytes[3] <= bytes[0] * 1.05, "{bytes:?}");
}

/// Documents as the first version of the format wrote them, byte for byte: every later Konverge reads them.
#[tokio::test]
async fn documents_of_the_first_format_are_read() {
    let store = Arc::new(MemoryStore::default());
    let key = |text: &str| Key::from_listing(text);
    let first = include_str!("../../fixtures/state-format-1.txt");
    for document in first.split("--- ").filter(|document| !document.is_empty()) {
        let (name, text) = document.split_once('\n').unwrap();
        store.overwrite(&key(name), bytes::Bytes::from(text.to_owned()));
    }
    let states = states(Arc::clone(&store) as Arc<dyn Store>, "1");
    let loaded = states.load(&stack()).await.unwrap().unwrap();
    assert_eq!((loaded.serial, loaded.pending), (2, vec![id("b")]));
    assert_eq!(loaded.applied_reviews.into_iter().collect::<Vec<_>>(), [7]);
    assert_eq!(loaded.state.commit.as_ref().unwrap().as_str(), "c".repeat(40));
    assert_eq!(loaded.state.resource(&id("a")), Some(&recorded("a")));
    let holder = states.holder(&stack()).await.unwrap().unwrap();
    assert_eq!((holder.epoch, holder.writer.actor.as_str()), (3, "someone"));
    let known = states.read_all().await.unwrap();
    assert_eq!(known.entries[&stack()].serial, 2);
    assert!(states.existing_hash_key().await.unwrap().is_some());
    let head: CommitId = "a".repeat(40).parse().unwrap();
    assert_eq!(states.reviews().latest(12, &head).await.unwrap()[0].run, "nine");
}
