//! The errors of the analysis.

use crate::konfig::SetupFailure;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{RepoPath, file_source::SourceError, stack::SetupError},
};

/// The error for inputs of one or all stacks that are unknown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AffectedError {
    /// An object is missing or damaged.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The files of the stack cannot be resolved.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The stack does not belong to this revision.
    #[error("there is no stack in `{0}` in this revision")]
    UnknownStack(RepoPath),
}

impl From<AffectedError> for UserError {
    fn from(error: AffectedError) -> Self {
        match error {
            AffectedError::Source(error) => SetupFailure::from(error).into(),
            AffectedError::Setup(error) => error.into(),
            AffectedError::UnknownStack(_) => UserError::new(ErrorKind::Layout, error.to_string()).hint(
                "`konverge affected --base HEAD~1` lists stacks; a new stack must be known to git: `git add`",
            ),
        }
    }
}
