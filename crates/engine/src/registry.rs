//! The runtimes of a run, by the kind of resource.

use std::{collections::BTreeMap, sync::Arc};

use crate::runtime::Runtime;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::spec::RuntimeKind,
};

/// One runtime per kind. Cheap to clone.
#[derive(Clone, Default)]
pub struct RuntimeRegistry(BTreeMap<RuntimeKind, Arc<dyn Runtime>>);

impl RuntimeRegistry {
    /// Creates an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a runtime; replaces an earlier one of the same kind.
    #[must_use]
    pub fn with(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.0.insert(runtime.kind(), runtime);
        self
    }

    /// Returns the runtime of a kind.
    ///
    /// # Errors
    /// There is no runtime of this kind.
    pub fn get(&self, kind: RuntimeKind) -> Result<&dyn Runtime, UserError> {
        self.0.get(&kind).map(AsRef::as_ref).ok_or_else(|| match kind {
            RuntimeKind::Kubernetes => UserError::new(
                ErrorKind::Config,
                "the stack holds Kubernetes objects, but no cluster is configured for it",
            )
            .hint("name a cluster in `konverge.yaml` under `clusters`, or compare with the Spec alone: `konverge preview --live never`"),
            RuntimeKind::Terraform => UserError::new(
                ErrorKind::Config,
                "the stack holds Terraform resources, but Terraform is not set up",
            )
            .hint("set `terraform.binary` in `konverge.yaml`"),
        })
    }

    /// Returns true if there is a runtime of this kind.
    pub fn has(&self, kind: RuntimeKind) -> bool {
        self.0.contains_key(&kind)
    }
}
