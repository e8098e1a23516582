//! Policy sets for an apply by hand. The sets of the applied revision are evaluated, and a denial stops the stack. A
//! finding cannot be overridden here, because an override needs a second person and is only possible on GitHub.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use crate::{
    apply::{ApprovedPlan, Approver, Decisions, LateApprover, PriorState, ProposedPlan, Refusal},
    plan_documents::{DocumentVisitor, PlannedDocument},
    rule_evaluator::RuleEvaluator,
    stack_policy_sets::ActiveSets,
};
use konverge_base::{
    error::UserError,
    model::{authorization::Authorization, policy_finding::PolicyFinding},
    sync::lock,
};
use konverge_engine::LatePlan;
use konverge_policy_sets::PolicySets;
use konverge_secrets::Secrets;

/// Approves a plan that another approver approves and that no rule denies.
pub struct WithPolicySets {
    approver: Arc<dyn Approver>,
    sets: PolicySets,
    evaluator: RuleEvaluator,
}

impl WithPolicySets {
    /// Adds policy sets to an approver.
    pub fn new(approver: Arc<dyn Approver>, sets: PolicySets, secrets: &Secrets) -> Self {
        Self {
            approver,
            sets,
            evaluator: RuleEvaluator::new(secrets),
        }
    }
}

#[async_trait]
impl Approver for WithPolicySets {
    async fn stack(&self, proposed: &ProposedPlan<'_>, past: &PriorState) -> Result<ApprovedPlan, Refusal> {
        let ApprovedPlan {
            authorization,
            mut decisions,
            late,
        } = self.approver.stack(proposed, past).await?;
        let versions = vec![self.sets.clone()];
        let sets =
            ActiveSets::evaluate(&self.evaluator, versions, proposed.document, |_, _| Vec::new()).await;
        decisions.extend(Decisions::of_findings(sets.findings().iter().cloned()));
        if let Some(error) = sets.plan_refusal() {
            return Err(decisions.refuse(error));
        }
        Ok(ApprovedPlan {
            authorization: Authorization {
                findings: sets.recorded(),
                ..authorization
            },
            decisions,
            late: Box::new(LateWithSets { late, sets }),
        })
    }
}

/// The late approver of a stack, with the policy sets that were in force when the stack was approved.
struct LateWithSets {
    late: Box<dyn LateApprover>,
    sets: ActiveSets,
}

#[async_trait]
impl LateApprover for LateWithSets {
    async fn resource(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        self.late.resource(late).await?;
        self.sets.check(late).await
    }

    async fn recreate(&mut self, late: LatePlan<'_>) -> Result<(), UserError> {
        self.late.recreate(late).await?;
        self.sets.check(late).await
    }
}

/// Collects the findings that the confirmation prompt shows.
pub struct PromptFindings {
    sets: PolicySets,
    evaluator: RuleEvaluator,
    found: Mutex<Vec<PolicyFinding>>,
}

impl PromptFindings {
    /// Creates a collection without findings.
    pub fn new(sets: PolicySets, secrets: &Secrets) -> Self {
        Self {
            sets,
            evaluator: RuleEvaluator::new(secrets),
            found: Mutex::default(),
        }
    }

    /// Returns the findings, sorted by stack.
    pub fn into_findings(self) -> Vec<PolicyFinding> {
        let mut found = self.found.into_inner().unwrap_or_else(PoisonError::into_inner);
        found.sort_by(|a, b| (&a.stack, a).cmp(&(&b.stack, b)));
        found
    }
}

#[async_trait]
impl DocumentVisitor for PromptFindings {
    async fn visit(&self, planned: PlannedDocument<'_>) {
        let sets = std::slice::from_ref(&self.sets);
        let document = Arc::new(planned.for_rules());
        let findings = self.evaluator.findings(sets, &document).await;
        let mut found = lock(&self.found);
        found.extend(findings);
    }
}
