//! Restores drift if `drift.reconcile` allows it: the last apply is repeated under the lease, and only if that deletes
//! nothing.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;

use crate::policy::policy_check::PolicyCheck;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        StackId,
        apply_result::{ApplyReport, StackOutcome},
        plan::{Action, ChangeOrigin, Plan, ResourcePlan},
        policy_finding::PolicyFinding,
    },
};
use konverge_config::Reconcile;
use konverge_engine::LatePlan;
use konverge_run::{
    Planner, Target,
    apply::{
        self, ApplyOptions, ApprovedPlan, Approver, Decisions, EndedRun, LateApprover, PriorState,
        ProposedPlan, Refusal,
    },
    recorded_targets,
    stack_policy_sets::ActiveSets,
};
use konverge_secrets::redact;

/// Restores the drift that a check found. Returns the restored stacks, and the others with the reason. The stacks in
/// `behind` are left to the apply of their new code.
///
/// # Errors
/// The order of the stacks has a cycle.
pub(super) async fn run(
    planning: &Planner,
    policy_check: PolicyCheck,
    looked_at: &[Target],
    found: &Plan,
    behind: &[StackId],
) -> Result<Restored, UserError> {
    let drifted: BTreeSet<_> = found
        .stacks
        .iter()
        .filter(|stack| stack.summary.changed() > 0)
        .map(|stack| &stack.id)
        .collect();
    // A removed stack is not restored, because the next apply deletes it. A stack with new code is left to its apply.
    let can = |target: &&Target| {
        target.head.is_some() && drifted.contains(&target.id) && !behind.contains(&target.id)
    };
    let targets: Vec<_> = match planning.config.drift.reconcile {
        Reconcile::Leave => Vec::new(),
        Reconcile::Restore => looked_at.iter().filter(can).cloned().collect(),
    };
    let approver = Arc::new(RestoreApprover {
        policy_check,
        of_drift: true,
    });
    let recorded = recorded_targets(planning, &targets).await?;
    let (restored, _) = apply_recorded(planning, recorded, approver).await?;
    Ok(restored)
}

/// Applies what is recorded of these stacks. Returns the result, with the outcomes of the stacks whose record is not
/// available, and the decisions besides the findings.
pub(super) async fn apply_recorded(
    planning: &Planner,
    (targets, unavailable): (Vec<Target>, Vec<StackOutcome>),
    approver: Arc<dyn Approver>,
) -> Result<(Restored, Decisions), UserError> {
    let options = ApplyOptions {
        restore: true,
        ..ApplyOptions::new(approver)
    };
    let EndedRun {
        mut report,
        mut decisions,
    } = apply::run(planning, &targets, &options).await?;
    report.stacks.extend(unavailable);
    let mut findings: Vec<_> = std::mem::take(&mut decisions.findings).into_iter().collect();
    redact::findings(&mut findings, planning.secrets());
    Ok((Restored { report, findings }, decisions))
}

/// The result of restoring what is recorded.
pub(super) struct Restored {
    pub report: ApplyReport,
    /// The findings of the policies for the stacks to restore.
    pub findings: Vec<PolicyFinding>,
}

/// Returns the restored stacks.
pub(super) fn restored_stacks(report: &ApplyReport) -> Vec<StackId> {
    let stacks = report
        .stacks
        .iter()
        .filter(|stack| apply::has_succeeded(stack.result));
    stacks.map(|stack| stack.id.clone()).collect()
}

/// Approves a plan for what was applied before, without a review. Of drift it approves only creations and updates.
pub(super) struct RestoreApprover {
    pub policy_check: PolicyCheck,
    /// True if drift is restored; else a rollout is rolled back, and its driver decides what may be taken away.
    pub of_drift: bool,
}

