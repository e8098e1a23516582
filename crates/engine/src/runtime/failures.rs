//! The typed errors of failures that the engine and the runtimes decide on. A [`UserError`] keeps one as its source:
//! [`UserError::caused_by`], [`UserError::room_error`].
//!
//! [`UserError`]: konverge_base::error::UserError
//! [`UserError::caused_by`]: konverge_base::error::UserError::caused_by
//! [`UserError::room_error`]: konverge_base::error::UserError::room_error

/// A tool or a service outside the clusters failed: an executable, a provider's package, its credentials. Only this
/// resource and its dependents need it, so the others can be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a tool or a service outside the clusters failed")]
pub struct ToolUnavailable;

/// The store refused the data that a runtime passed to its [`ApplySink`]. The same call may succeed later.
///
/// [`ApplySink`]: super::ApplySink
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the store refused the write")]
pub struct StoreUnavailable;
