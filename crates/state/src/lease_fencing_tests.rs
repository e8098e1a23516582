use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;

use super::{
    super::{
        Clock, Holder, LeaseWatch, WaitVerdict,
        fixture::{self, HandClock, QuickClock, StoreRequest, WatchedStore},
    },
    *,
};
use crate::store::{MemoryStore, Store};

/// Knows that every other run is over.
struct AllOver;

#[async_trait]
impl LeaseWatch for AllOver {
    async fn waiting(&self, _: &Holder, _: Duration) -> WaitVerdict {
        WaitVerdict::HolderIsOver
    }
}

#[tokio::test]
async fn a_state_says_that_a_run_died_until_a_run_ends() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
    let clock = Arc::<HandClock>::default();
    let states = fixture::states(&store, &clock);
    let stack = fixture::stack("shop/prod");
    let options = || LeaseOptions {
        watch: Some(Arc::new(AllOver)),
        ..LeaseOptions::default()
    };
    let was_interrupted = async || states.load(&stack).await.unwrap().unwrap().was_interrupted();
    let lease = states.acquire(&stack, options()).await.unwrap();
    lease.commit(fixture::state(&stack, &["a"]), &[]).await.unwrap();
    assert!(!was_interrupted().await);
    let dead = states.acquire(&stack, options()).await.unwrap();
    dead.journal(fixture::created("b")[..1].to_vec()).await.unwrap();
    assert!(was_interrupted().await, "something may have been made");
    // It waits until an older holder would have stopped.
    let pass = async { clock.set(options().term) };
    let (next, ()) = tokio::join!(states.acquire(&stack, options()), pass);
    let next = next.unwrap();
    assert!(next.prior().unwrap().was_interrupted());
    assert!(was_interrupted().await, "it was taken over");
    next.commit(fixture::state(&stack, &["a", "b"]), &[])
        .await
        .unwrap();
    assert!(!was_interrupted().await);
}

/// A stack whose rows are written by hand.
struct Bench {
    store: Arc<dyn Store>,
    clock: Arc<QuickClock>,
    states: StateStore,
    stack: StackId,
}

impl Bench {
    fn new() -> Self {
        Self::over(Arc::new(MemoryStore::default()))
    }

    fn over(store: Arc<dyn Store>) -> Self {
        let clock = Arc::<QuickClock>::default();
        Self {
            states: fixture::states(&store, &Arc::default()).with_clock(Arc::clone(&clock) as Arc<dyn Clock>),
            stack: fixture::stack("shop/prod"),
            store,
            clock,
        }
    }

    /// Another run, whose clock stands still.
    fn other(&self) -> StateStore {
        fixture::states(&self.store, &Arc::default())
    }

    async fn put_lease(&self, epoch: u64, renewal: u64, document: &LeaseDocument) {
        let key = keys::lease(&self.stack, epoch, renewal);
        let letter = self.states.letter("lease", &key, document).unwrap();
        self.store.create(&key, letter.bytes).await.unwrap();
    }

    async fn put_journal(&self, epoch: u64, entry: u64) {
        let document = JournalDocument::Entries(fixture::created("a"));
        let key = keys::journal(&self.stack, epoch, entry);
        let letter = self.states.letter("journal", &key, &document).unwrap();
        self.store.create(&key, letter.bytes).await.unwrap();
    }

    /// The renewals of an epoch, and whether the last one ends it.
    async fn row(&self, epoch: u64) -> (usize, bool) {
        let row = &self.rows().await.leases[&epoch];
        let key = keys::lease(&self.stack, epoch, *row.last().unwrap());
        let bytes = self.store.get(&key).await.unwrap().unwrap();
        (row.len(), self.states.is_end(&key, &bytes).unwrap())
    }

    async fn rows(&self) -> RowKeys {
        RowKeys::parse(&self.store.list(&keys::stack(&self.stack)).await.unwrap())
    }

    async fn read(&self) -> Reading {
        self.states.read(&self.stack).await.unwrap()
    }

    async fn take(&self, before: Reading, claim: TakeoverReason) -> Option<Lease> {
        let options = LeaseOptions::default();
        self.states
            .take(&self.stack, before, claim, &options)
            .await
            .unwrap()
    }
}

fn held() -> LeaseDocument {
    LeaseDocument::Held {
        id: "1-abcd".to_owned(),
        term_ms: 60_000,
        since: jiff::Timestamp::UNIX_EPOCH,
        serial: None,
    }
}

