//! The reviews of a commit that a rollout carries, as far as its gates ask for them.

use async_trait::async_trait;

use konverge_base::{error::UserError, model::apply_result::ApplyReport};
use konverge_config::GateApproval;
use konverge_run::{Planner, Target};

/// The reviews and the deployments of a commit.
#[async_trait]
pub trait CommitReviews: Send + Sync {
    /// Decides whether the digest that was given for a gate counts. `wave` are the stacks whose plans the digest stands
    /// for.
    ///
    /// # Errors
    /// Errors of the store and of the forge.
    async fn judge_gate_digest(
        &self,
        planning: &Planner,
        approval: &GateApproval,
        wave: &[Target],
    ) -> Result<GateDigest, UserError>;

    /// Sets the final states of the deployments of the commit.
    async fn end_deployments(&self, report: &ApplyReport);
}

/// Tells whether a digest that was given for a gate counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateDigest {
    /// A person whom the gate names gave the digest and did not contribute to the change.
    Counts,
    /// Nobody whom the gate names gave the digest, as far as the teams can be read, or only authors of the change did.
    ByNobody {
        /// The first team whose members cannot be read, with the reason.
        unreadable: Option<(String, String)>,
    },
}
