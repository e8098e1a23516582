//! [`AppStack`]: a stack, as generation sees it.

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
    /// The dependencies of its `kcl.mod`.
    pub dependencies: &'a [DeclaredDependency],
    /// The workspace that the stack is generated for.
    pub platform: &'a Platform,
}

impl AppStack<'_> {
    /// The namespace of the Namespace and of Secrets.
    pub(super) fn own_namespace(&self) -> &str {
        self.namespace.unwrap_or(self.project)
    }
}
