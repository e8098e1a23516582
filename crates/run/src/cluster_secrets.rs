//! [`ClusterReader`]: reads the Secrets of a cluster.

use std::collections::BTreeMap;

use async_trait::async_trait;

use konverge_base::{error::SharedError, model::ClusterName};
use konverge_cloud::secret_stores::{ClusterSecrets, SecretProblem};
use konverge_kubernetes::{Kubernetes, SecretData};
use konverge_secrets::SecretValue;

/// Reads the Secrets of a cluster. Without clusters, it reads nothing.
pub(crate) struct ClusterReader {
    pub kubernetes: Option<Kubernetes>,
    pub cluster: Option<ClusterName>,
}

#[async_trait]
impl ClusterSecrets for ClusterReader {
    async fn secret(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<BTreeMap<String, SecretValue>, SecretProblem> {
        let unavailable = |why: SharedError| SecretProblem::Unavailable { status: None, why };
        let kubernetes = self
            .kubernetes
            .as_ref()
            .ok_or_else(|| unavailable("no cluster is queried in this run".into()))?;
        let found = kubernetes.secret_data(self.cluster.as_ref(), namespace, name);
        match found
            .await
            .map_err(|failure| unavailable(failure.message.into()))?
        {
            SecretData::Found(data) => Ok(data),
            SecretData::Missing => Err(SecretProblem::Missing(None)),
            SecretData::Denied(failure) => Err(SecretProblem::Denied {
                status: Some(403),
                why: failure.message.into(),
            }),
        }
    }
}
