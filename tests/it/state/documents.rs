//! State documents, leases, journals, reviews and the index, in memory and in folders; what is counted is requests.

use crate::support::{counted::Counted, timeline::Timeline};
use konverge::{
    model::{
        CommitId, Digest, RepoPath, ResourceId, StackId,
        apply_record::ApplyRecord,
        apply_result::StackResult,
        authorization::Authorization,
        plan::{Action, Basis},
        review::{ReviewRecord, ReviewedStack},
        spec::RuntimeKind,
        state::{JournalEntry, Recorded, StackState},
    },
    state::{
        DocumentWriter, Holder, LeaseOptions, LeaseWatch, RepositoryId, Sealer, StateError, StateStore,
        WaitVerdict, WriteReason,
    },
    store::{Key, MemoryStore, Store, StoreOptions},
};
use std::{collections::BTreeSet, sync::Arc, time::Duration};

fn states(store: Arc<dyn Store>, run: &str) -> StateStore {
    let writer = DocumentWriter {
        run: format!("https://ci.example/{run}"),
        actor: "someone".to_owned(),
    };
    StateStore::open(store, RepositoryId::new("acme/infra"), writer)
}

fn stack() -> StackId {
    "shop/prod".parse().unwrap()
}

fn recorded(name: &str) -> Recorded {
    Recorded {
        id: format!("v1:ConfigMap:shop:{name}").parse().unwrap(),
        runtime: RuntimeKind::Kubernetes,
        cluster: None,
        attributes: serde_json::json!({"kind": "ConfigMap", "name": name})
            .as_object()
            .unwrap()
            .clone()
            .into(),
        depends_on: Vec::new(),
        extensions: serde_json::Map::new(),
        object_hash: None,
        private: konverge::model::state::RuntimeRecord::encode(&serde_json::json!({"uid": name})),
    }
}

fn id(name: &str) -> ResourceId {
    recorded(name).id
}

fn intent(name: &str) -> JournalEntry {
    JournalEntry::Intent {
        recorded: recorded(name),
        action: Action::Create,
    }
}

fn with(names: &[&str], digest: &str) -> StackState {
    let mut state = StackState::empty(stack(), RepoPath::normalise("apps/shop/prod").unwrap());
    names.iter().for_each(|name| state.put(recorded(name)));
    state.input_digest = Some(Digest::of_bytes(digest.as_bytes()));
    state
}

fn short() -> LeaseOptions {
    LeaseOptions {
        term: Duration::from_secs(30),
        wait: Duration::from_secs(300),
        ..LeaseOptions::default()
    }
}

#[tokio::test]
async fn what_was_committed_is_what_is_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let store = konverge::store::open(folder.path().to_str().unwrap(), &StoreOptions::default())
        .await
        .unwrap();
    konverge::store::probe(&*store).await.unwrap();
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
async fn a_dead_run_is_taken_over_after_its_term_and_its_journal_counts() {
    Timeline::simulate(|timeline| async move {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let dead = states(Arc::clone(&store), "dead").with_clock(timeline.clone());
        let lease = dead.acquire(&stack(), short()).await.unwrap();
        lease.commit(with(&["old"], "one"), &[]).await.unwrap();
        let lease = dead.acquire(&stack(), short()).await.unwrap();
        lease.journal(vec![intent("a"), intent("b")]).await.unwrap();
        lease
            .journal(vec![JournalEntry::Runtime {
                key: "tf".into(),
                value: serde_json::json!(1),
            }])
            .await
            .unwrap();
        drop(lease);
        // A preview sees what may exist, without any lease.
        let loaded = dead.load(&stack()).await.unwrap().unwrap();
        assert_eq!(loaded.pending, [id("a"), id("b")]);
        assert_eq!(loaded.state.resources.len(), 3);
        let started = timeline.now();
        let next = states(Arc::clone(&store), "next").with_clock(timeline.clone());
        let lease = next.acquire(&stack(), short()).await.unwrap();
        assert!(timeline.now() - started >= Duration::from_secs(30));
        let prior = lease.prior().unwrap();
        assert_eq!((prior.serial, prior.state.input_digest), (2, None));
        assert_eq!(prior.pending, [id("a"), id("b")]);
        assert_eq!(prior.state.runtime["tf"], 1);
        assert_eq!(
            lease.commit(with(&["a", "b", "old"], "two"), &[]).await.unwrap(),
            3
        );
        assert_eq!(
            next.history(&stack()).await.unwrap()[1]
                .document
                .as_ref()
                .unwrap()
                .reason,
            WriteReason::Takeover
        );
    })
    .await;
}

