//! [`PlanError`]: why a stack cannot be planned.

use crate::spec::hooks::HookError;
use konverge_base::{error::UserError, model::ResourceId};

/// The error of a plan.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PlanError {
    /// A hook cannot run as it is declared.
    #[error("{error}")]
    Hook {
        /// The object with the error, if there is one.
        object: Option<ResourceId>,
        /// The error as it is shown.
        error: Box<UserError>,
    },
    /// Any other error.
    #[error(transparent)]
    Other(#[from] UserError),
}

impl From<HookError> for PlanError {
    fn from(error: HookError) -> Self {
        Self::Hook {
            object: error.object().cloned(),
            error: Box::new(error.into()),
        }
    }
}

impl From<PlanError> for UserError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Hook { error, .. } => *error,
            PlanError::Other(error) => error,
        }
    }
}
