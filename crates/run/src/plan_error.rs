//! [`PlanError`]: why a target has no plan that can be applied.

use std::collections::BTreeSet;

use crate::compile_error::CompileError;
use konverge_base::{error::UserError, model::StackId};
use konverge_state::StateError;

/// The error of a target's plan: as it is shown, and the stacks that must be applied first.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct PlanError {
    /// The error as it is shown.
    pub error: Box<UserError>,
    /// The stacks that must be applied before a plan is accepted.
    pub waits_for: BTreeSet<StackId>,
    /// True if the stack reads outputs of these stacks, so that a later run applies it.
    pub is_held_back: bool,
}

impl PlanError {
    /// Returns the error of a plan that is refused until other stacks are applied.
    pub(crate) fn awaiting(error: UserError, waits_for: BTreeSet<StackId>) -> Self {
        Self {
            error: Box::new(error),
            waits_for,
            is_held_back: false,
        }
    }
}

impl From<UserError> for PlanError {
    fn from(error: UserError) -> Self {
        Self::awaiting(error, BTreeSet::new())
    }
}

impl From<CompileError> for PlanError {
    fn from(error: CompileError) -> Self {
        UserError::from(error).into()
    }
}

impl From<StateError> for PlanError {
    fn from(error: StateError) -> Self {
        UserError::from(error).into()
    }
}

impl From<PlanError> for UserError {
    fn from(error: PlanError) -> Self {
        *error.error
    }
}
