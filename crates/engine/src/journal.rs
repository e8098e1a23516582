//! The traits through which the engine reaches the state and the reviews. `crates/run/src/` and `crates/ci/src/`
//! implement them.

use async_trait::async_trait;

use super::{policy_input::LatePlan, runtime::RecordFailure};
use konverge_base::{error::UserError, model::state::JournalEntry};

/// The record of intents and results. An error of any call ends the apply: what cannot be recorded must not
/// be done.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Stores the entries before the call returns: from then on the resources may exist.
    ///
    /// Called once before the first write with every intent that is known by then, and again for those that become
    /// known during the apply.
    async fn intend(&self, entries: Vec<JournalEntry>) -> Result<(), UserError>;

    /// Records a result, or the start of a replacement. Entries may be stored a little later, but in order, and before
    /// the apply ends.
    async fn record(&self, entry: JournalEntry) -> Result<(), RecordFailure>;

    /// Returns an error if the lease is lost. Called before each write to the infrastructure, so it must be
    /// cheap.
    async fn check_lease(&self) -> Result<(), UserError>;
}

/// Checks whether a plan that became known only during the apply was reviewed.
#[async_trait]
pub trait Review: Send + Sync {
    /// Checks one plan. An error stops this resource and its dependents.
    async fn check(&self, plan: LatePlan<'_>) -> Result<(), UserError>;
}

/// Accepts every plan. For an apply in a terminal, where a person has confirmed the plan.
pub struct NoReview;

#[async_trait]
impl Review for NoReview {
    async fn check(&self, _: LatePlan<'_>) -> Result<(), UserError> {
        Ok(())
    }
}
