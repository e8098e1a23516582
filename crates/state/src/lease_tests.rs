use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::{
    super::{
        LeaseOptions,
        fixture::{self, HandClock, StoreRequest, WatchedStore, unavailable},
    },
    *,
};
use crate::store::{MemoryStore, Store};
use konverge_base::model::{
    Digest,
    apply_result::StackResult,
    authorization::Authorization,
    state::{KusionRelease, Replacement},
};

const TERM: Duration = Duration::from_secs(30);

struct Bench {
    store: Arc<dyn Store>,
    clock: Arc<HandClock>,
    states: StateStore,
    stack: StackId,
}

impl Bench {
    fn new() -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let clock = Arc::<HandClock>::default();
        Self {
            states: fixture::states(&store, &clock),
            stack: fixture::stack("shop/prod"),
            store,
            clock,
        }
    }

    async fn acquire(&self) -> Lease {
        let options = LeaseOptions {
            term: TERM,
            ..LeaseOptions::default()
        };
        self.states.acquire(&self.stack, options).await.unwrap()
    }

    /// Puts a document at the next place in the row of renewals.
    async fn put_renewal(&self, lease: &Lease, document: &LeaseDocument) {
        let key = keys::lease(&self.stack, lease.epoch(), lease.inner.lock_renewal().next);
        let letter = self.states.letter("lease", &key, document).unwrap();
        self.store.create(&key, letter.bytes).await.unwrap();
    }

    async fn commit(&self) {
        let state = fixture::state(&self.stack, &["a"]);
        self.acquire().await.commit(state, &[]).await.unwrap();
    }

    async fn rows(&self) -> RowKeys {
        RowKeys::parse(&self.store.list(&keys::stack(&self.stack)).await.unwrap())
    }
}

fn is_lost<T>(result: Result<T, StateError>) -> bool {
    matches!(result, Err(StateError::Lost { .. }))
}

#[tokio::test]
async fn a_holder_stops_a_third_of_the_term_before_another_run_may_take_over() {
    let bench = Bench::new();
    let lease = bench.acquire().await;
    bench.clock.set(TERM * 2 / 3 - Duration::from_millis(1));
    lease.check().unwrap();
    bench.clock.set(TERM * 2 / 3);
    assert!(is_lost(lease.check()));
    assert!(is_lost(lease.journal(fixture::created("a")).await));
    bench.clock.set(Duration::ZERO);
    assert!(is_lost(lease.check()), "what is lost stays lost");
}

#[tokio::test]
async fn a_renewal_counts_from_its_request() {
    let bench = Bench::new();
    let lease = bench.acquire().await;
    bench.clock.set(TERM / 3);
    lease.inner.renew().await.unwrap();
    bench.clock.set(TERM - Duration::from_millis(1));
    lease.check().unwrap();
    bench.clock.set(TERM);
    assert!(is_lost(lease.check()));
}

#[tokio::test]
async fn a_renewal_whose_answer_was_lost_is_ours() {
    let bench = Bench::new();
    let lease = bench.acquire().await;
    bench.put_renewal(&lease, &lease.inner.grant.document).await;
    lease.inner.renew().await.unwrap();
    lease.check().unwrap();
    bench.put_renewal(&lease, &lease.inner.grant.document).await;
    lease.release().await.unwrap();
    assert!(bench.states.holder(&bench.stack).await.unwrap().is_none());
}

#[tokio::test]
async fn who_finds_another_document_in_its_row_has_lost_the_lease() {
    let bench = Bench::new();
    let ended = LeaseDocument::Unlocked {
        reason: "it hangs".to_owned(),
    };
    let lease = bench.acquire().await;
    bench.put_renewal(&lease, &ended).await;
    assert!(is_lost(lease.inner.renew().await));
    assert!(is_lost(lease.check()));

    let bench = Bench::new();
    let lease = bench.acquire().await;
    bench.put_renewal(&lease, &ended).await;
    assert!(is_lost(lease.release().await));
}

#[tokio::test]
async fn a_lease_ends_once() {
    let bench = Bench::new();
    let lease = bench.acquire().await;
    lease.release().await.unwrap();
    assert!(is_lost(lease.check()));
    lease.release().await.unwrap();
    assert_eq!(bench.rows().await.leases[&1].len(), 2);
}

