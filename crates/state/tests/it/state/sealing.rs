//! Encrypted states: data keys that services wrap, and documents that are encrypted again, with a kill at every
//! request.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use konverge_cloud::secret_stores::{KeyService, SecretProblem};
use konverge_state::{
    DataKeys, NamedKeyService, SealScope, Sealer, Sealing, StateError, StateStore,
    store::{Created, Key, MemoryStore, Store, StoreError},
};
use zeroize::Zeroizing;

use super::fixture::{id, intent, short, stack, states, with};
use konverge_base::error::chain;

/// A key service: what it wraps, it unwraps in the same context.
struct Service {
    name: String,
    is_away: AtomicBool,
    /// What it wraps from now on, whatever it is given.
    answers: Mutex<Option<String>>,
    checks_context: bool,
    unwrapped: AtomicUsize,
}

impl Service {
    fn new(name: &str, checks_context: bool) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            is_away: AtomicBool::new(false),
            answers: Mutex::default(),
            checks_context,
            unwrapped: AtomicUsize::new(0),
        })
    }
}

#[async_trait]
impl KeyService for Service {
    async fn wrap_key(&self, secret: &[u8], context: &str) -> Result<String, SecretProblem> {
        if self.is_away.load(Ordering::SeqCst) {
            return Err(refusal("it is away"));
        }
        let answer = self.answers.lock().unwrap().clone();
        Ok(answer.unwrap_or_else(|| format!("{}|{context}|{}", self.name, STANDARD.encode(secret))))
    }

    async fn unwrap_key(&self, wrapped: &str, context: &str) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        self.unwrapped.fetch_add(1, Ordering::SeqCst);
        let parts: Vec<_> = wrapped.split('|').collect();
        let is_ours = parts[0] == self.name && (parts[1] == context || !self.checks_context);
        if is_ours && !self.is_away.load(Ordering::SeqCst) {
            Ok(Zeroizing::new(STANDARD.decode(parts[2]).unwrap()))
        } else {
            Err(refusal("it is away, or another context"))
        }
    }
}

fn refusal(why: &str) -> SecretProblem {
    let why = why.into();
    SecretProblem::Denied { status: None, why }
}

/// A store that dies after so many requests.
struct Mortal {
    inner: Arc<MemoryStore>,
    left: AtomicUsize,
}

impl Mortal {
    fn ask(&self, key: &Key) -> Result<(), StoreError> {
        let ask = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        ask.map(drop).map_err(|_| StoreError::Unavailable {
            url: "memory:".to_owned(),
            key: key.to_string(),
            why: "killed".into(),
        })
    }
}

#[async_trait]
impl Store for Mortal {
    fn url(&self) -> &str {
        "memory:"
    }

    async fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError> {
        self.ask(key)?;
        self.inner.get(key).await
    }

    async fn list(&self, prefix: &Key) -> Result<Vec<Key>, StoreError> {
        self.ask(prefix)?;
        self.inner.list(prefix).await
    }

    async fn create(&self, key: &Key, content: Bytes) -> Result<Created, StoreError> {
        self.ask(key)?;
        self.inner.create(key, content).await
    }

    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        self.ask(key)?;
        self.inner.delete(key).await
    }
}

fn with_services(store: Arc<dyn Store>, services: &[&Arc<Service>]) -> StateStore {
    let services = services.iter().map(|service| NamedKeyService {
        name: service.name.clone(),
        service: Arc::<Service>::clone(service),
    });
    states(store, "1").with_key_services(services.collect())
}

fn sealed(states: StateStore, keys: &DataKeys) -> StateStore {
    let sealer = Sealer::with_data_keys(&[], None, keys).unwrap();
    states.with_sealer(Some(sealer), SealScope::Documents)
}

async fn commit(states: &StateStore, name: &str) {
    let lease = states.acquire(&stack(), short()).await.unwrap();
    let mut state = with(&[name], name);
    let secret = states
        .sealer()
        .unwrap()
        .seal_value(&serde_json::json!({"password": name}));
    state.runtime.insert("terraform".to_owned(), secret.unwrap());
    lease.commit(state, &[]).await.unwrap();
}

