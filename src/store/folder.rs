//! A folder of this machine, made by the first write: whoever only looks leaves nothing behind.

use std::{path::PathBuf, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::OnceCell;

use super::{Created, Key, Store, StoreError, StoreOptions, object};

struct Folder {
    url: String,
    path: PathBuf,
    options: StoreOptions,
    there: OnceCell<Arc<dyn Store>>,
}

/// A store in a folder.
///
/// # Errors
/// It can never be made: what stands above it is no folder.
pub(super) fn folder(path: PathBuf, options: &StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    let url = format!("file://{}", path.display().to_string().escape_debug());
    if let Some(above) = path
        .ancestors()
        .find(|above| above.exists())
        .filter(|above| !above.is_dir())
    {
        let why = format!("{} is no folder", above.display().to_string().escape_debug());
        return Err(StoreError::Config { url, why });
    }
    Ok(Arc::new(Folder {
        url,
        path,
        options: options.clone(),
        there: OnceCell::new(),
    }))
}

impl Folder {
    /// The store, if the folder is there.
    async fn looked(&self) -> Result<Option<&Arc<dyn Store>>, StoreError> {
        if self.there.get().is_none() && !self.path.exists() {
            return Ok(None);
        }
        self.made().await.map(Some)
    }

    async fn made(&self) -> Result<&Arc<dyn Store>, StoreError> {
        self.there
            .get_or_try_init(|| async { object::folder(&self.path, &self.options) })
            .await
    }
}

#[async_trait]
impl Store for Folder {
    fn url(&self) -> &str {
        &self.url
    }

    async fn get(&self, key: &Key) -> Result<Option<Bytes>, StoreError> {
        match self.looked().await? {
            Some(store) => store.get(key).await,
            None => Ok(None),
        }
    }

    async fn list(&self, prefix: &Key) -> Result<Vec<Key>, StoreError> {
        match self.looked().await? {
            Some(store) => store.list(prefix).await,
            None => Ok(Vec::new()),
        }
    }

    async fn create(&self, key: &Key, content: Bytes) -> Result<Created, StoreError> {
        self.made().await?.create(key, content).await
    }

    async fn delete(&self, key: &Key) -> Result<(), StoreError> {
        match self.looked().await? {
            Some(store) => store.delete(key).await,
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn looking_leaves_nothing_behind() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("states");
        let store = folder(path.clone(), &StoreOptions::default()).unwrap();
        let key = Key::of(&["a", "b"]);
        assert_eq!(store.get(&key).await.unwrap(), None);
        assert!(store.list(&Key::of(&["a"])).await.unwrap().is_empty());
        assert!(!path.exists());
        assert_eq!(
            store.create(&key, Bytes::from_static(b"x")).await.unwrap(),
            Created::Created
        );
        assert_eq!(store.list(&Key::of(&["a"])).await.unwrap(), [key]);
    }
}
