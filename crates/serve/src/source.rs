//! [`PortalSource`]: who reads what the portal shows.

use std::sync::Arc;

use async_trait::async_trait;
use konverge_base::{error::UserError, model::StackId};
use konverge_config::PortalConfig;
use konverge_portal::{StackDetails, StackIndex, StateDifference};

/// Reads what the portal shows. It writes nothing.
#[async_trait]
pub trait PortalSource: Send + Sync {
    /// The roles of the default branch, as they are now. They are asked for with each request of a person.
    ///
    /// # Errors
    /// They cannot be read, so every request is refused.
    async fn roles(&self) -> Result<Arc<PortalConfig>, UserError>;

    /// All stacks, as they are recorded now.
    ///
    /// # Errors
    /// The store does not answer; the index is of another repository.
    async fn index(&self) -> Result<StackIndex, UserError>;

    /// One stack of the index; `None` if it has no such stack.
    ///
    /// # Errors
    /// The store does not answer.
    async fn stack(&self, index: &StackIndex, id: &StackId) -> Result<Option<StackDetails>, UserError>;

    /// The difference of two serials; `None` if one does not exist (any more).
    ///
    /// # Errors
    /// A serial cannot be read.
    async fn difference(
        &self,
        id: &StackId,
        from: u64,
        to: u64,
    ) -> Result<Option<StateDifference>, UserError>;
}
