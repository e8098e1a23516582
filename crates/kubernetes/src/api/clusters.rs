//! [`Kubernetes`]: the clusters of a run, by name.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    client::ApiRequest,
    cluster::Cluster,
    connect::ClusterAccess,
    options::{Conflicts, Options},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::ClusterName,
};
use konverge_cloud::StackIdentity;
use konverge_secrets::{SecretValue, Secrets, decode_base64};

/// The result of reading a Secret.
pub enum SecretData {
    /// The decoded `data` of the Secret.
    Found(BTreeMap<String, SecretValue>),
    /// The cluster has no such Secret.
    Missing,
    /// The run may not read the Secret.
    Denied(UserError),
}

/// One or more clusters. A clone uses the same connections.
#[derive(Clone)]
pub struct Kubernetes {
    /// The clusters. One with unusable credentials fails when it is used, without affecting the others.
    clusters: BTreeMap<ClusterName, Result<Arc<Cluster>, UserError>>,
    /// The connection settings, for new connections with another login.
    accesses: Arc<Vec<ClusterAccess>>,
    pub(crate) options: Options,
    pub(crate) secrets: Secrets,
}

impl Kubernetes {
    /// Reads the credentials of each cluster without a request. A cluster with unusable credentials fails
    /// when it is used.
    pub async fn connect(clusters: Vec<ClusterAccess>, options: Options, secrets: Secrets) -> Self {
        let mut connected = BTreeMap::new();
        for access in &clusters {
            let cluster = Cluster::connect(access, &options, &secrets).await;
            connected.insert(access.name.clone(), cluster);
        }
        Self {
            clusters: connected,
            accesses: Arc::new(clusters),
            options,
            secrets,
        }
    }

    /// Returns the clusters for stacks with a login of their own. Connections whose credentials are in the
    /// kubeconfig itself are reused.
    #[must_use]
    pub async fn under(&self, identity: Arc<StackIdentity>) -> Self {
        let options = Options {
            identity: Some(identity),
            ..self.options.clone()
        };
        let mut clusters = self.clusters.clone();
        for access in self.accesses.iter() {
            let is_same =
                |cluster: &Result<Arc<Cluster>, _>| matches!(cluster, Ok(cluster) if !cluster.by_plugin);
            if !clusters.get(&access.name).is_some_and(is_same) {
                let cluster = Cluster::connect(access, &options, &self.secrets).await;
                clusters.insert(access.name.clone(), cluster);
            }
        }
        Self {
            clusters,
            options,
            ..self.clone()
        }
    }

    /// Returns the clusters for a stack whose objects another field manager applies: a plan shows what that
    /// manager would write. Fields of other managers are taken over, as delivery controllers do.
    #[must_use]
    pub fn managed_by(&self, field_manager: &'static str) -> Self {
        let mut other = self.clone();
        other.options.field_manager = field_manager;
        other.options.conflicts = Conflicts::Write;
        other
    }

    /// Returns true if both names lead to the same server.
    ///
    /// # Errors
    /// A cluster is unknown, or its credentials are unusable.
    pub fn is_one_server(
        &self,
        one: Option<&ClusterName>,
        other: Option<&ClusterName>,
    ) -> Result<bool, UserError> {
        Ok(one == other || self.cluster(one)?.server == self.cluster(other)?.server)
    }

    /// Reads a path of the API. `None` if the object or its kind does not exist.
    ///
    /// # Errors
    /// The cluster cannot be reached, or denies access.
    pub async fn read_path(
        &self,
        cluster: Option<&ClusterName>,
        path: &str,
    ) -> Result<Option<Value>, UserError> {
        let cluster = self.cluster(cluster)?;
        let found = cluster.api.find(path).await;
        found.map_err(|error| cluster.failure(&error, &format!("reading `{path}`")))
    }

    /// Returns the maximum time of a wait for readiness.
    pub fn ready_timeout(&self) -> Duration {
        self.options.ready_timeout
    }

    /// Reads a Secret's decoded `data`.
    ///
    /// # Errors
    /// The cluster cannot be reached, or denies access.
    pub async fn secret_data(
        &self,
        cluster: Option<&ClusterName>,
        namespace: &str,
        name: &str,
    ) -> Result<SecretData, UserError> {
        let cluster = self.cluster(cluster)?;
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let secret = match cluster.api.find(path).await {
            Ok(Some(secret)) => secret,
            Ok(None) => return Ok(SecretData::Missing),
            Err(error) => {
                let failure = cluster.failure(&error, &format!("reading Secret `{namespace}/{name}`"));
                return if error.is_code(403) {
                    Ok(SecretData::Denied(failure))
                } else {
                    Err(failure)
                };
            }
        };
        let data = secret.get("data").and_then(Value::as_object);
        let fields = data.into_iter().flatten().filter_map(|(key, value)| {
            Some((key.clone(), SecretValue::new(decode_base64(value.as_str()?)?)))
        });
        Ok(SecretData::Found(fields.collect()))
    }

    /// Returns true if this job may read the Secrets of a namespace, without reading one.
    ///
    /// # Errors
    /// The cluster cannot be reached.
    pub async fn may_read_secrets(
        &self,
        cluster: Option<&ClusterName>,
        namespace: &str,
    ) -> Result<bool, UserError> {
        let cluster = self.cluster(cluster)?;
        let asked = json!({"namespace": namespace, "verb": "get", "resource": "secrets"});
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        });
        let request = ApiRequest {
            method: http::Method::POST,
            ..ApiRequest::get("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        };
        let answer = cluster.api.call(&request.body("application/json", &review)).await;
        let answer = answer.map_err(|error| cluster.failure(&error, "asking who this job is"))?;
        Ok(answer.value["status"]["allowed"] == true)
    }

    /// Returns the number of requests sent to all clusters so far, including retries.
    pub fn requests(&self) -> u64 {
        self.clusters
            .values()
            .flatten()
            .map(|cluster| cluster.api.sent_requests())
            .sum()
    }

    /// Queries the version of a cluster, and returns it with the address of the server.
    ///
    /// # Errors
    /// The credentials are unusable, or the cluster cannot be reached.
    pub async fn version(&self, name: &ClusterName) -> Result<String, UserError> {
        let cluster = self.cluster(Some(name))?;
        Ok(format!(
            "{}, {}",
            cluster.environment().await?.version,
            cluster.server
        ))
    }

    /// Returns the cluster with a name; without a name the only cluster.
    pub(crate) fn cluster(&self, name: Option<&ClusterName>) -> Result<&Arc<Cluster>, UserError> {
        let found = match name {
            Some(name) => self.clusters.get(name).ok_or_else(|| {
                let known: Vec<_> = self.clusters.keys().map(|name| format!("`{name}`")).collect();
                UserError::new(ErrorKind::Config, format!("there is no cluster `{name}`")).hint(format!(
                    "define the cluster in `konverge.yaml` under `clusters`; defined are: {}",
                    if known.is_empty() {
                        "none".to_owned()
                    } else {
                        known.join(", ")
                    }
                ))
            }),
            None => match self.clusters.values().next() {
                Some(only) if self.clusters.len() == 1 => Ok(only),
                Some(_) => Err(UserError::new(
                    ErrorKind::Config,
                    "there are several clusters, and the stack names none",
                )
                .hint("give the stack a `cluster` in `konverge.yaml` under `stacks`")),
                None => Err(UserError::new(ErrorKind::Config, "no cluster is configured")
                    .hint("name a cluster in `konverge.yaml` under `clusters`")),
            },
        };
        found?.as_ref().map_err(UserError::clone)
    }
}
