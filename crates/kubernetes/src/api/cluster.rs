//! One cluster in a run: its API, its kinds, and the facts that influence its server's responses.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Value, json};
use tokio::sync::{OnceCell, RwLock};

use super::{
    client::{Api, ApiRequest, escape},
    cluster_identity::ClusterIdentity,
    connect::{self, ClusterAccess, ConnectedClient},
    discovery::{Discovery, ResourceType},
    error::ApiError,
    mutating_admission::Admission,
    noop_guard::Guard,
    options::Options,
    watches::Watches,
};
use konverge_base::{error::UserError, interrupt::Interrupt, model::built_in_groups};
use konverge_engine::runtime::RunNotes;
use konverge_secrets::Secrets;

/// The default limit of concurrent requests. More only increase the server's latency.
const IN_FLIGHT: usize = 16;

/// One cluster of a run.
pub(crate) struct Cluster {
    pub api: Api,
    /// The address of the server.
    pub server: String,
    /// True if the login may depend on the job: by a credentials plugin, or by Konverge instead of one.
    pub by_plugin: bool,
    /// Receives notes on the cluster as a whole.
    pub notes: RunNotes,
    discovery: RwLock<Option<Arc<Discovery>>>,
    identity: OnceCell<Option<ClusterIdentity>>,
    environment: OnceCell<ClusterEnvironment>,
    schemas: OnceCell<Option<Value>>,
    /// The labels of namespaces; `None` for a namespace that may not be read.
    namespaces: RwLock<HashMap<String, Option<Value>>>,
    pub watches: Watches,
}

/// Facts that influence the server's responses besides the object itself.
#[derive(Debug, Clone)]
pub(crate) struct ClusterEnvironment {
    /// The version of the server, such as `v1.34.2`.
    pub version: String,
    /// The mutating admission webhooks and policies.
    pub admission: Admission,
}

impl Cluster {
    pub(crate) async fn connect(
        access: &ClusterAccess,
        options: &Options,
        secrets: &Secrets,
    ) -> Result<Arc<Self>, UserError> {
        let ConnectedClient {
            client,
            server,
            by_plugin,
        } = connect::client(access, options, secrets).await?;
        let in_flight = access.requests.unwrap_or(IN_FLIGHT);
        let interrupt = Interrupt::new(options.cancel.clone());
        let api = Api::new(client, access.name.clone(), in_flight, interrupt);
        Ok(Arc::new(Self {
            server,
            by_plugin,
            notes: options.notes.clone(),
            watches: Watches::new(api.clone()),
            api,
            discovery: RwLock::default(),
            identity: OnceCell::new(),
            environment: OnceCell::new(),
            schemas: OnceCell::new(),
            namespaces: RwLock::default(),
        }))
    }

    /// Converts an error to one for the user.
    pub(crate) fn failure(&self, error: &ApiError, doing: &str) -> UserError {
        let failure = error.failure(&self.api.name, doing);
        if error.is_unreachable() {
            failure.context(&self.server)
        } else {
            failure
        }
    }

    /// Returns the identity of the cluster, independent of its name. It is queried once. `None` without
    /// permission.
    pub(crate) async fn identity(&self) -> Result<Option<&ClusterIdentity>, UserError> {
        let identity = self
            .identity
            .get_or_try_init(|| ClusterIdentity::ask(&self.api, &self.server, &self.notes))
            .await
            .map_err(|error| self.failure(&error, "reading the identity of the cluster"))?;
        Ok(identity.as_ref())
    }

    /// Returns the kinds of the cluster. They are queried once, and again after
    /// [`Cluster::forget_discovery`].
    pub(crate) async fn discovery(&self) -> Result<Arc<Discovery>, UserError> {
        if let Some(known) = self.discovery.read().await.as_ref() {
            return Ok(Arc::clone(known));
        }
        let mut slot = self.discovery.write().await;
        if let Some(known) = slot.as_ref() {
            return Ok(Arc::clone(known));
        }
        let asked = Discovery::ask(&self.api).await;
        let asked = Arc::new(asked.map_err(|error| self.failure(&error, "discovering API resources"))?);
        *slot = Some(Arc::clone(&asked));
        Ok(asked)
    }

