//! [`AppStack`]: the facts about a stack from which its Spec is generated.

use super::Platform;
use konverge_repo::konfig::DeclaredDependency;

/// The stack that applications belong to.
pub struct AppStack<'a> {
    /// Name of the project.
    pub project: &'a str,
    /// Name of the stack.
    pub name: &'a str,
    /// The namespace of an extension of `project.yaml` or `stack.yaml`.
    pub namespace: Option<&'a str>,
    /// The dependencies in the stack's `kcl.mod`.
    pub dependencies: &'a [DeclaredDependency],
    /// The workspace that the stack is generated for.
    pub platform: &'a Platform,
}

impl AppStack<'_> {
    /// Returns the namespace of the stack's Secrets, which is also the name of its Namespace object.
    pub(super) fn own_namespace(&self) -> &str {
        self.namespace.unwrap_or(self.project)
    }
}