#[async_trait]
impl Approver for RestoreApprover {
    async fn stack(&self, proposed: &ProposedPlan<'_>, past: &PriorState) -> Result<ApprovedPlan, Refusal> {
        let plan = proposed.plan;
        let limits = RestoreLimits {
            of_drift: self.of_drift,
            follows_rotation: self.policy_check.follows_rotation(),
        };
        for resource in &plan.resources {
            limits.check(resource)?;
        }
        let late = |sets| RestoredStack { limits, sets };
        let mut approved = self.policy_check.approve_restoring(proposed, past, late).await?;
        approved.authorization.reconciled = self.of_drift;
        Ok(approved)
    }
}

/// A stack that is being restored.
struct RestoredStack {
    limits: RestoreLimits,
    /// The policy sets that check values which become known during the apply.
    sets: ActiveSets,
}

#[async_trait]
impl LateApprover for RestoredStack {
    async fn resource(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        self.limits.check(late.shown)?;
        self.sets.check(late).await
    }
}

/// The limits of what is restored without a person.
#[derive(Clone, Copy)]
struct RestoreLimits {
    of_drift: bool,
    /// True if a new version of a secret may be written, too.
    follows_rotation: bool,
}

impl RestoreLimits {
    fn check(self, resource: &ResourcePlan) -> Result<(), UserError> {
        if self.of_drift {
            takes_nothing_away(resource)?;
        }
        if self.follows_rotation {
            Ok(())
        } else {
            writes_no_rotation(resource)
        }
    }
}

/// Checks that the plan writes no new version of a secret, because `secrets.rotation` is `stop`.
fn writes_no_rotation(plan: &ResourcePlan) -> Result<(), UserError> {
    let mut origins = plan.changes.iter().map(|change| &change.origin);
    if origins.all(|origin| *origin != ChangeOrigin::Rotation) {
        return Ok(());
    }
    Err(UserError::new(
        ErrorKind::Policy,
        format!(
            "{} would get a new version of a secret, and `secrets.rotation` is `stop`",
            plan.id
        ),
    )
    .hint("to write the new version, merge a pull request whose preview shows it"))
}

fn takes_nothing_away(plan: &ResourcePlan) -> Result<(), UserError> {
    if matches!(plan.action, Action::Create | Action::Update | Action::Unchanged) {
        return Ok(());
    }
    Err(UserError::new(
        ErrorKind::Policy,
        format!(
            "{} needs more than creations and updates: drift like this is not restored automatically",
            plan.id
        ),
    )
    .hint("to restore the drift, approve the digest in the drift issue of the stack"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{plan::FieldChange, spec::RuntimeKind};

    #[test]
    fn nothing_is_taken_away() {
        let plan = |action| {
            ResourcePlan::new(
                &"shop/dev".parse().unwrap(),
                "v1:ConfigMap:shop:web".parse().unwrap(),
                RuntimeKind::Kubernetes,
                action,
                vec![],
            )
        };
        for action in [Action::Create, Action::Update] {
            assert!(takes_nothing_away(&plan(action)).is_ok(), "{action:?}");
        }
        for action in [Action::Delete, Action::Replace, Action::Adopt, Action::Unknown] {
            assert!(takes_nothing_away(&plan(action)).is_err(), "{action:?}");
        }
    }

    #[test]
    fn a_new_version_of_a_secret_is_left_to_a_review_where_rotation_stops() {
        let plan = |origin| {
            let change = FieldChange {
                path: "/data/password".into(),
                from: None,
                to: None,
                origin,
            };
            let id = "v1:Secret:shop:pay".parse().unwrap();
            let stack = "shop/dev".parse().unwrap();
            ResourcePlan::new(&stack, id, RuntimeKind::Kubernetes, Action::Update, vec![change])
        };
        assert!(writes_no_rotation(&plan(ChangeOrigin::Drift)).is_ok());
        let refusal = writes_no_rotation(&plan(ChangeOrigin::Rotation)).unwrap_err();
        assert!(
            refusal.message.contains("`secrets.rotation` is `stop`"),
            "{refusal:?}"
        );
    }
}
