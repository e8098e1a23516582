//! The identity of a cluster: the uid of its namespace `kube-system`, which is created once with the cluster.
//! The name of a cluster only says where a kubeconfig leads today. The state of a stack records the identity.
//! A stack that would be compared with another cluster is stopped, because there all of its objects would be
//! created again.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{client::ApiRequest, cluster::Cluster, runtime::Kubernetes};
use crate::{
    error::{ErrorKind, UserError},
    model::ClusterName,
    runtime::{Item, StackScope},
};

/// The key of the cluster identities in a stack's runtime data.
const CLUSTERS: &str = "kubernetes/clusters";

/// A cluster as recorded in a state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ClusterIdentity {
    /// Its name in the configuration.
    cluster: ClusterName,
    /// The uid of the namespace `kube-system`.
    uid: String,
    /// The address of the server.
    server: String,
}

impl ClusterIdentity {
    /// Queries a cluster; `None` without permission.
    pub async fn ask(cluster: &Cluster) -> Result<Option<Self>, UserError> {
        let request = ApiRequest::get("/api/v1/namespaces/kube-system");
        let answer = match cluster.api.call(&request).await {
            Ok(answer) => answer,
            Err(error) if error.is_code(403) || error.is_code(404) => return Ok(None),
            Err(error) => return Err(cluster.failure(&error, "asking which cluster it is")),
        };
        let uid = answer.value["metadata"]["uid"].as_str();
        Ok(uid.map(|uid| Self {
            cluster: cluster.api.name.clone(),
            uid: uid.to_owned(),
            server: cluster.server().to_owned(),
        }))
    }
}

/// Checks that the cluster name of each item still means the cluster of its last apply.
///
/// # Errors
/// It means another cluster; or the cluster cannot be queried.
pub(super) async fn check(runtime: &Kubernetes, scope: &StackScope, items: &[Item]) -> Result<(), UserError> {
    let applied = items.iter().filter(|item| item.prior.is_some());
    let names: BTreeSet<Option<&ClusterName>> = applied.map(|item| item.cluster.as_ref()).collect();
    for name in names {
        // A name without a cluster is the failure of each item.
        let Ok(cluster) = runtime.cluster(name) else {
            continue;
        };
        let Some(before) = remembered(scope, &cluster.api.name) else {
            continue;
        };
        let Some(now) = cluster.identity().await? else {
            continue;
        };
        if now.uid != before.uid {
            return Err(another_cluster(scope, &cluster.api.name, &before, now));
        }
    }
    Ok(())
}

fn recorded_identities(data: &BTreeMap<String, Value>) -> Vec<ClusterIdentity> {
    let recorded = data.get(CLUSTERS).map(Vec::deserialize);
    recorded.and_then(Result::ok).unwrap_or_default()
}

fn remembered(scope: &StackScope, name: &ClusterName) -> Option<ClusterIdentity> {
    let mut recorded = recorded_identities(&scope.data).into_iter();
    recorded.find(|identity| identity.cluster == *name)
}

/// Removes the recorded identity of one cluster name, or of all. Returns the removed names.
pub fn forget_clusters(data: &mut BTreeMap<String, Value>, name: Option<&ClusterName>) -> Vec<ClusterName> {
    let is_meant = |identity: &ClusterIdentity| name.is_none_or(|name| identity.cluster == *name);
    let (forgotten, kept): (Vec<_>, Vec<_>) = recorded_identities(data).into_iter().partition(is_meant);
    if !forgotten.is_empty() {
        data.insert(CLUSTERS.to_owned(), json!(kept));
    }
    forgotten.into_iter().map(|identity| identity.cluster).collect()
}

fn another_cluster(
    scope: &StackScope,
    name: &ClusterName,
    before: &ClusterIdentity,
    now: &ClusterIdentity,
) -> UserError {
    let stack = &scope.stack;
    let what = format!(
        "`{name}` is another cluster than the one that `{stack}` was applied to: its kube-system has the uid {} (at {}), \
         recorded is {} (at {})",
        now.uid.escape_debug(),
        now.server,
        before.uid.escape_debug(),
        before.server.escape_debug()
    );
    UserError::new(ErrorKind::Policy, what)
        .hint(format!(
            "check where the kubeconfig and the context of `{name}` lead: nothing was compared or written"
        ))
        .hint(format!(
            "if the stack is to move to this cluster: `konverge state rebind {stack} --cluster {name}`, then `konverge \
             preview {stack}` shows what is missing there"
        ))
}

/// The new runtime data with the identities of these clusters; `None` if they are already recorded.
pub(super) async fn to_remember(
    runtime: &Kubernetes,
    scope: &StackScope,
    clusters: &BTreeSet<ClusterName>,
) -> Result<Option<(String, Value)>, UserError> {
    let before = recorded_identities(&scope.data);
    let mut known = before.clone();
    for name in clusters {
        if let Some(identity) = runtime.cluster(Some(name))?.identity().await?
            && remembered(scope, name).is_none_or(|before| before.uid != identity.uid)
        {
            known.retain(|before| before.cluster != *name);
            known.push(identity.clone());
        }
    }
    known.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    let changed = before != known;
    Ok(changed.then(|| (CLUSTERS.to_owned(), json!(known))))
}
