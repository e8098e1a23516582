//! The OpenAPI documents of a cluster.

use konverge_base::{
    error::{ErrorKind, UserError},
    model::ClusterName,
};
use serde_json::Value;

use super::{client::ApiRequest, clusters::Kubernetes};

/// The OpenAPI documents of a cluster, and its version.
#[derive(Debug, Clone, PartialEq)]
pub struct ClusterSchemas {
    /// The version of the server, such as `v1.34.2`.
    pub version: String,
    /// The documents, one for each group and version.
    pub documents: Vec<Value>,
}

impl Kubernetes {
    /// Reads the OpenAPI v3 documents of all groups.
    ///
    /// # Errors
    /// The cluster cannot be reached, or denies access.
    pub async fn openapi(&self, name: &ClusterName) -> Result<ClusterSchemas, UserError> {
        let cluster = self.cluster(Some(name))?;
        let read = async |path: String| {
            let answer = cluster.api.call(&ApiRequest::get(path)).await;
            answer.map(|answer| answer.value).map_err(|error| {
                let failure = cluster.failure(&error, "reading the OpenAPI documents of the cluster");
                if error.is_code(403) {
failure.hint(
                        "allow the identity `get` on the path `/openapi/v3/*`: bind it to the ClusterRole `system:discovery`",
                    )
                } else {
failure
                }
            })
        };
        let index = read("/openapi/v3".to_owned()).await?;
        let mut documents = Vec::new();
        for (group, entry) in index["paths"].as_object().into_iter().flatten() {
            // Only `api/v1` and `apis/GROUP/VERSION` contain kinds.
            let parts: Vec<&str> = group.split('/').collect();
            if !matches!(parts.as_slice(), ["api", _] | ["apis", _, _]) {
                continue;
            }
            let path = entry["serverRelativeURL"].as_str().unwrap_or_default();
            if !path.starts_with("/openapi/v3/") {
                let what = "the index of OpenAPI documents names a path of another kind";
                return Err(UserError::new(ErrorKind::Kubernetes, what)
                    .hint("check that the address of the cluster is the address of its API server"));
            }
            documents.push(read(path.to_owned()).await?);
        }
        let version = read("/version".to_owned()).await?;
        let version = version["gitVersion"].as_str().unwrap_or_default().to_owned();
        Ok(ClusterSchemas { version, documents })
    }
}
