//! Rolls back the stacks of a failed wave to the commit before the rollout, by a new plan under freezes, policy sets
//! and `max_destructive`. It never deletes or replaces a resource, because that needs a person.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;

use super::driver::RolloutDriver;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        StackId,
        apply_result::{StackOutcome, StackResult},
        plan::Action,
        rollout::{RolloutRecord, RolloutStack},
    },
};
use konverge_engine::LatePlan;
use konverge_run::{
    StateBackend, Target,
    apply::{self, ApprovedPlan, Approver, Decisions, LateApprover, PriorState, ProposedPlan, Refusal},
    cluster_selection::GivenCluster,
    state::{RollbackBase, rollback_under},
};
use konverge_state::StoredRollout;

impl RolloutDriver<'_> {
    /// Returns the stacks of the wave that do not have their state from before the rollout yet. A new stack has no such
    /// state, so it stays as it is.
    pub(super) async fn pending_rollback(
        &self,
        record: &RolloutRecord,
    ) -> Result<BTreeSet<StackId>, UserError> {
        let mut pending = BTreeSet::new();
        for (id, stack) in record.failing() {
            let Some(before) = stack.before.filter(|_| !self.failed.contains_key(id)) else {
                continue;
            };
            let Some(now) = self
                .backend
                .states
                .load(id)
                .await?
                .filter(|now| now.serial != before)
            else {
                continue;
            };
            let had = self.backend.states.load_serial(id, before).await;
            let had = had.ok().and_then(|had| had.state.spec_digest);
            let is_back = had.is_some() && now.state.spec_digest == had && now.state.input_digest.is_some();
            if !is_back || now.was_interrupted() {
                pending.insert(id.clone());
            }
        }
        Ok(pending)
    }

    /// Rolls these stacks back if they are in the environment of this job. Returns true if the rollout may have a next
    /// step now.
    pub(super) async fn roll_back(
        &mut self,
        stored: &StoredRollout,
        stacks: &BTreeSet<StackId>,
    ) -> Result<bool, UserError> {
        let mut goes_on = false;
        for (id, stack) in stored.record.failing() {
            let target = Target::forgotten(id.clone(), stack.folder.clone());
            if !stacks.contains(id) || !self.job.scope.covers(&target) {
                continue;
            }
            goes_on = true;
            let outcome = match self.roll_back_stack(stored, id, stack).await {
                Ok((outcome, decisions)) => {
                    self.decisions.extend(decisions);
                    outcome
                }
                Err(failure) => {
                    let failure = konverge_secrets::redact::failure(&failure, &self.backend.secrets);
                    apply::stopped_outcome(&target, StackResult::Failed, &failure)
                }
            };
            if !apply::has_succeeded(outcome.result) {
                let why = outcome.error.as_ref().map(|error| error.message.clone());
                self.failed.insert(id.clone(), why.unwrap_or_default());
            }
            self.had.remove(&outcome.id);
            self.outcomes.insert(outcome.id.clone(), outcome);
        }
        if !goes_on {
            self.wait_for_wave("another job rolls its stacks back".to_owned());
        }
        Ok(goes_on)
    }

    async fn roll_back_stack(
        &self,
        stored: &StoredRollout,
        id: &StackId,
        stack: &RolloutStack,
    ) -> Result<(StackOutcome, Decisions), UserError> {
        let before = stack.before.ok_or_else(|| {
            UserError::new(
                ErrorKind::State,
                format!("{id} was never applied before this rollout"),
            )
            .hint("destroy the stack by hand if it must be removed")
        })?;
        let base = RollbackBase {
            run: self.job.run,
            repository: self.job.repository,
            credentials: self.job.credentials,
            files: self.job.repository.revision(self.job.tip)?,
            config: self.config.clone(),
            backend: self.backend.clone(),
        };
        let rollback = rollback_under(base, id, before, GivenCluster::default()).await?;
        // The restored version was reviewed before it was applied the first time. Freezes, limits and policy sets still
        // apply.
        let policies = self.job.policies.rollback_approver(self.config, self.backend)?;
        let approver = Arc::new(RollbackApprover {
            policies,
            backend: self.backend.clone(),
            rollout: stored.record.rollout.clone(),
            number: stored.number,
        });
        let (report, findings) = rollback.apply(approver).await?;
        let outcome =
            report.stacks.into_iter().next().ok_or_else(|| {
                UserError::new(ErrorKind::State, format!("the rollback of {id} has no result"))
            })?;
        Ok((outcome, Decisions::of_findings(findings)))
    }
}

/// Approves a rollback that deletes and replaces no resource.
struct RollbackApprover {
    policies: Arc<dyn Approver>,
    backend: StateBackend,
    rollout: String,
    number: u64,
}

#[async_trait]
impl Approver for RollbackApprover {
    async fn stack(&self, proposed: &ProposedPlan<'_>, past: &PriorState) -> Result<ApprovedPlan, Refusal> {
        let plan = proposed.plan;
        // Checked under the lease of the stack, as before each apply of a wave.
        let number = self.backend.states.rollout_number(&self.rollout).await;
        if number.map_err(UserError::from)? != self.number {
            let what = format!("the rollout `{}` was changed in the meantime", self.rollout);
            return Err(UserError::new(ErrorKind::Policy, what).into());
        }
        let summary = &plan.summary;
        if summary.delete > 0 || summary.replace > 0 {
            let what = format!(
                "the rollback of {} would delete {} and replace {} resources, so a person must decide about it",
                plan.id, summary.delete, summary.replace
            );
            return Err(UserError::new(ErrorKind::Policy, what)
                .hint(format!(
                    "check the plan and roll back by hand: `konverge state rollback {} SERIAL`",
                    plan.id
                ))
                .into());
        }
        let approved = self.policies.stack(proposed, past).await?;
        Ok(ApprovedPlan {
            late: Box::new(RolledBackStack {
                policies: approved.late,
            }),
            ..approved
        })
    }
}

/// A stack that is being rolled back.
struct RolledBackStack {
    policies: Box<dyn LateApprover>,
}

#[async_trait]
impl LateApprover for RolledBackStack {
    async fn resource(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        if matches!(late.shown.action, Action::Delete | Action::Replace) {
            let what = format!("the rollback would now delete or replace {}", late.shown.id);
            return Err(UserError::new(ErrorKind::Policy, what)
                .hint("check the plan and roll back by hand: `konverge state rollback`"));
        }
        self.policies.resource(late).await
    }

    async fn recreate(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        let what = format!("{} disappeared during the rollback", late.shown.id);
        Err(UserError::new(ErrorKind::Policy, what).hint("the next run plans the rollback again"))
    }
}
