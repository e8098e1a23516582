//! Secret stores with the values that Specs refer to, and key services that wrap other keys. Each store reads
//! one secret by its path; which stack may read it is decided elsewhere.
//!
//! The version of a secret is read without its value where the store allows it. A value is held in a
//! [`SecretValue`](konverge_secrets::SecretValue) as soon as the response was read.

mod alibaba_client;
mod alibaba_kms;
mod alibaba_secrets;
mod aws_client;
mod aws_kms;
mod aws_parameters;
mod aws_secrets;
mod azure_kms;
mod azure_secrets;
mod bearer_client;
mod env;
mod error;
mod google_kms;
mod google_secrets;
mod http;
mod json_cipher;
mod kubernetes;
mod secret_document;
mod sops;
mod sops_copy;
mod sops_file;
mod vault;
mod vault_client;
mod vault_transit;

use async_trait::async_trait;
use zeroize::Zeroizing;

pub use alibaba_client::AlibabaSettings;
pub use alibaba_kms::AlibabaKmsKey;
pub use alibaba_secrets::AlibabaSecretsStore;
pub use aws_client::AwsSettings;
pub use aws_kms::AwsKmsKey;
pub use aws_parameters::AwsParametersStore;
pub use aws_secrets::AwsSecretsStore;
pub use azure_kms::{AzureKey, AzureKeyPlace};
pub use azure_secrets::AzureSecretsStore;
pub use env::EnvStore;
pub use error::{SecretProblem, SecretStoreError};
pub use google_kms::GoogleKmsKey;
pub use google_secrets::GoogleSecretsStore;
pub use kubernetes::{ClusterSecrets, KubernetesStore};
pub use secret_document::{FetchedSecret, SecretDocument};
pub use sops::{RevisionFiles, SopsKey, SopsStore};
pub use sops_copy::{SopsCommon, SopsFileMark, SopsText};
pub use vault::{KvVersion, VaultStore};
pub use vault_client::{VaultLogin, VaultServer};
pub use vault_transit::{TransitKeyPlace, VaultTransitKey};

/// A secret to read in a store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretQuery {
    /// The path, normalized for the store.
    pub path: String,
    /// The version; `None` for the newest.
    pub version: Option<String>,
}

/// A key of a key service. It wraps small secrets, and never leaves the service.
#[async_trait]
pub trait KeyService: Send + Sync {
    /// Wraps a secret. The same context is needed to unwrap it.
    ///
    /// # Errors
    /// The service does not respond, or refuses the request.
    async fn wrap_key(&self, secret: &[u8], context: &str) -> Result<String, SecretProblem>;

    /// Unwraps the result of [`KeyService::wrap_key`].
    ///
    /// # Errors
    /// The service does not respond or refuses the request, or the secret was wrapped with another key or
    /// context.
    async fn unwrap_key(&self, wrapped: &str, context: &str) -> Result<Zeroizing<Vec<u8>>, SecretProblem>;
}

/// The rights with which a store is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretRights {
    /// The right to read versions only, as in a preview.
    Versions,
    /// The right to read values, as in an apply.
    Values,
}

/// A secret store.
#[async_trait]
pub trait SecretStore: Send + Sync {
    /// Logs in with these rights, without reading a secret. Does nothing for a store without a login.
    ///
    /// # Errors
    /// The store cannot be reached, or refuses the login.
    async fn log_in(&self, _: SecretRights) -> Result<(), SecretProblem> {
        Ok(())
    }

    /// Returns the version of a secret, without its value. `None` if the store has no versions.
    ///
    /// # Errors
    /// The store cannot be reached, denies access, or has no such secret.
    async fn version(
        &self,
        query: &SecretQuery,
        rights: SecretRights,
    ) -> Result<Option<String>, SecretProblem>;

    /// Reads a secret.
    ///
    /// # Errors
    /// The errors of [`SecretStore::version`].
    async fn read(&self, query: &SecretQuery) -> Result<FetchedSecret, SecretProblem>;
}
