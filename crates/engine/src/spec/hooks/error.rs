//! [`HookError`]: why a hook cannot run.

use konverge_base::{
    error::{ErrorKind, UserError},
    model::ResourceId,
};

/// A hook that cannot run as it is declared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct HookError {
    /// The object with the error, or the first one if hooks wait for each other.
    pub object: ResourceId,
    /// The error as it is shown.
    pub error: Box<UserError>,
}

impl HookError {
    pub(super) fn new(object: &ResourceId, what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            object: object.clone(),
            error: Box::new(UserError::new(ErrorKind::Spec, what).hint(hint)),
        }
    }
}

impl From<HookError> for UserError {
    fn from(error: HookError) -> Self {
        *error.error
    }
}
