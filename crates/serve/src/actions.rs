//! [`PortalActions`]: who records requests, and does the few writes that the portal may do.

use async_trait::async_trait;
use konverge_base::{
    error::UserError,
    model::{RepoPath, StackId},
};
use konverge_portal::{AuditDocument, OperationInput, PortalOperation, PortalPerson};

/// A request of somebody who may make it.
#[derive(Debug, Clone)]
pub struct PortalRequest {
    /// The operation that is asked for.
    pub operation: PortalOperation,
    /// The stack with its folder; none for a freeze.
    pub stack: Option<(StackId, RepoPath)>,
    /// The input of the request.
    pub input: OperationInput,
    /// Who, as the login reported.
    pub person: PortalPerson,
    /// The address that the request came from.
    pub address: String,
    /// The client's address as proxies report it (`X-Forwarded-For`).
    pub forwarded_for: Option<String>,
}

/// The result of ending a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnlockResult {
    /// It is ended.
    Ended,
    /// It is not the one that the person saw; why.
    OtherLease(String),
}

/// Writes the audit, ends leases, and freezes applies. Nothing else of the portal writes.
#[async_trait]
pub trait PortalActions: Send + Sync {
    /// Records a request, before anything else happens. Returns the id of its entry.
    ///
    /// # Errors
    /// The store cannot be written.
    async fn record(&self, request: &PortalRequest) -> Result<String, UserError>;

    /// Records how a write of the portal ended.
    ///
    /// # Errors
    /// The store cannot be written.
    async fn record_outcome(&self, entry: &str, error: Option<&str>) -> Result<(), UserError>;

    /// Ends a lease.
    ///
    /// # Errors
    /// The store cannot be written.
    async fn unlock(
        &self,
        by: &PortalPerson,
        stack: &StackId,
        lease: &str,
        reason: &str,
    ) -> Result<UnlockResult, UserError>;

    /// Stops all applies.
    ///
    /// # Errors
    /// The store cannot be written.
    async fn freeze(&self, by: &PortalPerson, reason: &str) -> Result<(), UserError>;

    /// Lets all applies run again.
    ///
    /// # Errors
    /// The store cannot be written.
    async fn unfreeze(&self, by: &PortalPerson, reason: &str) -> Result<(), UserError>;

    /// The newest entries of the audit, at most so many.
    ///
    /// # Errors
    /// The store does not answer.
    async fn audit(&self, at_most: usize) -> Result<AuditDocument, UserError>;
}
