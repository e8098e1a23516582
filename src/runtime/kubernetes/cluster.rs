//! One cluster as a run sees it: its API, the kinds it knows, and what the server's own part in an answer depends on.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::{OnceCell, RwLock};

use super::{
    access::{self, ClusterAccess},
    client::{Api, Request},
    discovery::Discovery,
    error::ApiError,
    wait::Watches,
};
use crate::{error::Failure, model::Digest};

/// Requests in flight unless configured: more only raise the server's latency (`reference/kubernetes.md` 4).
const IN_FLIGHT: usize = 16;

/// One cluster of a run.
pub(super) struct Cluster {
    pub api: Api,
    /// The server's address.
    server: String,
    discovery: RwLock<Option<Arc<Discovery>>>,
    environment: OnceCell<Environment>,
    schemas: OnceCell<Value>,
    pub watches: Watches,
}

/// What bears on the server's answers besides the object itself.
#[derive(Debug, Clone)]
pub(super) struct Environment {
    /// The server's version, such as `v1.34.2`.
    pub version: String,
    /// Over the mutating webhooks and policies.
    admission: Digest,
    /// The rules of the mutating webhooks; `None` if they can not be read.
    rules: Option<Vec<Value>>,
}

impl Cluster {
    pub async fn connect(access: &ClusterAccess) -> Result<Self, Failure> {
        let (client, server) = access::client(access).await?;
        let api = Api::new(client, access.name.clone(), access.requests.unwrap_or(IN_FLIGHT));
        Ok(Self {
            server,
            watches: Watches::new(api.clone()),
            api,
            discovery: RwLock::default(),
            environment: OnceCell::new(),
            schemas: OnceCell::new(),
        })
    }

    /// The server's address.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// An error as a person reads it.
    pub fn failure(&self, error: &ApiError, doing: &str) -> Failure {
        let failure = error.failure(&self.api.name, doing);
        if error.is_unreachable() {
            failure.within(&self.server)
        } else {
            failure
        }
    }

    /// The kinds the cluster knows; asked once, until [`Cluster::forget_discovery`].
    pub async fn discovery(&self) -> Result<Arc<Discovery>, Failure> {
        if let Some(known) = self.discovery.read().await.as_ref() {
            return Ok(Arc::clone(known));
        }
        let mut slot = self.discovery.write().await;
        if let Some(known) = slot.as_ref() {
            return Ok(Arc::clone(known));
        }
        let asked = Discovery::ask(&self.api).await;
        let asked = Arc::new(asked.map_err(|error| self.failure(&error, "asking which kinds it knows"))?);
        *slot = Some(Arc::clone(&asked));
        Ok(asked)
    }

    /// The next [`Cluster::discovery`] asks again: a CustomResourceDefinition was made.
    pub async fn forget_discovery(&self) {
        *self.discovery.write().await = None;
    }

    /// Version and mutating admission, asked once.
    pub async fn environment(&self) -> Result<&Environment, Failure> {
        self.environment.get_or_try_init(|| self.ask_environment()).await
    }

    async fn ask_environment(&self) -> Result<Environment, Failure> {
        let version = Request::get("/version");
        let webhooks = Request::get("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations");
        let (version, webhooks) = tokio::join!(self.api.call(&version), self.api.call(&webhooks));
        let version = version
            .map_err(|error| self.failure(&error, "asking for its version"))?
            .value;
        let rules = match webhooks {
            Ok(answer) => Some(mutating_rules(&answer.value)),
            Err(error) if error.is_code(403) || error.is_code(404) => None,
            Err(error) => return Err(self.failure(&error, "listing its mutating webhooks")),
        };
        Ok(Environment {
            version: version["gitVersion"].as_str().unwrap_or_default().to_owned(),
            admission: Digest::of_json(&json!(rules)),
            rules,
        })
    }

    /// What an echo of an object of this group and version holds under: the server's version, its mutating admission,
    /// and for kinds that are not built in the digest of their schema.
    pub async fn guard(&self, api_version: &str) -> Result<String, Failure> {
        let environment = self.environment().await?;
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        let schema = if is_built_in(group) {
            String::new()
        } else {
            self.schema_hash(api_version).await?
        };
        let parts = json!([environment.version, environment.admission, schema]);
        Ok(Digest::of_json(&parts).to_string()[..16].to_owned())
    }

    async fn schema_hash(&self, api_version: &str) -> Result<String, Failure> {
        let index = self.schemas.get_or_try_init(|| async {
            match self.api.call(&Request::get("/openapi/v3")).await {
                Ok(answer) => Ok(answer.value),
                // Without the right to read it no echo of a custom resource outlives this run.
                Err(error) if error.is_code(403) => {
                    Ok(json!({"unreadable": uuid::Uuid::new_v4().to_string()}))
                }
                Err(error) => Err(self.failure(&error, "asking for its schemas")),
            }
        });
        let index = index.await?;
        let entry = &index["paths"][format!("apis/{api_version}")]["serverRelativeURL"];
        Ok(entry
            .as_str()
            .map_or_else(|| index["unreadable"].to_string(), str::to_owned))
    }
}

impl Environment {
    /// Whether a mutating webhook may change objects of this kind; one that can not be looked up counts as none.
    pub fn may_mutate(&self, group: &str, plural: &str) -> bool {
        let matches = |rule: &Value, key: &str, value: &str| {
            let list = rule.get(key).and_then(Value::as_array);
            list.into_iter()
                .flatten()
                .any(|v| v == "*" || v == value || v == "*/*")
        };
        let rules = self.rules.iter().flatten();
        rules
            .into_iter()
            .any(|rule| matches(rule, "apiGroups", group) && matches(rule, "resources", plural))
    }
}

fn is_built_in(group: &str) -> bool {
    !group.contains('.') || group.ends_with(".k8s.io")
}

/// The rules of all webhooks, without what changes by itself (certificates, versions of the configuration).
fn mutating_rules(list: &Value) -> Vec<Value> {
    let mut rules = Vec::new();
    for configuration in list["items"].as_array().into_iter().flatten() {
        for webhook in configuration["webhooks"].as_array().into_iter().flatten() {
            let client = &webhook["clientConfig"];
            for rule in webhook["rules"].as_array().into_iter().flatten() {
                let mut rule = rule.clone();
                if let Some(map) = rule.as_object_mut() {
                    map.insert(
                        "of".to_owned(),
                        json!([
                            configuration["metadata"]["name"],
                            webhook["name"],
                            client["url"],
                            client["service"],
                            webhook["namespaceSelector"],
                            webhook["objectSelector"],
                            webhook["matchConditions"],
                        ]),
                    );
                }
                rules.push(rule);
            }
        }
    }
    rules
}
