use std::sync::Arc;

use serde_json::json;

use super::{
    super::{SealScope, Sealer, WriteReason, fixture},
    *,
};
use crate::store::{MemoryStore, Store};
use konverge_base::model::state::JournalEntry;

/// A stack whose documents are encrypted to whom each run says.
struct Bench {
    store: Arc<dyn Store>,
    stack: StackId,
}

impl Bench {
    fn new() -> Self {
        Self {
            store: Arc::new(MemoryStore::default()),
            stack: fixture::stack("shop/prod"),
        }
    }

    fn plain(&self) -> StateStore {
        fixture::states(&self.store, &Arc::default())
    }

    fn sealing(&self, sealer: &Sealer) -> StateStore {
        // Most of what is encrypted again here was plain.
        self.plain()
            .with_sealer(Some(sealer.clone()), SealScope::Documents)
            .accepting_unmarked()
    }

    /// Writes that many states, each with other resources.
    async fn apply(&self, states: &StateStore, times: usize) {
        for _ in 0..times {
            let lease = states
                .acquire(&self.stack, LeaseOptions::default())
                .await
                .unwrap();
            lease
                .commit(fixture::state(&self.stack, &["a"]), &[])
                .await
                .unwrap();
        }
    }

    async fn reseal(&self, states: &StateStore) -> Result<usize, StateError> {
        states.reseal(&self.stack, &LeaseOptions::default()).await
    }

    async fn serials(&self) -> Vec<u64> {
        self.plain().rows(&self.stack).await.unwrap().states
    }

    async fn copies(&self) -> Vec<Key> {
        self.store.list(&copies()).await.unwrap()
    }
}

fn to(sealer: &Sealer) -> Sealing {
    Sealing::Recipients(sealer.recipients())
}

