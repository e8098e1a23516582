//! The portal of `konverge serve`: reads the store, and compares its states with the commit that is checked out.

mod actions;
mod settings;

use std::sync::Arc;

pub use settings::ServedConfig;

use async_trait::async_trait;
use tokio::sync::Mutex;

use konverge_base::{error::UserError, model::StackId};
use konverge_config::{Config, PortalConfig};
use konverge_portal::{
    PermissionsDocument, RolloutsDocument, StackDetails, StackIndex, StateDifference, Trends,
};
use konverge_run::{
    RunContext, StateBackend,
    portal::{
        BranchConfig, Head, HistoryRange, SeenRecords, StackSources, forge, permissions, read_difference,
        read_overview, read_rollouts, read_stack, trends,
    },
};
use konverge_serve::PortalSource;

/// The states of a store, and the checkout. Cheap to clone.
#[derive(Clone)]
pub struct StorePortal {
    run: RunContext,
    backend: StateBackend,
    /// The configuration of the default branch; `None` if there is none here.
    served: Option<Arc<ServedConfig>>,
    /// The head that was opened last. It is opened again after another commit is checked out.
    head: Arc<Mutex<Option<Arc<Head>>>>,
}

impl StorePortal {
    /// Creates the portal of a store.
    pub fn new(run: RunContext, backend: StateBackend, served: Option<ServedConfig>) -> Self {
        Self {
            run,
            backend,
            served: served.map(Arc::new),
            head: Arc::default(),
        }
    }

    /// Returns the current configuration of the default branch.
    fn branch(&self) -> Result<Option<Arc<BranchConfig>>, UserError> {
        self.served.as_ref().map(|served| served.branch()).transpose()
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
        // Ignore an error: the configuration is only needed for links, and the stacks are shown without them.
        let branch = self.branch().ok().flatten();
        let forge = forge(&self.run, branch.as_deref());
        read_overview(StackSources {
            backend: &self.backend,
            head: head.as_deref(),
            forge: forge.as_ref(),
        })
        .await
    }

    async fn stack(&self, index: &StackIndex, id: &StackId) -> Result<Option<StackDetails>, UserError> {
        let Some(row) = index.overview.row(id) else {
            return Ok(None);
        };
        let seen = SeenRecords::of_stack(&self.backend, row).await;
        let read = read_stack(&self.backend, index, id, HistoryRange::All, &seen).await?;
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

    async fn rollouts(&self) -> Result<RolloutsDocument, UserError> {
        let branch = self.branch()?;
        let none = Config::default();
        let config = branch.as_ref().map_or(&none, |branch| &branch.config);
        read_rollouts(&self.backend, config).await
    }

    async fn trends(&self, index: &StackIndex, of_all: bool) -> Result<Trends, UserError> {
        let history = if of_all {
            Some(self.backend.states.drift_history().await?)
        } else {
            None
        };
        Ok(trends(index, history.as_ref()))
    }

    async fn permissions(&self) -> Result<Option<PermissionsDocument>, UserError> {
        Ok(self.branch()?.as_deref().map(permissions))
    }
}
