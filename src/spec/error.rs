//! What can be wrong with a compiled Spec, always with the path of the fault.

use crate::{
    error::{ErrorKind, UserError},
    model::ResourceId,
};

/// A Spec that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// A text that is neither YAML nor JSON.
    #[error("{message}")]
    Text {
        /// The file.
        file: String,
        /// Line from 1, if known.
        line: Option<u32>,
        /// Column from 1, if known.
        column: Option<u32>,
        /// What is wrong.
        message: String,
    },
    /// A value of another form than it must have.
    #[error("{}{message}", at(.path))]
    Shape {
        /// From the top of the Spec, as `resources[3].attributes.kind`; empty for the top itself.
        path: String,
        /// What is wrong.
        message: String,
    },
    /// Two resources have one id.
    #[error("{path}: the id `{id}` is already that of {earlier}")]
    Duplicate {
        /// The second.
        path: String,
        /// The first.
        earlier: String,
        /// The id.
        id: ResourceId,
    },
    /// A reference into a secret store that nothing resolves.
    #[error("{path}: `{reference}` is a reference to a secret, and no provider resolves it")]
    Secret {
        /// Where it stands.
        path: String,
        /// The reference itself, which is no secret.
        reference: String,
    },
    /// A value that would be shown as one that is not shown.
    #[error("{path}: `{mark}` is how Konverge marks a value that it does not show; no Spec may hold that")]
    Mark {
        /// Where it stands.
        path: String,
        /// The value.
        mark: String,
    },
}

fn at(path: &str) -> String {
    if path.is_empty() {
        String::new()
    } else {
        format!("{path}: ")
    }
}

impl From<SpecError> for UserError {
    fn from(error: SpecError) -> Self {
        let failure = UserError::new(ErrorKind::Spec, error.to_string());
        match error {
            SpecError::Text {
                file, line, column, ..
            } => failure.at(file, line, column),
            SpecError::Shape { path, .. } if path.is_empty() => failure.hint(
                "print the resources as a list, or under `resources:`, each with `id`, `type` and `attributes`",
            ),
            SpecError::Shape { .. } => failure,
            SpecError::Duplicate { id, .. } => {
                failure.hint(format!("give one of the two another name, or print `{id}` once"))
            }
            SpecError::Mark { .. } => failure
                .hint("give the value itself, or give that mapping another key beside it: reviewers must see what is applied"),
            SpecError::Secret { .. } => UserError {
                kind: ErrorKind::Secret,
                ..failure
            }
            .hint("keep the value in a Secret that the cluster's own operator fills, and refer to that by name"),
        }
    }
}
