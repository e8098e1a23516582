//! Secrets of a cluster. Who may read a Secret there may read its value, so a preview reads nothing at all.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;

use super::{FetchedSecret, SecretDocument, SecretProblem, SecretQuery, SecretRights, SecretStore};
use konverge_secrets::SecretValue;

/// Reads Secrets of a cluster.
#[async_trait]
pub trait ClusterSecrets: Send + Sync {
    /// The decoded `data` of a Secret.
    ///
    /// # Errors
    /// There is no such Secret; the cluster cannot be reached, or denies it.
    async fn secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<BTreeMap<String, SecretValue>, SecretProblem>;
}

/// The Secrets of a cluster as a store, by `NAMESPACE/NAME`. It has no versions.
pub struct KubernetesStore {
    cluster: Arc<dyn ClusterSecrets>,
}

impl KubernetesStore {
    /// A store of the Secrets of one cluster.
    pub fn new(cluster: Arc<dyn ClusterSecrets>) -> Self {
        Self { cluster }
    }
}

#[async_trait]
impl SecretStore for KubernetesStore {
    async fn version(&self, _: &SecretQuery, _: SecretRights) -> Result<Option<String>, SecretProblem> {
        Ok(None)
    }

    async fn read(&self, query: &SecretQuery) -> Result<FetchedSecret, SecretProblem> {
        let (namespace, name) = query.path.split_once('/').unwrap_or(("default", &query.path));
        let found = self.cluster.secret(namespace, name).await?;
        Ok(FetchedSecret {
            document: SecretDocument::Fields(found),
            version: None,
        })
    }
}
