//! The review gate decides whether a plan may be applied or drift may be restored: by reviews, approved digests, and
//! policies.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use crate::policy::{
    plan_approvals::{CoveredCommits, PlanApprovals},
    policy_check::PolicyCheck,
    policy_refusal,
    unreviewed::{another_difference, describe_all, naming, no_difference, refusal},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        CommitId, Digest, StackId,
        authorization::Authorization,
        plan::StackPlan,
        review::{ReviewRecord, ReviewUnit, stack_units},
    },
};
use konverge_config::DriftPolicy;
use konverge_engine::LatePlan;
use konverge_policy::{Objection, ReviewedUnits, Unreviewed};
use konverge_run::{
    apply::{
        ApprovedPlan, Approver, Decisions, LateApprover, PriorState, ProposedPlan, Refusal, StoppedPlan,
    },
    drift,
    stack_policy_sets::ActiveSets,
};

/// Approves plans that reviewers saw before the merge, or whose digest somebody approved.
pub(crate) struct ReviewGate {
    policy_check: PolicyCheck,
    records: Vec<ReviewRecord>,
    approvals: BTreeSet<Digest>,
    /// The drift of each stack, if the plans restore drift.
    restores: Option<BTreeMap<StackId, ApprovedDrift>>,
}

/// The drift of a stack with which approved digests are compared.
pub(crate) struct ApprovedDrift {
    /// The difference that a drift check finds now, or why the stack could not be compared. The digest is never computed
    /// from the plan of the apply, because that plan has the values of secrets, which a drift check does not have.
    pub difference: Result<StackPlan, UserError>,
    /// The commit before the applied one, if it is recorded. So contributors of the applied commit cannot approve its
    /// restoration.
    pub before: Option<CommitId>,
}

impl ReviewGate {
    /// Creates a gate that approves by review records of merged pull requests, or by given digests.
    pub(crate) fn new(
        policy_check: PolicyCheck,
        records: Vec<ReviewRecord>,
        approvals: BTreeSet<Digest>,
    ) -> Self {
        Self {
            policy_check,
            records,
            approvals,
            restores: None,
        }
    }

    /// Makes the gate restore the last apply: digests are those of drift, and nothing else is restored.
    #[must_use]
    pub(crate) fn for_restoring(self, drift: BTreeMap<StackId, ApprovedDrift>) -> Self {
        Self {
            restores: Some(drift),
            ..self
        }
    }

    /// Returns the digests that somebody approved.
    fn given(&self, digests: impl IntoIterator<Item = Digest>) -> impl Iterator<Item = Digest> {
        let digests = digests.into_iter();
        digests.filter(|digest| self.approvals.contains(digest))
    }

    /// Returns true if somebody approved this digest.
    pub(crate) fn is_given(&self, digest: &Digest) -> bool {
        self.approvals.contains(digest)
    }

    /// Returns the pull requests whose review records count.
    pub(crate) fn pull_requests(&self) -> BTreeSet<u64> {
        self.records.iter().map(|record| record.pull_request).collect()
    }
}

/// Approves late changes of an approved stack during its apply: values that become known, and objects that disappear.
struct ApprovedStack {
    stack: StackId,
    reviewed: ReviewedUnits,
    drift: DriftPolicy,
    restores: bool,
    /// The policy sets that were in force when the plan was approved.
    sets: ActiveSets,
}

impl ApprovedStack {
    /// Returns an error if there are objections. `why` explains why the approved plan did not show them.
    fn check(&self, why: &str, objections: &[Unreviewed]) -> Result<(), UserError> {
        if objections.is_empty() {
            return Ok(());
        }
        let next = if self.restores {
            "The drift issue shows the rest with a digest to approve"
        } else {
            "Run the job again: it then shows the remaining plan with a digest to approve"
        };
        let what = format!("{} {why}. Completed changes are recorded. {next}", self.stack);
        Err(refusal(&what, &describe_all(objections, self.restores)))
    }
}

