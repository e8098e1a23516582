//! Caches data for a few seconds, so that many readers cost the store as little as one. While one request reads the
//! store again, other requests get the previous data, if it is not too old. The cache holds only copies of the
//! store's data, so any number of replicas may run.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use jiff::Timestamp;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::Digest,
};
use konverge_portal::StackIndex;
use konverge_report::{json, time};

use super::{access::Access, metrics::Metrics, source::PortalSource};

/// The time for which cached data is used without reading the store again.
const FRESH: Duration = Duration::from_secs(5);
/// The maximum time for a read of the store.
const DEADLINE: Duration = Duration::from_secs(20);
/// The maximum size of all cached pages in bytes.
const KEPT: usize = 32 << 20;

/// The index that is shown, with the time of reading.
type ShownIndex = (Instant, Result<Arc<KnownIndex>, UserError>);

/// The cache of the index.
#[derive(Default)]
pub(super) struct IndexCache {
    /// The result of the last read; `None` makes the next request read the store.
    shown: Mutex<Option<ShownIndex>>,
    /// The last successful read. The request that reads the store holds the lock.
    good: tokio::sync::Mutex<Option<(Timestamp, Arc<KnownIndex>)>>,
}

/// The maximum number of cached views of an index, and of stacks in all cached views.
const VIEWS: usize = 64;
const VIEWED_STACKS: usize = 20_000;

/// An index, with its overview as JSON.
pub(super) struct KnownIndex {
    pub index: StackIndex,
    pub json: Body,
    /// A notice if the index is outdated, with the reason.
    stale: Option<String>,
    /// The views for people with fewer permissions, by the globs that they may see.
    views: Mutex<HashMap<Vec<String>, Arc<KnownIndex>>>,
}

impl KnownIndex {
    fn new(index: StackIndex, stale: Option<String>) -> Arc<Self> {
        let json = Body::new(json::document(&index.overview), None);
        Arc::new(Self {
            index,
            json,
            stale,
            views: Mutex::default(),
        })
    }

    /// Returns the part of the index that somebody with these globs may see.
    pub(super) fn restricted(&self, patterns: Vec<String>, access: &Access) -> Arc<Self> {
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = views.get(&patterns) {
            return Arc::clone(view);
        }
        let mut index = self.index.restricted(|folder| access.may_see(folder));
        if let Some(stale) = &self.stale {
            if self.index.overview.notices.len() == 1 {
                index.overview.notices.clear();
            }
            index.overview.notices.insert(0, stale.clone());
        }
        let view = Self::new(index, self.stale.clone());
        let stacks = |view: &Arc<Self>| view.index.overview.stacks.len();
        let viewed: usize = views.values().map(stacks).sum();
        if views.len() >= VIEWS || viewed + stacks(&view) > VIEWED_STACKS {
            views.clear();
        }
        views.insert(patterns, Arc::clone(&view));
        view
    }

    /// Returns a copy of an earlier index with a notice that it is outdated.
    fn earlier(known: &Self, at: Timestamp, error: &UserError) -> Arc<Self> {
        let mut index = known.index.clone();
        let notice = format!(
            "This page shows the state of {}, because the store has not responded since then: {error}",
            time(at)
        );
        index.overview.notices.insert(0, notice.clone());
        Self::new(index, Some(notice))
    }
}

impl std::ops::Deref for KnownIndex {
    type Target = StackIndex;

    fn deref(&self) -> &StackIndex {
        &self.index
    }
}