/// Everything that `konverge state rekey` does with one stack.
async fn rekey(states: &StateStore) -> Result<usize, StateError> {
    states.finish_resealing().await?;
    let keys = states.open_data_keys().await?.unwrap();
    let keys = if states.is_wrapped_by_all(&keys) {
        keys
    } else {
        states.make_data_key(Some(&keys)).await?
    };
    let states = sealed(states.clone(), &keys);
    states.reseal_hash_key().await?;
    states.reseal(&stack(), &short()).await
}

/// All that is recorded can be read.
async fn is_whole(states: &StateStore, hash_key: [u8; 32], what: &str) {
    let newest = states.load(&stack()).await.unwrap().unwrap();
    assert_eq!(newest.state.resources[0].id, id("three"), "{what}");
    for (serial, name) in [(1, "one"), (2, "two"), (3, "three")] {
        let state = states.load_serial(&stack(), serial).await;
        let state = state
            .unwrap_or_else(|error| panic!("{what}: serial {serial}: {error}"))
            .state;
        assert_eq!(state.resources[0].id, id(name), "{what}");
        let secret = states
            .sealer()
            .unwrap()
            .open_value(&state.runtime["terraform"])
            .unwrap();
        assert_eq!(secret["password"], name, "{what}");
    }
    let found = states.existing_hash_key().await.unwrap();
    assert_eq!(found.map(|key| key.to_bytes()), Some(hash_key), "{what}");
}

#[tokio::test]
async fn a_rekey_that_is_killed_at_any_request_loses_nothing() {
    let (old, new) = (Service::new("kms:old", true), Service::new("kms:new", true));
    let mut kills = 0;
    loop {
        let store = Arc::new(MemoryStore::default());
        let first = with_services(Arc::clone(&store) as Arc<dyn Store>, &[&old]);
        let keys = first.make_data_key(None).await.unwrap();
        let first = sealed(first, &keys);
        let hash_key = first.hash_key().await.unwrap().to_bytes();
        for name in ["one", "two", "three"] {
            commit(&first, name).await;
        }
        let mortal = Arc::new(Mortal {
            inner: Arc::clone(&store),
            left: AtomicUsize::new(kills),
        });
        let died = rekey(&with_services(mortal, &[&new, &old])).await.is_err();

        let survivor = with_services(Arc::clone(&store) as Arc<dyn Store>, &[&new, &old]);
        let keys = survivor.open_data_keys().await.unwrap().unwrap();
        is_whole(
            &sealed(survivor.clone(), &keys),
            hash_key,
            &format!("killed at {kills}"),
        )
        .await;
        // The killed run's lease has expired.
        for key in store.list(&Key::from_components(&["stacks"])).await.unwrap() {
            if key.as_str().contains("/lease/") {
                store.delete(&key).await.unwrap();
            }
        }
        rekey(&survivor).await.unwrap();
        assert_eq!(
            rekey(&survivor).await.unwrap(),
            0,
            "a second run finds nothing to do"
        );

        // Now the old service may go.
        let reader = with_services(Arc::clone(&store) as Arc<dyn Store>, &[&new]);
        let keys = reader.open_data_keys().await.unwrap().unwrap();
        is_whole(
            &sealed(reader.clone(), &keys),
            hash_key,
            &format!("after a kill at {kills}"),
        )
        .await;
        let newest = reader.list_data_keys().await.unwrap().pop().unwrap();
        let all = reader.sealings(&stack()).await.unwrap();
        let today = Sealing::Recipients(vec![newest.recipient]);
        assert!(
            all.len() >= 3 && all.iter().all(|sealing| *sealing == today),
            "{all:?}"
        );
        assert_eq!(store.list(&Key::from_components(&["rekey"])).await.unwrap(), []);
        if !died {
            break;
        }
        kills += 1;
    }
    assert!(kills > 30, "{kills} requests");
}

