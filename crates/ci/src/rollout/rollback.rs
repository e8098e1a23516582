//! Rolls back the stacks of a failed wave to the commit before the rollout, by a new plan under freezes, policy sets
//! and `max_destructive`. It never deletes or replaces a resource, because that needs a person.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;

use crate::{
    apply_input::{ApplyTarget, policy_check},
    environments::EnvironmentScope,
    job::Job,
    policy::{
        policy_check::{PolicyCheck, RestoringApproval},
        reviews::MergedReviews,
    },
    reconcile::writes_no_rotation,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        StackId,
        apply_result::{StackOutcome, StackResult},
        plan::Action,
        rollout::{RolloutRecord, RolloutStack},
    },
};
use konverge_config::Config;
use konverge_engine::LatePlan;
use konverge_run::{
    StateBackend, Target,
    apply::{self, ApprovedPlan, Approver, Decisions, LateApprover, PriorState, ProposedPlan, Refusal},
    cluster_selection::GivenCluster,
    stack_policy_sets::ActiveSets,
    state::{RollbackBase, rollback_under},
};
use konverge_state::StoredRollout;

/// The rollback of a wave.
pub(super) struct WaveRollback<'a> {
    pub job: &'a Job,
    pub tip: &'a ApplyTarget<'a>,
    pub backend: &'a StateBackend,
    pub config: &'a Config,
    pub scope: &'a EnvironmentScope<'a>,
    pub stored: &'a StoredRollout,
}

impl WaveRollback<'_> {
    /// Returns the stacks of the wave that do not have their state from before the rollout yet. A new stack has no such
    /// state, so it stays as it is.
    pub(super) async fn pending(
        backend: &StateBackend,
        record: &RolloutRecord,
        failed: &BTreeMap<StackId, String>,
    ) -> Result<BTreeSet<StackId>, UserError> {
        let mut pending = BTreeSet::new();
        for (id, stack) in record.failing() {
            let Some(before) = stack.before.filter(|_| !failed.contains_key(id)) else {
                continue;
            };
            let Some(now) = backend.states.load(id).await?.filter(|now| now.serial != before) else {
                continue;
            };
            let had = backend.states.load_serial(id, before).await;
            let had = had.ok().and_then(|had| had.state.spec_digest);
            let is_back = had.is_some() && now.state.spec_digest == had && now.state.input_digest.is_some();
            if !is_back || now.was_interrupted() {
                pending.insert(id.clone());
            }
        }
        Ok(pending)
    }

    /// Rolls these stacks back if they are in the environment of this job. Returns the outcomes, the decisions, and the
    /// stacks that failed with their reasons.
    pub(super) async fn run(
        &self,
        stacks: &BTreeSet<StackId>,
    ) -> Result<(Vec<StackOutcome>, Decisions, BTreeMap<StackId, String>), UserError> {
        let record = &self.stored.record;
        let (mut outcomes, mut decisions, mut failed) = (Vec::new(), Decisions::default(), BTreeMap::new());
        for (id, stack) in record.failing() {
            let target = Target::forgotten(id.clone(), stack.folder.clone());
            if !stacks.contains(id) || !self.scope.covers(&target) {
                continue;
            }
            let (outcome, findings) = match self.roll_back_stack(id, stack).await {
                Ok(done) => done,
                Err(failure) => {
                    let failure = konverge_run::redact::failure(&failure, &self.backend.secrets);
                    (
                        apply::stopped_outcome(&target, StackResult::Failed, &failure),
                        Decisions::default(),
                    )
                }
            };
            decisions.extend(findings);
            if !apply::has_succeeded(outcome.result) {
                let why = outcome.error.as_ref().map(|error| error.message.clone());
                failed.insert(id.clone(), why.unwrap_or_default());
            }
            outcomes.push(outcome);
        }
        Ok((outcomes, decisions, failed))
    }

    async fn roll_back_stack(
        &self,
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
            run: &self.job.run,
            repository: &self.job.repository,
            credentials: self.job.credentials.as_ref(),
            files: self.job.repository.revision(&self.tip.branch.tip)?,
            config: self.config.clone(),
            backend: self.backend.clone(),
        };
        let rollback = rollback_under(base, id, before, GivenCluster::default()).await?;
        // The restored version was reviewed before it was applied the first time. Freezes, limits and policy sets still
        // apply.
        let check = policy_check(
            self.job,
            self.tip,
            self.config,
            &self.backend.secrets,
            &MergedReviews::default(),
        )?;
        let approver = Arc::new(RollbackApprover {
            check: check.for_restoring(),
            backend: self.backend.clone(),
            rollout: self.stored.record.rollout.clone(),
            number: self.stored.number,
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
    check: PolicyCheck,
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
        let follows_rotation = self.check.follows_rotation();
        for resource in plan.resources.iter().filter(|_| !follows_rotation) {
            writes_no_rotation(resource)?;
        }
        let RestoringApproval {
            authorization,
            decisions,
            sets,
        } = self.check.approve_restoring(proposed, past).await?;
        Ok(ApprovedPlan {
            authorization,
            decisions,
            late: Box::new(RolledBackStack {
                follows_rotation,
                sets,
            }),
        })
    }
}

/// A stack that is being rolled back.
struct RolledBackStack {
    follows_rotation: bool,
    /// The policy sets that check values which become known during the apply.
    sets: ActiveSets,
}

#[async_trait]
impl LateApprover for RolledBackStack {
    async fn resource(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        if matches!(late.shown.action, Action::Delete | Action::Replace) {
            let what = format!("the rollback would now delete or replace {}", late.shown.id);
            return Err(UserError::new(ErrorKind::Policy, what)
                .hint("check the plan and roll back by hand: `konverge state rollback`"));
        }
        if !self.follows_rotation {
            writes_no_rotation(late.shown)?;
        }
        self.sets.check(late).await
    }

    async fn recreate(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        let what = format!("{} disappeared during the rollback", late.shown.id);
        Err(UserError::new(ErrorKind::Policy, what).hint("the next run plans the rollback again"))
    }
}