#[tokio::test]
async fn the_newest_two_states_get_successors_and_earlier_ones_are_replaced() {
    let (bench, sealer) = (Bench::new(), Sealer::generate());
    bench.apply(&bench.plain(), 5).await;
    let sealing = bench.sealing(&sealer);
    assert_eq!(
        sealing.sealings(&bench.stack).await.unwrap(),
        vec![Sealing::Plain; 5]
    );
    assert_eq!(
        sealing.outdated(&bench.stack).await.unwrap(),
        (vec![4, 5], vec![1, 2, 3])
    );
    assert_eq!(bench.reseal(&sealing).await.unwrap(), 7);
    assert_eq!(bench.serials().await, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(
        sealing.sealings(&bench.stack).await.unwrap(),
        vec![to(&sealer); 7]
    );
    assert_eq!(bench.copies().await, []);
    assert_eq!(
        bench.reseal(&sealing).await.unwrap(),
        0,
        "there is nothing left to do"
    );
    assert_eq!(bench.serials().await.len(), 7);
    let newest = sealing.load(&bench.stack).await.unwrap().unwrap();
    assert_eq!((newest.serial, newest.reason), (7, WriteReason::Rekey));
    assert_eq!(newest.state, fixture::state(&bench.stack, &["a"]));
    assert_eq!(
        sealing.load_serial(&bench.stack, 2).await.unwrap().reason,
        WriteReason::Apply
    );
    assert!(matches!(
        bench.plain().load(&bench.stack).await,
        Err(StateError::Sealed { .. })
    ));
}

#[tokio::test]
async fn only_what_is_encrypted_to_others_is_outdated() {
    let bench = Bench::new();
    let [old, new] = [Sealer::generate(), Sealer::generate()];
    // The new run can decrypt nothing of the old one, and so leaves its documents alone.
    bench.apply(&bench.sealing(&new), 3).await;
    let sealing = bench.sealing(&new);
    assert_eq!(sealing.outdated(&bench.stack).await.unwrap(), (vec![], vec![]));
    assert_eq!(bench.reseal(&sealing).await.unwrap(), 0);
    let other = bench.sealing(&old);
    assert_eq!(other.outdated(&bench.stack).await.unwrap(), (vec![2, 3], vec![1]));
    assert!(matches!(
        bench.reseal(&other).await,
        Err(StateError::Sealed { .. })
    ));
    assert_eq!(bench.serials().await, [1, 2, 3]);
}

#[tokio::test]
async fn a_rekey_ends_even_if_what_it_writes_is_outdated_at_once() {
    let bench = Bench::new();
    let plain = bench.plain();
    assert_eq!(
        bench.reseal(&plain).await.unwrap(),
        0,
        "no state, nothing to write"
    );
    bench.apply(&plain, 1).await;
    // Three successors, of which the first is no longer needed, and the replacement of the first state.
    assert_eq!(bench.reseal(&plain).await.unwrap(), 4);
    assert_eq!(bench.serials().await, [1, 3, 4]);
}

#[tokio::test]
async fn a_stack_whose_run_ended_in_the_middle_is_applied_first() {
    let (bench, sealer) = (Bench::new(), Sealer::generate());
    bench.apply(&bench.plain(), 1).await;
    let states = bench.plain();
    let lease = states
        .acquire(&bench.stack, LeaseOptions::default())
        .await
        .unwrap();
    lease.journal(fixture::created("b")[..1].to_vec()).await.unwrap();
    lease.release().await.unwrap();
    let sealing = bench.sealing(&sealer);
    let error = bench.reseal(&sealing).await.unwrap_err();
    assert!(error.to_string().contains("ended in the middle"), "{error}");
    assert!(
        sealing.holder(&bench.stack).await.unwrap().is_none(),
        "the lease is given back"
    );
    assert_eq!(bench.serials().await, [1]);
}

#[tokio::test]
async fn the_data_of_runtimes_is_encrypted_anew_in_earlier_states_too() {
    let bench = Bench::new();
    let [old, reader] = [Sealer::generate(), Sealer::generate()];
    let before = bench.plain().with_sealer(Some(old.clone()), SealScope::Documents);
    for _ in 0..3 {
        let lease = before
            .acquire(&bench.stack, LeaseOptions::default())
            .await
            .unwrap();
        let mut state = fixture::state(&bench.stack, &["a"]);
        let data = old.seal_value(&json!("data")).unwrap();
        state.runtime.insert("tf".to_owned(), data.clone());
        let entry = JournalEntry::Runtime {
            key: "tf".to_owned(),
            value: data,
        };
        lease.journal(vec![entry]).await.unwrap();
        lease.commit(state, &[]).await.unwrap();
    }
    // A run reads what it wrote before, so it is a recipient itself.
    let recipients = [reader.recipients(), old.recipients()].concat();
    let now = Sealer::new(&recipients, old.identity().as_deref())
        .unwrap()
        .unwrap();
    assert_eq!(bench.reseal(&bench.sealing(&now)).await.unwrap(), 5);
    let reading = bench.sealing(&reader);
    for serial in [1, 4, 5] {
        let read = reading.load_serial(&bench.stack, serial).await.unwrap();
        assert_eq!(
            reader.open_value(&read.state.runtime["tf"]).unwrap(),
            "data",
            "{serial}"
        );
    }
}

#[tokio::test]
async fn the_key_of_the_hashes_is_encrypted_anew_once() {
    let (bench, sealer) = (Bench::new(), Sealer::generate());
    let sealing = bench.sealing(&sealer);
    assert!(!sealing.reseal_hash_key().await.unwrap(), "there is none");
    let made = bench.plain().hash_key().await.unwrap().to_bytes();
    assert!(sealing.reseal_hash_key().await.unwrap());
    assert!(!sealing.reseal_hash_key().await.unwrap());
    assert_eq!(sealing.hash_key().await.unwrap().to_bytes(), made);
    assert!(bench.plain().hash_key().await.is_err());
    assert_eq!(bench.copies().await, []);
}

#[tokio::test]
async fn a_killed_replacement_is_read_from_its_copy_and_ended_by_the_next_run() {
    let (bench, sealer) = (Bench::new(), Sealer::generate());
    bench.apply(&bench.plain(), 3).await;
    let key = keys::state(&bench.stack, 1);
    let bytes = bench.store.get(&key).await.unwrap().unwrap();
    // Killed after the document was removed.
    bench.store.create(&copy_of(&key), bytes.clone()).await.unwrap();
    bench.store.delete(&key).await.unwrap();
    let states = bench.plain();
    assert_eq!(states.load_serial(&bench.stack, 1).await.unwrap().serial, 1);
    states.finish_resealing().await.unwrap();
    assert_eq!(bench.store.get(&key).await.unwrap().as_ref(), Some(&bytes));
    assert_eq!(bench.copies().await, []);
    // Killed before the copy was removed.
    bench.store.create(&copy_of(&key), bytes.clone()).await.unwrap();
    states.finish_resealing().await.unwrap();
    assert_eq!(bench.copies().await, []);
    // Killed before the document was removed: the copy is another document, and the next replacement writes over it.
    let other = bench
        .store
        .get(&keys::state(&bench.stack, 2))
        .await
        .unwrap()
        .unwrap();
    bench.store.create(&copy_of(&key), other).await.unwrap();
    states.finish_resealing().await.unwrap();
    assert_eq!(bench.copies().await, [copy_of(&key)]);
    assert_eq!(bench.store.get(&key).await.unwrap().as_ref(), Some(&bytes));
    assert_eq!(bench.reseal(&bench.sealing(&sealer)).await.unwrap(), 5);
    assert_eq!(bench.copies().await, []);
    let read = bench.sealing(&sealer).load_serial(&bench.stack, 1).await.unwrap();
    assert_eq!(read.serial, 1);
}

#[test]
fn a_document_says_who_can_decrypt_it() {
    let header = |sealed: bool, recipients: &[&str]| {
        let value = json!({"kind": "state", "repository": "r", "nonce": "n", "time": "1970-01-01T00:00:00Z",
            "writer": {"run": "r", "actor": "a"}, "sealed": sealed, "recipients": recipients});
        sealing(serde_json::from_value(value).unwrap())
    };
    assert_eq!(header(false, &[]), Sealing::Plain);
    assert_eq!(header(false, &["a"]), Sealing::Plain);
    assert_eq!(header(true, &[]), Sealing::Unknown);
    assert_eq!(header(true, &["a"]), Sealing::Recipients(vec!["a".to_owned()]));
}
