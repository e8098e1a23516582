//! [`Shared`]: the state that all requests share.

use std::sync::Arc;

use konverge_base::error::UserError;
use konverge_config::PortalConfig;
use konverge_portal::html::PageMode;
use tokio::sync::Semaphore;

use super::{
    access::Access,
    actions::PortalActions,
    cache::{BodyCache, IndexCache, KnownIndex},
    login::Login,
    metrics::Metrics,
    source::PortalSource,
};

/// The maximum number of stacks and differences that are read at the same time, because each may be large.
const READS_AT_ONCE: usize = 8;

/// The state that all requests share.
pub(super) struct Shared {
    source: Box<dyn PortalSource>,
    index: IndexCache,
    /// The login; without it nobody can request an operation.
    login: Option<Login>,
    pub(super) bodies: BodyCache,
    pub(super) metrics: Metrics,
    pub(super) reads: Semaphore,
}

impl Shared {
    pub(super) fn new(source: Box<dyn PortalSource>, login: Option<Login>) -> Self {
        Self {
            source,
            index: IndexCache::default(),
            login,
            bodies: BodyCache::default(),
            metrics: Metrics::default(),
            reads: Semaphore::new(READS_AT_ONCE),
        }
    }

    pub(super) fn source(&self) -> &dyn PortalSource {
        &*self.source
    }

    pub(super) fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }

    pub(super) fn actions(&self) -> Option<&dyn PortalActions> {
        self.login().map(|login| &*login.actions)
    }

    /// Returns the present roles.
    pub(super) async fn roles(&self) -> Result<Arc<PortalConfig>, UserError> {
        self.source.roles().await
    }

    /// Returns the index with only the stacks that the sender may see.
    pub(super) async fn index(&self, access: &Access) -> Result<Arc<KnownIndex>, UserError> {
        let known = self.index.read(&*self.source, &self.metrics).await?;
        Ok(match access.patterns() {
            None => known,
            Some(patterns) => known.restricted(patterns, access),
        })
    }

    /// Empties the cache after a write.
    pub(super) async fn forget(&self) {
        self.index.forget().await;
        self.bodies.forget();
    }

    /// Returns the mode in which pages are rendered.
    pub(super) fn mode(&self) -> PageMode {
        match self.login {
            Some(_) => PageMode::Personal,
            None => PageMode::Served,
        }
    }
}
