//! Who agrees to what an apply is about to do.

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::{
    engine::Review,
    error::UserError,
    model::{
        CommitId, StackId,
        apply_record::Authorization,
        plan::{ResourcePlan, StackPlan},
    },
    policy::LastWrites,
};

/// Who agrees to a stack's plan before anything of it is touched.
#[async_trait]
pub trait Approver: Send + Sync {
    /// On what grounds. An error stops the stack.
    async fn stack(&self, plan: &StackPlan, past: &PriorState) -> Result<Authorization, UserError>;

    /// A resource whose values became known only on the way.
    async fn resource(&self, stack: &StackId, plan: &ResourcePlan) -> Result<(), UserError>;
}

/// What its state says of a stack.
#[derive(Default)]
pub struct PriorState {
    /// The pull requests whose reviews it has used up.
    pub used: BTreeSet<u64>,
    /// Nothing of it was ever applied, or nothing is left of it.
    pub is_new: bool,
    /// The commit that was applied last, if it is on record.
    pub commit: Option<CommitId>,
    /// What was written last, secrets as keyed hashes.
    pub last_writes: LastWrites,
}

/// What the engine asks on its way is answered by who agreed to the stack.
pub(super) struct ConsentReview<'a> {
    pub consent: &'a dyn Approver,
    pub stack: &'a StackId,
}

#[async_trait]
impl Review for ConsentReview<'_> {
    async fn check(&self, plan: &ResourcePlan) -> Result<(), UserError> {
        self.consent.resource(self.stack, plan).await
    }
}

/// Agrees with everything: whoever started the run said so.
pub struct AutoApprove;

#[async_trait]
impl Approver for AutoApprove {
    async fn stack(&self, _: &StackPlan, _: &PriorState) -> Result<Authorization, UserError> {
        Ok(Authorization::default())
    }

    async fn resource(&self, _: &StackId, _: &ResourcePlan) -> Result<(), UserError> {
        Ok(())
    }
}