#[tokio::test]
async fn a_holder_may_be_at_work_unless_it_was_silent_released_or_is_over() {
    let silent = |renewal| TakeoverReason::Silent { renewal };
    // The rows before epoch 3: their epoch, how many renewals they have, and whether they are ended.
    for (rows, claim, expected) in [
        (vec![(2, 1, false)], TakeoverReason::Free, false),
        (vec![(2, 1, false)], silent(0), false),
        (vec![(2, 2, false)], silent(1), false),
        (vec![(2, 2, false)], silent(0), true),
        (vec![(1, 1, false)], silent(0), true),
        (vec![(1, 1, true), (2, 1, false)], silent(0), false),
        (vec![(1, 1, false), (2, 1, false)], silent(0), true),
        (vec![(2, 2, true)], silent(0), false),
        (vec![(2, 1, false)], TakeoverReason::Over, false),
        (vec![(1, 1, false)], TakeoverReason::Over, true),
        (vec![(1, 1, false), (2, 1, false)], TakeoverReason::Over, true),
        (vec![(2, 1, false)], TakeoverReason::Ended, true),
        (vec![(2, 1, true)], TakeoverReason::Ended, true),
        (vec![(1, 1, true), (2, 1, true)], TakeoverReason::Ended, true),
        (vec![], TakeoverReason::Ended, false),
    ] {
        let bench = Bench::new();
        for (epoch, renewals, is_ended) in &rows {
            for renewal in 0..*renewals {
                bench.put_lease(*epoch, renewal, &held()).await;
            }
            if *is_ended {
                bench.put_lease(*epoch, *renewals, &LeaseDocument::Released).await;
            }
        }
        let reading = bench.read().await;
        let at_work = bench.states.close_predecessors(&bench.stack, 3, &reading, claim);
        assert_eq!(at_work.await.unwrap(), expected, "{rows:?}");
        for (epoch, renewals, _) in rows {
            let length = usize::try_from(renewals).unwrap() + 1;
            assert_eq!(bench.row(epoch).await, (length, true), "every row has one end");
        }
    }
}

#[tokio::test]
async fn the_rows_before_the_newest_document_were_ended_by_its_writer() {
    let bench = Bench::new();
    bench.put_lease(1, 0, &held()).await;
    let lease = bench.other().acquire(&bench.stack, over()).await.unwrap();
    assert_eq!(lease.epoch(), 2);
    lease
        .commit(fixture::state(&bench.stack, &["a"]), &[])
        .await
        .unwrap();
    let old = keys::lease(&bench.stack, 1, 1);
    bench.store.delete(&old).await.unwrap();
    bench.put_lease(1, 0, &held()).await;
    bench.put_lease(2, 0, &held()).await;
    let reading = bench.read().await;
    let closed = bench
        .states
        .close_predecessors(&bench.stack, 3, &reading, TakeoverReason::Over);
    assert!(!closed.await.unwrap());
    assert_eq!(bench.row(1).await, (1, false));
    assert_eq!(bench.row(2).await, (2, true));
}

/// Takes over without waiting.
fn over() -> LeaseOptions {
    LeaseOptions {
        watch: Some(Arc::new(AllOver)),
        ..LeaseOptions::default()
    }
}

#[tokio::test]
async fn a_row_is_ended_once_after_its_last_renewal_whether_that_can_be_read_or_not() {
    let ended = LeaseDocument::TakenOver { by: 3 };
    for (renewals, end) in [
        (vec![], RowEnd::After(None)),
        (vec![held()], RowEnd::After(Some(0))),
        (vec![held(), held()], RowEnd::After(Some(1))),
        (vec![held(), LeaseDocument::Released], RowEnd::Before),
        (vec![LeaseDocument::TakenOver { by: 2 }], RowEnd::Before),
    ] {
        let bench = Bench::new();
        for (place, document) in (0..).zip(&renewals) {
            bench.put_lease(2, place, document).await;
        }
        let first = bench.states.end_lease(&bench.stack, 2, &ended).await.unwrap();
        assert!(first == end, "{renewals:?}");
        let again = bench.states.end_lease(&bench.stack, 2, &ended).await.unwrap();
        assert!(again == RowEnd::Before, "{renewals:?}");
    }
    let bench = Bench::new();
    let damaged = keys::lease(&bench.stack, 2, 0);
    bench.store.create(&damaged, "{".into()).await.unwrap();
    let end = bench.states.end_lease(&bench.stack, 2, &ended).await.unwrap();
    assert!(end == RowEnd::After(Some(0)));
}