#[async_trait]
impl LateApprover for ApprovedStack {
    async fn resource(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        let why = "was stopped because a value that became known needs a review";
        let objections = self
            .reviewed
            .resource_objections(&self.stack, late.shown, self.drift);
        self.check(why, &objections)?;
        self.sets.check(late).await
    }

    async fn recreate(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        let why = "was stopped because a resource disappeared during the apply";
        let objections = ReviewedUnits::recreation_objections(&self.stack, late.shown, self.drift);
        self.check(why, &objections)?;
        self.sets.check(late).await
    }
}

#[async_trait]
impl Approver for ReviewGate {
    async fn stack(&self, proposed: &ProposedPlan<'_>, past: &PriorState) -> Result<ApprovedPlan, Refusal> {
        let Some(drift) = &self.restores else {
            let covered = CoveredCommits {
                since: past.commit.as_ref(),
                until: None,
            };
            return self.authorize(proposed, proposed.plan, past, covered).await;
        };
        if proposed.plan.summary.changed() == 0 {
            // No plan was approved for a stack without drift, so every late change of it is refused.
            return Ok(ApprovedPlan::by(NothingToRestore));
        }
        let Some(drift) = drift.get(&proposed.plan.id) else {
            return Err(no_difference(&proposed.plan.id).into());
        };
        let found = drift.difference.as_ref().map_err(Clone::clone)?;
        // The digest is that of the drift, because people saw it in the issue. The plan has another digest.
        let digest = drift::digest(found, past.commit.as_ref());
        if !self.approvals.contains(&digest) {
            return Err(another_difference(found, digest).into());
        }
        // From here on the plan has the digest of the drift, because people know that digest from the issue and from
        // hints.
        let plan = StackPlan {
            digest,
            ..proposed.plan.clone()
        };
        let proposed = ProposedPlan {
            plan: &plan,
            document: proposed.document,
        };
        let covered = CoveredCommits {
            since: drift.before.as_ref(),
            until: past.commit.as_ref(),
        };
        let mut approval = self.authorize(&proposed, found, past, covered).await?;
        approval.authorization.reconciled = true;
        Ok(approval)
    }
}

impl ReviewGate {
    /// Checks a plan against the reviews, the given digests and the policies. `shown` is the plan for which a digest
    /// was given, and `covered` has the commits that the digest covers.
    async fn authorize(
        &self,
        proposed: &ProposedPlan<'_>,
        shown: &StackPlan,
        past: &PriorState,
        covered: CoveredCommits<'_>,
    ) -> Result<ApprovedPlan, Refusal> {
        // Collect the reviews. A review record that an earlier apply of the stack used does not count again.
        let plan = proposed.plan;
        let records: Vec<_> = self
            .records
            .iter()
            .filter(|record| !past.used.contains(&record.pull_request))
            .collect();
        let mut reviewed = if past.is_new {
            ReviewedUnits::from_unrecorded(&plan.id, records.iter().copied())
        } else {
            ReviewedUnits::from_records(&plan.id, records.iter().copied())
        }
        .with_last_writes(past.last_writes.clone())
        .with_filled(plan.filled.clone());
        if self.policy_check.follows_rotation() {
            reviewed = reviewed.following_rotation();
        }
        // Overrides of an earlier apply count only if that apply is restored.
        let approvals = PlanApprovals {
            earlier: match &self.restores {
                None => &[],
                Some(_) => &past.overridden,
            },
            ..PlanApprovals::new(&plan.id, records, &self.approvals, covered)
        };
        // A given digest approves the whole plan, like a review of all its parts.
        let mut decisions = Decisions::default();
        if approvals.agreed(plan).is_some() {
            reviewed = reviewed.with_agreed(shown);
            decisions.matched.insert(plan.digest);
        }
        let drift_policy = match &self.restores {
            None => match self.policy_check.drift(plan, &approvals).await {
                Ok(drift) => drift,
                Err(error) => return Err(decisions.refuse(error)),
            },
            // Only the approved drift is restored, so any other difference stops the stack.
            Some(_) => DriftPolicy::Stop,
        };
        // Find the changes that nobody reviewed. Such a plan is refused whatever the policies say, so no people are
        // looked up for it.
        let objections = match &self.restores {
            None => reviewed.objections(plan, drift_policy),
            // The plan also has values that the server sets. A drift check leaves these out, and so does its digest.
            Some(_) => {
                let now = drift::difference(plan);
                let mut objections = reviewed.objections(&now, drift_policy);
                objections.extend(changed_since(shown, &now));
                objections
            }
        };
        if !objections.is_empty() {
            let error = self.unreviewed(plan, &objections);
            decisions.stopped.push(StoppedPlan {
                plan: plan.clone(),
                units: objections.into_iter().map(|objection| objection.unit).collect(),
            });
            return Err(decisions.refuse(error));
        }
        let found = self.policy_check.findings_with_sets(proposed, &approvals).await;
        let (findings, sets) = match found {
            Ok(found) => found,
            Err(error) => return Err(decisions.refuse(error)),
        };
        // A given digest may also be that of a finding. Then it must not be reported as unmatched.
        let found = findings.iter().filter_map(|finding| finding.place.as_ref());
        decisions
            .matched
            .extend(self.given(found.map(|of_set| of_set.digest)));
        let refusal = policy_refusal::refusal(plan, &findings);
        decisions.findings.extend(findings);
        if let Some(refusal) = refusal {
            return Err(decisions.refuse(naming(refusal, &approvals.pulls)));
        }
        Ok(ApprovedPlan {
            authorization: Authorization {
                overrides: sets.overridden().to_vec(),
                findings: sets.recorded(),
                ..self.policy_check.authorization(plan, &approvals).await
            },
            decisions,
            late: Box::new(ApprovedStack {
                stack: plan.id.clone(),
                reviewed,
                drift: drift_policy,
                restores: self.restores.is_some(),
                sets,
            }),
        })
    }

