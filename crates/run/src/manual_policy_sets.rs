//! Policy sets for a manual apply. The sets of the applied revision are evaluated, and a denial stops the stack.
//! Findings cannot be overridden here, because an override needs a second person: it is only possible on GitHub.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;

use crate::{
    apply::{Approver, PriorState, ProposedPlan},
    plan_documents::{DocumentVisitor, PlannedDocument},
    rule_evaluator::RuleEvaluator,
    stack_policy_sets::ActiveSets,
};
use konverge_base::{
    error::UserError,
    model::{StackId, authorization::Authorization, policy_finding::PolicyFinding},
    secrets::Secrets,
};
use konverge_engine::LatePlan;
use konverge_policy::sets::PolicySets;

/// Approves what another approver approves and no rule denies.
pub struct WithPolicySets {
    approver: Arc<dyn Approver>,
    sets: PolicySets,
    evaluator: RuleEvaluator,
    current: Mutex<BTreeMap<StackId, Arc<tokio::sync::Mutex<ActiveSets>>>>,
    found: Mutex<BTreeSet<PolicyFinding>>,
}

impl WithPolicySets {
    /// Adds the sets to an approver.
    pub fn new(approver: Arc<dyn Approver>, sets: PolicySets, secrets: &Secrets) -> Self {
        Self {
            approver,
            sets,
            evaluator: RuleEvaluator::new(secrets),
            current: Mutex::default(),
            found: Mutex::default(),
        }
    }

    /// What the sets found for the plans that were evaluated, by stack: also for those that they stopped.
    pub fn findings(&self) -> Vec<PolicyFinding> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let mut findings: Vec<_> = found.iter().cloned().collect();
        findings.sort_by(|a, b| (&a.stack, a).cmp(&(&b.stack, b)));
        findings
    }
}

#[async_trait]
impl Approver for WithPolicySets {
    async fn stack(
        &self,
        proposed: &ProposedPlan<'_>,
        past: &PriorState,
    ) -> Result<Authorization, UserError> {
        let authorization = self.approver.stack(proposed, past).await?;
        let versions = vec![self.sets.clone()];
        let sets =
            ActiveSets::evaluate(&self.evaluator, versions, proposed.document, |_, _| Vec::new()).await;
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.extend(sets.findings().iter().cloned());
        drop(found);
        if let Some(refusal) = sets.plan_refusal() {
            return Err(refusal);
        }
        let findings = sets.recorded();
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.insert(proposed.plan.id.clone(), Arc::new(tokio::sync::Mutex::new(sets)));
        Ok(Authorization {
            findings,
            ..authorization
        })
    }

    async fn resource(&self, stack: &StackId, late: LatePlan<'_>) -> Result<(), UserError> {
        self.approver.resource(stack, late).await?;
        self.judge(stack, late).await
    }

    async fn recreate(&self, stack: &StackId, late: LatePlan<'_>) -> Result<(), UserError> {
        self.approver.recreate(stack, late).await?;
        self.judge(stack, late).await
    }
}

impl WithPolicySets {
    /// Lets the sets of a stack judge a plan that became known during the apply.
    async fn judge(&self, stack: &StackId, late: LatePlan<'_>) -> Result<(), UserError> {
        let sets = {
            let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            current.get(stack).cloned()
        };
        match sets {
            Some(sets) => sets.lock().await.refusal(late).await.map_or(Ok(()), Err),
            None => Ok(()),
        }
    }
}

/// Collects the findings to show with the confirmation prompt.
pub struct PromptFindings {
    sets: PolicySets,
    evaluator: RuleEvaluator,
    found: Mutex<Vec<PolicyFinding>>,
}

impl PromptFindings {
    /// Nothing is found yet.
    pub fn new(sets: PolicySets, secrets: &Secrets) -> Self {
        Self {
            sets,
            evaluator: RuleEvaluator::new(secrets),
            found: Mutex::default(),
        }
    }

    /// The findings, by stack.
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
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        found.extend(findings);
    }
}
