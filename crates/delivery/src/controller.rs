//! The controller that delivers a stack: its objects in the cluster, whether they read the stack's artifact, and their
//! progress.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{ClusterName, StackId},
};
use konverge_config::{Config, DeliveryTool};
use konverge_export::stack_slug;
use konverge_kubernetes::{FIELD_MANAGER, Kubernetes};
use konverge_publish::{ArtifactReference, PublishError};

use super::{
    argocd, flux,
    progress::{DeliveryProblem, DeliveryProgress},
};

/// The tag of the artifact that a controller follows.
const TAG: &str = "live";

fn field_manager(tool: DeliveryTool) -> &'static str {
    match tool {
        DeliveryTool::Argocd => "argocd-controller",
        DeliveryTool::Flux => "kustomize-controller",
    }
}

/// Returns all field managers except `manager` that may have applied fields of a stack. After a killed run it is
/// unknown which of them did.
pub(super) fn managers_besides(manager: &str) -> Vec<&'static str> {
    let controllers = DeliveryTool::ALL.map(field_manager);
    let mut managers = vec![FIELD_MANAGER];
    managers.extend(controllers);
    managers.retain(|name| *name != manager);
    managers
}

/// The object of a controller that delivers a stack, and the artifact that the object reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeliveryTarget {
    pub tool: DeliveryTool,
    /// The name of the Application or the OCIRepository.
    pub name: String,
    pub namespace: String,
    /// The cluster of the controller.
    pub cluster: Option<ClusterName>,
    /// The reference of the artifact without its tag: `oci://HOST/NAME`.
    pub artifact: String,
    /// The tag that the object follows.
    pub tag: String,
}

/// The objects of a controller in the cluster.
#[derive(Debug)]
pub(crate) enum ControllerObjects {
    /// An Application of Argo CD.
    Argocd(Value),
    /// An OCIRepository, and the Kustomizations that read from it.
    Flux(Value, Vec<Value>),
}

impl DeliveryTarget {
    /// Creates the target of a stack from the configuration.
    pub(crate) fn new(
        config: &Config,
        tool: DeliveryTool,
        stack: &StackId,
        own: Option<&ClusterName>,
    ) -> Self {
        let name = stack_slug(stack);
        let delivery = &config.delivery;
        Self {
            tool,
            namespace: delivery.namespace(tool).to_owned(),
            cluster: delivery.cluster.as_ref().or(own).cloned(),
            artifact: format!("{}/{name}", delivery.registry.as_deref().unwrap_or_default()),
            tag: delivery.tag.clone().unwrap_or_else(|| TAG.to_owned()),
            name,
        }
    }

    /// Returns true if both targets are the same object of a controller.
    pub(crate) fn is_same_object(&self, other: &Self) -> bool {
        (self.tool, &self.name, &self.namespace, &self.cluster)
            == (other.tool, &other.name, &other.namespace, &other.cluster)
    }

    /// Returns the reference of the artifact with its tag.
    ///
    /// # Errors
    /// The configured address is invalid.
    pub(crate) fn reference(&self) -> Result<ArtifactReference, PublishError> {
        format!("{}:{}", self.artifact, self.tag).parse()
    }

    /// Returns the reference of the artifact with a digest instead of the tag.
    pub(crate) fn with_digest(&self, digest: &str) -> String {
        format!("{}:{}@{digest}", self.artifact, self.tag)
    }

