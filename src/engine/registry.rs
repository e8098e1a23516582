//! The runtimes of a run, by the kind of resource they take.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    error::{ErrorKind, UserError},
    model::spec::RuntimeKind,
    runtime::Runtime,
};

/// One runtime per kind; cheap to clone.
#[derive(Clone, Default)]
pub struct RuntimeRegistry(BTreeMap<RuntimeKind, Arc<dyn Runtime>>);

impl RuntimeRegistry {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a runtime; a second one of the same kind takes the place of the first.
    #[must_use]
    pub fn with(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.0.insert(runtime.kind(), runtime);
        self
    }

    /// The runtime of a kind.
    ///
    /// # Errors
    /// None was given.
    pub fn get(&self, kind: RuntimeKind) -> Result<&dyn Runtime, UserError> {
        self.0.get(&kind).map(AsRef::as_ref).ok_or_else(|| match kind {
            RuntimeKind::Kubernetes => UserError::new(
                ErrorKind::Config,
                "the stack holds Kubernetes objects, but no cluster is configured for it",
            )
            .hint("name one in `konverge.yaml` under `clusters`, or compare with the Spec alone: `konverge preview --live never`"),
            RuntimeKind::Terraform => UserError::new(
                ErrorKind::Config,
                "the stack holds Terraform resources, but Terraform is not set up",
            )
            .hint("set `terraform.binary` in `konverge.yaml`"),
        })
    }

    /// Whether there is one of the kind.
    pub fn has(&self, kind: RuntimeKind) -> bool {
        self.0.contains_key(&kind)
    }
}
