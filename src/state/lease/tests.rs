#![allow(clippy::unwrap_used)]
use super::{
    super::{
        LeaseOptions,
        fixture::{self, HandClock},
    },
    *,
};
use crate::store::{MemoryStore, Store};

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
        let letter = self.states.letter("lease", document).unwrap();
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