#[tokio::test]
async fn an_end_costs_one_create_and_meets_a_renewal_of_the_same_moment() {
    let creates = Arc::new(Mutex::new(Vec::new()));
    let (log, letters) = (Arc::clone(&creates), Bench::new());
    let place = keys::lease(&letters.stack, 2, 2);
    let renewal = letters.states.letter("lease", &place, &held()).unwrap().bytes;
    let store = WatchedStore::shared(move |objects, request| {
        if let StoreRequest::Create(key, _) = request {
            log.lock().unwrap().push(key.clone());
            // The holder is faster at this place.
            if key.as_str().ends_with("/lease/0000000002/0000000002") {
                objects.overwrite(key, renewal.clone());
            }
        }
        Ok(())
    });
    let bench = Bench::over(store);
    for (epoch, renewals) in [(1, 3), (2, 2)] {
        for place in 0..renewals {
            bench.put_lease(epoch, place, &held()).await;
        }
    }
    creates.lock().unwrap().clear();
    let ended = LeaseDocument::TakenOver { by: 3 };
    for (epoch, last, places) in [(1, 2, vec![3]), (2, 2, vec![2, 3])] {
        let end = bench.states.end_lease(&bench.stack, epoch, &ended).await.unwrap();
        assert!(end == RowEnd::After(Some(last)), "{epoch}");
        let expected: Vec<_> = places
            .into_iter()
            .map(|place| keys::lease(&bench.stack, epoch, place))
            .collect();
        assert_eq!(std::mem::take(&mut *creates.lock().unwrap()), expected);
    }
}

#[tokio::test]
async fn the_journal_of_an_old_holder_is_closed_after_its_last_entry_even_if_that_is_damaged() {
    let bench = Bench::new();
    for epoch in 1..=3 {
        bench.put_lease(epoch, 0, &held()).await;
    }
    bench.put_journal(1, 0).await;
    bench.put_journal(1, 1).await;
    let damaged = keys::journal(&bench.stack, 3, 1);
    bench.store.create(&damaged, "{".into()).await.unwrap();
    let reading = bench.states.read_last_good(&bench.stack).await.unwrap();
    let closed = bench
        .states
        .close_predecessors(&bench.stack, 4, &reading, TakeoverReason::Free);
    closed.await.unwrap();
    let journals = bench.rows().await.journals;
    assert_eq!(journals[&1], [0, 1, 2]);
    assert_eq!(journals[&2], [0]);
    assert_eq!(journals[&3], [1, 2]);
    for (epoch, entry) in [(1, 2), (2, 0), (3, 2)] {
        let key = keys::journal(&bench.stack, epoch, entry);
        let bytes = bench.store.get(&key).await.unwrap().unwrap();
        let (_, end): (_, JournalDocument) = bench.states.envelopes.read("journal", &key, &bytes).unwrap();
        assert_eq!(end, JournalDocument::ClosedBy(4));
    }
}

#[tokio::test]
async fn a_takeover_waits_for_an_old_holder_and_fences_it() {
    for (claim, pauses) in [
        (TakeoverReason::Silent { renewal: 0 }, vec![]),
        (TakeoverReason::Ended, vec![Duration::from_secs(40)]),
    ] {
        let bench = Bench::new();
        let old = bench.other().acquire(&bench.stack, over()).await.unwrap();
        old.journal(fixture::created("b")).await.unwrap();
        let lease = bench.take(bench.read().await, claim).await.unwrap();
        assert_eq!(bench.clock.pauses(), pauses);
        assert_eq!(bench.row(2).await, (1 + pauses.len(), false));
        assert_eq!(bench.row(1).await, (2, true));
        let prior = lease.prior().unwrap();
        assert_eq!(
            (lease.epoch(), prior.serial),
            (2, 1),
            "the serial is that of the fence"
        );
        assert_eq!(
            prior.state.resources,
            fixture::state(&bench.stack, &["b"]).resources
        );
        let fence = bench.states.load_serial(&bench.stack, 1).await.unwrap();
        assert_eq!((fence.reason, fence.epoch), (WriteReason::Takeover, 2));
        let refused = old.commit(fixture::state(&bench.stack, &["a"]), &[]).await;
        assert!(matches!(refused, Err(StateError::Lost { .. })));
        assert_eq!(
            lease
                .commit(fixture::state(&bench.stack, &["a"]), &[])
                .await
                .unwrap(),
            2
        );
    }
}

