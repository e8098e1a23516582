//! [`PortalSource`]: who reads what the portal shows.

use std::sync::Arc;

use async_trait::async_trait;
use konverge_base::{error::UserError, model::StackId};
use konverge_config::PortalConfig;
use konverge_portal::{
    PermissionsDocument, RolloutsDocument, StackDetails, StackIndex, StateDifference, Trends,
};

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

    /// How far the rollouts are.
    ///
    /// # Errors
    /// The store does not answer; a record is damaged.
    async fn rollouts(&self) -> Result<RolloutsDocument, UserError>;

    /// The numbers over time of the stacks of an index. `of_all`: it has every stack, so what is known of all together counts.
    ///
    /// # Errors
    /// The store does not answer.
    async fn trends(&self, index: &StackIndex, of_all: bool) -> Result<Trends, UserError>;

    /// Who may do what, as the default branch says now; `None` if there is none.
    ///
    /// # Errors
    /// Its configuration cannot be read.
    async fn permissions(&self) -> Result<Option<PermissionsDocument>, UserError>;
}