#[tokio::test]
async fn an_old_holder_can_write_nothing_after_a_takeover() {
    Timeline::simulate(|timeline| async move {
        struct Over;
        #[async_trait::async_trait]
        impl LeaseWatch for Over {
            async fn waiting(&self, holder: &Holder, _: Duration) -> WaitVerdict {
                assert_eq!(holder.writer.run, "https://ci.example/old");
                WaitVerdict::HolderIsOver
            }
        }
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let old = states(Arc::clone(&store), "old")
            .with_clock(timeline.clone())
            .acquire(&stack(), short())
            .await
            .unwrap();
        old.journal(vec![intent("a")]).await.unwrap();
        let options = LeaseOptions {
            watch: Some(Arc::new(Over)),
            ..short()
        };
        let new = states(store, "new")
            .with_clock(timeline.clone())
            .acquire(&stack(), options)
            .await
            .unwrap();
        assert!(matches!(
            old.journal(vec![intent("b")]).await,
            Err(StateError::Lost { .. })
        ));
        assert!(matches!(old.check(), Err(StateError::Lost { .. })));
        assert!(matches!(
            old.commit(with(&["a"], "one"), &[]).await,
            Err(StateError::Lost { .. })
        ));
        assert_eq!(new.prior().unwrap().pending, [id("a")]);
        new.commit(with(&["a"], "one"), &[]).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_live_holder_keeps_its_lease_and_is_named_to_who_waits() {
    Timeline::simulate(|timeline| async move {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let holder = states(Arc::clone(&store), "long")
            .with_clock(timeline.clone())
            .acquire(&stack(), short())
            .await
            .unwrap();
        let waiting = states(store, "waiting").with_clock(timeline.clone());
        let Err(StateError::Held { holder: seen, .. }) = waiting.acquire(&stack(), short()).await else {
            panic!("two hold one lease");
        };
        assert_eq!(
            (seen.id.as_str(), seen.writer.run.as_str()),
            (holder.id(), "https://ci.example/long")
        );
        // It was renewed all the while, far beyond its term.
        holder.check().unwrap();
        assert!(matches!(
            waiting.unlock(&stack(), "1-wrong", "test").await,
            Err(StateError::Missing(_))
        ));
        waiting.unlock(&stack(), holder.id(), "test").await.unwrap();
        let next = waiting.acquire(&stack(), short()).await.unwrap();
        assert!(matches!(
            holder.commit(with(&[], "x"), &[]).await,
            Err(StateError::Lost { .. })
        ));
        next.release().await.unwrap();
        waiting.acquire(&stack(), short()).await.unwrap();
    })
    .await;
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
        states.settle().await.unwrap();
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
    states.settle().await.unwrap();
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
async fn reviews_are_saved_once_and_the_last_one_counts() {
    let states = states(Arc::new(MemoryStore::default()), "1");
    let head: CommitId = "a".repeat(40).parse().unwrap();
    let record = |run: &str| ReviewRecord {
        version: 1,
        pull_request: 12,
        head: head.clone(),
        base: "b".repeat(40).parse().unwrap(),
        power: None,
        run: run.to_owned(),
        findings: BTreeSet::new(),
        stacks: Vec::new(),
    };
    assert!(states.reviews().save(&record("nine"), 9, 1, None).await.unwrap());
    assert!(states.reviews().save(&record("ten"), 10, 1, None).await.unwrap());
    assert!(
        !states
            .reviews()
            .save(&record("forged"), 10, 1, None)
            .await
            .unwrap()
    );
    assert_eq!(states.reviews().latest(12, &head).await.unwrap()[0].run, "ten");
    assert_eq!(states.reviews().list().await.unwrap().len(), 2);
    for place in states.reviews().list().await.unwrap() {
        states.reviews().forget(&place).await.unwrap();
    }
    assert_eq!(states.reviews().latest(12, &head).await.unwrap(), []);
}

/// Of a preview that was dealt out the last attempt of each share counts, of the last run alone; what a share did not
/// record is not there.
#[tokio::test]
async fn the_shares_of_a_run_are_one_review() {
    let states = states(Arc::new(MemoryStore::default()), "1");
    let head: CommitId = "a".repeat(40).parse().unwrap();
    let save = async |run: u64, attempt: u32, share: Option<&str>, stack: &str| {
        let record = ReviewRecord {
            version: 1,
            pull_request: 12,
            head: head.clone(),
            base: "b".repeat(40).parse().unwrap(),
            power: None,
            run: String::new(),
            findings: BTreeSet::new(),
            stacks: vec![ReviewedStack {
                id: stack.parse().unwrap(),
                basis: Basis::Live,
                digest: Digest::of_bytes(b""),
                spec_digest: None,
                claims: Default::default(),
                units: Vec::new(),
            }],
        };
        let share = share.map(|text| text.parse().unwrap());
        states.reviews().save(&record, run, attempt, share).await.unwrap()
    };
    let latest = async || -> Vec<String> {
        let latest = states.reviews().latest(12, &head).await.unwrap();
        let stacks = latest.iter().flat_map(|record| &record.stacks);
        stacks.map(|stack| stack.id.to_string()).collect()
    };
    assert!(save(9, 1, None, "p/old").await);
    assert!(save(10, 1, Some("2/2"), "p/b").await);
    assert_eq!(latest().await, ["p/b"], "the other share recorded nothing");
    assert!(save(10, 1, Some("1/2"), "p/a").await);
    assert_eq!(latest().await, ["p/a", "p/b"]);
    // Only the job that failed was started again.
    assert!(save(10, 2, Some("1/2"), "p/again").await);
    assert!(!save(10, 2, Some("1/2"), "p/forged").await);
    assert_eq!(latest().await, ["p/again", "p/b"]);
    assert_eq!(states.reviews().list().await.unwrap().len(), 4);
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
    let sealed = states(Arc::clone(&store) as Arc<dyn Store>, "1").with_sealer(Sealer::generate(), true);
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
async fn an_unreadable_document_is_written_over_after_its_leases_term() {
    Timeline::simulate(|timeline| async move {
        let store = Arc::new(MemoryStore::default());
        let states = states(Arc::clone(&store) as Arc<dyn Store>, "1").with_clock(timeline.clone());
        for digest in ["one", "two"] {
            let lease = states.acquire(&stack(), short()).await.unwrap();
            lease.commit(with(&["a"], digest), &[]).await.unwrap();
        }
        let newest = Key::from_components(&["stacks", "shop/prod", "state", "0000000002"]);
        store.overwrite(&newest, bytes::Bytes::from_static(b"garbage"));
        assert!(matches!(
            states.load(&stack()).await,
            Err(StateError::Damaged { .. })
        ));
        assert!(matches!(
            states.acquire(&stack(), short()).await,
            Err(StateError::Damaged { .. })
        ));
        let options = LeaseOptions {
            over_damaged: true,
            ..short()
        };
        let lease = states.acquire(&stack(), options).await.unwrap();
        assert_eq!(lease.prior().unwrap().state, with(&["a"], "one"));
        let serial = lease.commit(with(&["a", "b"], "three"), &[]).await.unwrap();
        assert!(serial > 2);
        assert_eq!(
            states.load(&stack()).await.unwrap().unwrap().state,
            with(&["a", "b"], "three")
        );
    })
    .await;
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

#[tokio::test]
async fn a_lease_that_can_not_be_read_is_ended_by_pushing_over_it() {
    Timeline::simulate(|timeline| async move {
        let store = Arc::new(MemoryStore::default());
        let states = states(Arc::clone(&store) as Arc<dyn Store>, "1").with_clock(timeline.clone());
        let lease = states.acquire(&stack(), short()).await.unwrap();
        lease.commit(with(&["a"], "one"), &[]).await.unwrap();
        let held = states.acquire(&stack(), short()).await.unwrap();
        let place = Key::from_components(&["stacks", "shop/prod", "lease", "0000000002", "0000000000"]);
        store.overwrite(&place, bytes::Bytes::from_static(b"garbage"));
        assert!(matches!(
            states.acquire(&stack(), short()).await,
            Err(StateError::Damaged { .. })
        ));
        let options = LeaseOptions {
            over_damaged: true,
            ..short()
        };
        let started = timeline.now();
        let lease = states.acquire(&stack(), options).await.unwrap();
        // Its holder, if it lives, had the time to stop by itself, and its next write collides.
        assert!(timeline.now() - started >= Duration::from_secs(20));
        assert!(matches!(
            held.commit(with(&[], "x"), &[]).await,
            Err(StateError::Lost { .. })
        ));
        lease.commit(with(&["a"], "two"), &[]).await.unwrap();
        states.acquire(&stack(), short()).await.unwrap();
    })
    .await;
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
