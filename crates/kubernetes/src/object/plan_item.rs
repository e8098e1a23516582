//! [`PlanItem`]: an item with its cluster and the type of its kind.

use std::{sync::Arc, time::Duration};

use serde_json::{Map, Value};

use super::super::{
    api::{
        cluster::Cluster,
        clusters::Kubernetes,
        discovery::ResourceType,
        error::ApiError,
        error_classify::{self, RefusalCause},
    },
    health::HealthRules,
};
use super::{
    object_ref::{self, ObjectRef},
    refused_fields::RefusedObject,
    secret_references::PlannedReferences,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{ClusterName, GroupKind, state::Recorded},
};
use konverge_engine::runtime::Item;
use konverge_secrets::{SecretPlaces, secret_texts};

/// The extension with a `healthPolicy`, and the key in it for assertions in KCL.
pub(crate) const HEALTH_POLICY: &str = "healthPolicy";
const ASSERTIONS: &str = "health.kcl";

/// An item with its cluster and the type of its kind.
pub(crate) struct PlanItem {
    pub cluster: Arc<Cluster>,
    /// The type; `None` if the cluster does not have the kind, or serves it only in other versions.
    pub of: Option<Arc<ResourceType>>,
    /// The type in the cluster's preferred version, if the cluster does not serve the desired version.
    pub other: Option<Arc<ResourceType>>,
    /// The version of the API group whose server does not respond, if the kind is unknown for that reason.
    pub silent: Option<String>,
    pub name: ObjectRef,
    /// The assertions of the `healthPolicy`.
    pub health_policy: Option<String>,
    /// The references of the object to secrets, while the object is planned.
    pub references: Option<Arc<PlannedReferences>>,
    /// The paths with secret values outside a Secret's data, as desired and as last written.
    pub places: SecretPlaces,
}

/// Reasons why the kind of an item could not be looked up.
pub(crate) enum ResolveError {
    /// The cluster of the item is not configured or unusable. Items of other clusters are not affected.
    NoCluster(UserError),
    /// The cluster does not respond.
    NoAnswer(UserError),
}

impl From<ResolveError> for UserError {
    fn from(error: ResolveError) -> Self {
        match error {
            ResolveError::NoCluster(failure) | ResolveError::NoAnswer(failure) => failure,
        }
    }
}

/// Returns the assertions in KCL of an item's `healthPolicy`, which a Kusion workspace sets.
fn health_policy(item: &Item) -> Option<String> {
    let recorded = || item.prior.as_ref().map(|prior| &prior.extensions);
    let extensions = item.desired.as_ref().map(|desired| &desired.extensions);
    assertions(extensions.or_else(recorded)?)
}

fn assertions(extensions: &Map<String, Value>) -> Option<String> {
    let policy = extensions.get(HEALTH_POLICY)?;
    policy.get(ASSERTIONS)?.as_str().map(str::to_owned)
}

impl PlanItem {
    /// Looks up the kind of an item. A desired object must be served in its version; a recorded one is looked
    /// up in any served version.
    pub(crate) async fn resolve(runtime: &Kubernetes, item: &Item) -> Result<Self, ResolveError> {
        let cluster = runtime.cluster(item.cluster.as_ref());
        let cluster = Arc::clone(cluster.map_err(ResolveError::NoCluster)?);
        let discovery = cluster.discovery().await.map_err(ResolveError::NoAnswer)?;
        let desired = item.desired.as_ref().map(|d| &d.attributes);
        let object = desired.or_else(|| item.prior.as_ref().map(|prior| &*prior.attributes));
        let nothing = Map::new();
        let object = object.unwrap_or(&nothing);
        let [api_version, kind] = ["apiVersion", "kind"].map(|key| object_ref::text(object, key));
        let exact = discovery.exact(api_version, kind).cloned();
        let any = discovery.any_version(api_version, kind).cloned();
        let (of, other) = match (exact, any) {
            (Some(exact), _) => (Some(exact), None),
            (None, any) if desired.is_some() => (None, any),
            (None, any) => (any, None),
        };
        let name = match of.as_ref().or(other.as_ref()) {
            Some(of) => ObjectRef::from_object(object, of),
            None => ObjectRef {
                group: GroupKind::from_attributes(object).group.to_owned(),
                kind: kind.to_owned(),
                namespace: object_ref::metadata(object, "namespace").to_owned(),
                name: object_ref::metadata(object, "name").to_owned(),
            },
        };
        let silent = discovery
            .silent(&name.group)
            .filter(|_| of.is_none() && other.is_none());
        Ok(Self {
            cluster,
            of,
            other,
            silent: silent.map(str::to_owned),
            name,
            health_policy: health_policy(item),
            references: None,
            places: SecretPlaces::default(),
        })
    }

