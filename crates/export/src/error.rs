//! Reasons why a stack cannot be exported. Each names the resource and a solution.

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{FieldPath, ResourceId, StackId, text::with_rest},
};

use crate::value_places::place_name;

/// An error of an export.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The resources of the Spec have no valid order.
    #[error(transparent)]
    Graph(Box<UserError>),
    /// The target cannot express some resources.
    #[error("`{stack}` cannot be exported for {target}: {}", list(.refusals))]
    Refused {
        /// The stack that cannot be exported.
        stack: StackId,
        /// The name of the target.
        target: &'static str,
        /// The refusals, one for each location, sorted.
        refusals: Vec<ExportRefusal>,
    },
    /// The resources belong to more than one cluster.
    #[error("`{stack}` has resources of {} clusters ({}), but an export can be for only one cluster", .clusters.len(), .clusters.join(", "))]
    Clusters {
        /// The stack that cannot be exported.
        stack: StackId,
        /// The names of the clusters, sorted.
        clusters: Vec<String>,
    },
    /// No resource is left to export.
    #[error("`{0}` has no Kubernetes object that can be exported")]
    Empty(StackId),
    /// Helm refuses this chart name.
    #[error("`{}` is not a valid chart name: {why}", .name.escape_debug())]
    ChartName {
        /// The chart name.
        name: String,
        /// The rule that the name breaks.
        why: &'static str,
    },
    /// Helm refuses this version.
    #[error("`{}` is not a version of a chart: {why}", .version.escape_debug())]
    ChartVersion {
        /// The chart version.
        version: String,
        /// The rule that the version breaks.
        why: String,
    },
}

/// A resource that cannot be exported.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[error("`{id}` {why}")]
pub struct ExportRefusal {
    /// The resource that cannot be exported.
    pub id: ResourceId,
    /// The reason why the resource cannot be exported.
    pub why: Why,
}

/// Reasons why a resource cannot be exported.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Why {
    /// The resource is a Terraform resource.
    #[error("is a Terraform resource")]
    Terraform,
    /// The resource contains a value that is known only after an apply: the path and the reference.
    #[error("needs a value at `{}` that only an apply knows: `{}`", .0.as_str().escape_debug(), .1.escape_debug())]
    Unknown(FieldPath, String),
    /// The resource contains data of a Secret, at this path.
    #[error("holds data of a Secret at `{}`", .0.as_str().escape_debug())]
    SecretData(FieldPath),
    /// The resource contains a copy of a Secret's data: the path, and the location in the Secret.
    #[error("contains at `{}` data of a Secret, copied from `{}`", .0.as_str().escape_debug(), .1.escape_debug())]
    SecretCopy(FieldPath, String),
    /// A value of a Secret is not a string.
    #[error("has a value at `{}` that must be a string", .0.as_str().escape_debug())]
    NotText(FieldPath),
    /// A reference is malformed, or is not allowed at its location.
    #[error("{0}")]
    Reference(String),
    /// The resource is not a Kubernetes object; this field is missing.
    #[error("has no `{0}`")]
    NotAnObject(&'static str),
    /// The resource has an annotation that would change how the target handles it.
    #[error("has the annotation `{}`, which changes how the tool handles it", .0.escape_debug())]
    Annotation(String),
    /// The resource is larger than the target can store: its size and the maximum, in bytes.
    #[error("makes a document of {0} bytes, and at most {1} can be stored")]
    TooLarge(usize, usize),
}

impl ExportRefusal {
    fn hint(&self) -> String {
        match &self.why {
            Why::SecretCopy(path, _) => format!(
                "let the pod take the value from the Secret (`valueFrom.secretKeyRef`, `envFrom`, a volume); or, if everyone may \
                 read the value, export it in clear text with `--in-clear '{}'`",
                place_name(&self.id, path).escape_debug()
            ),
            why => why.hint().to_owned(),
        }
    }
}

impl Why {
    fn hint(&self) -> &'static str {
        match self {
            Self::Terraform => {
                "apply Terraform resources with Konverge, and add `--leave-out terraform`: they are then listed in konverge.json"
            }
            Self::Unknown(..) => "a Helm chart takes such a value from its user: `konverge export helm`",
            Self::SecretData(_) => {
                "a Helm chart takes the data from its user: `konverge export helm`; `--leave-out secrets` leaves the Secrets out and lists them"
            }
            Self::SecretCopy(..) => "let the pod take the value from the Secret",
            Self::NotText(_) => "write the value as text",
            Self::Reference(_) => "write the reference as the page on the Spec shows",
            Self::NotAnObject(_) => {
                "`attributes` of a Kubernetes resource is the whole object, with a name of its own"
            }
            Self::Annotation(_) => "remove the annotation, or leave this stack to `konverge apply`",
            Self::TooLarge(..) => {
                "move large data out of the stack; objects that Argo CD or Flux reads may be larger"
            }
        }
    }
}

/// The maximum number of refusals that a message shows.
const SHOWN: usize = 20;

fn list(refusals: &[ExportRefusal]) -> String {
    with_rest(refusals.iter().map(ToString::to_string), SHOWN).join("; ")
}

impl From<ExportError> for UserError {
    fn from(error: ExportError) -> Self {
        let failure = |kind| UserError::new(kind, error.to_string());
        match &error {
            ExportError::Graph(graph) => (**graph).clone(),
            ExportError::Refused { refusals, .. } => {
                let mut hints: Vec<_> = refusals.iter().map(ExportRefusal::hint).collect();
                hints.sort_unstable();
                hints.dedup();
                hints.into_iter().fold(failure(ErrorKind::Spec), UserError::hint)
            }
            ExportError::Clusters { .. } => {
                failure(ErrorKind::Spec).hint("split the stack: one stack for each cluster can be exported")
            }
            ExportError::Empty(_) => {
                failure(ErrorKind::Spec).hint("`konverge build STACK` shows the resources of a stack")
            }
            ExportError::ChartName { .. } => failure(ErrorKind::Usage).hint("choose another with `--name`"),
            ExportError::ChartVersion { .. } => {
                failure(ErrorKind::Usage).hint("write a version like `1.2.3`, or leave `--chart-version` out")
            }
        }
    }
}
