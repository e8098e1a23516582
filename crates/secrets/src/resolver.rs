//! [`SecretResolver`]: how a runtime resolves the secret references of a stack. Implemented by `run::stack_secrets`.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use super::{SecretReference, SecretValue};
use konverge_base::error::UserError;

/// The treatment of a written secret whose version in the store has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotatedVersion {
    /// The new version is written.
    Write,
    /// The written version stays.
    Keep,
}

/// Answers about the references of one stack.
#[async_trait]
pub trait SecretResolver: Send + Sync {
    /// The version of the secret now, without its value. `None` if the store has no versions, or if this run
    /// may not read them.
    ///
    /// # Errors
    /// The stack may not use the reference.
    async fn version(&self, reference: &SecretReference) -> Result<Option<String>, UserError>;

    /// The value, and the version that it has.
    ///
    /// # Errors
    /// The stack may not use the reference; the store cannot be reached, denies it, or has no such value.
    async fn value(&self, reference: &SecretReference) -> Result<(SecretValue, Option<String>), UserError>;

    /// Returns true if the store of a reference says `into: any`.
    fn goes_into_any(&self, reference: &SecretReference) -> bool;

    /// The value of a reference that is in the state of a stack and not in its Spec: it is needed to delete what it
    /// made. Read now, if the present rules allow it.
    ///
    /// # Errors
    /// Errors of [`Self::value`].
    async fn recorded_value(&self, reference: &SecretReference) -> Result<SecretValue, UserError>;

    /// Returns true if values can be had: the stack is being applied.
    fn has_values(&self) -> bool;

    /// Returns how a version that moved is treated.
    fn rotated(&self) -> RotatedVersion;
}

/// The resolver of the references of a stack; by default there is none.
#[derive(Clone, Default)]
pub struct StackReferences(Option<Arc<dyn SecretResolver>>);

impl StackReferences {
    /// Uses this resolver.
    pub fn new(resolver: Arc<dyn SecretResolver>) -> Self {
        Self(Some(resolver))
    }

    /// The resolver, if there is one.
    pub fn resolver(&self) -> Option<&dyn SecretResolver> {
        self.0.as_deref()
    }
}

impl fmt::Debug for StackReferences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StackReferences")
    }
}

/// Equal if both have the same resolver.
impl PartialEq for StackReferences {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }
}
