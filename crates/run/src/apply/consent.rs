//! The approval of the changes that an apply is about to make. The decisions about a stack are returned as a value,
//! with the approval or with the refusal.

use std::collections::BTreeSet;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::Mutex;

use konverge_base::{
    error::UserError,
    model::{
        CommitId, Digest, StackId,
        authorization::{Authorization, PolicyOverride},
        plan::StackPlan,
        plan_document::StackDocument,
        policy_finding::PolicyFinding,
        review::ReviewUnit,
    },
};
use konverge_engine::{LatePlan, Review};
use konverge_policy::LastWrites;

/// Approves the plan of a stack before anything is changed.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Decides about a plan. A refusal stops the stack, so nothing of it is applied.
    async fn stack(&self, proposed: &ProposedPlan<'_>, past: &PriorState) -> Result<ApprovedPlan, Refusal>;
}

/// Approves changes of an approved stack that become known only during its apply.
#[async_trait]
pub trait LateApprover: Send {
    /// Approves a resource after its values became known.
    async fn resource(&mut self, late: LatePlan<'_>) -> Result<(), UserError>;

    /// Approves to create a recorded resource again that disappeared during the apply. The resource was reviewed when
    /// it was created first: an approver that knows this refuses only at `policy.drift: stop`, unless a person confirmed
    /// the apply. The others decide as about a new resource.
    async fn recreate(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        self.resource(late).await
    }
}

/// An approved plan, with the approver of its later changes.
pub struct ApprovedPlan {
    /// The review or the person that authorized the plan.
    pub authorization: Authorization,
    /// The findings and other decisions that the check of the plan made.
    pub decisions: Decisions,
    /// Decides about changes that become known later, during the apply of the stack.
    pub late: Box<dyn LateApprover>,
}

impl ApprovedPlan {
    /// Creates an approval that has no findings and names no approver.
    pub fn by(late: impl LateApprover + 'static) -> Self {
        Self {
            authorization: Authorization::default(),
            decisions: Decisions::default(),
            late: Box::new(late),
        }
    }
}

/// The refusal of a plan: the reason, and the decisions so far.
pub struct Refusal {
    /// The reason of the refusal.
    pub error: UserError,
    /// The findings and other decisions that the check of the plan made.
    pub decisions: Decisions,
}

impl From<UserError> for Refusal {
    fn from(error: UserError) -> Self {
        Self {
            error,
            decisions: Decisions::default(),
        }
    }
}

/// The findings and other decisions about the plans of one stack, or of all stacks of an apply.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decisions {
    /// The findings of the policies, the strictest first.
    pub findings: BTreeSet<PolicyFinding>,
    /// The approved digests that matched a plan or a finding.
    pub matched: BTreeSet<Digest>,
    /// The plans that were stopped because no review covers them.
    pub stopped: Vec<StoppedPlan>,
    /// The stacks that a policy or a freeze stopped.
    pub denied: BTreeSet<StackId>,
    /// The stacks for which a workflow before or after the apply failed.
    pub failed_workflows: BTreeSet<StackId>,
    /// The stacks whose approved plan writes a new version of a secret.
    pub rotated: BTreeSet<StackId>,
    /// The other stacks that must be applied before the rest of a plan can be applied.
    pub waits_for: BTreeSet<StackId>,
}

/// A plan that was stopped because no review covers it.
#[derive(Debug, Clone, PartialEq)]
pub struct StoppedPlan {
    /// The plan that was stopped.
    pub plan: StackPlan,
    /// The parts of the plan that no review covers.
    pub units: Vec<ReviewUnit>,
}