    /// Drops the cached kinds, because a CustomResourceDefinition was created.
    pub(crate) async fn forget_discovery(&self) {
        *self.discovery.write().await = None;
    }

    /// Returns the server's version and the mutating admission, queried once.
    pub(crate) async fn environment(&self) -> Result<&ClusterEnvironment, UserError> {
        self.environment.get_or_try_init(|| self.ask_environment()).await
    }

    async fn ask_environment(&self) -> Result<ClusterEnvironment, UserError> {
        let discovery = self.discovery().await?;
        let version = ApiRequest::get("/version");
        let (version, admission) =
            tokio::join!(self.api.call(&version), Admission::ask(&self.api, &discovery));
        let version = version.map_err(|error| self.failure(&error, "asking for its version"))?;
        let admission = admission
            .map_err(|error| self.failure(&error, "listing mutating webhooks and admission policies"))?;
        Ok(ClusterEnvironment {
            version: version.value["gitVersion"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            admission,
        })
    }

    /// Returns the guard for objects of this type: the server's version, its mutating admission, the labels
    /// by which that selects, and for custom kinds the digest of the schema. An *unchanged* proof is valid
    /// only while the guard stays the same.
    pub(crate) async fn guard(&self, of: &ResourceType, namespace: Option<&str>) -> Result<Guard, UserError> {
        let environment = self.environment().await?;
        let (group, plural) = (&of.group, &of.plural);
        if environment.admission.may_change_unseen(group, plural) {
            return Ok(Guard::default());
        }
        let schema = if built_in_groups::is_built_in(group) {
            Some(String::new())
        } else {
            self.schema_hash(&of.api_version()).await?
        };
        let Some(schema) = schema else {
            return Ok(Guard::default());
        };
        let mut parts = vec![
            json!(environment.version),
            json!(environment.admission.digest),
            json!(schema),
        ];
        if let Some(namespace) = namespace.filter(|_| environment.admission.is_by_namespace(group, plural)) {
            let Some(labels) = self.namespace_labels(namespace).await? else {
                return Ok(Guard::default());
            };
            parts.push(labels);
        }
        let parameters = environment.admission.parameters(group, plural);
        if !parameters.is_empty() {
            parts.push(json!(parameters));
        }
        let by_labels = environment.admission.is_by_labels(group, plural);
        Ok(Guard::new(&Value::Array(parts), by_labels))
    }

    /// Returns true if the mutation of objects of a type depends on their namespace.
    pub(crate) async fn is_by_namespace(&self, of: &ResourceType) -> Result<bool, UserError> {
        let environment = self.environment().await?;
        Ok(environment.admission.is_by_namespace(&of.group, &of.plural))
    }

    /// Returns the labels of a namespace, queried once; `None` without permission to read it.
    async fn namespace_labels(&self, namespace: &str) -> Result<Option<Value>, UserError> {
        if let Some(known) = self.namespaces.read().await.get(namespace) {
            return Ok(known.clone());
        }
        let path = format!("/api/v1/namespaces/{}", escape(namespace));
        let labels = match self.api.find(path).await {
            Ok(found) => Some(found.unwrap_or_default()["metadata"]["labels"].take()),
            Err(error) if error.is_code(403) => None,
            Err(error) => return Err(self.failure(&error, "reading the labels of a namespace")),
        };
        let mut namespaces = self.namespaces.write().await;
        Ok(namespaces.entry(namespace.to_owned()).or_insert(labels).clone())
    }

    /// Returns the digest of a schema; `None` without permission to read schemas.
    async fn schema_hash(&self, api_version: &str) -> Result<Option<String>, UserError> {
        let index = self.schemas.get_or_try_init(|| async {
            match self.api.call(&ApiRequest::get("/openapi/v3")).await {
                Ok(answer) => Ok(Some(answer.value)),
                Err(error) if error.is_code(403) => Ok(None),
                Err(error) => Err(self.failure(&error, "asking for its schemas")),
            }
        });
        let Some(index) = index.await? else {
            return Ok(None);
        };
        let entry = &index["paths"][format!("apis/{api_version}")]["serverRelativeURL"];
        Ok(Some(entry.as_str().unwrap_or_default().to_owned()))
    }
}
