//! [`NamedKeyService`]: a service that wraps data keys. [`DataKeys`]: the unwrapped keys of a run.

use konverge_base::error::SharedError;
use std::sync::Arc;

use zeroize::Zeroizing;

use konverge_cloud::secret_stores::{KeyService, SecretProblem};

/// A key service under its name in `state.encrypt_to`.
#[derive(Clone)]
pub struct NamedKeyService {
    /// The name in `state.encrypt_to`.
    pub name: String,
    /// The service that wraps and unwraps.
    pub service: Arc<dyn KeyService>,
}

impl NamedKeyService {
    pub(super) async fn wrap_key(&self, secret: &[u8], context: &str) -> Result<String, SharedError> {
        self.service.wrap_key(secret, context).await.map_err(reason)
    }

    pub(super) async fn unwrap_key(
        &self,
        wrapped: &str,
        context: &str,
    ) -> Result<Zeroizing<Vec<u8>>, SharedError> {
        self.service.unwrap_key(wrapped, context).await.map_err(reason)
    }
}

/// Describes why a service failed, without any text that was sent to it.
fn reason(problem: SecretProblem) -> SharedError {
    match problem {
        SecretProblem::Unavailable { why, .. } => why.context("does not answer"),
        problem => problem.into(),
    }
}

/// The unwrapped data keys of a repository.
#[derive(Clone)]
pub struct DataKeys {
    pub(super) newest: age::x25519::Identity,
    pub(super) older: Vec<age::x25519::Identity>,
    /// The number of the newest key.
    pub(super) number: u64,
    /// The services that wrap the newest key, sorted.
    pub(super) wrapped_by: Vec<String>,
    /// The age recipients whose holders recognize the newest key without a service.
    pub(super) known_by: Vec<String>,
}

impl DataKeys {
    /// Returns the services that wrap the newest key, sorted.
    pub fn wrapped_by(&self) -> &[String] {
        &self.wrapped_by
    }

    /// Returns the keys, the newest first.
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
