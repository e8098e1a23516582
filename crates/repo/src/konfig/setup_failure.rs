//! The errors of the compiler setup of a folder.

use konverge_base::{
    error::UserError,
    model::{file_source::SourceError, stack::SetupError},
};

/// The error for a compiler setup that cannot be determined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupFailure {
    /// A file of the folder is invalid; other folders are not affected.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// An object is missing or damaged.
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl From<SetupFailure> for UserError {
    fn from(failure: SetupFailure) -> Self {
        match failure {
            SetupFailure::Setup(error) => error.into(),
            SetupFailure::Source(error) => {
                Self::from(error).hint("`git fsck` shows what the repository lacks")
            }
        }
    }
}
