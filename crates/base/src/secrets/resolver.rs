//! [`SecretResolver`]: how a runtime resolves the secret references of a stack. Implemented by `run::secret_fetch`.

use async_trait::async_trait;

use super::{SecretReference, SecretValue};
use crate::{error::UserError, model::StackId};

/// What happens when the version of a secret moved since it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotatedVersion {
    /// The new version is written.
    Write,
    /// The written version stays.
    Keep,
}

/// Answers about the references of a stack.
#[async_trait]
pub trait SecretResolver: Send + Sync {
    /// The version of the secret now, without its value. `None` if the store has no versions, or if this run
    /// may not read them.
    ///
    /// # Errors
    /// The stack may not use the reference.
    async fn version(
        &self,
        stack: &StackId,
        reference: &SecretReference,
    ) -> Result<Option<String>, UserError>;

    /// The value, and the version that it has.
    ///
    /// # Errors
    /// The stack may not use the reference; the store cannot be reached, denies it, or has no such value.
    async fn value(
        &self,
        stack: &StackId,
        reference: &SecretReference,
    ) -> Result<(SecretValue, Option<String>), UserError>;

    /// Returns true if the store of a reference says `into: any`.
    fn goes_into_any(&self, reference: &SecretReference) -> bool;

    /// The value of a reference that is in the state of a stack and not in its Spec: it is needed to delete what it
    /// made. Read now, if the present rules allow it.
    ///
    /// # Errors
    /// As [`Self::value`].
    async fn recorded_value(
        &self,
        stack: &StackId,
        reference: &SecretReference,
    ) -> Result<SecretValue, UserError>;

    /// Returns true if values can be had: the stack is being applied.
    fn has_values(&self, stack: &StackId) -> bool;

    /// What is done about a version that moved.
    fn rotated(&self, stack: &StackId) -> RotatedVersion;
}