impl Decisions {
    /// Creates decisions that hold only these findings.
    pub fn of_findings(findings: impl IntoIterator<Item = PolicyFinding>) -> Self {
        Self {
            findings: findings.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Adds the decisions about another stack, or of another approver about the same stack.
    pub fn extend(&mut self, other: Self) {
        self.findings.extend(other.findings);
        self.matched.extend(other.matched);
        self.stopped.extend(other.stopped);
        self.denied.extend(other.denied);
        self.rotated.extend(other.rotated);
        self.waits_for.extend(other.waits_for);
        self.failed_workflows.extend(other.failed_workflows);
    }

    /// Converts the decisions into a refusal that stops the plan.
    pub fn refuse(self, error: UserError) -> Refusal {
        Refusal {
            error,
            decisions: self,
        }
    }

    /// Returns the findings, sorted by stack.
    pub fn findings_by_stack(&self) -> Vec<PolicyFinding> {
        let mut findings: Vec<_> = self.findings.iter().cloned().collect();
        findings.sort_by(|a, b| (&a.stack, a).cmp(&(&b.stack, b)));
        findings
    }
}

/// The plan of a stack that waits for approval.
#[derive(Clone, Copy)]
pub struct ProposedPlan<'a> {
    /// The plan with masked secrets.
    pub plan: &'a StackPlan,
    /// Builds the plan document (whole resources with true values) for policy sets. It copies all resources, so call it
    /// only if there is a policy set.
    pub document: &'a (dyn Fn() -> StackDocument + Send + Sync),
}

/// The recorded state of a stack, as far as an approver needs it.
#[derive(Default)]
pub struct PriorState {
    /// The pull requests whose reviews earlier applies have used.
    pub used: BTreeSet<u64>,
    /// True if the stack was never applied, or has no resources left.
    pub is_new: bool,
    /// The last applied commit, if it is recorded.
    pub commit: Option<CommitId>,
    /// The last commits that were applied, or whose apply failed.
    pub commits: Vec<CommitId>,
    /// The time of the last write to the state, by the clock of the machine that wrote the state. `None` without a
    /// state.
    pub written: Option<Timestamp>,
    /// The last written values. Secrets are keyed hashes.
    pub last_writes: LastWrites,
    /// The findings of policy sets that were overridden in the last apply.
    pub overridden: Vec<PolicyOverride>,
}

/// Approves the late changes of one stack for the engine. The engine asks about several resources at once; the lock
/// lets the approver decide about one after the other.
pub(super) struct LateReview(Mutex<Box<dyn LateApprover>>);

impl LateReview {
    pub(super) fn new(late: Box<dyn LateApprover>) -> Self {
        Self(Mutex::new(late))
    }

    pub(super) async fn recreate(&self, late: LatePlan<'_>) -> Result<(), UserError> {
        self.0.lock().await.recreate(late).await
    }
}

#[async_trait]
impl Review for LateReview {
    async fn check(&self, late: LatePlan<'_>) -> Result<(), UserError> {
        self.0.lock().await.resource(late).await
    }
}

/// Approves everything, because the user confirmed the apply on the command line.
pub struct AutoApprove;

#[async_trait]
impl Approver for AutoApprove {
    async fn stack(&self, _: &ProposedPlan<'_>, _: &PriorState) -> Result<ApprovedPlan, Refusal> {
        Ok(ApprovedPlan::by(Self))
    }
}

#[async_trait]
impl LateApprover for AutoApprove {
    async fn resource(&mut self, _: LatePlan<'_>) -> Result<(), UserError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(name: &str) -> BTreeSet<StackId> {
        [name.parse().unwrap()].into()
    }

    /// What one approver decided must not be lost because another one decided, too.
    #[test]
    fn decisions_of_two_approvers_are_both_kept() {
        let decisions = |name: &str, digest: &str| Decisions {
            findings: BTreeSet::new(),
            matched: [Digest::of_bytes(digest.as_bytes())].into(),
            stopped: vec![StoppedPlan {
                plan: StackPlan::failed(
                    konverge_base::model::RepoPath::root(),
                    name.parse().unwrap(),
                    konverge_base::model::plan::Basis::Live,
                    UserError::new(konverge_base::error::ErrorKind::Unreviewed, name).body(),
                ),
                units: Vec::new(),
            }],
            denied: ids(name),
            failed_workflows: ids(name),
            rotated: ids(name),
            waits_for: ids(name),
        };
        let (first, second) = (decisions("shop/dev", "a"), decisions("shop/prod", "b"));
        let mut both = first.clone();
        both.extend(second.clone());
        let union = |a: &BTreeSet<StackId>, b: &BTreeSet<StackId>| a | b;
        let expected = Decisions {
            findings: BTreeSet::new(),
            matched: &first.matched | &second.matched,
            stopped: [first.stopped, second.stopped].concat(),
            denied: union(&first.denied, &second.denied),
            failed_workflows: union(&first.failed_workflows, &second.failed_workflows),
            rotated: union(&first.rotated, &second.rotated),
            waits_for: union(&first.waits_for, &second.waits_for),
        };
        assert_eq!(both, expected);
        let mut nothing = Decisions::default();
        nothing.extend(expected.clone());
        assert_eq!(nothing, expected);
    }

    #[test]
    fn a_refusal_keeps_the_decisions_so_far() {
        let denied = Decisions {
            denied: ids("shop/prod"),
            ..Decisions::default()
        };
        let error = UserError::new(konverge_base::error::ErrorKind::Policy, "frozen");
        assert_eq!(denied.clone().refuse(error.clone()).decisions, denied);
        assert_eq!(Refusal::from(error).decisions, Decisions::default());
    }
}
