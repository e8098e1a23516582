//! A store inside another store: every key lies below one folder.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::{Created, Key, Store, StoreError};

/// A part of a store: the keys below one folder, without the folder's name.
pub struct StorePart {
    store: Arc<dyn Store>,
    folder: Key,
    url: String,
}

impl StorePart {
    /// Creates the part of a store below a folder.
    pub fn new(store: Arc<dyn Store>, folder: Key) -> Self {
        let url = format!("{}/{folder}", store.url().trim_end_matches('/'));
        Self { store, folder, url }
    }

    fn whole(&self, key: &Key) -> Key {
        Key::from_listing(format!("{}/{key}", self.folder))
    }
}

#[async_trait]
impl Store for StorePart {
    fn url(&self) -> &str {
        &self.url
    }

    async fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError> {
        self.store.get(&self.whole(key)).await
    }

    async fn list(&self, prefix: &Key) -> Result<Vec<Key>, StoreError> {
        let keys = self.store.list(&self.whole(prefix)).await?;
        let names = keys.iter().map(Key::as_str);
        Ok(Key::listed_below(self.folder.as_str(), names))
    }

    async fn create(&self, key: &Key, content: Bytes) -> Result<Created, StoreError> {
        self.store.create(&self.whole(key), content).await
    }

    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        self.store.delete(&self.whole(key)).await
    }

    async fn replace(&self, key: &Key, content: Bytes) -> Result<(), StoreError> {
        self.store.replace(&self.whole(key), content).await
    }

    async fn remove_unfinished(&self, folder: &Key) -> Result<(), StoreError> {
        self.store.remove_unfinished(&self.whole(folder)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[tokio::test]
    async fn a_part_sees_its_own_keys_alone() {
        let whole: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let key = |parts: &[&str]| Key::from_components(parts);
        let part = |name| StorePart::new(Arc::clone(&whole), key(&["tests", name]));
        let (one, other) = (part("a"), part("ab"));
        let state = key(&["stacks", "x", "state"]);
        let created = async |part: &StorePart| part.create(&state, Bytes::from_static(b"1")).await.unwrap();
        assert_eq!(created(&one).await, Created::Created);
        assert_eq!(created(&one).await, Created::Exists);
        assert_eq!(created(&other).await, Created::Created);
        assert_eq!(
            one.list(&key(&["stacks"])).await.unwrap(),
            std::slice::from_ref(&state)
        );
        assert_eq!(whole.list(&key(&["stacks"])).await.unwrap(), []);
        one.delete(&state).await.unwrap();
        assert_eq!(one.get(&state).await.unwrap(), None);
        assert_eq!(other.get(&state).await.unwrap(), Some(Bytes::from_static(b"1")));
    }
}
