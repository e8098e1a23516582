//! The errors in a compiled Spec. Each has the path of the wrong value.

use konverge_base::error::{ErrorKind, UserError};

/// The error of an unusable Spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct SpecError {
    /// The error as it is shown.
    pub error: Box<UserError>,
    /// True if an object lacks a part of its identity, or the part is null. The usual cause is an option that is not
    /// set.
    pub is_unset: bool,
}

impl From<UserError> for SpecError {
    fn from(error: UserError) -> Self {
        Self {
            error: Box::new(error),
            is_unset: false,
        }
    }
}

impl From<SpecError> for UserError {
    fn from(error: SpecError) -> Self {
        *error.error
    }
}

/// Returns the error of a value with the wrong type or structure. The path starts at the top of the Spec, such as
/// `resources[3].attributes.kind`; it is empty for the top itself.
pub(super) fn shape(path: &str, message: String) -> SpecError {
    let failure = at(path, message);
    let failure = if path.is_empty() {
        failure.hint(
            "print the resources as a list, or under `resources:`, each with `id`, `type` and `attributes`",
        )
    } else {
        failure
    };
    failure.into()
}

/// Returns the error of an object that lacks a part of its identity.
pub(super) fn unset(path: &str, message: String) -> SpecError {
    SpecError {
        error: Box::new(at(path, message)),
        is_unset: true,
    }
}

fn at(path: &str, message: String) -> UserError {
    let failure = UserError::new(ErrorKind::Spec, message);
    if path.is_empty() {
        failure
    } else {
        failure.context(path)
    }
}
