//! [`CompileError`]: why a stack has no Spec.

use konverge_base::{
    error::UserError,
    model::{StackId, stack::SetupError},
};
use konverge_engine::spec::SpecError;
use konverge_kcl::KclError;
use konverge_kusion::KusionError;

/// The error of a compilation: as it is shown, and its cause.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{error}")]
pub struct CompileError {
    /// The error as it is shown.
    pub error: Box<UserError>,
    /// The error of KCL, if that is the cause.
    pub kcl: Option<Box<KclError>>,
    /// True if the error depends only on the files of the repository. An error of this machine or of a server would
    /// occur at the base, too.
    pub is_of_the_code: bool,
}

impl CompileError {
    /// Returns true if the core cannot be used at all: every compilation fails for the same reason.
    pub fn is_of_the_core(&self) -> bool {
        self.kcl.as_ref().is_some_and(|error| error.is_of_the_core())
    }

    /// Returns the error of an invalid stack or Spec.
    pub(crate) fn of_stack(error: UserError) -> Self {
        Self {
            error: Box::new(error),
            kcl: None,
            is_of_the_code: true,
        }
    }

    /// Puts the stack before the message.
    #[must_use]
    pub(crate) fn in_stack(self, stack: &StackId) -> Self {
        Self {
            error: Box::new(self.error.context(format_args!("stack {stack}"))),
            ..self
        }
    }
}

impl From<KclError> for CompileError {
    fn from(error: KclError) -> Self {
        Self {
            error: Box::new(error.clone().into()),
            is_of_the_code: error.is_of_the_code(),
            kcl: Some(Box::new(error)),
        }
    }
}

impl From<SetupError> for CompileError {
    fn from(error: SetupError) -> Self {
        Self::of_stack(error.into())
    }
}

impl From<SpecError> for CompileError {
    fn from(error: SpecError) -> Self {
        Self::of_stack(error.into())
    }
}

impl From<KusionError> for CompileError {
    fn from(error: KusionError) -> Self {
        UserError::from(error).into()
    }
}

impl From<UserError> for CompileError {
    fn from(error: UserError) -> Self {
        Self {
            error: Box::new(error),
            kcl: None,
            is_of_the_code: false,
        }
    }
}

impl From<CompileError> for UserError {
    fn from(error: CompileError) -> Self {
        *error.error
    }
}