    /// Returns the error for a plan with unreviewed parts.
    fn unreviewed(&self, plan: &StackPlan, objections: &[Unreviewed]) -> UserError {
        let what = format!("{} was stopped before anything was changed", plan.id);
        let refused = refusal(&what, &describe_all(objections, self.restores.is_some()));
        if self.restores.is_some() {
            return refused
                .hint("start the drift check again: its issue shows what differs now, with a digest to approve")
                .hint("if only the value of a secret changed, and its store has no versions: apply the stack, because a restore does not write such a value");
        }
        refused
            .hint("open a pull request whose preview shows these changes, or revert the commit that brought them")
            .hint(format!(
                "to approve exactly this plan, start the workflow manually with `approve: {}`",
                plan.digest
            ))
    }
}

/// Returns the parts of the drift whose live value differs from the approved drift, because somebody changed it after
/// the check, perhaps while the apply waited for the lease.
fn changed_since(approved: &StackPlan, now: &StackPlan) -> Vec<Unreviewed> {
    let key = |unit: &ReviewUnit| (unit.resource.clone(), unit.path.clone());
    let approved = stack_units(approved).into_iter();
    let found: BTreeMap<_, _> = approved.map(|unit| (key(&unit), unit.from)).collect();
    let is_other = |unit: &ReviewUnit| found.get(&key(unit)).is_some_and(|from| *from != unit.from);
    let others = stack_units(now).into_iter().filter(is_other);
    let objected = others.map(|unit| Unreviewed {
        unit,
        objection: Objection::Drifted,
    });
    objected.collect()
}

/// The error for a stack that does not differ from its last apply. No approved plan exists for it, so nothing is
/// applied.
struct NothingToRestore;

#[async_trait]
impl LateApprover for NothingToRestore {
    async fn resource(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        Err(UserError::new(
            ErrorKind::Unreviewed,
            format!(
                "no plan with {} was approved, so it is not applied",
                late.shown.id
            ),
        )
        .hint("run the job again: the whole stack is planned before anything is applied"))
    }
}

#[cfg(test)]
#[path = "review_gate_tests.rs"]
mod tests;
