//! The runtime: clusters by name, and the trait's methods, delegated to the modules.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use serde_json::Value;

use super::{
    apply, cluster::Cluster, cluster_identity, connect::ClusterAccess, health::HealthRules, object_ref, plan,
};
use crate::{
    checkout::Checkout,
    error::{ErrorKind, UserError},
    interrupt::Interrupt,
    model::{
        ClusterName, ResourceId,
        spec::{Resource, RuntimeKind},
    },
    runtime::{ApplySink, Granularity, Item, ObservedObject, PlannedResource, RunNotes, Runtime, StackScope},
    secrets::Secrets,
};

/// What to do about a field that the Spec sets and that another manager owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Conflicts {
    /// A field that the last apply wrote is restored. For any other field the resource fails, and the error
    /// names the owner.
    #[default]
    Restore,
    /// The resource fails, and the error names the owner.
    Stop,
    /// The field is taken over.
    Take,
    /// The field keeps its owner and value.
    Leave,
}

/// The options of the runtime.
#[derive(Debug, Clone)]
pub struct Options {
    /// The policy for fields that others own.
    pub conflicts: Conflicts,
    /// How long one resource may take to become ready, or to be deleted.
    pub ready_timeout: Duration,
    /// How long a failure that waiting does not fix must last before the wait ends.
    pub fail_early_after: Duration,
    /// Whether to wait for readiness at all.
    pub wait: bool,
    /// The user's own readiness rules.
    pub rules: HealthRules,
    /// The checkout; neither a kubeconfig nor what it names is taken from it.
    pub checkout: Checkout,
    /// Cancelled when the run is asked to stop: the run then no longer waits for a server that does not
    /// answer.
    pub cancel: CancellationToken,
    /// Receives notes on a cluster as a whole.
    pub notes: RunNotes,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            conflicts: Conflicts::Restore,
            ready_timeout: Duration::from_secs(600),
            fail_early_after: Duration::from_secs(30),
            wait: true,
            rules: HealthRules::default(),
            checkout: Checkout::default(),
            cancel: CancellationToken::new(),
            notes: RunNotes::default(),
        }
    }
}

/// One or more clusters.
pub struct Kubernetes {
    /// A cluster with unusable credentials fails when it is used, and does not affect the others.
    clusters: BTreeMap<ClusterName, Result<Arc<Cluster>, UserError>>,
    pub(super) options: Options,
    pub(super) secrets: Secrets,
}

impl Kubernetes {
    /// Reads the credentials of each cluster; sends nothing yet. A cluster that is unusable fails when it is
    /// used.
    pub async fn connect(clusters: Vec<ClusterAccess>, options: Options, secrets: Secrets) -> Self {
        let mut connected = BTreeMap::new();
        for access in clusters {
            let interrupt = Interrupt::new(options.cancel.clone());
            let cluster = Cluster::connect(&access, &options, &secrets, interrupt).await;
            connected.insert(access.name.clone(), cluster.map(Arc::new));
        }
        Self {
            clusters: connected,
            options,
            secrets,
        }
    }

    /// The number of requests sent to all clusters so far, including retries.
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
    /// Its credentials are unusable, or it cannot be reached.
    pub async fn version(&self, name: &ClusterName) -> Result<String, UserError> {
        let cluster = self.cluster(Some(name))?;
        Ok(format!(
            "{}, {}",
            cluster.environment().await?.version,
            cluster.server()
        ))
    }

    /// The cluster with a name; without a name the only one.
    pub(super) fn cluster(&self, name: Option<&ClusterName>) -> Result<&Arc<Cluster>, UserError> {
        let found = match name {
            Some(name) => self.clusters.get(name).ok_or_else(|| {
                let known: Vec<_> = self.clusters.keys().map(|name| format!("`{name}`")).collect();
                UserError::new(ErrorKind::Config, format!("there is no cluster `{name}`")).hint(format!(
                    "define it in `konverge.yaml` under `clusters`; there are: {}",
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
                    .hint("name one in `konverge.yaml` under `clusters`")),
            },
        };
        found?.as_ref().map_err(UserError::clone)
    }
}

#[async_trait]
impl Runtime for Kubernetes {
    fn kind(&self) -> RuntimeKind {
        RuntimeKind::Kubernetes
    }

    fn granularity(&self) -> Granularity {
        Granularity::Resource
    }

    async fn prepare(
        &self,
        cluster: Option<&ClusterName>,
        resources: Vec<Resource>,
    ) -> Result<Vec<(ResourceId, Resource)>, UserError> {
        let discovery = self.cluster(cluster)?.discovery().await?;
        let scopes = object_ref::Scopes::of(Some(&*discovery), &resources)?;
        resources
            .into_iter()
            .map(|resource| Ok((resource.id.clone(), object_ref::prepare(resource, &scopes)?)))
            .collect()
    }

    async fn observe(&self, scope: &StackScope, items: &[Item]) -> Result<Vec<ObservedObject>, UserError> {
        plan::observe(self, scope, items).await
    }

    async fn to_remember(
        &self,
        scope: &StackScope,
        clusters: &BTreeSet<ClusterName>,
    ) -> Result<Option<(String, Value)>, UserError> {
        cluster_identity::to_remember(self, scope, clusters).await
    }

    async fn plan(
        &self,
        scope: &StackScope,
        items: Vec<Item>,
    ) -> Result<Vec<Result<PlannedResource, UserError>>, UserError> {
        plan::plan(self, scope, items).await
    }

    async fn apply(
        &self,
        scope: &StackScope,
        planned: Vec<PlannedResource>,
        sink: &dyn ApplySink,
    ) -> Result<(), UserError> {
        for planned in planned {
            apply::apply(self, scope, planned, sink).await?;
        }
        Ok(())
    }
}
