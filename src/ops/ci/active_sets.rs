//! The policy sets in force for a stack: evaluated when its plan is approved, and again when a value becomes
//! known during the apply.

use std::{collections::BTreeSet, sync::Arc};

use jiff::Timestamp;

use super::{active_policies::InForce, overrides::Overrides};
use crate::{
    error::{ErrorKind, UserError},
    model::{
        Digest,
        authorization::PolicyOverride,
        plan::ResourcePlan,
        plan_document::StackDocument,
        policy_finding::{Enforcement, PolicyFinding},
    },
    policy,
};

/// The policy sets that were in force when a stack was approved, with its plan document.
pub(super) struct ActiveSets {
    policies: Vec<Arc<InForce>>,
    document: StackDocument,
    overridden: Vec<PolicyOverride>,
}

impl ActiveSets {
    /// Evaluates the sets of these policies. The findings of each are overridden by the people whom that policy
    /// names.
    pub fn evaluate(
        policies: Vec<Arc<InForce>>,
        document: &StackDocument,
        overrides: &Overrides,
    ) -> (Self, BTreeSet<PolicyFinding>) {
        let mut all = BTreeSet::new();
        let mut overridden = BTreeSet::new();
        for policy in &policies {
            let mut findings = findings(std::slice::from_ref(policy), document);
            overridden.extend(overrides.excuse(&policy.sets, &mut findings));
            all.extend(findings);
        }
        let sets = Self {
            policies,
            document: document.clone(),
            overridden: overridden.into_iter().collect(),
        };
        (sets, all)
    }

    /// What was overridden when the plan was approved.
    pub fn overridden(&self) -> &[PolicyOverride] {
        &self.overridden
    }

    /// The error of the sets for a resource whose values are known now, before it is written. What was
    /// overridden stays so; a new finding is covered by no override, because the receipt does not have it.
    pub fn refusal(&mut self, plan: &ResourcePlan) -> Option<UserError> {
        if self.policies.iter().all(|policy| policy.sets.is_empty()) {
            return None;
        }
        policy::update_document(&mut self.document, plan);
        let overridden: BTreeSet<Digest> = self.overridden.iter().map(|one| one.finding).collect();
        let is_overridden = |finding: &PolicyFinding| {
            let place = finding.place.as_ref();
            place.is_some_and(|place| overridden.contains(&place.digest))
        };
        let denied: Vec<_> = findings(&self.policies, &self.document)
            .into_iter()
            .filter(|finding| finding.verdict == Enforcement::Deny && !is_overridden(finding))
            .collect();
        if denied.is_empty() {
            return None;
        }
        let said: Vec<_> = denied
            .iter()
            .map(|finding| format!("{}: {}", finding.rule, finding.message))
            .collect();
        Some(
            UserError::new(
                ErrorKind::Policy,
                format!(
                    "{} was stopped before {} was written, where a value became known:\n{}",
                    self.document.stack.id,
                    plan.id,
                    said.join("\n")
                ),
            )
            .hint("run it again: the value is then known from the start, and the plan shows the finding"),
        )
    }
}

/// The findings of the sets of several policies. An unchanged stack has none.
pub(super) fn findings(policies: &[Arc<InForce>], document: &StackDocument) -> Vec<PolicyFinding> {
    if !document.has_changes() {
        return Vec::new();
    }
    let now = Timestamp::now();
    let findings: BTreeSet<_> = policies
        .iter()
        .flat_map(|policy| policy.sets.findings(document, now))
        .collect();
    findings.into_iter().collect()
}
