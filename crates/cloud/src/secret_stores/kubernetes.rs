//! Secrets of a Kubernetes cluster. Kubernetes cannot separate the right to see a Secret from the right to
//! read its value, so a preview reads nothing.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;

use super::{FetchedSecret, SecretDocument, SecretProblem, SecretQuery, SecretRights, SecretStore};
use konverge_secrets::SecretValue;

/// Reads Secrets of a cluster.
#[async_trait]
pub trait ClusterSecrets: Send + Sync {
    /// Returns the decoded `data` of a Secret.
    ///
    /// # Errors
    /// The Secret does not exist, or the cluster cannot be reached or denies access.
    async fn secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<BTreeMap<String, SecretValue>, SecretProblem>;
}

/// The Secrets of a cluster as a store without versions. A path is `NAMESPACE/NAME`.
pub struct KubernetesStore {
    cluster: Arc<dyn ClusterSecrets>,
}

impl KubernetesStore {
    /// Creates a store of the Secrets of one cluster.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A cluster in which each Secret says its own namespace and name.
    struct NamedSecrets;

    #[async_trait]
    impl ClusterSecrets for NamedSecrets {
        async fn secret(
            &self,
            namespace: &str,
            name: &str,
        ) -> Result<BTreeMap<String, SecretValue>, SecretProblem> {
            let place = SecretValue::from(format!("{namespace} {name}"));
            Ok([("place".to_owned(), place)].into())
        }
    }

    #[tokio::test]
    async fn a_path_without_a_namespace_is_in_the_default_one_and_has_no_version() {
        let store = KubernetesStore::new(Arc::new(NamedSecrets));
        for (path, place) in [("pay/db", "pay db"), ("db", "default db"), ("pay/a/b", "pay a/b")] {
            let query = SecretQuery {
                path: path.to_owned(),
                version: None,
            };
            assert_eq!(store.version(&query, SecretRights::Versions).await, Ok(None));
            let fetched = store.read(&query).await.unwrap();
            let value = fetched.document.select(&["place".to_owned()]).unwrap();
            assert_eq!(value.expose_text(), Some(place), "{path}");
        }
    }
}
