//! [`PortalSource`]: reads the data that the portal shows.

use std::sync::Arc;

use async_trait::async_trait;
use konverge_base::{error::UserError, model::StackId};
use konverge_config::PortalConfig;
use konverge_portal::{
    PermissionsDocument, RolloutsDocument, StackDetails, StackIndex, StateDifference, Trends,
};

/// Reads the data that the portal shows, and writes nothing.
#[async_trait]
pub trait PortalSource: Send + Sync {
    /// Returns the present roles of the default branch. Called for each request of a person.
    ///
    /// # Errors
    /// The roles cannot be read; then the request is refused.
    async fn roles(&self) -> Result<Arc<PortalConfig>, UserError>;

    /// Reads all stacks.
    ///
    /// # Errors
    /// The store cannot be read, or the index belongs to another repository.
    async fn index(&self) -> Result<StackIndex, UserError>;

    /// Reads one stack of the index; `None` if the index has no such stack.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn stack(&self, index: &StackIndex, id: &StackId) -> Result<Option<StackDetails>, UserError>;

    /// Computes the difference of two serials; `None` if one of them does not exist any more.
    ///
    /// # Errors
    /// A serial cannot be read.
    async fn difference(
        &self,
        id: &StackId,
        from: u64,
        to: u64,
    ) -> Result<Option<StateDifference>, UserError>;

    /// Reads the progress of all rollouts.
    ///
    /// # Errors
    /// The store cannot be read, or a record is damaged.
    async fn rollouts(&self) -> Result<RolloutsDocument, UserError>;

    /// Computes the trends of the stacks in an index. `of_all` means that the index has all stacks, so data that
    /// exists only for all stacks together is included.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn trends(&self, index: &StackIndex, of_all: bool) -> Result<Trends, UserError>;

    /// Reads the permissions of the default branch; `None` if there is none.
    ///
    /// # Errors
    /// The configuration cannot be read.
    async fn permissions(&self) -> Result<Option<PermissionsDocument>, UserError>;
}