    /// Returns the item with the recorded `healthPolicy`, because an unchanged object has no desired resource
    /// to take it from.
    #[must_use]
    pub(crate) fn with_policy_of(mut self, recorded: Option<&Recorded>) -> Self {
        if let Some(recorded) = recorded {
            self.health_policy = assertions(&recorded.extensions);
        }
        self
    }

    /// Returns the secret texts in the object.
    pub(crate) fn secret_texts(&self, object: &Value) -> Vec<String> {
        let mut texts = secret_texts(object);
        texts.extend(self.places.texts(object));
        texts
    }

    /// Returns the readiness rules for the object.
    pub(crate) fn health_rules(&self, runtime: &Kubernetes) -> HealthRules {
        let rules = runtime.options.rules.clone();
        let rules = rules.with_field_manager(runtime.options.field_manager);
        match &self.health_policy {
            Some(code) => rules.with_policy(&format!("the `healthPolicy` of {}", self.title()), code),
            None => rules,
        }
    }

    /// Looks up the kind of an item until the cluster serves it or `stop` returns true, because a kind or a
    /// version that this run defined appears in discovery with a delay.
    pub(crate) async fn awaited(
        runtime: &Kubernetes,
        item: &Item,
        mut stop: impl FnMut(u32) -> bool,
    ) -> Result<Self, ResolveError> {
        let mut wait = Duration::from_millis(50);
        for attempt in 0.. {
            let subject = Self::resolve(runtime, item).await?;
            if subject.of.is_some() || stop(attempt) {
                return Ok(subject);
            }
            subject.cluster.api.interrupt.pause(wait).await;
            wait = (wait * 2).min(Duration::from_secs(2));
            subject.cluster.forget_discovery().await;
        }
        unreachable!("the loop ends by returning")
    }

    /// Returns the type by which the live object can be read.
    pub(crate) fn readable(&self) -> Option<&Arc<ResourceType>> {
        self.of.as_ref().or(self.other.as_ref())
    }

    /// Returns the error that the cluster does not serve the desired version.
    pub(crate) fn not_served(&self, api_version: &str) -> UserError {
        let kind = &self.name.kind;
        let message = match &self.other {
            Some(other) => format!(
                "the cluster does not serve `{kind}` as `{api_version}` (any more); it serves this kind as `{}`",
                other.api_version()
            ),
            None => format!(
                "cluster `{}` does not know the kind of {}",
                self.cluster.api.name,
                self.title()
            ),
        };
        UserError::new(ErrorKind::Spec, message)
    }

    /// Converts a refusal of the server to an error for the user.
    pub(crate) fn refusal(&self, error: &ApiError) -> UserError {
        error_classify::refusal(error, &self.cluster.api.name, &self.title())
    }

    /// Converts a refusal of `sent` to an error for the user. The hints name the writer of each field that
    /// the server names.
    pub(crate) fn refusal_of(&self, error: &ApiError, sent: &Value, live: Option<&Value>) -> UserError {
        let mut failure = self.refusal(error);
        let is_invalid = error_classify::cause(error) == RefusalCause::Invalid;
        let (Some(of), Some(status), true) = (&self.of, error.status(), is_invalid) else {
            return failure;
        };
        failure.hints = RefusedObject { of, sent, live }.hints(status);
        failure
    }

    /// Returns the cluster and the namespace of the object.
    pub(crate) fn namespace_key(&self) -> (ClusterName, String) {
        (self.cluster.api.name.clone(), self.name.namespace.clone())
    }

    /// Returns a title such as `Deployment `ns/web`` for messages.
    pub(crate) fn title(&self) -> String {
        match self.name.namespace() {
            Some(namespace) => format!("{} `{namespace}/{}`", self.name.kind, self.name.name),
            None => format!("{} `{}`", self.name.kind, self.name.name),
        }
    }
}
