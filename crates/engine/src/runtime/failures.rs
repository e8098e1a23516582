//! The failures about which the engine and the runtimes decide. Each has its error as it is shown, and the fact that
//! decides.

use konverge_base::error::UserError;

/// The failure to plan a resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct PlanFailure {
    /// The error as it is shown.
    pub error: Box<UserError>,
    /// True if nothing of the stack may be applied: a policy, the cluster or the Spec itself refuses the resource, which
    /// must be fixed first. False if a tool or a service outside the clusters failed, such as an executable, a
    /// provider's package or its credentials. Only this resource and its dependents need it, so the others can be
    /// applied.
    pub stops_stack: bool,
}

impl From<UserError> for PlanFailure {
    fn from(error: UserError) -> Self {
        Self {
            error: Box::new(error),
            stops_stack: true,
        }
    }
}

impl From<PlanFailure> for UserError {
    fn from(failure: PlanFailure) -> Self {
        *failure.error
    }
}

/// The failure to record a result or the data of a runtime.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct RecordFailure {
    /// The error as it is shown.
    pub error: Box<UserError>,
    /// True if only the store refused the data, so that the same call may succeed later.
    pub may_retry: bool,
}

impl From<UserError> for RecordFailure {
    fn from(error: UserError) -> Self {
        Self {
            error: Box::new(error),
            may_retry: false,
        }
    }
}

impl From<RecordFailure> for UserError {
    fn from(failure: RecordFailure) -> Self {
        *failure.error
    }
}