impl IndexCache {
    /// Returns the index. If the store cannot be read, returns the last one with a notice. While one request reads
    /// the store, other requests get the previous index, or wait if it is too old.
    pub(super) async fn read(
        &self,
        source: &dyn PortalSource,
        metrics: &Metrics,
    ) -> Result<Arc<KnownIndex>, UserError> {
        let mut good = match self.shown() {
            Some((at, shown)) if at.elapsed() < FRESH => return shown,
            // While another request reads, show the previous index, but only for a limited time. Otherwise the
            // first reader after a quiet night would see yesterday's index.
            Some((at, Ok(earlier))) if at.elapsed() < FRESH + DEADLINE => match self.good.try_lock() {
                Ok(good) => good,
                Err(_) => return Ok(earlier),
            },
            _ => self.good.lock().await,
        };
        // While this request waited, another one may have read the index.
        if let Some((_, shown)) = self.shown().filter(|(at, _)| at.elapsed() < FRESH) {
            return shown;
        }
        let read = within_deadline(source.index()).await;
        metrics.count_read(read.as_ref().ok().map(|index| index.overview.stacks.len()));
        let shown = match read {
            Ok(index) => {
                let known = KnownIndex::new(index, None);
                *good = Some((Timestamp::now(), Arc::clone(&known)));
                Ok(known)
            }
            Err(error) => {
                tracing::warn!(%error, "the index could not be read");
                match &*good {
                    Some((at, earlier)) => Ok(KnownIndex::earlier(earlier, *at, &error)),
                    None => Err(error),
                }
            }
        };
        // An error is cached too, so that a store that is down is not queried for every reader.
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), shown.clone()));
        shown
    }

    fn shown(&self) -> Option<ShownIndex> {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        shown.clone()
    }

    /// Makes the next request read the store again. Waits for a read in progress, which may have started before the
    /// write and must not be cached after it.
    pub(super) async fn forget(&self) {
        let _reading = self.good.lock().await;
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Waits for the store, at most for the deadline.
pub(super) async fn within_deadline<T>(
    answer: impl Future<Output = Result<T, UserError>>,
) -> Result<T, UserError> {
    match tokio::time::timeout(DEADLINE, answer).await {
        Ok(answer) => answer,
        Err(_) => Err(UserError::new(
            ErrorKind::Store,
            format!("the store did not answer within {} s", DEADLINE.as_secs()),
        )
        .hint("`konverge state doctor` tests the store")),
    }
}

/// A rendered response body with its entity tag.
#[derive(Clone)]
pub(super) struct Body {
    pub bytes: Bytes,
    pub etag: String,
}

impl Body {
    /// Creates a body. Its tag comes from the content, and for a stack also from the serial.
    pub(super) fn new(text: String, serial: Option<u64>) -> Self {
        let digest = Digest::of_bytes(text.as_bytes()).to_string();
        let digest = digest.get(..16).unwrap_or_default();
        let etag = match serial {
            Some(serial) => format!("\"{serial}-{digest}\""),
            None => format!("\"{digest}\""),
        };
        Self {
            bytes: Bytes::from(text),
            etag,
        }
    }
}

/// Rendered bodies by URL. They are valid as long as the index that they were made from.
#[derive(Default)]
pub(super) struct BodyCache(Mutex<Bodies>);

#[derive(Default)]
struct Bodies {
    by_address: HashMap<String, (Instant, Body)>,
    size: usize,
}

impl BodyCache {
    pub(super) fn get(&self, address: &str) -> Option<Body> {
        let bodies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (made, body) = bodies.by_address.get(address)?;
        (made.elapsed() < FRESH).then(|| body.clone())
    }

    pub(super) fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Bodies::default();
    }

    pub(super) fn put(&self, address: String, body: &Body) {
        let mut bodies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if bodies.size + body.bytes.len() > KEPT {
            *bodies = Bodies::default();
        }
        if body.bytes.len() <= KEPT {
            bodies.size += body.bytes.len();
            let before = bodies.by_address.insert(address, (Instant::now(), body.clone()));
            bodies.size -= before.map_or(0, |(_, body)| body.bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use konverge_base::model::StackId;
    use konverge_config::PortalConfig;
    use konverge_portal::{
        Overview, PermissionsDocument, RolloutsDocument, SearchIndex, StackDetails, StateDifference, Trends,
    };
    use tokio::sync::Notify;

    use super::*;

    /// A store that responds only when the test tells it to.
    #[derive(Default)]
    struct SlowStore {
        asked: AtomicUsize,
        answers: Notify,
    }

    #[async_trait]
    impl PortalSource for SlowStore {
        async fn roles(&self) -> Result<Arc<PortalConfig>, UserError> {
            Ok(Arc::default())
        }

        async fn index(&self) -> Result<StackIndex, UserError> {
            let asked = self.asked.fetch_add(1, Ordering::SeqCst);
            self.answers.notified().await;
            Ok(StackIndex {
                overview: Overview {
                    version: 1,
                    repository: format!("reading {asked}"),
                    head: None,
                    forge: None,
                    freeze: None,
                    notices: Vec::new(),
                    stacks: Vec::new(),
                },
                search: SearchIndex::default(),
                fingerprints: Default::default(),
                serials: Default::default(),
                activity: Default::default(),
            })
        }

        async fn stack(&self, _: &StackIndex, _: &StackId) -> Result<Option<StackDetails>, UserError> {
            Ok(None)
        }

        async fn difference(
            &self,
            _: &StackId,
            _: u64,
            _: u64,
        ) -> Result<Option<StateDifference>, UserError> {
            Ok(None)
        }

        async fn rollouts(&self) -> Result<RolloutsDocument, UserError> {
            Ok(RolloutsDocument::unreadable("nobody asks"))
        }

        async fn trends(&self, _: &StackIndex, _: bool) -> Result<Trends, UserError> {
            Err(UserError::new(ErrorKind::Store, "nobody asks"))
        }

        async fn permissions(&self) -> Result<Option<PermissionsDocument>, UserError> {
            Ok(None)
        }
    }

    async fn seen(cache: &IndexCache, store: &SlowStore) -> String {
        let index = cache.read(store, &Metrics::default()).await.unwrap();
        index.overview.repository.clone()
    }

    /// Makes the cached index older.
    fn age(cache: &IndexCache, by: Duration) {
        let mut shown = cache.shown.lock().unwrap();
        let (at, _) = shown.as_mut().unwrap();
        *at = at.checked_sub(by).unwrap();
    }

    #[tokio::test]
    async fn while_one_request_asks_a_slow_store_the_others_see_what_was_read_before() {
        let limit = Duration::from_secs(60);
        let readers = tokio::time::timeout(limit, readers_of_a_slow_store());
        readers.await.expect("nobody waits without end");
    }

    async fn readers_of_a_slow_store() {
        let (cache, store) = (Arc::new(IndexCache::default()), Arc::new(SlowStore::default()));
        store.answers.notify_one();
        assert_eq!(seen(&cache, &store).await, "reading 0");
        age(&cache, FRESH);
        let (other, slow) = (Arc::clone(&cache), Arc::clone(&store));
        let asking = tokio::spawn(async move { seen(&other, &slow).await });
        while store.asked.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        for _ in 0..3 {
            assert_eq!(seen(&cache, &store).await, "reading 0");
        }
        assert_eq!(store.asked.load(Ordering::SeqCst), 2);
        // A read that started before the write must not be shown after it.
        let (other, slow) = (Arc::clone(&cache), Arc::clone(&store));
        let forgetting = tokio::spawn(async move {
            other.forget().await;
            seen(&other, &slow).await
        });
        tokio::task::yield_now().await;
        store.answers.notify_one();
        assert_eq!(asking.await.unwrap(), "reading 1");
        while store.asked.load(Ordering::SeqCst) < 3 {
            tokio::task::yield_now().await;
        }
        store.answers.notify_one();
        assert_eq!(forgetting.await.unwrap(), "reading 2");
        assert_eq!(seen(&cache, &store).await, "reading 2");
    }

    #[tokio::test]
    async fn nobody_sees_what_was_read_before_a_quiet_night() {
        let limit = Duration::from_secs(60);
        let readers = tokio::time::timeout(limit, readers_after_a_quiet_night());
        readers.await.expect("nobody waits without end");
    }

    async fn readers_after_a_quiet_night() {
        let (cache, store) = (Arc::new(IndexCache::default()), Arc::new(SlowStore::default()));
        store.answers.notify_one();
        assert_eq!(seen(&cache, &store).await, "reading 0");
        age(&cache, FRESH + DEADLINE);
        let readers = [(); 3].map(|()| {
            let (cache, store) = (Arc::clone(&cache), Arc::clone(&store));
            tokio::spawn(async move { seen(&cache, &store).await })
        });
        while store.asked.load(Ordering::SeqCst) < 2 {
            tokio::task::yield_now().await;
        }
        store.answers.notify_one();
        for reader in readers {
            assert_eq!(reader.await.unwrap(), "reading 1");
        }
        assert_eq!(store.asked.load(Ordering::SeqCst), 2);
    }
}
