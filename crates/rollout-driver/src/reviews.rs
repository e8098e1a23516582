//! The reviews of a commit that a rollout carries, as far as its gates ask for them.

use async_trait::async_trait;

use konverge_base::{error::UserError, model::apply_result::ApplyReport};
use konverge_config::GateApproval;
use konverge_run::{Planner, Target};

/// The reviews and the deployments of a commit.
#[async_trait]
pub trait CommitReviews: Send + Sync {
    /// Decides whether the digest that was given for a gate counts. `wave` are the stacks whose plans the digest stands for.
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

/// Whether a digest that was given for a gate counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateDigest {
    /// Somebody whom the gate names gave it, and took no part in the change.
    Counts,
    /// The people whom the gate names did not give it, as far as their teams can be read, or they took part in the change.
    ByNobody {
        /// The first team whose members cannot be read, with the reason.
        unreadable: Option<(String, String)>,
    },
}
