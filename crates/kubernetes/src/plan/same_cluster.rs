//! Checks that a stack is compared with the cluster to which it was applied. The state of a stack records the
//! identity of its clusters. On another cluster the plan stops with an error, because all objects would be
//! created again there.
//!
//! An applied object that still exists with its recorded uid proves the same without a request. The cluster's
//! identity is queried only if no such object exists; if that is not permitted, the plan stops.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize as _;
use serde_json::{Value, json};

use super::super::{
    api::{
        cluster::Cluster,
        cluster_identity::{ClusterIdentity, NEEDED_RIGHT},
        clusters::Kubernetes,
    },
    object::{fetch::RawObject, object_record::ObjectRecord},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{ClusterName, state::Recorded},
};
use konverge_engine::runtime::StackScope;

/// The key of the cluster identities in a stack's runtime data.
const CLUSTERS: &str = "kubernetes/clusters";

/// An applied object, with its live object.
pub(crate) struct AppliedObject<'a> {
    pub prior: &'a Recorded,
    /// The cluster to which the cluster name of the object leads now.
    pub cluster: &'a Cluster,
    pub live: Option<&'a RawObject>,
}

impl AppliedObject<'_> {
    /// Returns true if the applied object still exists.
    fn is_found(&self) -> bool {
        let recorded = ObjectRecord::uid_of(self.prior);
        let live = self.live.and_then(RawObject::parse);
        let live = live.as_ref().and_then(|live| live.get("metadata"));
        let uid = live.and_then(|metadata| Some(metadata.as_map()?.text("uid")));
        recorded.is_some_and(|recorded| !recorded.is_empty() && uid == Some(&recorded))
    }
}

/// Checks that applied objects are compared with the cluster of their last apply. `is_read` is false if the
/// live objects could not be read: then nothing is proven, and the caller returns the read error.
///
/// # Errors
/// A cluster name leads to another cluster now, or the cluster cannot be queried for its identity.
pub(crate) async fn check<'a>(
    scope: &StackScope,
    applied: impl Iterator<Item = AppliedObject<'a>>,
    is_read: bool,
) -> Result<(), UserError> {
    let mut proven = BTreeSet::new();
    let mut unconfirmed = BTreeMap::new();
    for object in applied {
        let name = &object.cluster.api.name;
        if proven.contains(name) {
            continue;
        }
        if object.is_found() {
            unconfirmed.remove(name);
            proven.insert(name);
        } else {
            unconfirmed.insert(name, object.cluster);
        }
    }
    for (name, cluster) in unconfirmed {
        let Some(before) = remembered(scope, name) else {
            continue;
        };
        match cluster.identity().await? {
            Some(now) if now.uid == before.uid => {}
            Some(now) => return Err(another_cluster(scope, name, &before, now)),
            None if is_read => return Err(unknown_cluster(scope, name, &before)),
            // Nothing is proven, but the error of the read itself stops the plan.
            None => {}
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
        "`{name}` is another cluster than the one that `{stack}` was applied to: the uid of kube-system is {} (at {}), but {} (at {}) is recorded",
        now.uid.escape_debug(),
        now.server,
        before.uid.escape_debug(),
        before.server.escape_debug()
    );
    UserError::new(ErrorKind::Policy, what)
        .hint(format!(
            "check the kubeconfig and the context of `{name}`: nothing was compared or written"
        ))
        .hint(format!(
            "if the stack is to move to this cluster: `konverge state rebind {stack} --cluster {name}`, then `konverge \
             preview {stack}` shows what is missing there"
        ))
}

fn unknown_cluster(scope: &StackScope, name: &ClusterName, before: &ClusterIdentity) -> UserError {
    let stack = &scope.stack;
    let what = format!(
        "whether `{name}` is still the cluster that `{stack}` was applied to (at {}) is unknown: none of its applied objects was found, and kube-system cannot be read",
        before.server.escape_debug()
    );
    UserError::new(ErrorKind::Policy, what)
        .hint(format!("{NEEDED_RIGHT}; until then the cluster cannot be compared, and nothing is written"))
        .hint(format!(
            "if it is the right cluster, and everything was deleted there: `konverge state rebind {stack} --cluster {name}`"
        ))
}

/// Returns the new runtime data with the identities of these clusters; `None` if they are already recorded.
pub(crate) async fn to_remember(
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
