//! [`SecretResolver`]: resolves the secret references of a stack. Implemented by `run::stack_secrets`.

use std::{fmt, sync::Arc};

use async_trait::async_trait;

use super::{SecretReference, SecretValue};
use konverge_base::error::UserError;

/// The policy for a written secret whose version in the store has changed (`secrets.rotation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotatedVersion {
    /// The next apply writes the new version into the object.
    Write,
    /// The old version stays in the object.
    Keep,
}

/// Resolves the secret references of one stack.
#[async_trait]
pub trait SecretResolver: Send + Sync {
    /// Returns the current version of the secret, without its value. `None` if the store has no versions, or if this
    /// run may not read them.
    ///
    /// # Errors
    /// The stack may not use the reference.
    async fn version(&self, reference: &SecretReference) -> Result<Option<String>, UserError>;

    /// Returns the value and its version.
    ///
    /// # Errors
    /// The stack may not use the reference; the store cannot be reached, denies it, or has no such value.
    async fn value(&self, reference: &SecretReference) -> Result<(SecretValue, Option<String>), UserError>;

    /// Returns true if the store of a reference is configured with `into: any`.
    fn goes_into_any(&self, reference: &SecretReference) -> bool;

    /// Returns the value of a reference that only the state of a stack has, not its Spec. It is needed to delete the
    /// object that was written with it, and is read only if the current rules allow it.
    ///
    /// # Errors
    /// Errors of [`Self::value`].
    async fn recorded_value(&self, reference: &SecretReference) -> Result<SecretValue, UserError>;

    /// Returns true if values are available, because the stack is being applied.
    fn has_values(&self) -> bool;

    /// Returns the policy for a version that has changed.
    fn rotated(&self) -> RotatedVersion;
}

/// The resolver of a stack's secret references; none by default.
#[derive(Clone, Default)]
pub struct StackReferences(Option<Arc<dyn SecretResolver>>);

impl StackReferences {
    /// Creates the references with a resolver.
    pub fn new(resolver: Arc<dyn SecretResolver>) -> Self {
        Self(Some(resolver))
    }

    /// Returns the resolver, if there is one.
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