#[tokio::test]
async fn the_end_of_a_row_stays_for_its_old_holder_and_goes_when_it_is_ancient() {
    let bench = Bench::new();
    bench.commit().await;
    let lease = bench.acquire().await;
    lease.journal(fixture::created("b")).await.unwrap();
    lease.release().await.unwrap();
    bench.commit().await;
    let rows = bench.rows().await;
    // The row of the first lease was ended by its state, that of the second by its last place.
    assert_eq!(rows.leases.keys().collect::<Vec<_>>(), [&2, &3]);
    assert_eq!(rows.leases[&2], [1]);
    assert_eq!(rows.journals.get(&2).map(Vec::len), Some(1));
    for _ in 0..EPOCHS_KEPT - 1 {
        bench.commit().await;
    }
    assert!(bench.rows().await.leases.contains_key(&2));
    bench.commit().await;
    bench.commit().await;
    let rows = bench.rows().await;
    assert!(!rows.leases.contains_key(&2), "{rows:?}");
    assert!(!rows.journals.contains_key(&2), "{rows:?}");
}

#[tokio::test]
async fn runtime_data_that_waits_is_replaced_by_newer_data_of_its_key() {
    let bench = Bench::new();
    let lease = bench.acquire().await;
    let data = |key: &str, value: u8| JournalEntry::Runtime {
        key: key.to_owned(),
        value: value.into(),
    };
    let entries = vec![data("tf", 1), data("other", 1), data("tf", 2)];
    lease.journal(entries).await.unwrap();
    drop(lease);
    let reading = bench.states.read(&bench.stack).await.unwrap();
    assert_eq!(reading.entries, [data("other", 1), data("tf", 2)]);
}

impl Bench {
    /// The end of an apply.
    async fn conclude(&self, states: &StateStore, result: StackResult) -> u64 {
        let lease = states
            .acquire(&self.stack, LeaseOptions::default())
            .await
            .unwrap();
        let state = fixture::state(&self.stack, &["a"]);
        let receipt = ApplyRecord {
            digest: Digest::of_bytes(b"plan"),
            commit: None,
            merged: None,
            result,
            grounds: Authorization::default(),
        };
        let note = Some("why".to_owned());
        let concluded = lease.conclude(WriteReason::Apply, state, &[7], receipt, note);
        concluded.await.unwrap()
    }

    async fn record(&self, reason: WriteReason, names: &[&str]) -> Versioned {
        let state = fixture::state(&self.stack, names);
        let lease = self.acquire().await;
        let serial = lease
            .record(reason, state, Some(reason.to_string()))
            .await
            .unwrap();
        let read = self.states.load(&self.stack).await.unwrap().unwrap();
        assert_eq!((read.serial, read.epoch), (serial, lease.epoch()));
        read
    }

    /// The places of an epoch's journal.
    async fn journal_places(&self, epoch: u64) -> Vec<u64> {
        self.rows().await.journals.remove(&epoch).unwrap_or_default()
    }
}

/// Lets the tasks of this thread go on.
async fn let_others_work() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn every_kind_of_end_gives_the_next_serial_and_keeps_what_was_said_beside_it() {
    let bench = Bench::new();
    for serial in 1..=3 {
        assert_eq!(bench.conclude(&bench.states, StackResult::Applied).await, serial);
    }
    let read = bench.states.load(&bench.stack).await.unwrap().unwrap();
    assert_eq!(
        (read.serial, read.epoch, read.note.as_deref()),
        (3, 3, Some("why"))
    );
    assert_eq!(read.receipt.unwrap().result, StackResult::Applied);
    assert_eq!(read.applied_reviews, [7].into());
    let pushed = bench.record(WriteReason::Push, &["a"]).await;
    assert_eq!((pushed.serial, pushed.reason), (4, WriteReason::Push));
    assert_eq!((pushed.note.as_deref(), pushed.receipt), (Some("push"), None));
    assert_eq!(pushed.applied_reviews, [7].into(), "what was used stays used");
    let lease = bench.acquire().await;
    assert_eq!((lease.epoch(), lease.id().split('-').next()), (5, Some("5")));
    assert_eq!(lease.prior().unwrap().serial, 4);
    assert_eq!(lease.record_resealed().await.unwrap(), 5);
    let resealed = bench.states.load(&bench.stack).await.unwrap().unwrap();
    assert_eq!((resealed.serial, resealed.reason), (5, WriteReason::Rekey));
    assert_eq!(
        (resealed.note.as_deref(), &resealed.state),
        (Some("push"), &pushed.state)
    );
}

#[tokio::test]
async fn a_new_encryption_of_an_import_stays_an_import_and_that_of_nothing_writes_nothing() {
    let bench = Bench::new();
    let lease = bench.acquire().await;
    assert_eq!(lease.record_resealed().await.unwrap(), 0);
    lease.release().await.unwrap();
    bench.record(WriteReason::Import, &["a"]).await;
    bench.acquire().await.record_resealed().await.unwrap();
    let read = bench.states.load(&bench.stack).await.unwrap().unwrap();
    assert_eq!((read.serial, read.reason), (2, WriteReason::Import));
}

