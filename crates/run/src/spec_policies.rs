//! Evaluates the policy sets of a revision on Specs alone, without a cluster: each resource counts as created.

use std::sync::Arc;

use crate::{OpenRevision, plan_documents, policy_set_loader, rule_evaluator::RuleEvaluator};
use konverge_base::model::{policy_finding::PolicyFinding, spec::Spec, stack::Stack};
use konverge_engine::ComparedSpecs;
use konverge_policy_sets::PolicySets;
use konverge_secrets::Secrets;

/// The policy sets of a revision, for Specs alone.
pub struct SpecPolicies<'a> {
    /// The policy sets to evaluate.
    pub sets: PolicySets,
    /// The evaluator of the sets.
    pub evaluator: RuleEvaluator,
    secrets: &'a Secrets,
}

impl<'a> SpecPolicies<'a> {
    /// Loads the sets.
    pub fn load(workspace: &OpenRevision, secrets: &'a Secrets) -> Self {
        Self {
            sets: policy_set_loader::load(&workspace.config, workspace.source.as_ref()),
            evaluator: RuleEvaluator::new(secrets),
            secrets,
        }
    }

    /// Returns the findings of the sets for a Spec whose resources are all created.
    pub async fn findings(&self, stack: &Stack, spec: &Spec) -> Vec<PolicyFinding> {
        let nothing = Spec::default();
        let specs = ComparedSpecs {
            base: &nothing,
            head: spec,
        };
        let document = plan_documents::of_specs(&stack.id, &stack.folder, specs, self.secrets);
        let document = Arc::new(document);
        self.evaluator
            .judge(std::slice::from_ref(&self.sets), &document)
            .await
    }
}
