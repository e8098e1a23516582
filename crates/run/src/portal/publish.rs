//! Publishes the site to a store: `portal.publish`.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    build::{BuildReport, SiteSources, build},
    site::{Site, SiteError},
};
use crate::RunContext;
use konverge_base::error::UserError;
use konverge_state::store::{self, Key, Store, StoreOptions};

/// A site whose files are in a store.
pub struct SiteStore {
    store: Arc<dyn Store>,
}

impl SiteStore {
    /// Opens the store of an address, with the credentials of this run. Sends no request yet.
    ///
    /// # Errors
    /// The address is invalid.
    pub async fn open(run: &RunContext, url: &str) -> Result<Self, UserError> {
        let options = StoreOptions {
            environment: run.env.clone(),
            checkout: run.checkout(),
            cancel: run.cancel.clone(),
            ..StoreOptions::default()
        };
        let store = store::open_foreign(url, &options).await?;
        Ok(Self { store })
    }
}

#[async_trait]
impl Site for SiteStore {
    async fn read(&self, path: &str) -> Result<Option<Vec<u8>>, SiteError> {
        Ok(self
            .store
            .get(&Key::from_listing(path))
            .await?
            .map(|bytes| bytes.to_vec()))
    }

    async fn write(&self, path: &str, content: Vec<u8>) -> Result<(), SiteError> {
        Ok(self
            .store
            .replace(&Key::from_listing(path), content.into())
            .await?)
    }

    async fn delete(&self, path: &str) -> Result<(), SiteError> {
        Ok(self.store.delete(&Key::from_listing(path)).await?)
    }
}

/// Builds the site in a store.
///
/// # Errors
/// See [`build`].
pub async fn publish(
    run: &RunContext,
    sources: SiteSources<'_>,
    url: &str,
) -> Result<BuildReport, UserError> {
    let site = SiteStore::open(run, url).await?;
    build(sources, &site).await
}
