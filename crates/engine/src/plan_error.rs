//! [`PlanError`]: why a stack cannot be planned.

use crate::spec::hooks::HookError;
use konverge_base::error::UserError;

/// The error of a plan.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PlanError {
    /// A hook cannot run as it is declared.
    #[error(transparent)]
    Hook(#[from] HookError),
    /// Any other error.
    #[error(transparent)]
    Other(#[from] UserError),
}

impl From<PlanError> for UserError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Hook(error) => error.into(),
            PlanError::Other(error) => error,
        }
    }
}
