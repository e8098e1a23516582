//! A store that counts what is asked of it.

use async_trait::async_trait;
use bytes::Bytes;
use konverge_state::store::{Created, Key, Store, StoreError};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// Passes everything on and counts.
pub struct Counted {
    inner: Arc<dyn Store>,
    gets: AtomicUsize,
    lists: AtomicUsize,
    creates: AtomicUsize,
    deletes: AtomicUsize,
    created_bytes: AtomicUsize,
}

/// What was asked since the last reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub gets: usize,
    pub lists: usize,
    pub creates: usize,
    pub deletes: usize,
    pub created_bytes: usize,
}

impl Counted {
    /// Around another store.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            gets: AtomicUsize::new(0),
            lists: AtomicUsize::new(0),
            creates: AtomicUsize::new(0),
            deletes: AtomicUsize::new(0),
            created_bytes: AtomicUsize::new(0),
        }
    }

    /// Starts counting again.
    pub fn reset(&self) {
        let all = [
            &self.gets,
            &self.lists,
            &self.creates,
            &self.deletes,
            &self.created_bytes,
        ];
        all.iter().for_each(|count| count.store(0, Ordering::SeqCst));
    }

    /// The counts.
    pub fn count(&self) -> Count {
        Count {
            gets: self.gets.load(Ordering::SeqCst),
            lists: self.lists.load(Ordering::SeqCst),
            creates: self.creates.load(Ordering::SeqCst),
            deletes: self.deletes.load(Ordering::SeqCst),
            created_bytes: self.created_bytes.load(Ordering::SeqCst),
        }
    }
}

#[async_trait]
impl Store for Counted {
    fn url(&self) -> &str {
        self.inner.url()
    }

    async fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError> {
        self.gets.fetch_add(1, Ordering::SeqCst);
        self.inner.get(key).await
    }

    async fn list(&self, prefix: &Key) -> Result<Vec<Key>, StoreError> {
        self.lists.fetch_add(1, Ordering::SeqCst);
        self.inner.list(prefix).await
    }

    async fn create(&self, key: &Key, content: Bytes) -> Result<Created, StoreError> {
        self.creates.fetch_add(1, Ordering::SeqCst);
        self.created_bytes.fetch_add(content.len(), Ordering::SeqCst);
        self.inner.create(key, content).await
    }

    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        self.deletes.fetch_add(1, Ordering::SeqCst);
        self.inner.delete(key).await
    }
}
