//! The shared compile cache in the store of the states: entries under `cache/<digest>`, each in a [`SealedBox`]. A Spec
//! may contain the data of a Secret, and the default branch must only read entries that a run with the age identity
//! wrote.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use bytes::Bytes;

use crate::RunContext;
use konverge_base::{
    error::{UserError, chain},
    model::Digest,
};
use konverge_kcl::SharedCache;
use konverge_state::{
    IDENTITY_VARIABLE, SealedBox, StateStore,
    store::{Key, Store, StoreError},
};

/// A compile cache in a store.
pub(crate) struct RemoteCache {
    store: Arc<dyn Store>,
    vault: SealedBox,
    /// Set by the first failure, so that a store that does not respond, or has too few permissions, costs time only
    /// once.
    broken: AtomicBool,
}

impl RemoteCache {
    /// Opens the cache in the store of these states; `None` for a run without an age identity, because it cannot read
    /// the entries.
    ///
    /// # Errors
    /// The age identity is damaged.
    pub(crate) fn open(states: &StateStore, run: &RunContext) -> Result<Option<Self>, UserError> {
        let vault = SealedBox::from_identity(run.var(IDENTITY_VARIABLE))?;
        Ok(vault.map(|vault| Self::new(states.shared_store(), vault)))
    }

    fn new(store: Arc<dyn Store>, vault: SealedBox) -> Self {
        Self {
            store,
            vault,
            broken: AtomicBool::new(false),
        }
    }

    fn give_up_on_error<T>(&self, result: Result<T, StoreError>) -> Result<T, String> {
        result.map_err(|error| {
            self.broken.store(true, Ordering::Relaxed);
            format!("{}; this run continues without it", chain(&error))
        })
    }

    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }
}

fn entry_key(key: &Digest) -> Key {
    Key::from_components(&["cache", &key.to_string()])
}

#[async_trait]
impl SharedCache for RemoteCache {
    async fn get(&self, key: &Digest) -> Result<Option<Vec<u8>>, String> {
        if self.is_broken() {
            return Ok(None);
        }
        let found = self.give_up_on_error(self.store.get(&entry_key(key)).await)?;
        // An entry that cannot be decrypted counts as damaged, like an empty one: an earlier identity wrote it, or it
        // is truncated or forged.
        Ok(found.map(|shut| self.vault.open(&key.to_string(), &shut).unwrap_or_default()))
    }

    async fn put(&self, key: &Digest, entry: Vec<u8>) -> Result<(), String> {
        if self.is_broken() {
            return Ok(());
        }
        let shut = self
            .vault
            .seal(&key.to_string(), &entry)
            .map_err(|error| chain(&error))?;
        // An existing entry has the same content, so it is not an error.
        let created = self.store.create(&entry_key(key), Bytes::from(shut)).await;
        self.give_up_on_error(created).map(|_| ())
    }

    async fn remove(&self, key: &Digest) -> Result<(), String> {
        let deleted = self.store.delete(&entry_key(key)).await;
        deleted.map_err(|error| chain(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_kcl::{Cache, CacheAccess, Compiled};
    use konverge_state::{
        Sealer,
        store::{StoreOptions, open},
    };

    struct Machines {
        _folder: tempfile::TempDir,
        store: Arc<dyn Store>,
        identity: String,
    }

    impl Machines {
        async fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let url = format!("file://{}", folder.path().display());
            Self {
                store: open(&url, &StoreOptions::default()).await.unwrap(),
                identity: Sealer::generate().identity().unwrap(),
                _folder: folder,
            }
        }

        fn machine(&self, identity: &str, access: CacheAccess) -> Cache {
            let vault = SealedBox::from_identity(Some(identity)).unwrap().unwrap();
            let shared = Arc::new(RemoteCache::new(Arc::clone(&self.store), vault));
            Cache::new(None, Some(shared), access)
        }

        fn trusted_cache(&self) -> Cache {
            self.machine(&self.identity, CacheAccess::ReadWrite)
        }

        async fn stored(&self, key: &Digest) -> Option<Bytes> {
            self.store.get(&entry_key(key)).await.unwrap()
        }

        async fn replace(&self, key: &Digest, content: &[u8]) {
            self.store.delete(&entry_key(key)).await.unwrap();
            let content = Bytes::copy_from_slice(content);
            self.store.create(&entry_key(key), content).await.unwrap();
        }
    }

    fn compiled() -> Compiled {
        Compiled {
            documents: vec![serde_json::json!({"kind": "Secret", "data": {"p": "aHVudGVyMg=="}})],
            warnings: Vec::new(),
            shared: std::collections::BTreeSet::new(),
            notes: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_store_serves_two_machines_and_hides_what_it_holds() {
        let machines = Machines::new().await;
        let key = Digest::of_bytes(b"k");
        machines.trusted_cache().put(&key, &compiled()).await;
        assert_eq!(machines.trusted_cache().get(&key).await, Some(Ok(compiled())));
        let stored = machines.stored(&key).await.unwrap();
        assert!(
            !String::from_utf8_lossy(&stored).contains("aHVudGVyMg"),
            "{stored:?}"
        );
    }

    #[tokio::test]
    async fn what_is_damaged_or_not_ours_is_made_anew() {
        let machines = Machines::new().await;
        let (key, other) = (Digest::of_bytes(b"k"), Digest::of_bytes(b"other"));
        machines.trusted_cache().put(&key, &compiled()).await;
        let whole = machines.stored(&key).await.unwrap();
        machines.trusted_cache().put(&other, &Compiled::default()).await;
        let misplaced = machines.stored(&other).await.unwrap();
        let stranger = Sealer::generate().identity().unwrap();
        let poisoned: [&[u8]; 5] = [
            b"",
            b"age-encryption.org/v1\n",
            &whole[..whole.len() - 1],
            &misplaced,
            b"{}",
        ];
        for content in poisoned {
            machines.replace(&key, content).await;
            assert_eq!(machines.trusted_cache().get(&key).await, None);
            assert!(machines.stored(&key).await.is_none(), "it was taken away");
            machines.trusted_cache().put(&key, &compiled()).await;
            assert_eq!(machines.trusted_cache().get(&key).await, Some(Ok(compiled())));
        }
        assert_eq!(
            machines.machine(&stranger, CacheAccess::ReadOnly).get(&key).await,
            None
        );
    }

    #[tokio::test]
    async fn a_fork_reads_and_neither_writes_nor_takes_away() {
        let machines = Machines::new().await;
        let (key, poisoned) = (Digest::of_bytes(b"k"), Digest::of_bytes(b"p"));
        machines.trusted_cache().put(&key, &compiled()).await;
        machines.replace(&poisoned, b"poison").await;
        let fork = machines.machine(&machines.identity, CacheAccess::ReadOnly);
        let evil = Digest::of_bytes(b"evil");
        fork.put(&evil, &compiled()).await;
        assert_eq!(fork.get(&key).await, Some(Ok(compiled())));
        assert_eq!(fork.get(&poisoned).await, None);
        assert!(machines.stored(&evil).await.is_none());
        assert!(machines.stored(&poisoned).await.is_some());
    }
}
