//! Who approves what an apply is about to do.

use std::collections::BTreeSet;

use async_trait::async_trait;

use konverge_base::{
    error::UserError,
    model::{
        CommitId, StackId,
        authorization::{Authorization, PolicyOverride},
        plan::StackPlan,
        plan_document::StackDocument,
    },
};
use konverge_engine::{LatePlan, Review};
use konverge_policy::LastWrites;

/// Approves the plan of a stack before anything is changed.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Returns who authorized the plan. An error stops the stack.
    async fn stack(&self, plan: &ProposedPlan<'_>, past: &PriorState) -> Result<Authorization, UserError>;

    /// Approves a resource whose values became known only during the apply.
    async fn resource(&self, stack: &StackId, plan: LatePlan<'_>) -> Result<(), UserError>;

    /// Approves that a recorded resource is created again, because it disappeared during the apply. It was reviewed when
    /// it was written first. `policy.drift: stop` refuses it, unless a person confirmed the apply.
    async fn recreate(&self, stack: &StackId, plan: LatePlan<'_>) -> Result<(), UserError>;
}

/// The plan of a stack that is to be approved.
#[derive(Clone, Copy)]
pub struct ProposedPlan<'a> {
    pub plan: &'a StackPlan,
    /// Builds the plan document (whole resources with true values) for policy sets. It copies all resources, so call it
    /// only if there is a policy set.
    pub document: &'a (dyn Fn() -> StackDocument + Send + Sync),
}

/// What the state says about a stack.
#[derive(Default)]
pub struct PriorState {
    /// The pull requests whose reviews it has used.
    pub used: BTreeSet<u64>,
    /// True if the stack was never applied, or has no resources left.
    pub is_new: bool,
    /// The last applied commit, if it is recorded.
    pub commit: Option<CommitId>,
    /// The last written values, with secrets as keyed hashes.
    pub last_writes: LastWrites,
    /// The findings of policy sets that were overridden in the last apply.
    pub overridden: Vec<PolicyOverride>,
}

/// Answers the engine's questions during the apply with the approver of the stack.
pub(super) struct ConsentReview<'a> {
    pub consent: &'a dyn Approver,
    pub stack: &'a StackId,
}

#[async_trait]
impl Review for ConsentReview<'_> {
    async fn check(&self, plan: LatePlan<'_>) -> Result<(), UserError> {
        self.consent.resource(self.stack, plan).await
    }
}

/// Approves everything: the user confirmed on the command line.
pub struct AutoApprove;

#[async_trait]
impl Approver for AutoApprove {
    async fn stack(&self, _: &ProposedPlan<'_>, _: &PriorState) -> Result<Authorization, UserError> {
        Ok(Authorization::default())
    }

    async fn resource(&self, _: &StackId, _: LatePlan<'_>) -> Result<(), UserError> {
        Ok(())
    }

    async fn recreate(&self, _: &StackId, _: LatePlan<'_>) -> Result<(), UserError> {
        Ok(())
    }
}