    /// Returns the field manager with which the controller applies objects.
    pub(crate) fn field_manager(&self) -> &'static str {
        field_manager(self.tool)
    }

    /// Returns the API version, the kind and the plural of the object.
    fn kind(&self) -> [&'static str; 3] {
        match self.tool {
            DeliveryTool::Argocd => ["argoproj.io/v1alpha1", "Application", "applications"],
            DeliveryTool::Flux => ["source.toolkit.fluxcd.io/v1", "OCIRepository", "ocirepositories"],
        }
    }

    /// Returns the name of the object for messages, for example ``Application `argocd/shop-prod` ``.
    pub(crate) fn title(&self) -> String {
        let [_, kind, _] = self.kind();
        format!("{kind} `{}/{}`", self.namespace, self.name)
    }

    /// Returns the resource id of the Application or the OCIRepository.
    pub(crate) fn object_id(&self) -> String {
        let [api_version, kind, _] = self.kind();
        format!("{api_version}:{kind}:{}:{}", self.namespace, self.name)
    }

    /// Returns a hint with the command that writes the objects of the controller.
    pub(crate) fn export_hint(&self, stack: &StackId) -> String {
        let tool = self.tool.word();
        format!(
            "`konverge export {tool} {stack} --to delivery --source {} --source-revision {}` writes the object; apply it once",
            self.artifact, self.tag
        )
    }

    fn path(&self, group: &str, plural: &str) -> String {
        format!("/apis/{group}/namespaces/{}/{plural}", self.namespace)
    }

    /// Reads the object of the controller; `None` if it does not exist.
    ///
    /// # Errors
    /// The cluster cannot be reached, or denies the request.
    pub(crate) async fn object(&self, kubernetes: &Kubernetes) -> Result<Option<Value>, UserError> {
        let [api_version, _, plural] = self.kind();
        let path = format!("{}/{}", self.path(api_version, plural), self.name);
        kubernetes.read_path(self.cluster.as_ref(), &path).await
    }

    /// Reads the objects of the controller, and checks that they deliver the artifact. `cluster` is that of the stack's
    /// objects.
    ///
    /// # Errors
    /// The objects are missing, read another source, or would not apply what the plan shows.
    pub(crate) async fn objects(
        &self,
        kubernetes: &Kubernetes,
        stack: &StackId,
        cluster: Option<&ClusterName>,
    ) -> Result<ControllerObjects, UserError> {
        let Some(object) = self.object(kubernetes).await? else {
            let title = self.title();
            let what = format!("{title} is missing, so no controller would apply `{stack}`");
            return Err(UserError::new(ErrorKind::Kubernetes, what).hint(self.export_hint(stack)));
        };
        let is_own = kubernetes.is_one_server(self.cluster.as_ref(), cluster)?;
        let problem = match self.tool {
            DeliveryTool::Argocd => argocd::problem(&object, &self.artifact, &self.tag)
                .or_else(|| argocd::destination_problem(&object, is_own, cluster.map(ClusterName::as_str))),
            DeliveryTool::Flux => flux::source_problem(&object, &self.artifact, &self.tag),
        };
        if let Some(problem) = problem {
            return Err(self.refusal(&self.title(), &problem, stack));
        }
        if self.tool == DeliveryTool::Argocd {
            return Ok(ControllerObjects::Argocd(object));
        }
        let path = self.path("kustomize.toolkit.fluxcd.io/v1", "kustomizations");
        let listed = kubernetes.read_path(self.cluster.as_ref(), &path).await?;
        let kustomizations = flux::readers(&listed.unwrap_or_default(), &self.name);
        if kustomizations.is_empty() {
            let what = format!("no Kustomization in `{}` reads {}", self.namespace, self.title());
            return Err(UserError::new(ErrorKind::Kubernetes, what).hint(self.export_hint(stack)));
        }
        for one in &kustomizations {
            if let Some(problem) = flux::kustomization_problem(one, is_own) {
                let name = one["metadata"]["name"].as_str().unwrap_or_default();
                let title = format!("Kustomization `{}/{name}`", self.namespace);
                return Err(self.refusal(&title, &problem, stack));
            }
        }
        Ok(ControllerObjects::Flux(object, kustomizations))
    }

    fn refusal(&self, title: &str, problem: &DeliveryProblem, stack: &StackId) -> UserError {
        let DeliveryProblem { what, remedy } = problem;
        let hint = remedy.clone().unwrap_or_else(|| self.export_hint(stack));
        UserError::new(ErrorKind::Policy, format!("{title}: {what}")).hint(hint)
    }
}

impl ControllerObjects {
    /// Returns how far the controller has applied an artifact.
    pub(crate) fn progress(&self, digest: &str) -> DeliveryProgress {
        match self {
            Self::Argocd(application) => argocd::progress(application, digest),
            Self::Flux(source, kustomizations) => flux::progress(source, kustomizations, digest),
        }
    }

    /// Returns true if the controller deletes objects that leave the artifact.
    pub(crate) fn prunes(&self) -> bool {
        match self {
            Self::Argocd(application) => argocd::prunes(application),
            Self::Flux(_, kustomizations) => kustomizations.iter().all(flux::prunes),
        }
    }

    /// Returns the first file that no object of the controller reads.
    pub(crate) fn unread<'f>(&self, files: impl Iterator<Item = &'f String>) -> Option<&'f String> {
        let mut files = files.filter(|file| file.starts_with("manifests/"));
        match self {
            Self::Argocd(_) => None,
            Self::Flux(_, kustomizations) => {
                files.find(|file| !kustomizations.iter().any(|one| flux::reads(one, file)))
            }
        }
    }
}
