//! [`KeyService`]: what wraps data keys; [`DataKeys`]: what a run has unwrapped.

use async_trait::async_trait;
use zeroize::Zeroizing;

/// A service that wraps small secrets with a key that never leaves it.
#[async_trait]
pub trait KeyService: Send + Sync {
    /// The key, as `state.encrypt_to` names it.
    fn name(&self) -> &str;

    /// Wraps a secret. The same context is needed to unwrap it.
    ///
    /// # Errors
    /// The service cannot be reached, or denies it.
    async fn wrap_key(&self, secret: &[u8], context: &str) -> Result<String, KeyServiceError>;

    /// Unwraps what [`KeyService::wrap_key`] gave.
    ///
    /// # Errors
    /// As [`KeyService::wrap_key`]; another key or context.
    async fn unwrap_key(&self, wrapped: &str, context: &str) -> Result<Zeroizing<Vec<u8>>, KeyServiceError>;
}

/// A key service failed. No message contains what was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyServiceError(pub String);

/// The data keys of a repository.
#[derive(Clone)]
pub struct DataKeys {
    pub(super) newest: age::x25519::Identity,
    pub(super) older: Vec<age::x25519::Identity>,
    /// The place of the newest in its row.
    pub(super) number: u64,
    /// The services that wrap it, sorted.
    pub(super) wrapped_by: Vec<String>,
    /// The age recipients whose holders know it without a service.
    pub(super) known_by: Vec<String>,
}

impl DataKeys {
    /// The services that wrap the newest, sorted.
    pub fn wrapped_by(&self) -> &[String] {
        &self.wrapped_by
    }

    /// The keys, the newest first.
    pub(super) fn identities(&self) -> impl Iterator<Item = &age::x25519::Identity> {
        std::iter::once(&self.newest).chain(&self.older)
    }
}

impl std::fmt::Debug for DataKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataKeys")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}
