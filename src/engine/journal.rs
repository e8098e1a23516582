//! What the engine asks of whoever keeps the state and the reviews; `ops/` wires it.

use async_trait::async_trait;

use crate::{
    error::UserError,
    model::{plan::ResourcePlan, state::JournalEntry},
};

/// The record of what was about to happen and what did. An error of any call ends the apply: what cannot be
/// remembered must not be done.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Kept before this returns: the resources may exist from now on. Called once before the first write with all that
    /// is known by then, and again for what became known on the way.
    async fn intend(&self, entries: Vec<JournalEntry>) -> Result<(), UserError>;

    /// Something ended, or begins. What ended may be kept a little later, but in order, and before the apply ends.
    async fn record(&self, entry: JournalEntry) -> Result<(), UserError>;

    /// Whether the lease is still ours; asked before each write to the outside, so it must be cheap.
    async fn fence(&self) -> Result<(), UserError>;
}

/// Whether a plan that became known only during apply was reviewed.
#[async_trait]
pub trait Review: Send + Sync {
    /// An error stops this resource and what waits for it.
    async fn check(&self, plan: &ResourcePlan) -> Result<(), UserError>;
}

/// Agrees with everything: for a person at the terminal who saw the plan.
pub struct NoReview;

#[async_trait]
impl Review for NoReview {
    async fn check(&self, _: &ResourcePlan) -> Result<(), UserError> {
        Ok(())
    }
}
