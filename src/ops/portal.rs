//! The portal of `konverge serve`: reads the store, and compares with the commit that is checked out.

mod actions;
mod settings;

use std::sync::Arc;

pub use settings::ServedConfig;

use async_trait::async_trait;
use tokio::sync::Mutex;

use konverge_base::{error::UserError, model::StackId};
use konverge_config::PortalConfig;
use konverge_portal::{StackDetails, StackIndex, StateDifference};
use konverge_run::{
    RunContext, StateBackend,
    portal::{Head, HistoryRange, StackSources, read_difference, read_overview, read_stack},
};
use konverge_serve::PortalSource;

/// The states of a store, and the checkout. Cheap to clone.
#[derive(Clone)]
pub struct StorePortal {
    run: RunContext,
    backend: StateBackend,
    /// The roles; `None`: there is no login.
    served: Option<Arc<ServedConfig>>,
    /// The head that was opened last. It is opened again when another commit is checked out.
    head: Arc<Mutex<Option<Arc<Head>>>>,
}

impl StorePortal {
    /// The portal of a store.
    pub fn new(run: RunContext, backend: StateBackend, served: Option<ServedConfig>) -> Self {
        Self {
            run,
            backend,
            served: served.map(Arc::new),
            head: Arc::default(),
        }
    }

    async fn head(&self) -> Result<Option<Arc<Head>>, UserError> {
        let mut kept = self.head.lock().await;
        let commit = Head::commit_of(&self.run);
        if kept.as_ref().map(|head| head.commit()) != commit.as_ref() {
            *kept = Head::open(&self.run)?.map(Arc::new);
        }
        Ok(kept.clone())
    }
}

#[async_trait]
impl PortalSource for StorePortal {
    async fn roles(&self) -> Result<Arc<PortalConfig>, UserError> {
        match &self.served {
            Some(served) => served.portal(),
            None => Ok(Arc::default()),
        }
    }

    async fn index(&self) -> Result<StackIndex, UserError> {
        let head = self.head().await?;
        read_overview(StackSources {
            backend: &self.backend,
            head: head.as_deref(),
        })
        .await
    }

    async fn stack(&self, index: &StackIndex, id: &StackId) -> Result<Option<StackDetails>, UserError> {
        let read = read_stack(&self.backend, index, id, HistoryRange::All).await?;
        Ok(read.map(|read| read.details))
    }

    async fn difference(
        &self,
        id: &StackId,
        from: u64,
        to: u64,
    ) -> Result<Option<StateDifference>, UserError> {
        read_difference(&self.backend, id, from, to).await
    }
}
