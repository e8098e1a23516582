//! [`WaveApprover`]: checks under the lease of each stack again that its rollout is unchanged and that the plan is the
//! approved one. A run that changes a rollout writes its record first. So no run writes to a stack after another run
//! has stopped, paused or rolled back the rollout.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{Digest, StackId},
    sync::lock,
};
use konverge_run::{
    StateBackend,
    apply::{ApprovedPlan, Approver, PriorState, ProposedPlan, Refusal},
};
use konverge_state::StateError;

/// Approves a plan that another approver approves, if the record of the rollout is still the one that this run follows.
pub(super) struct WaveApprover {
    pub inner: Arc<dyn Approver>,
    pub backend: StateBackend,
    pub rollout: String,
    /// The number of the rollout record that this run follows.
    pub number: u64,
    /// The digests of the approved plans of the wave; empty if no gate required an approval.
    pub approved: BTreeMap<StackId, Digest>,
    /// The stacks that were refused because the rollout has changed, or its record could not be read.
    pub moved: Mutex<BTreeSet<StackId>>,
    /// The stacks whose plan differs from the approved one.
    pub changed: Mutex<BTreeSet<StackId>>,
}

/// Returns why the newest record may not be the one that this run follows; `None` if it is. The stack then waits and
/// counts as not failed.
fn why_moved(number: Result<u64, StateError>, followed: u64) -> Option<String> {
    match number {
        Ok(number) if number == followed => None,
        Ok(_) => Some("was changed in the meantime".to_owned()),
        Err(error) => Some(format!("cannot be read: {}", UserError::from(error).message)),
    }
}

#[async_trait]
impl Approver for WaveApprover {
    async fn stack(&self, proposed: &ProposedPlan<'_>, past: &PriorState) -> Result<ApprovedPlan, Refusal> {
        // Checked before the review, because after a change of the record the stack must wait, whatever its plan is.
        let id = &proposed.plan.id;
        let number = self.backend.states.rollout_number(&self.rollout).await;
        if let Some(why) = why_moved(number, self.number) {
            lock(&self.moved).insert(id.clone());
            let what = format!("the rollout `{}` {why}", self.rollout);
            return Err(UserError::new(ErrorKind::Policy, what)
                .hint("nothing was changed in this stack: the next run reads the rollout again and decides which stacks it applies")
                .into());
        }
        // A plan without changes writes nothing, so it needs no approval.
        let changes = proposed.plan.summary.changed() > 0;
        if changes && !self.approved.is_empty() && self.approved.get(id) != Some(&proposed.plan.digest) {
            lock(&self.changed).insert(id.clone());
            let what = format!(
                "the plan of {id} is not the one that was approved for this wave of the rollout `{}`",
                self.rollout
            );
            return Err(UserError::new(ErrorKind::Policy, what)
                .hint("the rollout goes back to the gate of this wave: approve the new digest that the gate shows")
                .into());
        }
        self.inner.stack(proposed, past).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_rollout_that_is_known_to_be_the_same_lets_a_stack_go() {
        assert_eq!(why_moved(Ok(7), 7), None);
        for number in [Ok(8), Ok(6), Err(StateError::Missing("no answer".to_owned()))] {
            assert!(why_moved(number, 7).is_some());
        }
    }
}