#[tokio::test]
async fn a_stack_without_resources_is_retired_by_what_retires_one() {
    for (reason, names, is_retired) in [
        (WriteReason::Destroy, vec![], true),
        (WriteReason::Forget, vec![], true),
        (WriteReason::Forget, vec!["a"], false),
        (WriteReason::Push, vec![], false),
    ] {
        let bench = Bench::new();
        let read = bench.record(reason, &names).await;
        assert_eq!(read.retired, is_retired, "{reason}");
        bench.acquire().await.record_resealed().await.unwrap();
        let read = bench.states.load(&bench.stack).await.unwrap().unwrap();
        assert_eq!((read.reason, read.retired), (WriteReason::Rekey, is_retired));
    }
}

#[tokio::test]
async fn a_resource_whose_intent_has_no_result_stays_and_the_stack_is_applied_again() {
    let bench = Bench::new();
    let lease = bench.acquire().await;
    lease.journal(fixture::created("b")[..1].to_vec()).await.unwrap();
    lease
        .commit(fixture::state(&bench.stack, &["a"]), &[])
        .await
        .unwrap();
    let read = bench.states.load(&bench.stack).await.unwrap().unwrap();
    assert_eq!(
        read.state.resources,
        fixture::state(&bench.stack, &["a", "b"]).resources
    );
    assert_eq!(read.state.input_digest, None);
    let lease = bench.acquire().await;
    lease.journal(fixture::created("b")).await.unwrap();
    let state = fixture::state(&bench.stack, &["a", "b"]);
    lease.commit(state.clone(), &[]).await.unwrap();
    let read = bench.states.load(&bench.stack).await.unwrap().unwrap();
    assert_eq!(read.state, state);
}

#[tokio::test]
async fn as_many_serials_are_kept_as_configured_and_runs_that_did_nothing_do_not_count() {
    let bench = Bench::new();
    let states = bench.states.clone().with_retention(3);
    for _ in 0..5 {
        bench.conclude(&states, StackResult::Applied).await;
    }
    assert_eq!(bench.rows().await.states, [3, 4, 5]);
    for _ in 0..4 {
        bench.conclude(&states, StackResult::Unchanged).await;
    }
    // The newest two are always kept.
    assert_eq!(bench.rows().await.states, [3, 4, 5, 8, 9]);
    bench.conclude(&states, StackResult::Applied).await;
    assert_eq!(bench.rows().await.states, [4, 5, 9, 10]);
    bench.conclude(&states, StackResult::Applied).await;
    assert_eq!(bench.rows().await.states, [5, 10, 11]);
    // At least two are kept.
    let states = bench.states.clone().with_retention(0);
    bench.conclude(&states, StackResult::Applied).await;
    assert_eq!(bench.rows().await.states, [11, 12]);
}

#[tokio::test]
async fn the_end_of_an_ancient_journal_goes_at_its_time_and_not_before() {
    let bench = Bench::new();
    let lease = bench.acquire().await;
    lease.journal(fixture::created("b")).await.unwrap();
    lease.journal(fixture::created("c")).await.unwrap();
    lease.release().await.unwrap();
    assert_eq!(bench.rows().await.leases[&1], [0, 1]);
    bench.commit().await;
    assert_eq!(bench.rows().await.leases[&1], [1], "the last place of the row");
    assert_eq!(
        bench.journal_places(1).await,
        [1],
        "the last place of the journal"
    );
    for epoch in 3..=EPOCHS_KEPT + 1 {
        bench.commit().await;
        assert!(bench.rows().await.journals.contains_key(&1), "{epoch}");
        assert!(bench.rows().await.leases.contains_key(&1), "{epoch}");
    }
    bench.commit().await;
    assert!(!bench.rows().await.journals.contains_key(&1));
    assert!(!bench.rows().await.leases.contains_key(&1));
}

