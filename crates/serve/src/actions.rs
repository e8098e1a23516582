//! [`PortalActions`]: records requests, and performs the few writes that the portal may do.

use async_trait::async_trait;
use konverge_base::{
    error::UserError,
    model::{RepoPath, StackId},
};
use konverge_portal::{AuditDocument, OperationInput, PortalOperation, PortalPerson};
use serde::{Deserialize, Serialize};

/// A request for an operation, by somebody who has the permission: the body of an entry in the store.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PortalRequest {
    /// The requested operation.
    pub operation: PortalOperation,
    /// The stack; `None` for a freeze.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<StackId>,
    /// The folder of the stack at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<RepoPath>,
    /// The input of the request.
    pub input: OperationInput,
    /// The person, as the login provider reported.
    pub person: PortalPerson,
    /// The address from which the request came.
    pub address: String,
    /// The client's address as proxies report it (`X-Forwarded-For`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forwarded_for: Option<String>,
}

/// The result of ending a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnlockResult {
    /// The lease was ended.
    Ended,
    /// The present lease is another one than the person saw; with an explanation.
    OtherLease(String),
}

/// Writes the audit log, ends leases, and freezes applies. The portal writes nothing else.
#[async_trait]
pub trait PortalActions: Send + Sync {
    /// Records a request in the audit log, before anything else happens. Returns the id of the entry.
    ///
    /// # Errors
    /// The store cannot be written.
    async fn record(&self, request: &PortalRequest) -> Result<String, UserError>;

    /// Records the outcome of a write.
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

    /// Returns the newest entries of the audit log, at most `at_most`.
    ///
    /// # Errors
    /// The store cannot be read.
    async fn audit(&self, at_most: usize) -> Result<AuditDocument, UserError>;
}
