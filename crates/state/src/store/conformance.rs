//! The conformance test at the start of a run. It checks that a store creates a key atomically only if it is
//! absent, on which all guarantees of the state depend.

use bytes::Bytes;
use uuid::Uuid;

use super::{Created, Key, Store, StoreError};

/// Creates one key twice, lists it, reads it and deletes it. Five requests, once per run that writes.
///
/// # Errors
/// [`StoreError::Unsafe`] if both creates succeeded, if the key is missing from a listing, or if it reads
/// back differently; any other error of the store.
pub async fn probe(store: &dyn Store) -> Result<(), StoreError> {
    let folder = Key::from_components(&["probe"]);
    let key = folder.child(&Uuid::new_v4().simple().to_string());
    let result = tries(store, &folder, &key).await;
    let deleted = store.delete(&key).await;
    result?;
    deleted
}

async fn tries(store: &dyn Store, folder: &Key, key: &Key) -> Result<(), StoreError> {
    let not_safe = |why: &str| StoreError::Unsafe {
        url: store.url().to_owned(),
        why: why.to_owned(),
    };
    let (first, second) = (Bytes::from_static(b"first"), Bytes::from_static(b"second"));
    // If the first response was lost, the retry got `Exists` for this test's own write, so only the content
    // shows which create succeeded.
    store.create(key, first.clone()).await?;
    if store.create(key, second).await? == Created::Created {
        return Err(not_safe("it let two writers create the same key"));
    }
    match store.get(key).await? {
        Some(content) if content == first => {}
        Some(_) => return Err(not_safe("a refused create changed the content")),
        None => return Err(not_safe("a key that was created cannot be read")),
    }
    if !store.list(folder).await?.contains(key) {
        return Err(not_safe("its listing does not show a key that was created"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::MemoryStore, *};
    use async_trait::async_trait;

    /// Ignores the condition, as some S3-compatible stores do.
    struct Careless(MemoryStore);

    #[async_trait]
    impl Store for Careless {
        fn url(&self) -> &str {
            "careless:"
        }
        async fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError> {
            self.0.get(key).await
        }
        async fn list(&self, prefix: &Key) -> Result<Vec<Key>, StoreError> {
            self.0.list(prefix).await
        }
        async fn create(&self, key: &Key, content: Bytes) -> Result<Created, StoreError> {
            self.0.overwrite(key, content);
            Ok(Created::Created)
        }
        async fn delete(&self, key: &Key) -> Result<(), StoreError> {
            self.0.delete(key).await
        }
    }

    #[tokio::test]
    async fn a_careless_store_is_refused_and_a_good_one_left_clean() {
        let refusal = probe(&Careless(MemoryStore::default())).await.unwrap_err();
        assert!(matches!(refusal, StoreError::Unsafe { .. }), "{refusal}");
        let good = MemoryStore::default();
        probe(&good).await.unwrap();
        assert!(good.list(&Key::from_components(&[])).await.unwrap().is_empty());
    }
}
