//! For tests: a stack, its states in memory, and a clock that is set by hand.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::watch;
use zeroize::Zeroizing;

use super::{Clock, DocumentWriter, NamedKeyService, RepositoryId, StateStore};
use crate::store::{Created, Key, MemoryStore, Store, StoreError};
use konverge_base::model::{
    Digest, RepoPath, StackId,
    plan::Action,
    spec::{RuntimeKind, Sharing},
    state::{JournalEntry, Recorded, RuntimeRecord, StackState},
};
use konverge_cloud::secret_stores::{KeyService, SecretProblem};

/// Returns the states of a run in this store.
pub(super) fn states(store: &Arc<dyn Store>, clock: &Arc<HandClock>) -> StateStore {
    let writer = DocumentWriter {
        run: "https://ci.example/1".to_owned(),
        actor: "someone".to_owned(),
    };
    let clock: Arc<dyn Clock> = Arc::clone(clock) as Arc<dyn Clock>;
    StateStore::open(Arc::clone(store), RepositoryId::new("acme/infra"), writer).with_clock(clock)
}

pub(super) fn stack(name: &str) -> StackId {
    name.parse().unwrap()
}

pub(super) fn recorded(name: &str) -> Recorded {
    Recorded {
        id: format!("v1:ConfigMap:shop:{name}").parse().unwrap(),
        runtime: RuntimeKind::Kubernetes,
        cluster: None,
        attributes: serde_json::Map::new().into(),
        depends_on: Vec::new(),
        extensions: serde_json::Map::new(),
        object_hash: None,
        private: RuntimeRecord::encode(&serde_json::json!({"uid": name})),
        sharing: Sharing::default(),
    }
}

/// Returns the journal entries of a created resource.
pub(super) fn created(name: &str) -> Vec<JournalEntry> {
    let recorded = recorded(name);
    let intent = JournalEntry::Intent {
        recorded: recorded.clone(),
        action: Action::Create,
    };
    vec![intent, JournalEntry::Done { recorded }]
}

/// Returns the state of a stack after a successful apply of these resources.
pub(super) fn state(stack: &StackId, names: &[&str]) -> StackState {
    let mut state = StackState::empty(stack.clone(), RepoPath::normalize("apps/shop").unwrap());
    names.iter().for_each(|name| state.put(recorded(name)));
    state.input_digest = Some(Digest::of_bytes(b"one"));
    state
}

/// A clock that stands still until it is set.
#[derive(Default)]
pub(super) struct HandClock(watch::Sender<Duration>);

impl HandClock {
    pub(super) fn set(&self, now: Duration) {
        self.0.send_replace(now);
    }
}

#[async_trait]
impl Clock for HandClock {
    fn monotonic(&self) -> Duration {
        *self.0.borrow()
    }

    fn wall_clock(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    async fn sleep(&self, time: Duration) {
        let until = self.monotonic() + time;
        self.0.subscribe().wait_for(|now| *now >= until).await.unwrap();
    }
}

/// A clock on which every pause is over at once. It writes the pauses down.
#[derive(Default)]
pub(super) struct QuickClock {
    now: Mutex<Duration>,
    pauses: Mutex<Vec<Duration>>,
}

impl QuickClock {
    /// More pauses than this never end: a lease that renews itself would not stop otherwise.
    const MOST: usize = 100;

    pub(super) fn pauses(&self) -> Vec<Duration> {
        self.pauses.lock().unwrap().clone()
    }
}

#[async_trait]
impl Clock for QuickClock {
    fn monotonic(&self) -> Duration {
        *self.now.lock().unwrap()
    }

    fn wall_clock(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
    }

    async fn sleep(&self, time: Duration) {
        if self.pauses().len() >= Self::MOST {
            std::future::pending::<()>().await;
        }
        self.pauses.lock().unwrap().push(time);
        *self.now.lock().unwrap() += time;
    }
}

/// A key service that unwraps what it wrapped, in the same context.
pub(super) struct NamedService {
    name: &'static str,
    is_away: AtomicBool,
}

impl NamedService {
    pub(super) fn new(name: &'static str) -> Arc<Self> {
        let is_away = AtomicBool::new(false);
        Arc::new(Self { name, is_away })
    }

    pub(super) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    /// Returns the service under its name, as a run gets it.
    pub(super) fn named(self: &Arc<Self>) -> NamedKeyService {
        NamedKeyService {
            name: self.name.to_owned(),
            service: Arc::<Self>::clone(self),
        }
    }

    fn answer<T>(&self, answer: Option<T>) -> Result<T, SecretProblem> {
        let answer = answer.filter(|_| !self.is_away.load(Ordering::SeqCst));
        let why = "it is away".into();
        answer.ok_or(SecretProblem::Unavailable { status: None, why })
    }
}

#[async_trait]
impl KeyService for NamedService {
    async fn wrap_key(&self, secret: &[u8], context: &str) -> Result<String, SecretProblem> {
        self.answer(Some(format!(
            "{}|{context}|{}",
            self.name,
            STANDARD.encode(secret)
        )))
    }

    async fn unwrap_key(&self, wrapped: &str, context: &str) -> Result<Zeroizing<Vec<u8>>, SecretProblem> {
        let secret = wrapped.strip_prefix(&format!("{}|{context}|", self.name));
        self.answer(secret.map(|secret| Zeroizing::new(STANDARD.decode(secret).unwrap())))
    }
}

/// A request to a store.
pub(super) enum StoreRequest<'a> {
    Get(&'a Key),
    List(&'a Key),
    Create(&'a Key, &'a Bytes),
    Delete(&'a Key),
}

impl StoreRequest<'_> {
    /// Returns the requested key or folder.
    pub(super) fn key(&self) -> &Key {
        match self {
            Self::Get(key) | Self::List(key) | Self::Create(key, _) | Self::Delete(key) => key,
        }
    }
}

/// Runs before each request to the store; may return an error instead of the response.
type BeforeRequest = dyn Fn(&MemoryStore, StoreRequest<'_>) -> Result<(), StoreError> + Send + Sync;

/// A store in memory. Before each request a test may change what is there, or refuse.
pub(super) struct WatchedStore {
    objects: MemoryStore,
    before: Box<BeforeRequest>,
}

impl WatchedStore {
    pub(super) fn shared(
        before: impl Fn(&MemoryStore, StoreRequest<'_>) -> Result<(), StoreError> + Send + Sync + 'static,
    ) -> Arc<dyn Store> {
        Arc::new(Self {
            objects: MemoryStore::default(),
            before: Box::new(before),
        })
    }
}

/// Returns the error of a store that does not respond.
pub(super) fn unavailable(key: &Key) -> StoreError {
    StoreError::Unavailable {
        url: "memory:".to_owned(),
        key: key.to_string(),
        why: "no answer".into(),
    }
}

#[async_trait]
impl Store for WatchedStore {
    fn url(&self) -> &str {
        self.objects.url()
    }

    async fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError> {
        (self.before)(&self.objects, StoreRequest::Get(key))?;
        self.objects.get(key).await
    }

    async fn list(&self, prefix: &Key) -> Result<Vec<Key>, StoreError> {
        (self.before)(&self.objects, StoreRequest::List(prefix))?;
        self.objects.list(prefix).await
    }

    async fn create(&self, key: &Key, content: Bytes) -> Result<Created, StoreError> {
        (self.before)(&self.objects, StoreRequest::Create(key, &content))?;
        self.objects.create(key, content).await
    }

    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        (self.before)(&self.objects, StoreRequest::Delete(key))?;
        self.objects.delete(key).await
    }
}