#[tokio::test]
async fn an_end_leaves_its_first_place_and_the_last_entry_of_its_journal_until_the_next_end() {
    let bench = Bench::new();
    let lease = bench.acquire().await;
    for next in 2..=4 {
        lease.inner.renew().await.unwrap();
        assert_eq!(lease.inner.lock_renewal().next, next);
    }
    assert_eq!(bench.rows().await.leases[&1], [0, 1, 2, 3]);
    lease.journal(fixture::created("a")).await.unwrap();
    lease.journal(fixture::created("a")).await.unwrap();
    assert_eq!(bench.journal_places(1).await, [0, 1]);
    lease
        .commit(fixture::state(&bench.stack, &["a"]), &[])
        .await
        .unwrap();
    let rows = bench.rows().await;
    assert_eq!((&rows.leases[&1], &rows.journals[&1]), (&vec![0], &vec![1]));
    bench.commit().await;
    let rows = bench.rows().await;
    assert!(
        !rows.leases.contains_key(&1) && rows.journals.is_empty(),
        "{rows:?}"
    );
}

#[tokio::test]
async fn results_wait_for_an_intent_or_for_as_many_others_as_are_written_together() {
    let bench = Bench::new();
    let lease = bench.acquire().await;
    let done = || fixture::created("a")[1..].to_vec();
    for _ in 1..RESULTS_TOGETHER {
        lease.journal(done()).await.unwrap();
    }
    assert!(bench.journal_places(1).await.is_empty());
    lease.journal(done()).await.unwrap();
    assert_eq!(bench.journal_places(1).await, [0]);
    lease.journal(done()).await.unwrap();
    assert_eq!(bench.journal_places(1).await, [0]);
    // One intent among results is enough, in whatever place.
    let [intent, result] = <[_; 2]>::try_from(fixture::created("b")).unwrap();
    for (at, batch) in [vec![intent.clone(), result.clone()], vec![result, intent]]
        .into_iter()
        .enumerate()
    {
        lease.journal(batch).await.unwrap();
        assert_eq!(bench.journal_places(1).await.len(), 2 + at);
    }
    let reading = bench.states.read(&bench.stack).await.unwrap();
    assert_eq!(reading.entries.len(), RESULTS_TOGETHER + 5);
    // What waits is written when the lease is given back.
    lease.journal(done()).await.unwrap();
    lease.release().await.unwrap();
    assert_eq!(bench.journal_places(1).await, [0, 1, 2, 3]);
}

