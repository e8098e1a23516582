//! The approval of what an apply is about to do. The decisions about a stack travel as a value: with the approval, or
//! with the refusal.

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
    /// Decides about a plan. A refusal stops the stack.
    async fn stack(&self, proposed: &ProposedPlan<'_>, past: &PriorState) -> Result<ApprovedPlan, Refusal>;
}

/// Approves what becomes known of an approved stack only during its apply.
#[async_trait]
pub trait LateApprover: Send {
    /// Approves a resource whose values became known.
    async fn resource(&mut self, late: LatePlan<'_>) -> Result<(), UserError>;

    /// Approves that a recorded resource is created again, because it disappeared during the apply. It was reviewed when
    /// it was written first. `policy.drift: stop` refuses it, unless a person confirmed the apply.
    async fn recreate(&mut self, late: LatePlan<'_>) -> Result<(), UserError>;
}

/// An approved plan.
pub struct ApprovedPlan {
    /// Who authorized it.
    pub authorization: Authorization,
    /// What was found on the way.
    pub decisions: Decisions,
    /// Decides about what becomes known later, during the apply of the stack.
    pub late: Box<dyn LateApprover>,
}

impl ApprovedPlan {
    /// Creates an approval without findings that names nobody.
    pub fn by(late: impl LateApprover + 'static) -> Self {
        Self {
            authorization: Authorization::default(),
            decisions: Decisions::default(),
            late: Box::new(late),
        }
    }
}

/// A refused plan: the reason, with what was found.
pub struct Refusal {
    /// The reason.
    pub error: UserError,
    /// What was found on the way.
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
    /// The plans that were stopped as unreviewed.
    pub stopped: Vec<StoppedPlan>,
    /// The stacks that a policy or a freeze stopped.
    pub denied: BTreeSet<StackId>,
    /// The stacks with a workflow around their apply that failed.
    pub failed_workflows: BTreeSet<StackId>,
    /// The stacks whose approved plan writes a new version of a secret.
    pub rotated: BTreeSet<StackId>,
    /// The stacks that must be applied before the rest of a plan can be.
    pub waits_for: BTreeSet<StackId>,
}

/// A plan that was stopped as unreviewed.
#[derive(Debug, Clone, PartialEq)]
pub struct StoppedPlan {
    /// The plan that was stopped.
    pub plan: StackPlan,
    /// Its unreviewed parts.
    pub units: Vec<ReviewUnit>,
}

impl Decisions {
    /// Creates decisions with these findings only.
    pub fn of_findings(findings: impl IntoIterator<Item = PolicyFinding>) -> Self {
        Self {
            findings: findings.into_iter().collect(),
            ..Self::default()
        }
    }

    /// Adds what was decided about another stack, or by another approver about the same.
    pub fn extend(&mut self, other: Self) {
        self.findings.extend(other.findings);
        self.matched.extend(other.matched);
        self.stopped.extend(other.stopped);
        self.denied.extend(other.denied);
        self.rotated.extend(other.rotated);
        self.waits_for.extend(other.waits_for);
        self.failed_workflows.extend(other.failed_workflows);
    }

    /// The refusal that stops the plan.
    pub fn refuse(self, error: UserError) -> Refusal {
        Refusal {
            error,
            decisions: self,
        }
    }

    /// The findings, by stack.
    pub fn findings_by_stack(&self) -> Vec<PolicyFinding> {
        let mut findings: Vec<_> = self.findings.iter().cloned().collect();
        findings.sort_by(|a, b| (&a.stack, a).cmp(&(&b.stack, b)));
        findings
    }
}

/// The plan of a stack that is to be approved.
#[derive(Clone, Copy)]
pub struct ProposedPlan<'a> {
    /// The plan as it is shown.
    pub plan: &'a StackPlan,
    /// Builds the plan document (whole resources with true values) for policy sets. It copies all resources, so call it
    /// only if there is a policy set.
    pub document: &'a (dyn Fn() -> StackDocument + Send + Sync),
}

/// The recorded state of a stack, as far as an approver needs it.
#[derive(Default)]
pub struct PriorState {
    /// The pull requests whose reviews were used by earlier applies.
    pub used: BTreeSet<u64>,
    /// True if the stack was never applied, or has no resources left.
    pub is_new: bool,
    /// The last applied commit, if it is recorded.
    pub commit: Option<CommitId>,
    /// The last commits that were applied or attempted.
    pub commits: Vec<CommitId>,
    /// The time of the last write to the state, by the clock of the machine that wrote it. `None` if there is no state.
    pub written: Option<Timestamp>,
    /// The last written values, with secrets as keyed hashes.
    pub last_writes: LastWrites,
    /// The findings of policy sets that were overridden in the last apply.
    pub overridden: Vec<PolicyOverride>,
}

/// Answers the engine's questions during the apply of a stack. The engine asks about several resources at once; they
/// are approved one after the other.
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

/// Approves everything: the user confirmed on the command line.
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

    async fn recreate(&mut self, _: LatePlan<'_>) -> Result<(), UserError> {
        Ok(())
    }
}
