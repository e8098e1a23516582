//! The key of the short hashes of secrets, which is created in the store at its first use.

use base64::Engine as _;
use serde::{Deserialize, Serialize};

use super::{StateError, StateStore, document_format::CreateResult, keys};
use konverge_secrets::HashKey;

#[derive(Serialize, Deserialize)]
struct KeyDocument {
    key: String,
}

impl StateStore {
    /// Reads the key of the short hashes, or creates it. Only for runs that may write.
    ///
    /// # Errors
    /// The store fails, or the document is damaged.
    pub async fn hash_key(&self) -> Result<HashKey, StateError> {
        if let Some(key) = self.existing_hash_key().await? {
            return Ok(key);
        }
        let fresh = HashKey::random();
        let body = KeyDocument {
            key: base64::engine::general_purpose::STANDARD.encode(fresh.to_bytes()),
        };
        match self.create("key", &keys::hash_key(), &body).await? {
            CreateResult::Ours => Ok(fresh),
            CreateResult::Theirs(bytes) => self.read_hash_key(&bytes),
        }
    }

    /// Reads the key of the short hashes, if it exists. For runs that write nothing.
    ///
    /// # Errors
    /// The store fails, or the document is damaged.
    pub async fn existing_hash_key(&self) -> Result<Option<HashKey>, StateError> {
        let bytes = self.get_or_copy(&keys::hash_key()).await?;
        bytes.map(|bytes| self.read_hash_key(&bytes)).transpose()
    }

    fn read_hash_key(&self, bytes: &[u8]) -> Result<HashKey, StateError> {
        let place = keys::hash_key();
        let (_, body): (_, KeyDocument) = self.envelopes.read("key", &place, bytes)?;
        base64::engine::general_purpose::STANDARD
            .decode(body.key)
            .ok()
            .and_then(|bytes| <[u8; 32]>::try_from(bytes).ok())
            .map(HashKey::from_bytes)
            .ok_or_else(|| StateError::damaged(&place, "it does not hold 32 bytes"))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{super::fixture, *};
    use crate::store::{MemoryStore, Store};

    #[tokio::test]
    async fn the_key_is_made_once_and_every_run_reads_the_same() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let run = || fixture::states(&store, &Arc::default());
        assert!(run().existing_hash_key().await.unwrap().is_none());
        assert!(
            store.get(&keys::hash_key()).await.unwrap().is_none(),
            "reading makes nothing"
        );
        let made = run().hash_key().await.unwrap().to_bytes();
        assert_eq!(run().existing_hash_key().await.unwrap().unwrap().to_bytes(), made);
        assert_eq!(run().hash_key().await.unwrap().to_bytes(), made);
    }

    #[tokio::test]
    async fn a_key_of_another_length_is_damaged() {
        for (length, is_read) in [(31, false), (32, true), (33, false)] {
            let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
            let states = fixture::states(&store, &Arc::default());
            let body = KeyDocument {
                key: base64::engine::general_purpose::STANDARD.encode(vec![7; length]),
            };
            let letter = states.letter("key", &keys::hash_key(), &body).unwrap();
            store.create(&keys::hash_key(), letter.bytes).await.unwrap();
            let read = states.existing_hash_key().await;
            assert_eq!(read.is_ok(), is_read, "{length}");
            assert!(is_read || matches!(read, Err(StateError::Damaged { .. })));
        }
    }
}
