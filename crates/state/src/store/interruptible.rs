//! A store wrapper that cancels pending requests when the run is asked to stop.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::{Created, Key, Store, StoreError};
use konverge_base::interrupt::Interrupt;

/// Wraps a store, and cancels its requests when the run is asked to stop.
pub(super) struct Interruptible {
    pub store: Arc<dyn Store>,
    pub interrupt: Interrupt,
}

impl Interruptible {
    async fn unless_silent<T>(
        &self,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answer = self.interrupt.unless_silent(request).await;
        answer.unwrap_or_else(|why| {
            let url = self.store.url().to_owned();
            Err(StoreError::Stopped { url, why })
        })
    }
}

#[async_trait]
impl Store for Interruptible {
    fn url(&self) -> &str {
        self.store.url()
    }

    async fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError> {
        self.unless_silent(self.store.get(key)).await
    }

    async fn list(&self, prefix: &Key) -> Result<Vec<Key>, StoreError> {
        self.unless_silent(self.store.list(prefix)).await
    }

    async fn create(&self, key: &Key, content: Bytes) -> Result<Created, StoreError> {
        self.unless_silent(self.store.create(key, content)).await
    }

    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        self.unless_silent(self.store.delete(key)).await
    }

    async fn replace(&self, key: &Key, content: Bytes) -> Result<(), StoreError> {
        self.unless_silent(self.store.replace(key, content)).await
    }

    async fn remove_unfinished(&self, folder: &Key) -> Result<(), StoreError> {
        self.unless_silent(self.store.remove_unfinished(folder)).await
    }
}
