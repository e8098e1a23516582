//! The identity of a cluster: the uid of its namespace `kube-system`, which is created once with the cluster.
//! A cluster's name in a kubeconfig does not identify it, because it may point to another server later.

use serde::{Deserialize, Serialize};

use super::{
    client::{Api, ApiRequest},
    error::ApiError,
};
use konverge_base::{error::chain, model::ClusterName};
use konverge_engine::runtime::RunNotes;

/// A cluster as recorded in a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterIdentity {
    /// The name of the cluster in the configuration.
    pub cluster: ClusterName,
    /// The uid of the namespace `kube-system`.
    pub uid: String,
    /// The address of the server.
    pub server: String,
}

impl ClusterIdentity {
    /// Queries the identity of a cluster; `None`, with a note, if it cannot be determined.
    pub(crate) async fn ask(api: &Api, server: &str, notes: &RunNotes) -> Result<Option<Self>, ApiError> {
        let request = ApiRequest::get("/api/v1/namespaces/kube-system");
        let answer = match api.call(&request).await {
            Ok(answer) => answer,
            Err(error) if error.is_code(403) || error.is_code(404) => {
                notes.warning(&format!(
                    "cannot determine the identity of cluster `{}`, so a change of cluster is not detected later: {}; {NEEDED_RIGHT}",
                    api.name,
                    chain(&error)
                ));
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let uid = answer.value["metadata"]["uid"].as_str();
        Ok(uid.map(|uid| Self {
            cluster: api.name.clone(),
            uid: uid.to_owned(),
            server: server.to_owned(),
        }))
    }
}

/// The permission that is needed to identify a cluster.
pub(crate) const NEEDED_RIGHT: &str = "it needs the right to `get` the namespace `kube-system`";
