//! Publishes the site to a store: `portal.publish`.

use std::sync::Arc;

use async_trait::async_trait;

use super::{
    branch_config::{BranchConfig, forge},
    build::{BuildReport, build},
    head::Head,
    overview::StackSources,
    site::{Site, SiteError},
};
use konverge_base::{error::UserError, model::CommitId};
use konverge_repo::git::Repository;
use konverge_run::{RunContext, StateBackend};
use konverge_state::store::{self, Key, Store, StoreOptions};

/// A site whose files are in a store.
struct SiteStore(Arc<dyn Store>);

#[async_trait]
impl Site for SiteStore {
    async fn read(&self, path: &str) -> Result<Option<Vec<u8>>, SiteError> {
        let bytes = self.0.get(&Key::from_listing(path)).await?;
        Ok(bytes.map(|bytes| bytes.to_vec()))
    }

    async fn write(&self, path: &str, content: Vec<u8>) -> Result<(), SiteError> {
        Ok(self.0.replace(&Key::from_listing(path), content.into()).await?)
    }

    async fn delete(&self, path: &str) -> Result<(), SiteError> {
        Ok(self.0.delete(&Key::from_listing(path)).await?)
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
    let sources = StackSources {
        backend,
        head: head.as_ref(),
        forge: forge.as_ref(),
    };
    let options = StoreOptions {
        environment: run.env.clone(),
        checkout: run.checkout(),
        cancel: run.cancel.clone(),
        ..StoreOptions::default()
    };
    let site = SiteStore(store::open_foreign(url, &options).await?);
    build(sources, Some(&config), &site).await
}
