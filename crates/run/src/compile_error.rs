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
    /// The cause, by which callers decide.
    pub cause: CompileCause,
}

/// The cause of a [`CompileError`].
#[derive(Debug, Clone)]
pub enum CompileCause {
    /// KCL rejects the code, or the core, a worker or a package is not available.
    Kcl(Box<KclError>),
    /// The definition of the stack or its Spec is invalid.
    Stack,
    /// Anything else, such as an object of the repository that cannot be read.
    Other,
}

impl CompileError {
    /// Returns true if the error depends only on the files of the repository. An error of this machine or of a server
    /// would occur at the base, too.
    pub fn is_of_the_code(&self) -> bool {
        match &self.cause {
            CompileCause::Kcl(error) => error.is_of_the_code(),
            CompileCause::Stack => true,
            CompileCause::Other => false,
        }
    }

    /// Returns true if the core cannot be used at all: every compilation fails for the same reason.
    pub fn is_of_the_core(&self) -> bool {
        self.kcl().is_some_and(KclError::is_of_the_core)
    }

    /// Returns the error of KCL, if that is the cause.
    pub fn kcl(&self) -> Option<&KclError> {
        match &self.cause {
            CompileCause::Kcl(error) => Some(error),
            CompileCause::Stack | CompileCause::Other => None,
        }
    }

    /// Returns the error of an invalid stack or Spec.
    pub(crate) fn of_stack(error: UserError) -> Self {
        Self {
            error: Box::new(error),
            cause: CompileCause::Stack,
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
            cause: CompileCause::Kcl(Box::new(error)),
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
            cause: CompileCause::Other,
        }
    }
}

impl From<CompileError> for UserError {
    fn from(error: CompileError) -> Self {
        *error.error
    }
}
