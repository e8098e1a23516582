//! [`Shared`]: what all requests share.

use std::sync::Arc;

use konverge_base::error::UserError;
use tokio::sync::Semaphore;

use super::{
    cache::{BodyCache, IndexCache, KnownIndex},
    metrics::Metrics,
    source::PortalSource,
};

/// The number of stacks and differences that are read at once: each may be large.
const READS_AT_ONCE: usize = 8;

/// What all requests share.
pub(super) struct Shared {
    source: Box<dyn PortalSource>,
    index: IndexCache,
    pub(super) bodies: BodyCache,
    pub(super) metrics: Metrics,
    pub(super) reads: Semaphore,
}

impl Shared {
    pub(super) fn new(source: Box<dyn PortalSource>) -> Self {
        Self {
            source,
            index: IndexCache::default(),
            bodies: BodyCache::default(),
            metrics: Metrics::default(),
            reads: Semaphore::new(READS_AT_ONCE),
        }
    }

    pub(super) fn source(&self) -> &dyn PortalSource {
        &*self.source
    }

    pub(super) async fn index(&self) -> Result<Arc<KnownIndex>, UserError> {
        self.index.read(&*self.source, &self.metrics).await
    }
}
