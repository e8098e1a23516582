//! Publishes the site to a store: `portal.publish`.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    branch_config::{BranchConfig, forge},
    build::{BuildReport, SiteSources, build},
    head::Head,
    overview::StackSources,
    site::{Site, SiteError},
};
use konverge_base::{error::UserError, model::CommitId};
use konverge_repo::git::Repository;
use konverge_run::{RunContext, StateBackend};
use konverge_state::store::{self, Key, Store, StoreOptions};

/// A site whose files are in a store.
struct SiteStore {
    store: Arc<dyn Store>,
}

impl SiteStore {
    /// Opens the store of an address, with the credentials of this run. Sends no request yet.
    ///
    /// # Errors
    /// The address is invalid.
    async fn open(run: &RunContext, url: &str) -> Result<Self, UserError> {
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

/// Builds the site of a commit of the default branch in a store.
///
/// # Errors
/// The commit or its `konverge.yaml` cannot be read, or the address is invalid; see also [`build`].
pub async fn publish(
    run: &RunContext,
    repository: &Repository,
    backend: &StateBackend,
    commit: &CommitId,
    url: &str,
) -> Result<BuildReport, UserError> {
    let config = BranchConfig::load_at(repository, commit.clone())?;
    let head = Head::open_commit(run, repository, commit.clone())?;
    let forge = forge(run, Some(&config));
    let stacks = StackSources {
        backend,
        head: head.as_ref(),
        forge: forge.as_ref(),
    };
    let sources = SiteSources {
        stacks,
        config: Some(&config),
    };
    let site = SiteStore::open(run, url).await?;
    build(sources, &site).await
}
