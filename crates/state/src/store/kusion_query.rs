//! [`KusionQuery`]: the search terms of a state in Kusion's older backends.

/// The search terms of a state, in Kusion's words. Empty fields are ignored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KusionQuery {
    /// The tenant of the project.
    pub tenant: String,
    /// Name of the project.
    pub project: String,
    /// Name of the stack.
    pub stack: String,
    /// The cluster. Kusion v0.9 has a state for each cluster.
    pub cluster: String,
}