#[tokio::test]
async fn what_was_written_since_the_reading_counts() {
    // What another run wrote under the same lease: a part of the journal, or a state.
    for has_state in [false, true] {
        let bench = Bench::new();
        let other = bench.other().acquire(&bench.stack, over()).await.unwrap();
        let before = bench.read().await;
        if has_state {
            other
                .commit(fixture::state(&bench.stack, &["b"]), &[])
                .await
                .unwrap();
        } else {
            other.journal(fixture::created("b")).await.unwrap();
        }
        let lease = bench.take(before, TakeoverReason::Free).await.unwrap();
        let prior = lease.prior().unwrap();
        assert_eq!(
            prior.state.resources,
            fixture::state(&bench.stack, &["b"]).resources
        );
        assert_eq!(prior.serial, 1 + u64::from(has_state));
        let fence = bench
            .states
            .load_serial(&bench.stack, prior.serial)
            .await
            .unwrap();
        assert_eq!(fence.reason, WriteReason::Takeover);
    }
}

#[tokio::test]
async fn nothing_is_fenced_if_nothing_changed_and_the_holder_had_released_it() {
    let bench = Bench::new();
    let first = bench.other().acquire(&bench.stack, over()).await.unwrap();
    first
        .commit(fixture::state(&bench.stack, &["a"]), &[])
        .await
        .unwrap();
    let lease = bench
        .take(bench.read().await, TakeoverReason::Free)
        .await
        .unwrap();
    assert_eq!((lease.epoch(), lease.prior().unwrap().serial), (2, 1));
    assert_eq!(bench.rows().await.states, [1]);
}

#[tokio::test]
async fn the_later_of_two_epochs_of_the_same_moment_wins() {
    let bench = Bench::new();
    let before = bench.read().await;
    bench.put_lease(3, 0, &held()).await;
    assert!(
        bench.take(before, TakeoverReason::Free).await.is_none(),
        "it took 1, and there is 3"
    );
    let before = bench.read().await;
    bench.put_lease(4, 0, &held()).await;
    assert!(
        bench.take(before, TakeoverReason::Free).await.is_none(),
        "4 is taken"
    );
}

#[tokio::test]
async fn the_next_epoch_follows_whatever_is_left_of_the_last_one() {
    let bench = Bench::new();
    assert_eq!(newest_epoch(&bench.read().await), 0);
    bench.put_lease(2, 0, &held()).await;
    assert_eq!(newest_epoch(&bench.read().await), 2);
    bench.put_journal(4, 0).await;
    assert_eq!(newest_epoch(&bench.read().await), 4);
    let lease = bench.states.acquire(&bench.stack, over()).await.unwrap();
    lease
        .commit(fixture::state(&bench.stack, &["a"]), &[])
        .await
        .unwrap();
    bench
        .store
        .delete(&keys::lease(&bench.stack, 5, 0))
        .await
        .unwrap();
    assert_eq!(newest_epoch(&bench.read().await), 5);
}

#[tokio::test]
async fn a_fence_keeps_what_the_state_before_says() {
    let bench = Bench::new();
    let lease = bench.other().acquire(&bench.stack, over()).await.unwrap();
    lease
        .commit(fixture::state(&bench.stack, &["a"]), &[3, 4])
        .await
        .unwrap();
    let reading = bench.read().await;
    let fence = async |serial| {
        let options = LeaseOptions::default();
        bench
            .states
            .fence(&bench.stack, 2, serial, &reading, &options)
            .await
    };
    assert!(!fence(1).await.unwrap(), "another document is there");
    assert!(fence(2).await.unwrap());
    let read = bench.states.load_serial(&bench.stack, 2).await.unwrap();
    assert_eq!((read.applied_reviews, read.retired), ([3, 4].into(), false));
    assert_eq!(read.state, fixture::state(&bench.stack, &["a"]));
}

#[tokio::test]
async fn from_a_damaged_document_one_goes_back_to_the_newest_good_one() {
    let bench = Bench::new();
    for name in ["a", "b"] {
        let lease = bench.other().acquire(&bench.stack, over()).await.unwrap();
        lease
            .commit(fixture::state(&bench.stack, &[name]), &[])
            .await
            .unwrap();
    }
    let damaged = keys::state(&bench.stack, 3);
    bench.store.create(&damaged, "{".into()).await.unwrap();
    let over_damaged = LeaseOptions {
        over_damaged: true,
        ..over()
    };
    assert!(bench.other().acquire(&bench.stack, over()).await.is_err());
    let lease = bench.states.acquire(&bench.stack, over_damaged).await.unwrap();
    let prior = lease.prior().unwrap();
    assert_eq!(prior.state, fixture::state(&bench.stack, &["b"]));
}