#[tokio::test]
async fn every_entry_that_tells_of_something_new_is_written_at_once() {
    let [intent, done] = <[_; 2]>::try_from(fixture::created("a")).unwrap();
    let id = fixture::recorded("a").id;
    let replacement = Replacement {
        wanted: String::new(),
        changes: Vec::new(),
        paths: Vec::new(),
    };
    let release = KusionRelease {
        project: "shop".to_owned(),
        workspace: "dev".to_owned(),
        stack: "dev".to_owned(),
        revision: 1,
        mark: None,
    };
    let runtime = JournalEntry::Runtime {
        key: "tf".to_owned(),
        value: 1.into(),
    };
    let names = konverge_base::model::other_names::OtherNames::default();
    let folder = konverge_base::model::path::RepoPath::normalize("apps/shop").unwrap();
    let begun = JournalEntry::Begun {
        id: id.clone(),
        replacement,
    };
    for (entry, is_urgent) in [
        (intent, true),
        (begun, true),
        (runtime, true),
        (JournalEntry::Release { release }, true),
        (JournalEntry::Names { names }, true),
        (JournalEntry::Folder { folder }, false),
        (done, false),
        (JournalEntry::Gone { id: id.clone() }, false),
        (JournalEntry::Failed { id: id.clone() }, false),
        (JournalEntry::Untouched { ids: vec![id] }, false),
    ] {
        let bench = Bench::new();
        let lease = bench.acquire().await;
        let shown = serde_json::to_string(&entry).unwrap();
        lease.journal(vec![entry]).await.unwrap();
        assert_eq!(
            bench.journal_places(1).await.len(),
            usize::from(is_urgent),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn the_intents_of_a_run_are_counted_for_the_index() {
    let bench = Bench::new();
    let counted = || bench.states.finished.lock().unwrap().resources;
    for (names, sum) in [(vec!["a", "b", "c"], 3), (vec!["a", "b"], 5), (vec![], 5)] {
        let lease = bench.acquire().await;
        for name in &names {
            lease.journal(fixture::created(name)).await.unwrap();
        }
        lease
            .commit(fixture::state(&bench.stack, &names), &[])
            .await
            .unwrap();
        assert_eq!(counted(), sum);
    }
}

#[tokio::test]
async fn a_journal_goes_on_after_a_place_of_an_own_earlier_attempt_and_ends_at_one_of_another_run() {
    let bench = Bench::new();
    let lease = bench.acquire().await;
    for place in 0..2 {
        let document = JournalDocument::Entries(fixture::created("lost"));
        let key = keys::journal(&bench.stack, 1, place);
        let letter = bench.states.letter("journal", &key, &document).unwrap();
        bench.store.create(&key, letter.bytes).await.unwrap();
    }
    lease.journal(fixture::created("a")).await.unwrap();
    assert_eq!(bench.journal_places(1).await, [0, 1, 2]);
    let key = keys::journal(&bench.stack, 1, 3);
    let letter = bench
        .states
        .letter("journal", &key, &JournalDocument::ClosedBy(2))
        .unwrap();
    bench.store.create(&key, letter.bytes).await.unwrap();
    assert!(is_lost(lease.journal(fixture::created("b")).await));
    assert!(is_lost(lease.check()));
}

#[tokio::test]
async fn who_finds_its_next_serial_taken_has_lost_the_lease() {
    let bench = Bench::new();
    bench.commit().await;
    let lease = bench.acquire().await;
    let key = keys::state(&bench.stack, 2);
    let other = bench
        .store
        .get(&keys::state(&bench.stack, 1))
        .await
        .unwrap()
        .unwrap();
    bench.store.create(&key, other).await.unwrap();
    let state = fixture::state(&bench.stack, &["a"]);
    assert!(is_lost(lease.commit(state, &[]).await));
    assert!(is_lost(lease.release().await));
}

#[tokio::test]
async fn a_lease_is_renewed_each_third_of_its_term() {
    let bench = Bench::new();
    let lease = bench.acquire().await;
    let renewals = async |now: Duration| {
        let_others_work().await;
        bench.clock.set(now);
        let_others_work().await;
        bench.rows().await.leases[&1].len() - 1
    };
    for third in 1..=4_u32 {
        let due = TERM / 3 * third;
        assert_eq!(renewals(due - Duration::from_millis(1)).await, third as usize - 1);
        assert_eq!(renewals(due).await, third as usize);
        lease.check().unwrap();
    }
    drop(lease);
    assert_eq!(renewals(TERM * 3).await, 4, "nobody renews it any more");
}

/// A store may write what was given up, even after the whole row was deleted.
#[tokio::test]
async fn a_release_waits_for_the_renewal_that_is_being_written_and_not_for_ever() {
    for is_answered in [true, false] {
        let bench = Bench::new();
        let lease = Arc::new(bench.acquire().await);
        let mut written = Some(lease.inner.renewing.lock().await);
        let released = Arc::clone(&lease);
        let releasing = tokio::spawn(async move { released.release().await });
        let_others_work().await;
        assert!(!releasing.is_finished());
        if is_answered {
            drop(written.take())
        } else {
            bench.clock.set(TERM / 3)
        }
        let_others_work().await;
        assert!(releasing.is_finished(), "{is_answered}");
        releasing.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_renewal_that_failed_is_tried_again_soon_and_named_when_the_lease_is_lost() {
    let is_away = Arc::new(AtomicBool::new(false));
    let (away, tries) = (Arc::clone(&is_away), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&tries);
    let store = WatchedStore::shared(move |_, request| {
        let is_renewal =
            matches!(request, StoreRequest::Create(..)) && request.key().as_str().contains("/lease/");
        if !is_renewal || !away.load(Ordering::SeqCst) {
            return Ok(());
        }
        counted.fetch_add(1, Ordering::SeqCst);
        Err(unavailable(request.key()))
    });
    let clock = Arc::<HandClock>::default();
    let bench = Bench {
        states: fixture::states(&store, &clock),
        stack: fixture::stack("shop/prod"),
        store,
        clock,
    };
    let lease = bench.acquire().await;
    is_away.store(true, Ordering::SeqCst);
    let_others_work().await;
    // A create is tried three times at once.
    for (twelfth, expected) in [(3, 0), (4, 3), (5, 6), (6, 9)] {
        bench.clock.set(TERM / 12 * twelfth);
        let_others_work().await;
        assert_eq!(tries.load(Ordering::SeqCst), expected, "{twelfth}");
    }
    is_away.store(false, Ordering::SeqCst);
    bench.clock.set(TERM / 12 * 7);
    let_others_work().await;
    assert_eq!(bench.rows().await.leases[&1], [0, 1]);
    lease.check().unwrap();
    is_away.store(true, Ordering::SeqCst);
    bench.clock.set(TERM / 12 * 11);
    let_others_work().await;
    bench.clock.set(TERM / 12 * 15);
    let lost = lease.check().unwrap_err().to_string();
    assert!(lost.contains("it could not be renewed for 20 s: "), "{lost}");
    assert!(lost.contains("no answer"), "{lost}");
}
