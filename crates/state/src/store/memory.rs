//! A store in memory, for experiments and tests.

use std::{collections::BTreeMap, sync::Mutex};

use async_trait::async_trait;
use bytes::Bytes;

use super::{Created, Key, Store, StoreError};

/// A store in the memory of this process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    objects: Mutex<BTreeMap<Key, Bytes>>,
}

impl MemoryStore {
    fn objects(&self) -> std::sync::MutexGuard<'_, BTreeMap<Key, Bytes>> {
        self.objects.lock().expect("no panic while the lock is held")
    }

    /// Replaces a document without any check, as a person who edits the bucket could.
    pub fn overwrite(&self, key: &Key, content: Bytes) {
        self.objects().insert(key.clone(), content);
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn url(&self) -> &str {
        "memory:"
    }

    async fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError> {
        Ok(self.objects().get(key).cloned())
    }

    async fn list(&self, prefix: &Key) -> Result<Vec<Key>, StoreError> {
        let below = format!("{prefix}/");
        Ok(self
            .objects()
            .keys()
            .filter(|key| prefix.as_str().is_empty() || key.as_str().starts_with(&below))
            .cloned()
            .collect())
    }

    async fn create(&self, key: &Key, content: Bytes) -> Result<Created, StoreError> {
        let mut objects = self.objects();
        if objects.contains_key(key) {
            return Ok(Created::Exists);
        }
        objects.insert(key.clone(), content);
        Ok(Created::Created)
    }

    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        self.objects().remove(key);
        Ok(())
    }

    async fn replace(&self, key: &Key, content: Bytes) -> Result<(), StoreError> {
        self.overwrite(key, content);
        Ok(())
    }
}
