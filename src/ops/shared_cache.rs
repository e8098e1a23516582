//! The compile cache's shared place is a store: entries under `cache/<digest>`.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    kcl::SharedCache,
    model::Digest,
    store::{Key, Store},
};

/// A store that holds compiled values.
pub(super) struct StoreCache {
    store: Arc<dyn Store>,
}

impl StoreCache {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }
}

fn place(key: &Digest) -> Key {
    Key::of(&["cache", &key.to_string()])
}

#[async_trait]
impl SharedCache for StoreCache {
    async fn get(&self, key: &Digest) -> Result<Option<Vec<u8>>, String> {
        let found = self.store.get(&place(key)).await;
        found
            .map(|entry| entry.map(|bytes| bytes.to_vec()))
            .map_err(|error| error.to_string())
    }

    async fn put(&self, key: &Digest, entry: Vec<u8>) -> Result<(), String> {
        // One that is there already says the same.
        let created = self.store.create(&place(key), Bytes::from(entry)).await;
        created.map(|_| ()).map_err(|error| error.to_string())
    }

    async fn remove(&self, key: &Digest) -> Result<(), String> {
        let deleted = self.store.delete(&place(key)).await;
        deleted.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        kcl::{Cache, CacheAccess, Compiled},
        store::{StoreOptions, open},
    };

    #[tokio::test]
    async fn a_store_serves_two_machines_and_a_damaged_entry_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("file://{}", folder.path().display());
        let store = open(&url, &StoreOptions::default()).await.unwrap();
        let machine = || {
            let shared = Arc::new(StoreCache::new(Arc::clone(&store)));
            Cache::new(None, Some(shared), CacheAccess::ReadWrite)
        };
        let key = Digest::of_bytes(b"k");
        let compiled = Compiled {
            documents: vec![serde_json::json!({"a": 1})],
            warnings: Vec::new(),
        };
        machine().put(&key, &compiled).await;
        assert_eq!(machine().get(&key).await, Some(compiled.clone()));
        store.delete(&place(&key)).await.unwrap();
        store
            .create(&place(&key), Bytes::from_static(b"konverge-comp"))
            .await
            .unwrap();
        assert_eq!(machine().get(&key).await, None);
        machine().put(&key, &compiled).await;
        assert_eq!(machine().get(&key).await, Some(compiled));
    }
}
