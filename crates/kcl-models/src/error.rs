//! The errors of documents from which no model can be generated.

use konverge_base::error::{ErrorKind, UserError};

/// An error in a document or in the request. Names from a document are escaped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// The document contains nothing of this kind.
    #[error("the document has no {0}")]
    Nothing(&'static str),
    /// The CRD has an API version that servers no longer support.
    #[error("`{}` is an object of apiextensions.k8s.io/v1beta1, which no supported server reads", .0.escape_debug())]
    OldCrd(String),
    /// A part of the document is missing or has another form.
    #[error("{}: {what}", .place.escape_debug())]
    Form {
        /// The path in the document.
        place: String,
        /// The problem at this path.
        what: &'static str,
    },
    /// A reference whose target does not exist.
    #[error("{}: `$ref` names `{}`, which is not defined", .place.escape_debug(), .target.escape_debug())]
    Reference {
        /// The path in the document.
        place: String,
        /// The name of the target.
        target: String,
    },
    /// A schema that contains itself, or that has too many levels.
    #[error("{}: the schema has more than {} levels", .0.escape_debug(), crate::error::MOST_LEVELS)]
    TooDeep(String),
    /// The documents have too many properties.
    #[error("the document has more than {} properties", crate::error::MOST_PROPERTIES)]
    TooMany,
    /// Two different schemas have the same name.
    #[error("two different schemas are called `{}`", .0.escape_debug())]
    Twice(String),
    /// The requested kind does not exist.
    #[error("the document has no kind `{}`", .kind.escape_debug())]
    UnknownKind {
        /// The kind that was asked for.
        kind: String,
        /// Similar kinds that exist.
        known: Vec<String>,
    },
    /// The packages would import each other, which KCL does not allow.
    #[error("the packages {} would import each other", .0.join(", "))]
    Cycle(Vec<String>),
}

impl From<ModelError> for UserError {
    fn from(error: ModelError) -> Self {
        let failure = Self::from_error(ErrorKind::Layout, error.clone());
        match &error {
            ModelError::Nothing(_) => failure.hint(
                "a source is CRDs (YAML or JSON), OpenAPI documents, or the output of `terraform providers schema -json`",
            ),
            ModelError::OldCrd(_) => failure.hint("convert the CRD to apiextensions.k8s.io/v1"),
            ModelError::Form { .. } | ModelError::Reference { .. } => {
                failure.hint("correct the document, or leave this kind out with `--only KIND`")
            }
            ModelError::TooDeep(_) | ModelError::TooMany => {
                failure.hint("split the document, and import the kinds that you need")
            }
            ModelError::Twice(_) => failure.hint("import the documents one by one, each with its own `--into`"),
            ModelError::UnknownKind { known, .. } if !known.is_empty() => {
                let names: Vec<_> = known.iter().map(|name| name.escape_debug().to_string()).collect();
                failure.hint(format!("kinds with such a name: {}", names.join(", ")))
            }
            ModelError::UnknownKind { .. } => failure.hint("kinds are written as in a manifest, like `Application`"),
            ModelError::Cycle(_) => failure.hint("import the kinds one by one, each with its own `--into`"),
        }
    }
}

/// The maximum number of levels of a schema.
pub(crate) const MOST_LEVELS: usize = 100;

/// The maximum number of properties in all schemas of one import.
pub(crate) const MOST_PROPERTIES: usize = 400_000;