#[tokio::test]
async fn a_service_that_goes_away_after_the_start_loses_no_state() {
    let store = Arc::new(MemoryStore::default());
    let (kms, vault) = (Service::new("kms:a", true), Service::new("vault:b", true));
    let states = with_services(Arc::clone(&store) as Arc<dyn Store>, &[&kms, &vault]);
    let keys = states.make_data_key(None).await.unwrap();
    let states = sealed(states, &keys);
    for service in [&kms, &vault] {
        service.is_away.store(true, Ordering::SeqCst);
    }
    for name in ["one", "two", "three"] {
        commit(&states, name).await;
    }
    // Nobody can begin a run now, and nothing is written meanwhile.
    let later = with_services(Arc::clone(&store) as Arc<dyn Store>, &[&kms, &vault]);
    let before = store.list(&Key::from_components(&[])).await.unwrap();
    let error = later.open_data_keys().await.unwrap_err();
    assert!(matches!(error, StateError::KeyService { .. }), "{error}");
    assert!(later.make_data_key(Some(&keys)).await.is_err());
    assert_eq!(store.list(&Key::from_components(&[])).await.unwrap(), before);
    // One of them is enough, and it is asked once.
    vault.is_away.store(false, Ordering::SeqCst);
    vault.unwrapped.store(0, Ordering::SeqCst);
    let keys = later.open_data_keys().await.unwrap().unwrap();
    let loaded = sealed(later, &keys).load(&stack()).await.unwrap().unwrap();
    assert_eq!(loaded.state.resources[0].id, id("three"));
    assert_eq!(vault.unwrapped.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn who_can_only_write_to_the_store_gets_no_state_encrypted_to_them() {
    for checks_context in [true, false] {
        let store = Arc::new(MemoryStore::default());
        let kms = Service::new("kms:a", checks_context);
        let ours = with_services(Arc::clone(&store) as Arc<dyn Store>, &[&kms]);
        ours.make_data_key(None).await.unwrap();
        let keys = ours.open_data_keys().await.unwrap().unwrap();

        // The wrapped key of the first document, beside a recipient of the attacker's.
        let place = Key::from_components(&["keys", "data", "0000000001"]);
        let text = String::from_utf8(store.get(&place).await.unwrap().unwrap().to_vec()).unwrap();
        let (_, stolen) = text.split_once("\"key\":\"").unwrap();
        let theirs = Service::new("kms:a", false);
        *theirs.answers.lock().unwrap() = stolen.split_once('"').map(|(stolen, _)| stolen.to_owned());
        let attacker = with_services(Arc::clone(&store) as Arc<dyn Store>, &[&theirs]);
        attacker.make_data_key(Some(&keys)).await.unwrap();

        let error = chain(&ours.open_data_keys().await.unwrap_err());
        let why = if checks_context {
            "another context"
        } else {
            "its recipient is not that of the key that it wraps"
        };
        assert!(error.contains(why), "{error}");
    }
}

#[tokio::test]
async fn a_run_that_ended_in_the_middle_is_applied_before_its_state_is_encrypted_anew() {
    let store = Arc::new(MemoryStore::default());
    let (old, new) = (Service::new("kms:old", true), Service::new("kms:new", true));
    let states = with_services(Arc::clone(&store) as Arc<dyn Store>, &[&old]);
    let keys = states.make_data_key(None).await.unwrap();
    let states = sealed(states, &keys);
    let lease = states.acquire(&stack(), short()).await.unwrap();
    lease.journal(vec![intent("a")]).await.unwrap();
    lease.release().await.unwrap();
    commit_nothing(&states).await;
    let error = rekey(&with_services(
        Arc::clone(&store) as Arc<dyn Store>,
        &[&old, &new],
    ))
    .await;
    let error = chain(&error.unwrap_err());
    assert!(error.contains("ended in the middle; apply it first"), "{error}");
    let loaded = states.load(&stack()).await.unwrap().unwrap();
    assert_eq!(loaded.pending, [id("a")], "the question is still open");
}

/// A takeover writes a document whose journal has a question.
async fn commit_nothing(states: &StateStore) {
    let lease = states.acquire(&stack(), short()).await.unwrap();
    let state = lease.prior().unwrap().state.clone();
    lease.commit(state, &[]).await.unwrap();
    let lease = states.acquire(&stack(), short()).await.unwrap();
    lease.journal(vec![intent("a")]).await.unwrap();
    lease.release().await.unwrap();
}

#[tokio::test]
async fn without_a_key_nothing_that_must_be_encrypted_is_written() {
    let store = Arc::new(MemoryStore::default());
    let states = states(Arc::clone(&store) as Arc<dyn Store>, "1").with_sealer(None, SealScope::Documents);
    assert!(matches!(states.hash_key().await, Err(StateError::Sealed { .. })));
    let error = states.acquire(&stack(), short()).await.err().unwrap();
    assert!(matches!(error, StateError::Sealed { .. }), "{error}");
    assert!(states.load(&stack()).await.unwrap().is_none());
}
