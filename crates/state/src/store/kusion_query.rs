//! [`KusionQuery`]: the key of a state in Kusion's older backends.

/// The key of a state, in Kusion's terms. Empty fields are not part of the query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KusionQuery {
    /// Tenant of the releases.
    pub tenant: String,
    /// Name of the project.
    pub project: String,
    /// Name of the stack.
    pub stack: String,
    /// The cluster, by which v0.9 separated states.
    pub cluster: String,
}
